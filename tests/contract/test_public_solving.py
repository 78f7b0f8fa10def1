"""The names of `coalloc` that plan and judge without a daemon, as the documents show them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

import coalloc
from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import read_plan
from coalloc.model.values import replace
from coalloc.policies.base import Policy
from coalloc.policies.contract import CASES, WORK, faults
from coalloc.policies.options import CommonOptions

DOCS = Path(__file__).resolve().parents[2] / "docs"


class SwapsOptions(CommonOptions, frozen=True, kw_only=True):
    patience: Annotated[int, Meta(ge=1)] = 3
    """Exchanges per job."""


def blocks(page: str) -> list[str]:
    """The examples in Python of a page."""
    return re.findall(r"^ *```python\n(.*?)```", (DOCS / page).read_text(), re.S | re.M)


def test_the_documents_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks("python.md")[0], names)
    plan, lines = names["plan"], capsys.readouterr().out.splitlines()
    assert lines[0].startswith("auto, optimal: ")
    assert lines[0].endswith(" 1860, bound 1860, gap 0.00%; 5 jobs placed, 0 deferred")
    assert {line.split(":")[0] for line in lines[1:]} == {f"  j{n}" for n in range(1, 6)}
    assert lines[-1].endswith(" True")
    assert read_plan(json.loads(Path("plan.json").read_text())) == plan
    svg = Path("plan.svg").read_text()
    assert svg.count('class="job"') >= 5
    assert "alpha:a" in svg
    exec(blocks("python.md")[1], names)
    assert coalloc.solve(names["snapshot"], "easy").placements[0].end == 120.0
    twice = replace(names["snapshot"], queue=names["snapshot"].queue * 2)
    with pytest.raises(InputError, match=r"queue\[1\].id"):
        coalloc.read_snapshot(twice)


def test_a_plan_is_asked_to_stop() -> None:
    snapshot = coalloc.read_snapshot(CASES["something of everything"])
    asked = iter([False, False, False])
    plan = coalloc.solve(snapshot, "oas", stop=lambda: next(asked, True))
    assert next(asked, True)
    assert coalloc.check(snapshot, plan).ok


def test_the_policies_on_the_page_keep_the_contract() -> None:
    order, search, _ = blocks("policies/writing-a-policy.md")
    names: dict[str, Any] = {}
    exec("\n".join(line[3:] for line in order.splitlines()), names)
    exec(search, names)
    assert faults(names["NARROW_FIRST"]) == []
    swaps = Policy(name="swaps", solve=names["swaps"], doc="", options=SwapsOptions)
    assert faults(swaps) == []


def test_a_file_is_read_and_what_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(CASES["a day's clock"]))
    assert coalloc.read_snapshot(path) == coalloc.read_snapshot(CASES["a day's clock"])
    with pytest.raises(InputError, match="format: is missing"):
        coalloc.read_snapshot({})
    with pytest.raises(InputError, match="there is no policy 'best'"):
        coalloc.solve(coalloc.read_snapshot(path), "best")


def test_the_same_work_and_seed_give_the_same_plan() -> None:
    snapshot = coalloc.read_snapshot(CASES["a day's clock"])
    seen: list[float] = []
    one, two = (
        coalloc.solve(
            snapshot,
            "oas",
            work=WORK,
            seed=3,
            on_incumbent=lambda plan: seen.append(plan.objective.value),
        )
        for _ in range(2)
    )
    assert one.placements == two.placements
    assert seen


def test_no_time_at_all_is_enough_for_a_plan() -> None:
    snapshot = coalloc.read_snapshot(CASES["something of everything"])
    assert coalloc.check(snapshot, coalloc.solve(snapshot, time_limit=0.0)).ok


def test_the_import_alone_loads_nothing() -> None:
    code = (
        "import coalloc, sys\n"
        "heavy = ('numpy', 'numba', 'zmq', 'msgspec', 'coalloc.policies', 'coalloc.solving')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "assert set(coalloc.__all__) >= {'solve', 'check', 'read_snapshot'}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
