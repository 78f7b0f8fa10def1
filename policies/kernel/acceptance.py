"""Acceptance rule and cooling schedule of simulated annealing; compiled."""

from __future__ import annotations

from math import log
from typing import NamedTuple

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.record import record
from coalloc.policies.kernel.xorshift import State, draw


@record
class Cooling(NamedTuple):
    """Length and temperatures of an annealing, in units of the objective."""

    trials: int
    hot: float  # at the begin
    cold: float  # at the end


@helper(inline=True)
def acceptable(current: float, heat: float, random: State) -> float:
    """The largest value that annealing goes on from: Metropolis' rule, its number drawn before."""
    return current - heat * log(max(draw(random), 1e-300))


@helper(inline=True)
def accepts(cooling: Cooling, trial: int, current: float, value: float, random: State) -> bool:
    """Whether annealing goes on from a new value."""
    heat = cooling.hot * (cooling.cold / cooling.hot) ** (trial / cooling.trials)
    return value <= acceptable(current, heat, random)
