"""Fixtures for all tests, and how hypothesis runs here."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests import kernels

ROOT = Path(__file__).resolve().parent.parent
SYSTEMS = {"browser", "gridengine", "oar", "simgrid", "slurm", "snakemake"}
"""Folders of tests that need what pip does not install; each says itself what is missing."""

# Hundreds of our processes start in a run: each would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Ten thousand tests stay in memory, and looking for garbage among them takes a twelfth of the time.
gc.set_threshold(50_000, 20, 20)

# No deadline, and as long as it takes to draw: a slow machine is no defect of the code under test.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", PATIENT, derandomize=True, database=None)
# of make nightly, by --hypothesis-profile; a find becomes an @example of its test
settings.register_profile("fresh", PATIENT, print_blob=True)
settings.load_profile("same")
# Hypothesis also draws constants of the modules that are loaded; which those are depends on the
# tests that ran before.
providers._get_local_constants = Constants


def pytest_report_header() -> str:
    """Name the cache that the daemons of the tests share with them."""
    return f"kernels: {kernels.CACHE}"


def pytest_configure() -> None:
    """Let SIGTERM end a run as Ctrl-C does, so that tests stop the processes they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs another system, and what reads the reference data, to be left out by it."""
    folder = item.nodeid.split("/")[1]
    if folder in SYSTEMS:
        item.add_marker(folder)
    if {"shared", "shared_file"}.intersection(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.shared)


@pytest.fixture(scope="session")
def shared_file() -> Callable[[str], Path]:
    """Return a function from a name under ../shared to its path; an absent one skips the test."""
    folder = Path(os.environ.get("COALLOC_SHARED") or ROOT.parent / "shared")

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            shown = os.path.relpath(path, ROOT)
            pytest.skip(f"{shown} is absent (COALLOC_SHARED names another folder)")
        return path

    return find


@pytest.fixture(scope="session")
def shared(shared_file: Callable[[str], Path]) -> Path:
    """Return the folder of the reference data; the test is skipped where it is absent."""
    return shared_file(".")


@pytest.fixture
def root() -> Iterator[Path]:
    """A short temporary folder that every user may enter: socket paths hold 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="co-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)
