"""What every policy, adapter and message has to keep."""
