"""An OAR cluster for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbeds.oar import OarTestbed, bed


@pytest.fixture(scope="module")
def oar() -> Iterator[OarTestbed]:
    """Two nodes o1 and o2 of two resources each."""
    with bed() as running:
        yield running
