"""Pure readers of workload, workflow and platform files."""
