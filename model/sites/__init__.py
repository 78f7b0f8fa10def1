"""Batch systems as we know them: their rules and readings, what they are told, parts of jobs."""
