"""Replays of job logs."""
