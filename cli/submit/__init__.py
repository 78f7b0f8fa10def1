"""``coalloc submit`` and ``submit-workflow``."""
