"""Answers of Slurm's commands as records: pure functions from text."""
