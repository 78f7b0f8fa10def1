"""The tests of coalloc."""
