"""The service, the executor, the store, the client and the command line."""
