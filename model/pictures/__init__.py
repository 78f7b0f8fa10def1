"""Pictures and texts of plans."""
