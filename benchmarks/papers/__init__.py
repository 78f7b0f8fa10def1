"""Experiments of the papers behind the policies: ``coalloc reproduce`` in a checkout."""
