"""A site replayed from its own accounts: what was, and what would have been."""
