"""Compiled once, as a whole, where numba lets us; else the ordinary way, to the same effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from numba.core.registry import cpu_target
from numba.np import arrayobj

from coalloc.model.formats.plan_json import write_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.base import Budget
from coalloc.policies.kernel import linking
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.plan_digests import CASES

ROOT = Path(__file__).parents[4]


def test_this_numba_lets_us() -> None:
    codegen = cpu_target.target_context.codegen()
    assert linking.links(codegen)


@pytest.mark.parametrize("changed", ["_optimize_final_module", "_finalize_dynamic_globals", None])
def test_libraries_of_another_numba_are_left_alone(
    changed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(library: Any, unknown: Any) -> None:
        raise NotImplementedError

    if changed is None:
        monkeypatch.setattr(linking, "LIBRARIES", {})
    else:
        for library in linking.LIBRARIES.values():
            monkeypatch.setattr(library, changed, other)
    assert not linking.links.__wrapped__(cpu_target.target_context.codegen())


def test_only_what_never_counts_from_the_end_is_compiled_so() -> None:
    assert all(find_spec(module) for module in linking.FORWARD)
    usual, indexing = arrayobj.fix_integer_index, vars(linking)["indexing"]
    with indexing(False):
        assert arrayobj.fix_integer_index is not usual
        with indexing(True):  # a helper of another module
            assert arrayobj.fix_integer_index is usual
        assert arrayobj.fix_integer_index is not usual
    assert arrayobj.fix_integer_index is usual


ORDINARY = """
import numba.core.codegen as codegen
del codegen.JITCodeLibrary
from coalloc.policies.kernel import linking
assert not linking.LIBRARIES
from tests.unit.policies.kernel.test_linking import print_plan
print_plan()
"""


def print_plan() -> None:
    """Print what `easy` answers."""
    policy = lookup("easy")
    snapshot, options = read_snapshot(CASES["rigid"]), read_options({}, policy.options)
    print(json.dumps(write_plan(policy.solve(snapshot, options, Budget(seed=7), None))))


@pytest.mark.slow
def test_plans_are_the_same_where_numba_compiles_the_ordinary_way(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    print_plan()
    assert done.stdout == capsys.readouterr().out


@pytest.mark.slow
def test_no_index_of_those_is_below_0(tmp_path: Path) -> None:
    """Whoever adds a module to FORWARD adds its tests here."""
    assert {"coalloc.policies.kernel.search.bins"} == linking.FORWARD
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/policies/oas/test_bins.py"]
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_BOUNDSCHECK": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
