"""Rounds: making, solving and checking them."""
