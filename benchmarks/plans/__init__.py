"""Quality and time of plans, by policy."""
