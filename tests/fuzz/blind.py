"""Examples changed at random, without a look at the code they reach."""

from __future__ import annotations

import base64
import sys
from collections import Counter

from tests.fuzz.mutation import Mutator
from tests.fuzz.target import LONGEST_BYTES
from tests.fuzz.targets import TARGETS

FLAT_MB = 64.0
"""What a target may keep over a run, beyond what it kept after a tenth of it."""


class FoundError(AssertionError):
    """An input with an outcome that is not allowed; the message says how to repeat it."""


def repeat_with(name: str, content: bytes) -> str:
    """The command that hands in one input again."""
    return f"python -m tests.fuzz --target {name} --input {base64.b64encode(content).decode()}"


def run(name: str, inputs: int, seed: int) -> Counter[bool]:
    """Hand changed examples to a target; returns how many it has taken and refused.

    Raises
    ------
    FoundError
    """
    target = TARGETS[name]
    seeds = target.seeds()
    mutator = Mutator(seeds, target.words, seed=seed, longest=LONGEST_BYTES)
    counts: Counter[bool] = Counter()
    after_a_tenth = 0.0
    for number in range(len(seeds) + inputs):
        content = seeds[number] if number < len(seeds) else mutator.fresh()
        try:
            counts[target.probe(content)] += 1
        except Exception as error:
            again = repeat_with(name, content)
            raise FoundError(f"{name}: {type(error).__name__}: {error}\n{again}") from error
        if number == inputs // 10:
            after_a_tenth = resident_mb()
    grown = resident_mb() - after_a_tenth
    if inputs >= 1000 and grown > FLAT_MB:
        raise FoundError(f"{name}: {inputs} inputs have left {grown:.0f} MB behind")
    return counts


def resident_mb(pid: int | str = "self") -> float:
    """What a process has in memory now."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE_MB


_PAGE_MB = 4096 / 2**20

assert sys.platform == "linux", "reads /proc"
