"""Random numbers in kernels, and when what is worse is accepted: compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import helper


class Cooling(NamedTuple):
    """How long and how hot an annealing is; temperatures are in units of what is minimised."""

    trials: int
    hot: float  # at the begin
    cold: float  # at the end


@helper(inline=True)
def draw(state: Any) -> Any:
    """A number in 0..1 by xorshift; `state` holds one int64 other than 0."""
    x = state[0]
    x ^= (x << 13) & 0x7FFFFFFFFFFFFFFF
    x ^= x >> 7
    x ^= (x << 17) & 0x7FFFFFFFFFFFFFFF
    state[0] = x
    return (x >> 11) / float(1 << 52)


@helper(inline=True)
def accepts(cooling: Any, trial: Any, current: Any, value: Any, state: Any) -> Any:
    """Whether annealing goes on from a new value."""
    heat = cooling.hot * (cooling.cold / cooling.hot) ** (trial / cooling.trials)
    return value <= current - heat * np.log(max(draw(state), 1e-300))
