"""`auto`, the one default."""
