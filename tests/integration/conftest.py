"""Folders for real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def root() -> Iterator[Path]:
    """A short temporary folder: socket paths hold 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="co-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
