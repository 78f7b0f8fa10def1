"""Clusters for the tests of a module, where Slurm is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbeds.slurm import SlurmTestbed, alike, bed, missing


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skip, loudly, where Slurm is not."""
    if absent := missing():
        pytest.skip(f"Slurm is not installed: {absent}")


@pytest.fixture(scope="module")
def clusters() -> Iterator[SlurmTestbed]:
    """Three clusters a, b and c of four nodes with eight CPUs each."""
    with bed(*alike(3, 4)) as running:
        yield running
