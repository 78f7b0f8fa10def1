"""Processes that multiply as fast as they can end with their part, and cost others little."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.runner import cgroup
from coalloc.model.sites.parts import PartState
from tests.support import forkers
from tests.support.launch_bed import LaunchTestbed, wait_dead
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


def cases() -> Iterator[Any]:
    """Every mode and way, of which a few in the quick tests."""
    quick = {
        ("reap", "abort", False),
        ("comets", "dead runner", False),
        ("bomb", "dead runner", True),
    }
    for procs in (30, 100, 500):
        for mode in ("bomb", "reap", "revive", "comets"):
            for way in ("abort", "dead runner"):
                for has_group in (False, True):
                    is_quick = procs == 30 and (mode, way, has_group) in quick
                    marks = () if is_quick else pytest.mark.nightly
                    yield pytest.param(mode, way, procs, has_group, marks=marks)


def has_multiplied(mode: str, procs: int) -> bool:
    """Comets change their numbers while /proc is read; their parent sleeps when all are off."""
    seen = forkers.there()
    return "S (sleeping)" in seen if mode == "comets" else len(seen) > procs // 3


@pytest.mark.parametrize(("mode", "way", "procs", "has_group"), tuple(cases()))
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
        bed.wait_until(lambda: has_multiplied(mode, procs))
        if way == "abort":
            bed.launcher.abort(spec.key)
        else:
            os.kill(bed.runner_pid(spec.key), signal.SIGKILL)
        group = bed.launcher._parts[spec.key].cgroup
        report = bed.ended(spec.key)
        assert not forkers.there()
        assert bool(group) is has_group
        assert not group or not Path(group).exists()
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
            body = site.submission(["true"], launch={"stdout": "/dev/null"})
            other = site.wait(str(good.ask({"type": "submit", **body})["job"]))
            assert other["state"] == "completed"
            latest = max(latest, other["started"] - other["submitted"])
        assert site.wait(job)["state"] == "timeout"
        assert not forkers.there()
    print(f"\n{procs} processes ({mode}): another user's job started after {latest:.1f} s at most")
    assert latest <= LATEST_S


@pytest.mark.parametrize("blow", ["runner", "runner, after a restart", "fork server first"])
def test_escapees_do_not_outlive_a_dead_runner(
    open_root: Path, monkeypatch: pytest.MonkeyPatch, blow: str
) -> None:
    """Also those of which nothing tells to which job they belong; the node is theirs until then."""
    if blow != "fork server first":  # only a cgroup finds them when both are dead
        monkeypatch.setattr(cgroup, "own", str)
    elif not cgroup.own():
        pytest.skip("no cgroup can be made here")
    bed = LaunchTestbed(open_root, {"nodes": ["n1"], "slots": 1})
    with forkers.bounded(30.0):
        spec = bed.spec(
            *(forkers.built(open_root), "0", "escape"),
            uid=forkers.uid(),
            cwd="/",
            stdout="/dev/null",
        )
        bed.start(spec)
        bed.wait_until(lambda: len(forkers.there()) == 21)
        runner = bed.runner_pid(spec.key)
        if blow == "runner, after a restart":
            bed.launcher.close()
            bed = LaunchTestbed(open_root, {"nodes": ["n1"], "slots": 1})
            assert [report.state for report in bed.launcher.adopt()] == [PartState.RUNNING]
        elif blow == "fork server first":
            os.kill(bed.launcher._fork_server.pid, signal.SIGKILL)
            wait_dead(bed.launcher._fork_server.pid)
        os.kill(runner, signal.SIGKILL)
        assert bed.ended(spec.key).reason == "runner_died"
        assert not [state for state in forkers.there() if "zombie" not in state]
        assert bed.run(bed.spec("true", job="2")).codes == (0,)
    bed.close()
