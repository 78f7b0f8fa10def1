"""The client library: `coalloc.Client`."""
