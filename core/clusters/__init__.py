"""Clusters: who speaks for each, what it reads, and its own users' jobs."""
