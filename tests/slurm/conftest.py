"""Clusters for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbeds.slurm import SlurmTestbed, alike, bed


@pytest.fixture(scope="module")
def clusters() -> Iterator[SlurmTestbed]:
    """Three clusters a, b and c of four nodes with eight CPUs each."""
    with bed(*alike(3, 4)) as running:
        yield running
