"""docs/GUARANTEES.md and docs/operations/recovery.md speak of what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from coalloc.cli.main import MODULES

ROOT = Path(__file__).resolve().parents[2]
PROMISES = (ROOT / "docs/GUARANTEES.md").read_text(encoding="utf-8")
RECOVERY = (ROOT / "docs/operations/recovery.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PROMISES)


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_the_test_behind_a_promise_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_scope_and_a_test() -> None:
    rows = [
        row.strip("|").split(" | ")
        for row in PROMISES.splitlines()
        if row.startswith("| ") and not row.startswith("| Promise ")
    ]
    assert len(rows) > 15
    for row in rows:
        assert len(row) == 3, row
        assert row[1].strip(), row
        assert "::test_" in row[2], row


def test_log_lines_that_an_operator_is_told_of_are_written() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("core", "daemon", "executor", "cli", "model")
        for path in (ROOT / folder).rglob("*.py")
    )
    named = set(re.findall(r"(?:^ {4}|`)([a-z]+(?:_[a-z]+)+)(?= [a-z_]+=|`)", RECOVERY, re.M))
    reasons = {"started_after_backup"}
    assert named > reasons
    for word in named:
        assert f'"{word}"' in source, word


def test_commands_that_an_operator_is_told_of_exist() -> None:
    commands = set(re.findall(r"coalloc ([a-z-]+)\b", RECOVERY)) - {"resume"}
    assert commands <= set(MODULES), commands - set(MODULES)
