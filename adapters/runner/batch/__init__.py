"""Beside a part on a batch system: its claim, the barrier of its nodes, its end."""
