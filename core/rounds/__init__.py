"""Rounds: from the state to a snapshot, and from a plan to what starts."""
