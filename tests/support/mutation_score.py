"""The share of planted defects that the tests find: what ``make mutation`` prints at its end.

It reads the lines of ``mutmut results --all true``, each a mutant and what became of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

LEAST = 0.9
FOUND = ("killed", "timeout", "segfault")
LEFT_OUT = ("not checked", "skipped")


def tally(lines: Iterable[str]) -> dict[str, Counter[str]]:
    """Of each module, how many mutants met which end.

    Raises
    ------
    ValueError
        A line is not ``module.function__mutmut_number: end``.
    """
    ends: dict[str, Counter[str]] = {}
    for line in filter(None, map(str.strip, lines)):
        name, mark, end = line.partition(": ")
        module = name.rpartition(".")[0]
        if not mark or "__mutmut_" not in name or not module:
            raise ValueError(f"{line!r} names no mutant")
        ends.setdefault(module, Counter())[end] += 1
    return ends


def score(ends: Counter[str]) -> tuple[int, int]:
    """How many mutants were found, and how many were tried."""
    tried = sum(count for end, count in ends.items() if end not in LEFT_OUT)
    return sum(ends[end] for end in FOUND), tried


def main() -> int:
    """Print a line for each module; 1 if too few mutants were found in all."""
    ends = tally(sys.stdin)
    whole = sum(ends.values(), Counter[str]())
    for name, counts in [*sorted(ends.items()), ("all", whole)]:
        found, tried = score(counts)
        share = f"{found / tried:.1%}" if tried else "none tried"
        print(f"{name:44}{found:6} of{tried:6} {share:>10}")
    found, tried = score(whole)
    return int(not tried or found / tried < LEAST)


if __name__ == "__main__":
    sys.exit(main())
