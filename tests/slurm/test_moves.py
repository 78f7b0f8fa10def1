"""Late moves over real Slurm clusters: a job leaves one queue, and runs once, elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from coalloc.adapters.runner.command import Account
from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import Cluster, SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite

START = "prepare_timeout_s = 20.0\nbackoff_first_s = 0.5\nbackoff_max_s = 5.0\nmove_margin_s = 5.0"
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
            cluster.run("scancel", f"--user={ann.name}")
            cluster.run("scancel", "--name=local")
        own.wait(lambda: all(cluster.is_idle() for cluster in own), "all is idle again")


def full_site(own: SlurmTestbed, root: Path, account: Account) -> SlurmSite:
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


def wait_in_queue(site: SlurmSite, own: SlurmTestbed, mark: Path) -> tuple[str, Cluster, Cluster]:
    """Submit a job that waits in one cluster's queue; the job, that cluster and the other one."""
    job = site.submit(["sh", "-c", f"echo ran >> {mark}"], 2)
    site.until(lambda: bool([p for p in site.job(job)["parts"] if p.get("state") == "waiting"]))
    (part,) = site.job(job)["parts"]
    here = own[part["cluster"]]
    (there,) = (cluster for cluster in own if cluster.name != here.name)
    assert (ours(here), ours(there)) == (1, 0)
    return job, here, there


def check_moved(
    site: SlurmSite, own: SlurmTestbed, job: str, here: Cluster, there: Cluster, mark: Path
) -> None:
    site.until(lambda: site.job(job)["state"] in ENDED, 120.0)
    shown = site.job(job)
    assert shown["state"] == "completed", shown
    assert [part["cluster"] for part in shown["parts"]] == [there.name]
    assert shown["attempt"] == 2
    assert shown["moves"] == 1
    assert mark.read_text() == "ran\n" * 2, "each of its two processes, once"
    told = [event for event in shown["events"] if "move" in event["kind"]]
    assert [event["kind"] for event in told] == ["move_ordered", "job_moved"]
    assert told[0]["cluster"] == told[1]["clusters"] == here.name
    own.wait(lambda: not ours(here), "nothing of it is left where it waited")


def test_a_job_moves_to_the_cluster_that_becomes_free_and_runs_once(
    own: SlurmTestbed, site: SlurmSite
) -> None:
    mark = site.work / "ran"
    job, here, there = wait_in_queue(site, own, mark)
    there.run("scancel", "--name=local")
    check_moved(site, own, job, here, there, mark)
    line = site.lines("move_ordered")[0]
    assert (line["job"], line["cluster"], line["to"]) == (job, here.name, there.name)
    assert site.lines("job_moved")[0]["job"] == job


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["coallocd", "executor"])
def test_who_is_killed_in_the_middle_of_a_move_costs_nothing(
    own: SlurmTestbed, site: SlurmSite, victim: str
) -> None:
    mark = site.work / "ran"
    job, here, there = wait_in_queue(site, own, mark)
    there.run("scancel", "--name=local")
    site.until(lambda: bool(site.lines("move_ordered")))
    if victim == "coallocd":
        site.kill("coallocd")
        site.start_daemon()
    else:
        site.kill(here.name)
        site.start_executor(here.name)
    check_moved(site, own, job, here, there, mark)
