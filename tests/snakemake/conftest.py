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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; skip it, loudly, where Snakemake is not installed."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.snakemake)


@pytest.fixture(scope="session", autouse=True)
def snakemake_installed() -> None:
    """Skip where it is not."""
    absent = missing()
    if absent:
        pytest.skip(f"Snakemake was not run: {absent}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(
        tmp_path_factory.mktemp("s"), clusters={"alpha": 1, "beta": 1}, slots=2
    ) as running:
        yield running
