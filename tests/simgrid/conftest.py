"""The replaying program for the tests of this folder, where SimGrid is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simgrid.program import build, missing


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skip, loudly, where SimGrid is not."""
    if absent := missing():
        pytest.skip(f"not replayed: {absent}")


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> Path:
    """Compiled once for each version of its source."""
    assert pytestconfig.cache is not None
    return build(pytestconfig.cache.mkdir("simgrid"))
