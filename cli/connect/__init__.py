"""A user's own clusters, by nothing but a login there."""
