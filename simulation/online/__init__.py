"""The bench for on-line quality: how long users wait under each policy, on pieces of real logs."""
