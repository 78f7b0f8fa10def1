"""``coalloc doctor``: findings about a set-up, each with what to do."""
