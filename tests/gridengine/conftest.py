"""Cells for the tests of a module, where Grid Engine is installed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.gridengine import Bed, bed, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; skip it, loudly, where Grid Engine is not installed."""
    absent = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gridengine)
            if absent:
                item.add_marker(pytest.mark.skip(reason=f"Grid Engine is not usable: {absent}"))


@pytest.fixture(scope="module")
def cells() -> Iterator[Bed]:
    """Two cells p and q of one host with four slots each."""
    with bed(2) as running:
        yield running


@pytest.fixture
def root() -> Iterator[Path]:
    """A short temporary folder that every user may enter: socket paths hold 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="co-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)
