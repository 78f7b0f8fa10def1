"""Daemon, solver, executors and jobs under what the units close."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kernels import CACHE
from tests.support import sandbox
from tests.support.live_site import Running

PROJECT = Path(__file__).resolve().parents[2]
DAEMON = PROJECT / "systemd/coallocd.service"
EXECUTOR = PROJECT / "systemd/coalloc-executor-user@.service"
WARM_LIMIT_S = 900.0
TRIES = """
import os, socket, sys
tries = {
    "write": lambda: open("here", "w"),
    "write_elsewhere": lambda: open("/etc/coalloc-was-here", "w"),
    "packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "tcp": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "chroot": lambda: os.chroot("/"),
    "nice": lambda: os.nice(1),
}
for name, call in tries.items():
    try:
        call()
    except OSError as error:
        print(name, type(error).__name__, error.errno)
    else:
        print(name, "ok")
"""
CLOSED = {"write_elsewhere", "packets", "chroot"}


@pytest.fixture(autouse=True)
def able() -> None:
    lack = sandbox.missing()
    if lack:
        pytest.skip(f"{lack}: the units' sandbox was NOT tried")


def boxed(unit: Path, folders: str) -> list[str]:
    return [sys.executable, str(PROJECT / "tests/support/sandbox.py"), str(unit), folders]


class Boxed(Running):
    """Every process under the sandbox of its unit."""

    def before(self, name: str) -> Sequence[str]:
        unit = DAEMON if name == "coallocd" else EXECUTOR
        return boxed(unit, f"{self.root}:{self.cache}")


@pytest.fixture
def site(root: Path) -> Iterator[Boxed]:
    site = Boxed(root, rounds="time_limit_s = 2.0")
    yield site
    site.stop()


@pytest.fixture
def cold_site(root: Path) -> Iterator[Boxed]:
    """Its solver has the kernels of EASY to compile, and where to keep them."""
    cache = root / "cache"
    shutil.copytree(CACHE, cache)
    for kernels in cache.glob("profiles_*"):
        shutil.rmtree(kernels)
    site = Boxed(root, policy="easy", rounds="time_limit_s = 10.0", cache=cache)
    yield site
    site.stop()


def outcomes(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


@pytest.mark.parametrize("unit", [DAEMON, EXECUTOR])
def test_what_is_closed_is_closed_and_code_can_be_generated(root: Path, unit: Path) -> None:
    code = "from numba import njit\nprint('compiled', njit(lambda n: n * n)(7))\n" + TRIES
    done = subprocess.run(
        [*boxed(unit, str(root)), sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NUMBA_CACHE_DIR": str(root)},
    )
    assert done.returncode == 0, done.stderr
    found = outcomes(done.stdout)
    assert found.pop("compiled") == "49"
    if "not closed" in done.stderr:
        found.pop("write_elsewhere")
    assert {name for name, end in found.items() if end != "ok"} == CLOSED & found.keys()


def test_jobs_start_on_both_clusters_and_inherit_what_is_closed(site: Boxed) -> None:
    site.start()
    (site.work / "tries.py").write_text(TRIES)
    output = site.work / "tried"
    job = site.submit([sys.executable, "tries.py"], launch={"stdout": str(output)})
    assert site.wait(job)["state"] == "completed"
    found = outcomes(output.read_text())
    assert {name for name, end in found.items() if end != "ok"} <= CLOSED
    assert found["packets"] == found["chroot"] == "PermissionError 1"
    wide = site.wait(site.submit(["true"], 6))
    assert wide["state"] == "completed"
    assert len(wide["parts"]) == 2
    site.kill("alpha")
    site.start_executor("alpha")
    assert site.wait(site.submit(["true"], 6))["state"] == "completed"


@pytest.mark.slow
def test_the_solver_compiles_plans_and_is_limited(cold_site: Boxed) -> None:
    site = cold_site
    site.start()
    site.until(lambda: bool(site.lines("solver_warmed")), WARM_LIMIT_S)
    assert list(site.cache.glob("profiles_*/*.nbc"))
    assert site.wait(site.submit(["true"], 6))["state"] == "completed"
    rounds = [line for line in site.lines("round_finished") if line["started"]]
    assert rounds[-1]["policy"] == "easy"
    assert not site.lines("policy_failed")
