"""Count primes on the clusters: one function, many ranges, one job for four of them.

python examples/primes.py 200000
"""

from __future__ import annotations

import sys

from coalloc import Executor


def primes_between(low: int, high: int) -> int:
    """Number of primes from `low` up to, and without, `high`."""
    return sum(
        number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))
        for number in range(low, high)
    )


def main(limit: int) -> int:
    """Print the number of primes below a limit."""
    step = max(1, limit // 16)
    lows = range(0, limit, step)
    highs = [min(low + step, limit) for low in lows]
    with Executor(base_time=10.0) as executor:
        found = sum(executor.map(primes_between, lows, highs, chunksize=4))
    print(f"{found} primes below {limit}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int((sys.argv[1:] or ["200000"])[0])))
