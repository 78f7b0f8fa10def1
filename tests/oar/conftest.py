"""An OAR cluster for the tests of a module, where OAR is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.oar import OarTestbed, bed, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; skip it, loudly, where OAR is not installed."""
    absent = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.oar)
            if absent:
                item.add_marker(pytest.mark.skip(reason=f"OAR is not usable: {absent}"))


@pytest.fixture(scope="module")
def oar() -> Iterator[OarTestbed]:
    """Two nodes o1 and o2 of two resources each."""
    with bed() as running:
        yield running
