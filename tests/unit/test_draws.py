"""Determinism of the draws in the quick suite."""

import importlib.util
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

KNOWN = 7_391_846_205
"""A constant that no other module has."""


def draws() -> list[int]:
    """Draw numbers as any property does."""
    seen: list[int] = []

    @hypothesis.settings(max_examples=300)
    @hypothesis.given(st.integers())
    def collect(number: int) -> None:
        seen.append(number)

    collect()
    return seen


@pytest.fixture
def same() -> None:
    if not hypothesis.settings().derandomize:
        pytest.skip("another profile was asked for")


def test_the_draws_repeat_whatever_else_is_loaded(
    same: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = draws()
    path = tmp_path / "loaded.py"
    path.write_text(f"KNOWN = {KNOWN}\n")
    spec = importlib.util.spec_from_file_location("loaded", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loaded", module)
    spec.loader.exec_module(module)
    assert module.KNOWN == KNOWN
    assert draws() == before


def test_nothing_is_kept_from_one_run_to_the_next(same: None) -> None:
    assert hypothesis.settings().database is None
