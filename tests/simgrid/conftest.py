"""The replaying program for the tests of this folder, where SimGrid is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simgrid.program import build, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; skip it, loudly, where SimGrid is not installed."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    absent = missing() if ours else ""
    for item in ours:
        item.add_marker(pytest.mark.simgrid)
        if absent:
            item.add_marker(pytest.mark.skip(reason=f"not replayed: {absent}"))


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> Path:
    """Compiled once for each version of its source."""
    assert pytestconfig.cache is not None
    return build(pytestconfig.cache.mkdir("simgrid"))
