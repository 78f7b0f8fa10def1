"""What is sent to nodes and login nodes runs on the Python that EL8 has there: 3.6."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from coalloc.adapters.runner import payload
from coalloc.adapters.runner.status import NO_RUNNER
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


def pythons() -> list[str]:
    """Interpreters of this machine, with pyenv's."""
    places = (Path("/usr/bin"), *Path.home().glob(".pyenv/versions/3.*/bin"))
    return [str(path) for place in places for path in sorted(place.glob("python3.?*[0-9]"))]


@pytest.mark.parametrize("python", pythons())
def test_it_runs_on_what_is_there(python: str) -> None:
    env = {"COALLOC_BARRIER": "127.0.0.1:1", "COALLOC_BARRIER_KEY": "00" * 32}
    env |= {"COALLOC_BARRIER_NODE": "n1", payload.VARIABLE: payload.payload()}
    wrapper = [python, "-I", "-S", "-c", payload.BOOT]
    done = subprocess.run(wrapper, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == NO_RUNNER, done.stderr
    assert done.stderr.startswith("n1: 127.0.0.1:1"), "it has come as far as to call"
    text = payload.plain(Path(agent.__file__)) + "\nmain()"
    words = [python, "-I", "-S", "-c", text]
    ended = subprocess.run(words, input=b"", capture_output=True, timeout=30.0, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
