"""Machines without a batch system."""
