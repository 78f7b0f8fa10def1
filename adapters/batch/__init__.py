"""Machinery that the adapters of batch systems share."""
