"""Bytes as a stranger sends them, before everything that reads any.

``python -m tests.fuzz --help``. A target is a function from bytes; all it may do is return, or
raise the error that its documentation names. `guided` looks for inputs that reach new code,
`blind` changes the examples at random, and `live` attacks the sockets of a real daemon.
"""
