"""Starts: from a decision to running processes, through the clusters' own queues too."""
