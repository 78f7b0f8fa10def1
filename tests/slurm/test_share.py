"""A share of clusters that others keep full: our jobs go first there, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pwd import struct_passwd
from typing import Any

import pytest

from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.background import BackgroundUser
from tests.testbeds.slurm import ClusterShape, SlurmTestbed, alike, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts")


@pytest.fixture(scope="module")
def users() -> Iterator[list[struct_passwd]]:
    with accounts("ann", "bob", "eve") as made:
        yield made


def share_of(site: SlurmSite, name: str) -> dict[str, Any]:
    row = next(c for c in site.ask("nodes")["clusters"] if c["cluster"] == name)
    found: dict[str, Any] = row["share"]
    return found


def has_ended(site: SlurmSite, job: str) -> bool:
    return site.job(job)["state"] in ENDED


def reservation(running: SlurmTestbed, name: str) -> str:
    return running[name].run("scontrol", "-o", "show", "reservation")


def test_jobs_start_in_clusters_that_local_jobs_keep_full(
    users: list[struct_passwd], root: Path
) -> None:
    with (
        bed(*alike(2, 4)) as running,
        BackgroundUser(running, users[0], run_s=(0.5, 1.0), every_s=0.2),
        SlurmSite(root, running, given={"max_share": 0.5, "max_delay_s": 600.0}) as site,
    ):
        jobs = [site.submit(["sleep", "1"], procs) for procs in (1, 4, 2, 3, 1, 2)]
        site.until(lambda: share_of(site, "a")["kept"] == 2)
        site.until(lambda: share_of(site, "a")["delay_s"] > 0.0)  # one waits for us, and is told
        assert "coalloc-a" in reservation(running, "a")
        for job in jobs:
            site.until(partial(has_ended, site, job), 60.0)
            ended = site.job(job)
            assert ended["state"] == "completed", ended
            for part in ended["parts"]:
                assert len(part["nodes"]) <= 2, "half of four nodes"
        # A local job that started after the last reading is quicker now and then: of six claims
        # none to two are refused (21 runs). A claim that is only repeated is refused 41 times.
        refused = site.lines("job_requeued")
        assert len(refused) <= len(jobs), refused
        site.until(lambda: "coalloc-a" not in reservation(running, "a"))


@pytest.mark.slow
def test_jobs_of_all_widths_run_and_so_do_local_ones(root: Path) -> None:
    """What has no room in the share waits in the queue, and no node is kept for it."""
    shape = ClusterShape(name="x", nodes=4)
    with (
        bed(shape) as running,
        SlurmSite(root, running, given={"max_share": 0.5, "max_delay_s": 10.0}) as site,
    ):
        cluster = running["x"]
        assert site.wait(site.submit(["true"], 3))["state"] == "completed"
        assert "coalloc-x" not in reservation(running, "x"), "it was for nobody"
        jobs, local = [], ("-D/tmp", "-o/dev/null", "-t1", "--wrap=sleep 1")
        for width in (1, 4, 2, 3, 1, 4, 2, 3):
            jobs.append(site.submit(["sleep", "1"], width))
            cluster.run("sbatch", f"-N{width}", *local)
        for job in jobs:
            ended = site.wait(job)
            assert ended["state"] == "completed", ended
        site.until(lambda: not cluster.run("squeue", "-h").strip())
        assert share_of(site, "x")["delay_s"] == 0.0
        site.until(lambda: "coalloc-x" not in reservation(running, "x"))
        assert not site.lines("job_held")


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_operators_may_reserve_and_others_wait_their_turn(
    users: list[struct_passwd], root: Path
) -> None:
    """Two sites of ordinary users, of which one is an operator of Slurm."""
    ann, bob, eve = users
    with bed(ClusterShape(name="x", nodes=4), accounting=True) as running:
        cluster = running["x"]
        cluster.run("sacctmgr", "-i", "add", "account", "phys", "cluster=x")
        for user, level in ((ann, "None"), (bob, "Operator"), (eve, "None")):
            words = ("user", user.pw_name, "account=phys", f"AdminLevel={level}")
            cluster.run("sacctmgr", "-i", "add", *words)
        with BackgroundUser(running, ann, run_s=(0.5, 1.0), every_s=0.2):
            for number, (account, may) in enumerate(((bob, True), (eve, False))):
                folder = root / str(number)
                folder.mkdir()
                with SlurmSite(folder, running, account=account, given={"max_share": 0.5}) as site:
                    job = site.submit(["id", "-un"], 2)
                    site.until(partial(_is_said, site, may))
                    if may:
                        assert site.wait(job)["state"] == "completed"
                        said = (site.work / f"coalloc-{job}.out").read_text().split()
                        assert said == [bob.pw_name] * 2


def _is_said(site: SlurmSite, may: bool) -> bool:
    """Whether ``coalloc nodes`` has the way in."""
    row = site.ask("nodes")["clusters"][0]
    if may:
        return str(row["way"]).startswith("before waiting jobs") and row["share"]["kept"] == 2
    return "no reservation" in str(row["way"])


def test_job_fits_a_partition_of_five_minutes(root: Path) -> None:
    shape = ClusterShape(
        name="x", nodes=2, partitions="PartitionName=short Nodes=ALL MaxTime=5 State=UP"
    )
    with (
        bed(shape) as running,
        SlurmSite(root, running, given={"partitions": ["short"]}) as site,
    ):
        for limit_s in (240.0, 300.0):
            job = site.submit(["true"], 2, job={"time_limit": limit_s})
            assert site.wait(job)["state"] == "completed"
        assert not site.lines("job_requeued")
