"""The executor of one cluster: `coalloc-executor`."""
