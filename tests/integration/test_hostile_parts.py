"""Jobs that do their worst beside good ones: real executors, whose good jobs all complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coalloc.wire.client import RequestConnection
from tests.support.live_site import Running
from tests.support.multi_user import ADA, BOB, MultiUser
from tests.support.small_disk import mounted

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is more than one user")
SECRET = "hunter2-of-ada"
NESTED = 1100
"""Folders in one another: more than Python's recursion limit."""
DEEP = f"""\
import os
os.chdir(os.path.dirname(os.environ["COALLOC_HOSTFILE"]))
for _ in range({NESTED}):
    os.mkdir("d")
    os.chdir("d")
"""
CROWD = 'cd "$(dirname "$COALLOC_HOSTFILE")" && for i in $(seq 500); do : > "f$i"; done'
FILL = 'dd if=/dev/zero of="$(dirname "$COALLOC_HOSTFILE")/big" bs=1M'
STRAYS = "for i in $(seq 20); do (setsid sleep 600 &); done"
WORST = (
    ("/usr/bin/env", "python3", "-c", DEEP),
    ("sh", "-c", CROWD),
    ("sh", "-c", FILL),
    ("sh", "-c", STRAYS),
)


@pytest.fixture
def make() -> Iterator[Callable[..., Running]]:
    sites: list[Running] = []

    def start(kind: type[Running]) -> Running:
        root = Path(tempfile.mkdtemp(prefix="co-"))
        sites.append(kind(root, clusters={"alpha": 2, "beta": 2}, slots=4))
        sites[-1].start()
        return sites[-1]

    yield start
    for site in sites:
        site.stop()
        shutil.rmtree(site.root, ignore_errors=True)


def submit(site: Running, asker: RequestConnection, argv: tuple[str, ...], procs: int = 1) -> str:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "DB_PASSWORD": SECRET}
    launch = {"env": env, "stdout": "/dev/null"}
    body = site.submission(argv, procs, launch=launch, job={"base_time": 1.0})
    return str(asker.ask({"type": "submit", **body})["job"])


def parts(site: Running) -> list[str]:
    """The folders of parts, and what is left of such."""
    folders = [site.root / "state" / "executors" / name for name in site.names]
    names = [path.name for folder in folders for path in folder.iterdir()]
    return [name for name in names if name.startswith(("part+", ".old-", ".new-"))]


def logs(site: Running) -> str:
    return "".join(path.read_text() for path in site.root.glob("*.log"))


@pytest.mark.slow
def test_folders_too_deep_for_a_recursion_cost_nobody_a_start(
    make: Callable[..., Running],
) -> None:
    """In single-user mode a job can write where its executor can."""
    site = make(Running)
    bad, good = [], []
    for number in range(8):
        bad.append(submit(site, site.asker, WORST[0]))
        good.append(submit(site, site.asker, ("true",), procs=6 if number == 4 else 1))
    assert {site.wait(job)["state"] for job in good + bad} == {"completed"}
    site.until(lambda: not parts(site))
    assert "Recursion" not in logs(site)


@needs_root
def test_the_worst_of_one_user_costs_another_nothing(make: Callable[..., Running]) -> None:
    site = make(MultiUser)
    assert isinstance(site, MultiUser)
    bad, good = [], []
    with site.asking(site.key(ADA)) as ada, site.asking(site.key(BOB)) as bob:
        for number in range(8):
            bad.append(submit(site, ada, WORST[number % len(WORST)]))
            good.append(submit(site, bob, ("true",), procs=6 if number == 4 else 1))
    assert {site.wait(job)["state"] for job in good} == {"completed"}
    for job in bad:
        site.wait(job)
    site.until(lambda: not parts(site))
    assert SECRET not in logs(site)


@needs_root
def test_a_full_disk_is_named_to_the_user_and_hangs_nothing(make: Callable[..., Running]) -> None:
    """And no environment is in any log, though the executor fails at one thing after another."""
    site = make(Running)
    folder = site.root / "state" / "executors" / "alpha"
    site.kill("alpha", 15)
    saved = site.root / "saved"
    shutil.copytree(folder, saved, ignore=_pipes)
    with mounted(folder, "size=512k,mode=711"):
        shutil.copytree(saved, folder, dirs_exist_ok=True)
        site.start_executor("alpha")
        site.until(site.is_complete)
        with (
            contextlib.suppress(OSError),
            open(folder / "filling", "wb", buffering=0) as file,
        ):
            while file.write(b"\0" * 512):
                pass
        argv = ("sh", "-c", "sleep 0.1")
        body = site.submission(
            argv,
            launch={"env": {"DB_PASSWORD": SECRET}, "stdout": "/dev/null"},
            job={"clusters": ["alpha"]},
        )
        job = str(site.ask("submit", **body)["job"])
        site.until(lambda: "No space left on device" in site.job(job)["detail"])
        (folder / "filling").unlink()
        assert site.wait(job)["state"] == "completed"
        assert SECRET not in logs(site)
        site.kill("alpha", 15)


def _pipes(folder: str, names: list[str]) -> list[str]:
    modes = {name: os.stat(f"{folder}/{name}").st_mode for name in names}
    return [name for name, mode in modes.items() if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)]
