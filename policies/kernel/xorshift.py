"""Random numbers in compiled code: xorshift64*.

References
----------
S. Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", ACM Trans.
Math. Softw. 42(4), 2016: all 2**64 - 1 states follow each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.jit import helper

State = NDArray[np.uint64]


def seeded(seed: int) -> State:
    """The state of a generator: one number, other than 0."""
    return np.array([seed * 2654435769 % (1 << 63) + 88172645463325252], dtype=np.uint64)


@helper(inline=True)
def draw(random: State) -> float:
    """A number in [0, 1)."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@helper(inline=True)
def pick(random: State, n: int) -> int:
    """A whole number in [0, n)."""
    return min(int(draw(random) * n), n - 1)
