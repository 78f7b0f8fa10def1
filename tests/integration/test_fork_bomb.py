"""Processes that multiply as fast as they can end with their part, and cost others little."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.runner import cgroup
from coalloc.model.sites.parts import PartState
from tests.support import forkers
from tests.support.launch_bed import LaunchTestbed
from tests.support.multi_user import BOB, MultiUser

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs of other users")
LATEST_S = 10.0
"""Another user's job starts within so many seconds beside a fork bomb."""


@pytest.fixture
def open_root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="co-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("mode", ["bomb", "reap", "revive", "comets"])
@pytest.mark.parametrize("way", ["abort", "dead runner"])
@pytest.mark.parametrize(
    "procs",
    [
        30,
        pytest.param(100, marks=pytest.mark.slow),
        pytest.param(500, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("has_group", [False, True])
def test_nothing_is_left(
    open_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    way: str,
    procs: int,
    has_group: bool,
) -> None:
    if not has_group:
        monkeypatch.setattr(cgroup, "own", str)
    elif not cgroup.own():
        pytest.skip("no cgroup can be made here")
    with forkers.bounded(30.0):
        bed = LaunchTestbed(open_root)
        spec = bed.spec(
            *(forkers.built(open_root), str(procs), mode),
            uid=forkers.uid(),
            grace_s=0.1,
            cwd="/",
            stdout="/dev/null",
        )
        bed.start(spec)
        bed.wait_until(lambda: len(forkers.there()) > procs // 3)
        if way == "abort":
            bed.launcher.abort(spec.key)
        else:
            os.kill(bed.runner_pid(spec.key), signal.SIGKILL)
        report = bed.ended(spec.key)
        assert not forkers.there()
        assert report.state is (PartState.FINISHED if way == "abort" else PartState.LOST)
        bed.close()


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["bomb", "reap"])
@pytest.mark.parametrize("procs", [30, 100, 500])
def test_another_users_jobs_start_beside_it(open_root: Path, procs: int, mode: str) -> None:
    clusters = {"alpha": 2, "beta": 2}
    site = MultiUser(
        open_root, clusters=clusters, slots=4, policy="auto", access="requests_per_s = 0"
    )
    with (
        forkers.bounded(45.0),
        site,
        site.asking(site.key(forkers.USER)) as bad,
        site.asking(site.key(BOB)) as good,
    ):
        argv = [forkers.built(open_root), str(procs), mode]
        launch = {"stdout": "/dev/null", "cwd": "/"}
        body = site.submission(argv, launch=launch, job={"time_limit": 10.0})
        job = str(bad.ask({"type": "submit", **body})["job"])
        site.until(lambda: len(forkers.there()) > procs // 2)
        latest = 0.0
        while site.job(job)["state"] == "running":
            began = time.time()
            body = site.submission(["true"], launch={"stdout": "/dev/null"})
            other = site.wait(str(good.ask({"type": "submit", **body})["job"]))
            assert other["state"] == "completed"
            latest = max(latest, other["started"] - began)
        assert site.wait(job)["state"] == "timeout"
        assert not forkers.there()
    print(f"\n{procs} processes ({mode}): another user's job started after {latest:.1f} s at most")
    assert latest <= LATEST_S
