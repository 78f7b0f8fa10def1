"""First lines of docstrings: noun phrases or verbs, which a search for the usual word finds."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit.test_architecture import PACKAGES, ROOT

RIDDLE = re.compile(r"(What|Who|How|Where|Which|When|Why)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def riddles(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the first lines that begin with a question word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if RIDDLE.match(first):
                yield getattr(node, "lineno", 1), first


@pytest.mark.parametrize("folder", [*PACKAGES, "benchmarks", "examples", "integrations"])
def test_first_lines_are_no_riddles(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in riddles(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""What it is."""', 1),
        ('def f():\n    """Where it is."""', 1),
        ('class C:\n    """Place of it."""\n    def g(self):\n        """How it is."""', 1),
        ('def f():\n    """Whether it is."""', 0),
        ('def f():\n    """Whatever it is."""', 0),
        ('def f():\n    return "What"', 0),
    ],
)
def test_the_rule_can_fail_and_pass(source: str, count: int) -> None:
    assert len(list(riddles(source))) == count
