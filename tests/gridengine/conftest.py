"""Cells for the tests of a module, where Grid Engine is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbeds.gridengine import GridEngineTestbed, bed, missing


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skip, loudly, where Grid Engine is not."""
    if absent := missing():
        pytest.skip(f"Grid Engine is not usable: {absent}")


@pytest.fixture(scope="module")
def cells() -> Iterator[GridEngineTestbed]:
    """Two cells p and q of one host with four slots each."""
    with bed(2) as running:
        yield running
