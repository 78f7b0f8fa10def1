"""Needed by every process first: configuration, keys, logs, systemd."""
