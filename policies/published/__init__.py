"""Policies of the literature, to compare with; those that our own searches build on stay there."""
