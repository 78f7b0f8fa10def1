"""The futures of `coalloc.Executor`: functions and commands as jobs."""
