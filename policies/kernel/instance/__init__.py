"""Arrays made of a snapshot, plans made of schedules, nodes counted by class."""
