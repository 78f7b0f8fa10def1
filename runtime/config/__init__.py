"""The configuration: its schema, its file, its checks."""
