"""Everything that touches a batch system."""
