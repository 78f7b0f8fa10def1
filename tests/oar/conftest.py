"""An OAR cluster for the tests of a module, where OAR is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbeds.oar import OarTestbed, bed, missing


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skip, loudly, where OAR is not."""
    if absent := missing():
        pytest.skip(f"OAR is not usable: {absent}")


@pytest.fixture(scope="module")
def oar() -> Iterator[OarTestbed]:
    """Two nodes o1 and o2 of two resources each."""
    with bed() as running:
        yield running
