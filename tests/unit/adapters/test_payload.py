"""What is sent to nodes and login nodes runs on the Python that EL8 has there: 3.6."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from coalloc.adapters.runner import payload
from coalloc.adapters.ssh import agent

SENT = [Path(payload.__file__).with_name(f"{name}.py") for name in payload.MODULES]
OLDEST = (3, 6)


@pytest.mark.parametrize("path", [*SENT, Path(agent.__file__)], ids=lambda path: path.stem)
def test_it_needs_no_newer_python(path: Path) -> None:
    text = payload.plain(path)
    tree = ast.parse(text, feature_version=OLDEST)
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.BitOr):
            sides = ast.dump(node)
            assert "Dict(" not in sides, f"{ast.unparse(node)}: no union of dicts before 3.9"
    vermin = pytest.importorskip("vermin", reason="vermin, of the extra dev, is not installed")
    visitor = vermin.visit(text)
    needed = visitor.minimum_versions()[1]
    assert needed is None or needed <= OLDEST, visitor.output_text()
