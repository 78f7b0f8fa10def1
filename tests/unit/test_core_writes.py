"""The state of the core changes by its events alone, whoever holds it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def core_writes(source: str) -> Iterator[str]:
    """Yield what a source assigns to, or asks of, the state of a core by-passing its events."""
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func] if node.func.attr == "want" else []
        yield from (text for text in map(ast.unparse, targets) if "core.state." in text)


def test_state_of_the_core_changes_by_events_alone() -> None:
    shells = [*ROOT.glob("daemon/**/*.py"), *ROOT.glob("executor/**/*.py")]
    shells += [*ROOT.glob("tests/simulation/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    found = {str(path): list(core_writes(path.read_text(encoding="utf-8"))) for path in shells}
    assert {path: writes for path, writes in found.items() if writes} == {}


@pytest.mark.parametrize(
    "line",
    [
        "self.core.state.rounds.blocked = True",
        "core.state.tokens['ann', 'x'] = '1'",
        "self._core.state.last_job += 1",
        "self.core.state.rounds.want('operator')",
    ],
)
def test_a_write_into_the_core_is_seen(line: str) -> None:
    assert list(core_writes(line))
