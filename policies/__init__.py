"""Pure functions from a snapshot to a plan, the kernel and the checker."""
