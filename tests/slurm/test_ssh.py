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
    root: Path, running: SlurmTestbed, **options: float
) -> Iterator[tuple[SlurmSite, dict[str, LoginNode], struct_passwd]]:
    """Daemon and executors of one ordinary user, who has nothing but logins."""
    steering = {cluster.name: {"SLURM_CONF": str(cluster.conf)} for cluster in running}
    (root / "site").mkdir()
    with (
        login_user(root, "ada") as ada,
        login_nodes(root / "ssh", ada.pw_name, steering, **options) as nodes,  # type: ignore[arg-type]
    ):
        each = {name: {"conf": "", "address": "", **node.settings} for name, node in nodes.items()}
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
