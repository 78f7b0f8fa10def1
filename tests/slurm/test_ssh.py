"""Jobs over clusters that are reached by ssh alone, as an ordinary user of theirs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from pwd import struct_passwd

import pytest

from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite
from tests.testbeds.ssh import LoginNode, login_nodes, login_user, masters, missing, pids_of

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")

WORDS = {"agent": "-ready", "link": "coalloc.adapters.ssh.link"}
RUN = 'echo "$COALLOC_CLUSTER $COALLOC_RANK" >> {lines}; sleep {run_s}; exit 0'


@contextlib.contextmanager
def site_by_ssh(
    root: Path, running: SlurmTestbed, route: str = "auto", **options: float
) -> Iterator[tuple[SlurmSite, dict[str, LoginNode], struct_passwd]]:
    """Daemon and executors of one ordinary user, who has nothing but logins."""
    steering = {cluster.name: {"SLURM_CONF": str(cluster.conf)} for cluster in running}
    (root / "site").mkdir()
    with (
        login_user(root, "ada") as ada,
        login_nodes(root / "ssh", ada.pw_name, steering, **options) as nodes,  # type: ignore[arg-type]
    ):
        own = {"conf": "", "address": "", "route": route}
        each = {name: {**own, **node.settings} for name, node in nodes.items()}
        with SlurmSite(root / "site", running, each=each, account=ada) as site:
            yield site, nodes, ada


def submitted(site: SlurmSite, ada: struct_passwd, lines: Path, run_s: float) -> str:
    """A job of two processes on each of the two clusters."""
    command = RUN.format(lines=lines, run_s=run_s)
    return site.submit(["sh", "-c", command], 4, cwd=ada.pw_dir)


def ends_once(site: SlurmSite, job: str, lines: Path) -> None:
    """Assert that a job completes, and has started each process once, and nothing is left."""
    ended = site.wait(job)
    assert ended["state"] == "completed", ended
    assert sorted(lines.read_text().split()[1::2]) == list("0123")
    site.bed.wait(lambda: all(each.is_idle() for each in site.bed), "no job is left")


def test_a_job_outlives_every_connection(root: Path) -> None:
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running) as (site, nodes, ada):
        lines = Path(ada.pw_dir) / "lines"
        job = submitted(site, ada, lines, 3.0)
        site.until(lambda: lines.exists() and len(lines.read_text().split()) == 8)
        for pid in masters(ada):
            os.kill(pid, signal.SIGKILL)
        ends_once(site, job, lines)
        assert [node.accepted for node in nodes.values()] == [2, 2]


@pytest.mark.nightly
def test_a_cut_of_half_a_minute_ends_nothing(root: Path) -> None:
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running) as (site, nodes, ada):
        lines = Path(ada.pw_dir) / "lines"
        job = submitted(site, ada, lines, 45.0)
        site.until(lambda: lines.exists() and len(lines.read_text().split()) == 8)
        with nodes["a"].cut(), nodes["b"].cut():
            time.sleep(30.0)
        ends_once(site, job, lines)
        assert [node.accepted for node in nodes.values()] == [1, 1]


@pytest.mark.nightly
@pytest.mark.parametrize("killed", ["master", "agent", "link"])
def test_jobs_whose_connections_are_killed_at_any_time(root: Path, killed: str) -> None:
    draw = random.Random(killed)
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running) as (site, nodes, ada):
        for number in range(20):
            lines = Path(ada.pw_dir) / f"lines{number}"
            job = submitted(site, ada, lines, 0.5)
            time.sleep(draw.uniform(0.0, 2.5))
            found = masters(ada) if killed == "master" else pids_of(ada, WORDS[killed])
            os.kill(draw.choice(found), signal.SIGKILL)
            ends_once(site, job, lines)
        kills = 20 if killed == "master" else 0
        assert sum(node.accepted for node in nodes.values()) <= 2 + kills


def test_nodes_that_reach_nobody_start_together_and_leave_nothing(root: Path) -> None:
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running, "files") as (site, nodes, ada):
        lines = Path(ada.pw_dir) / "lines"
        ends_once(site, submitted(site, ada, lines, 0.5), lines)
        failed = site.wait(site.submit(["sh", "-c", "exit 3"], 1, cwd=ada.pw_dir))
        assert (failed["state"], failed["exit_code"]) == ("failed", 3)
        wrong = site.wait(site.submit(["no-such-program"], 1, cwd=ada.pw_dir))
        assert "no-such-program: no such command" in wrong["detail"]
        long = site.submit(["sleep", "600"], 4, cwd=ada.pw_dir)
        site.until(lambda: site.job(long)["state"] == "running")
        site.ask("cancel", job=long)
        assert site.wait(long)["state"] == "cancelled"
        site.bed.wait(lambda: all(each.is_idle() for each in site.bed), "no job is left")
        site.bed.wait(lambda: not Path(ada.pw_dir, ".coalloc").exists(), "no file is left")
        assert [node.accepted for node in nodes.values()] == [1, 1]


@pytest.mark.nightly
def test_jobs_by_files_outlive_kills_at_any_time(root: Path) -> None:
    draw = random.Random("files")
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running, "files") as (site, _, ada):
        for number in range(24):
            lines = Path(ada.pw_dir) / f"lines{number}"
            job = submitted(site, ada, lines, 1.0)
            time.sleep(draw.uniform(0.0, 6.0))
            name = draw.choice("ab")
            if number % 2:
                os.kill(draw.choice(masters(ada)), signal.SIGKILL)
            else:
                site.kill(name)
                site.start_executor(name)
            ends_once(site, job, lines)
        site.bed.wait(lambda: not Path(ada.pw_dir, ".coalloc").exists(), "no file is left")
