"""Lower bounds: how far any plan is from what cannot be beaten."""

from coalloc.policies.bounds.lower import Bound, lower_bound
from coalloc.policies.bounds.plans import Proof, proofs_of

__all__ = ["Bound", "Proof", "lower_bound", "proofs_of"]
