"""Each target holds for some inputs, and what looks for defects finds those that are planted."""

from __future__ import annotations

import base64
import subprocess
import sys
import time

import pytest

from tests.fuzz import blind, guided
from tests.fuzz import target as target_module
from tests.fuzz.blind import FoundError
from tests.fuzz.mutation import Mutator
from tests.fuzz.target import LARGE_MB, Target, UnboundedError
from tests.fuzz.targets import TARGETS

INPUTS = {"barrier": 60, "core": 150}
"""In a quick run; others: many more."""


@pytest.mark.parametrize("name", TARGETS)
def test_changed_examples_are_read_or_refused(name: str) -> None:
    counts = blind.run(name, INPUTS.get(name, 400), seed=20)
    assert counts[True] > 0, "not one was good: the examples are no examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_changed_examples_are_read_or_refused(name: str) -> None:
    blind.run(name, 20 * INPUTS.get(name, 400), seed=21)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frame", "command", "core", "dot", "nodes", "slurm", "snapshot"])
def test_inputs_that_reach_new_code(name: str) -> None:
    if not guided.is_available():
        pytest.skip(guided.NO_ATHERIS)
    assert "cov:" in guided.explore(name, 2000, seed=22)


def planted(content: bytes) -> None:
    """A reader with a defect behind two conditions."""
    if content.startswith(b"{") and b"[[" in content:
        raise KeyError("planted")


def target(run: object, **fields: object) -> Target:
    return Target(run=run, allowed=(ValueError,), seeds=lambda: [b'{"a": [1]}'], **fields)  # type: ignore[arg-type]


def test_a_planted_defect_is_found_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TARGETS, "planted", target(planted))
    with pytest.raises(FoundError, match="KeyError") as caught:
        blind.run("planted", 2000, seed=1)
    shown = str(caught.value).split()[-1]
    with pytest.raises(KeyError, match="planted"):
        planted(base64.b64decode(shown))


def test_an_error_of_two_lines_is_a_defect() -> None:
    def run(content: bytes) -> None:
        raise ValueError("one\ntwo")

    with pytest.raises(AssertionError, match="not one line"):
        target(run).probe(b"")


def test_an_input_that_takes_too_long_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "SLOW_S", 0.05)

    def run(content: bytes) -> None:
        end = time.process_time() + 0.06
        while time.process_time() < end:
            pass

    with pytest.raises(UnboundedError, match=r"took 0\.1"):
        target(run).probe(b"")


def test_an_input_that_takes_too_much_memory_is_a_defect() -> None:
    """In a process of its own: what counts is the most that there ever was."""
    code = (
        "from tests.fuzz.target import Target\n"
        f"t = Target(run=lambda c: b'x' * ({int(2 * LARGE_MB)} << 20), allowed=(), seeds=list)\n"
        "t.probe(b'')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "UnboundedError: 0 bytes took" in done.stderr


def test_the_same_seed_changes_the_same_way() -> None:
    seeds = TARGETS["command"].seeds()
    one, two, other = (Mutator(seeds, seed=seed) for seed in (3, 3, 4))
    first = [one.fresh() for _ in range(200)]
    assert first == [two.fresh() for _ in range(200)]
    assert first != [other.fresh() for _ in range(200)]
