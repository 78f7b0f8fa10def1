"""Lower bounds: how far any plan is from what cannot be beaten."""

from coalloc.policies.bounds.lower import Bound, lower_bound

__all__ = ["Bound", "lower_bound"]
