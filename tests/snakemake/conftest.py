"""Snakemake's own environment, a site for it, and workflows to run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import root
from tests.support.live_site import Running

__all__ = ["root"]

SNAKEMAKE = Path(__file__).parents[2] / ".venv" / "snakemake" / "bin" / "snakemake"


def missing() -> str:
    """Why Snakemake cannot be run with the plugin here; empty if it can."""
    if not SNAKEMAKE.exists():
        return f"there is no {SNAKEMAKE}; make snakemake"
    done = subprocess.run(
        [str(SNAKEMAKE), "--executor", "coalloc", "--version"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return "" if done.returncode == 0 else f"the plugin is not installed: {done.stderr[-300:]}"


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skip, loudly, where Snakemake is not."""
    if absent := missing():
        pytest.skip(f"Snakemake was not run: {absent}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(
        tmp_path_factory.mktemp("s"), clusters={"alpha": 1, "beta": 1}, slots=2
    ) as running:
        yield running
