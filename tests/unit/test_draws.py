"""Determinism of the draws in the quick suite."""

import ast
import importlib.util
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = ("contract", "integration", "properties", "unit")
GENERATORS = {"Random", "default_rng"}
STATES = {"random", "secrets", "np.random", "numpy.random"}
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


def unseeded(tree: ast.AST) -> list[int]:
    """Lines that draw from a state without a seed."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in GENERATORS:
                is_seeded = bool(node.args)
            else:
                is_seeded = owner not in STATES and f"{owner}.{node.func.attr}" != "os.urandom"
            lines += [] if is_seeded else [node.lineno]
    return lines


def test_every_generator_has_a_seed() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for folder in FOLDERS
        for path in sorted((TESTS / folder).glob("*.py"))
        for line in unseeded(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("random.random()", [1]),
        ("random.shuffle(jobs)", [1]),
        ("os.urandom(8)", [1]),
        ("secrets.token_hex()", [1]),
        ("random.Random()", [1]),
        ("np.random.default_rng()", [1]),
        ("np.random.default_rng(seed).random()", []),
        ("random.Random(7).random()", []),
        ("rng.random()", []),
    ],
)
def test_a_draw_without_a_seed_is_seen(text: str, lines: list[int]) -> None:
    assert unseeded(ast.parse(text)) == lines
