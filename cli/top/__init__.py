"""``coalloc top``: the queue and the clusters in a terminal."""
