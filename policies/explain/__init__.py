"""Explanation of a job's waiting: what binds it, and one change that is solved and helps."""
