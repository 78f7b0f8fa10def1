"""Runs a part beside its processes. Standard library only."""
