"""What every process needs first: configuration, keys, logs, systemd."""
