"""``coalloc dashboard``: a read-only web page and REST interface; a client of the daemon."""
