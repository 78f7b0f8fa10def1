"""Whose jobs go first, and how many run: priorities, limits, guarantees, accounts."""
