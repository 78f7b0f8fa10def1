"""Cells for the tests of a module, where Grid Engine is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.gridengine import GridEngineTestbed, bed, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; skip it, loudly, where Grid Engine is not installed."""
    absent = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gridengine)
            if absent:
                item.add_marker(pytest.mark.skip(reason=f"Grid Engine is not usable: {absent}"))


@pytest.fixture(scope="module")
def cells() -> Iterator[GridEngineTestbed]:
    """Two cells p and q of one host with four slots each."""
    with bed(2) as running:
        yield running
