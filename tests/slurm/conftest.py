"""Clusters for the tests of a module, where Slurm is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.slurm import SlurmTestbed, alike, bed, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; skip it, loudly, where Slurm is not installed."""
    absent = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            if absent:
                item.add_marker(pytest.mark.skip(reason=f"Slurm is not installed: {absent}"))


@pytest.fixture(scope="module")
def clusters() -> Iterator[SlurmTestbed]:
    """Three clusters a, b and c of four nodes with eight CPUs each."""
    with bed(*alike(3, 4)) as running:
        yield running
