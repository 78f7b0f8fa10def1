"""Folders for real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launch_bed import LaunchTestbed, Signpost


@pytest.fixture
def root() -> Iterator[Path]:
    """A short temporary folder: socket paths hold 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="co-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[LaunchTestbed]:
    bed = LaunchTestbed(tmp_path)
    yield bed
    bed.close()


@pytest.fixture
def sign(tmp_path: Path) -> Iterator[Signpost]:
    sign = Signpost(tmp_path / "sign")
    yield sign
    sign.close()
