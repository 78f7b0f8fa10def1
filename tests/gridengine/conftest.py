"""Cells for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbeds.gridengine import GridEngineTestbed, bed


@pytest.fixture(scope="module")
def cells() -> Iterator[GridEngineTestbed]:
    """Two cells p and q of one host with four slots each."""
    with bed(2) as running:
        yield running
