"""Siblings over real Slurm clusters: a job waits in both queues, and runs once, in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pwd import struct_passwd

import pytest

from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import Cluster, SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite

START = "prepare_timeout_s = 20.0\nbackoff_first_s = 0.5\nbackoff_max_s = 5.0"
LOCAL_S = 600
"""Time limit of the local jobs: Slurm expects ours to start no earlier, seconds."""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts")


@pytest.fixture(scope="module")
def own() -> Iterator[SlurmTestbed]:
    with bed(*alike(2, 2)) as running:
        yield running


@pytest.fixture
def site(own: SlurmTestbed, root: Path) -> Iterator[SlurmSite]:
    with accounts("ann") as (ann,):
        running = full_site(own, root, ann)
        yield running
        running.stop()
        for cluster in own:
            cluster.run("scancel", f"--user={ann.pw_name}")
            cluster.run("scancel", "--name=local")
        own.wait(lambda: all(cluster.is_idle() for cluster in own), "all is idle again")


def full_site(own: SlurmTestbed, root: Path, account: struct_passwd) -> SlurmSite:
    """A site on whose clusters others have every node, and others wait."""
    for cluster in own:
        words = ("-J", "local", "-N", "2", "--exclusive", "-o", "/dev/null", "-t", "10")
        first = cluster.run("sbatch", "--parsable", *words, f"--wrap=sleep {LOCAL_S}").strip()
        own.wait(partial(runs, cluster, first), "the local job runs")
        cluster.run("sbatch", *words, "--wrap=true")
    running = SlurmSite(root, own, given={"start": "sbatch"}, account=account, start=START)
    running.start()
    running.until(lambda: all(c["waiting_there"] for c in running.ask("nodes")["clusters"]))
    return running


def runs(cluster: Cluster, number: str) -> bool:
    return state_of(cluster, number) == "R"


def state_of(cluster: Cluster, number: str) -> str:
    return cluster.run("squeue", "-h", "-j", number, "-o", "%t").strip()


def ours(cluster: Cluster) -> int:
    """Jobs of ours in a cluster."""
    return cluster.run("squeue", "-h", "-o", "%k").count("coalloc:")


def wait_in_queues(site: SlurmSite, own: SlurmTestbed, mark: Path) -> str:
    """Submit a job that waits in both clusters' queues."""
    job = site.submit(["sh", "-c", f"echo ran >> {mark}"], 2)
    site.until(lambda: [part.get("state") for part in site.job(job)["parts"]] == ["waiting"] * 2)
    assert [ours(cluster) for cluster in own] == [1, 1]
    assert site.job(job)["siblings"] == 2
    return job


def check_ran_once(site: SlurmSite, own: SlurmTestbed, job: str, there: str, mark: Path) -> None:
    site.until(lambda: site.job(job)["state"] in ENDED, 120.0)
    shown = site.job(job)
    assert shown["state"] == "completed", shown
    assert [part["cluster"] for part in shown["parts"]] == [there]
    assert shown["attempt"] == 1
    assert mark.read_text() == "ran\n" * 2, "each of its two processes, once"
    own.wait(lambda: not any(map(ours, own)), "nothing of it is left in either queue")


def test_a_job_runs_once_where_nodes_become_free_first(own: SlurmTestbed, site: SlurmSite) -> None:
    mark = site.work / "ran"
    job = wait_in_queues(site, own, mark)
    here, there = own
    there.run("scancel", "--name=local")
    check_ran_once(site, own, job, there.name, mark)
    (line,) = site.lines("siblings_withdrawn")
    assert (line["job"], line["clusters"], line["granted"]) == (job, here.name, there.name)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["coallocd", "executor"])
def test_both_are_granted_while_one_of_ours_is_killed(
    own: SlurmTestbed, site: SlurmSite, victim: str
) -> None:
    mark = site.work / "ran"
    job = wait_in_queues(site, own, mark)
    name = next(iter(own)).name
    site.kill("coallocd" if victim == "coallocd" else name)
    for cluster in own:
        cluster.run("scancel", "--name=local")
    own.wait(lambda: not any(map(waits, own)), "both claims are granted, or given back")
    if victim == "coallocd":
        site.start_daemon()
    else:
        site.start_executor(name)
    site.until(lambda: site.job(job)["state"] in ENDED, 120.0)
    shown = site.job(job)
    assert (shown["state"], len(shown["parts"])) == ("completed", 1)
    assert mark.read_text() == "ran\n" * 2
    own.wait(lambda: not any(map(ours, own)), "nothing of it is left in either queue")


def waits(cluster: Cluster) -> bool:
    """Whether a job of ours is pending in a cluster."""
    return "coalloc:" in cluster.run("squeue", "-h", "-t", "PD", "-o", "%k")
