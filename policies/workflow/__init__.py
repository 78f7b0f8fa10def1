"""Workflows planned as a whole: the published heuristics, and what they stand on."""
