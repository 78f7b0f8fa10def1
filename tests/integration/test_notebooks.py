"""The notebooks of examples/notebooks, run from top to bottom as a reader would."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_foreign_policies import installed  # noqa: F401

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
SHOWN = {
    "moldable_front": ("checked: True", "certified gap", "<svg"),
    "split_job": ("12 + 8", "infeasible", "<svg", "False", "link alpha"),
    "own_policy": ("fcfs", "easy", "narrow-first"),
}
"""What a reader sees of each."""
PICTURES = {"moldable_front": "front.png", "split_job": "split.svg", "own_policy": "waits.png"}


def script(notebook: Path) -> str:
    """Its code, where a last line that is a value is shown as a notebook shows it."""
    body = ["def shown(value):", "    to_svg = getattr(value, '_repr_svg_', None)"]
    body += ["    print(to_svg() if to_svg else repr(value))"]
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"], "stored without outputs"
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr) and not isinstance(last.value, ast.Call):
            last.value = ast.Call(ast.Name("shown", ast.Load()), [last.value], [])
        body.append(ast.unparse(tree))
    return "\n".join(body)


def test_each_is_known() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SHOWN) == set(PICTURES)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_runs_from_top_to_bottom(name: str, installed: Path, tmp_path: Path) -> None:  # noqa: F811
    program = script(NOTEBOOKS / f"{name}.ipynb").replace("Path.cwd()", f"Path({str(NOTEBOOKS)!r})")
    found = (str(installed), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(filter(None, found))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for text in SHOWN[name]:
        assert text in done.stdout
    assert (tmp_path / PICTURES[name]).stat().st_size > 1000
