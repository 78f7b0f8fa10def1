"""`bicriteria`: a search for the front of makespan and weighted completion."""
