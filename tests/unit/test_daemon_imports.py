"""What the long-running processes load: never the compiler, and little at start."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numba", "llvmlite", "matplotlib", "pulp", "coalloc.simulation")


@pytest.mark.parametrize(
    ("module", "also"),
    [
        pytest.param("coalloc.daemon.main", (), id="daemon"),
        pytest.param("coalloc.executor.main", (), id="executor"),
        pytest.param("coalloc.cli.main", ("numpy", "rich"), id="command line"),
        pytest.param("coalloc", ("zmq", "numpy"), id="the package itself"),
    ],
)
def test_a_process_does_not_load_what_it_does_not_need(module: str, also: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded.intersection((*HEAVY, *also))
