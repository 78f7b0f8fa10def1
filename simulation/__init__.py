"""The same cores in virtual time, and the papers' experiments."""
