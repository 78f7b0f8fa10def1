"""A daemon that says what a test wants, for both clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fake_daemon import FakeDaemon


@pytest.fixture
def daemon(root: Path) -> Iterator[FakeDaemon]:
    with closing(FakeDaemon(root)) as running:
        yield running
