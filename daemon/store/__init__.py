"""The durable store: SQLite, its writer, backup and restore."""
