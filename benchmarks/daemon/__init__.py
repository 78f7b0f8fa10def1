"""The running daemon, its store and its records."""
