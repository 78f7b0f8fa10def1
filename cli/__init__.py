"""The command `coalloc`: a file for each command."""
