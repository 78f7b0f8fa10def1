"""What a job's user, and an administrator, do in Slurm to a claim that waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from pwd import struct_passwd
from typing import Any

import pytest

from tests.slurm.test_waiting import occupy, runs
from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_launches import SlurmLaunches, settle
from tests.testbeds.slurm_site import SlurmSite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
START = "prepare_timeout_s = 20.0\nbackoff_first_s = 0.5\nbackoff_max_s = 5.0"


@pytest.fixture(scope="module")
def ann() -> Iterator[struct_passwd]:
    with accounts("ann") as (made,):
        yield made


@pytest.fixture(scope="module")
def own(ann: struct_passwd) -> Iterator[SlurmTestbed]:
    with bed(*alike(2, 2), accounting=True) as running:
        for words in (("account", "phys"), ("user", ann.pw_name, "account=phys")):
            running["a"].run("sacctmgr", "-i", "add", *words)
        yield running


class Claims:
    """A site all of whose nodes others have, and the claims that wait there."""

    def __init__(self, site: SlurmSite, own: SlurmTestbed, user: struct_passwd) -> None:
        self.site, self.own, self.user = site, own, user
        self.local = {c.name: occupy(c, *c.node_names) for c in own}
        own.wait(lambda: all(runs(own[n], job) for n, job in self.local.items()), "local jobs run")
        for cluster in own:
            cluster.run("sbatch", "-J", "local", "-N2", "-t1", "-o", "/dev/null", "--wrap", "true")
        site.until(lambda: all(c["waiting_there"] for c in site.ask("nodes")["clusters"]))

    def submit(self, *clusters: str, seconds: float = 60.0) -> str:
        """A job of one process; returns its number once it waits in Slurm."""
        job = {"time_limit": seconds, **({"clusters": list(clusters)} if clusters else {})}
        number = self.site.submit(["sleep", "0.1"], 1, job=job)
        self.own.wait(lambda: bool(self.claims(number)), "it waits in Slurm")
        return number

    def claims(self, job: str) -> dict[str, str]:
        """Numbers of a job's claims, by cluster."""
        found = {}
        for cluster in self.own:
            for line in cluster.run("squeue", "-h", "-t", "PD", "-o", "%i %k").splitlines():
                number, _, comment = line.partition(" ")
                if comment.startswith(f"coalloc:{job}."):
                    found[cluster.name] = number
        return found

    def act(self, job: str, cluster: str, *words: str, user: bool = False) -> None:
        """What a person does to a claim there, as root or as its user."""
        number = self.claims(job)[cluster]
        words = words if "update" in words else (*words, number)
        self.own[cluster].run(*words, account=self.user if user else None)

    def says(self, job: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        self.site.until(lambda: holds(self.site.job(job)))
        return self.site.job(job)


@pytest.fixture
def claims(own: SlurmTestbed, root: Path, ann: struct_passwd) -> Iterator[Claims]:
    with SlurmSite(root, own, given={"start": "sbatch"}, account=ann, start=START) as site:
        yield Claims(site, own, ann)
    for cluster in own:
        cluster.run("scancel", f"--user={ann.pw_name}")
        cluster.run("scancel", "--name=local")
    own.wait(lambda: all(cluster.is_idle() for cluster in own), "all is idle again")


def test_a_cancelled_claim_does_not_come_back(claims: Claims) -> None:
    mine, theirs, free = claims.submit(), claims.submit("a"), claims.submit()
    for job in (mine, free):
        claims.own.wait(lambda: len(claims.claims(job)) == 2, "it waits in both")  # noqa: B023
    claims.act(mine, "a", "scancel", user=True)
    claims.act(theirs, "a", "scancel")
    claims.act(free, "a", "scancel")
    ended = claims.says(mine, lambda job: job["state"] in ENDED)
    assert (ended["state"], ended["detail"]) == ("cancelled", "cancelled in a")
    ended = claims.says(theirs, lambda job: job["state"] in ENDED)
    why = "cancelled by an administrator of a"
    assert (ended["state"], ended["detail"]) == ("cancelled", f"a: {why}")
    claims.says(free, lambda job: job["barred"] == {"a": why})
    claims.own.wait(lambda: not claims.claims(mine), "it is withdrawn elsewhere")
    assert not claims.claims(theirs)
    assert [*claims.claims(free)] == ["b"]
    claims.own["b"].run("scancel", claims.local["b"])
    assert claims.site.wait(free)["state"] == "completed"


def test_a_held_claim_waits_until_it_is_released_there(claims: Claims) -> None:
    mine, theirs, free = claims.submit(), claims.submit("a"), claims.submit()
    for job in (mine, free):
        claims.own.wait(lambda: len(claims.claims(job)) == 2, "it waits in both")  # noqa: B023
    before = {job: claims.claims(job)["a"] for job in (mine, theirs)}
    claims.act(mine, "a", "scontrol", "hold", user=True)
    claims.act(theirs, "a", "scontrol", "hold")
    claims.act(free, "a", "scontrol", "hold")
    shown = claims.says(mine, lambda job: job["reason"] == "held_by_owner")
    assert "held in a by its user" in shown["detail"]
    shown = claims.says(theirs, lambda job: job["reason"] == "held_by_admin")
    assert "held by an administrator of a" in shown["detail"]
    claims.says(free, lambda job: "a" in job["barred"])
    claims.own.wait(lambda: [*claims.claims(free)] == ["b"], "it has left that queue")
    for cluster in claims.own:
        cluster.run("scancel", claims.local[cluster.name])
    assert claims.site.wait(free)["state"] == "completed"
    assert {job: claims.claims(job) for job in before} == {j: {"a": n} for j, n in before.items()}
    claims.act(mine, "a", "scontrol", "release", user=True)
    claims.act(theirs, "a", "scontrol", "release")
    assert claims.site.wait(mine)["state"] == "completed"
    assert claims.site.wait(theirs)["state"] == "completed"


def test_a_limit_that_is_changed_in_slurm_is_followed(claims: Claims) -> None:
    site, own = claims.site, claims.own
    job = claims.submit("a", seconds=600.0)
    claims.act(job, "a", "scontrol", "update", "TimeLimit=3", "JobId=" + claims.claims(job)["a"])
    claims.says(job, lambda row: row["time_limit"] == 180.0)
    for cluster in own:
        cluster.run("scancel", claims.local[cluster.name])
    assert site.wait(job)["state"] == "completed"
    assert not site.lines("job_limit_changed")[1:], "a limit as it was asked for is no change"
    job = site.submit(["sleep", "7"], 2, job={"time_limit": 4.0, "clusters": ["a"]})
    claims.says(job, lambda row: row["state"] == "running")
    number = own["a"].run("squeue", "-h", "-t", "R", "-n", "sleep", "-o", "%i").strip()
    own["a"].run("scontrol", "update", f"JobId={number}", "TimeLimit=5")
    claims.says(job, lambda row: row["time_limit"] == 300.0)
    assert site.wait(job)["state"] == "completed"


def test_a_limit_is_changed_by_a_command(own: SlurmTestbed, root: Path, ann: struct_passwd) -> None:
    """By an executor that may, and by one that Slurm refuses."""
    where = ("squeue", "-h", "-t", "R", "-o", "%l")
    for account in (None, ann):
        folder = root / (account.pw_name if account else "root")
        with SlurmSite(folder, own, account=account, start=START) as site:
            job = site.submit(["sleep", "600"], 1, job={"time_limit": 60.0, "clusters": ["a"]})
            site.until(lambda: site.job(job)["state"] == "running")  # noqa: B023
            before = own["a"].run(*where)
            site.ask("update", job=job, fields={"time_limit": 660.0})
            if account is None:
                own.wait(lambda: own["a"].run(*where) != before, "Slurm has it")  # noqa: B023
                assert int(own["a"].run(*where).partition(":")[0]) >= 11
            else:
                site.until(lambda: bool(site.lines("job_limit_changed")))
                (line,) = site.lines("job_limit_changed")
                assert "denied" in line["refused"]
                assert own["a"].run(*where) == before
            assert site.job(job)["time_limit"] == (660.0 if account is None else 60.0)
            answer = site.ask("update", job=job, fields={"time_limit": 1.0})
            assert answer["type"] == "done", answer
            assert site.wait(job)["state"] == "timeout"
        own.wait(own["a"].is_idle, "its nodes are free")


def test_a_dead_slurmctld_is_not_planned_on(own: SlurmTestbed, root: Path) -> None:
    with SlurmSite(root, own, start=START) as site:
        settle(own, own["a"])
        own["a"].kill_controller()
        site.until(lambda: bool(site.lines("reading_failed")))
        assert site.ask("nodes")["clusters"][0]["stale"]
        ended = site.wait(site.submit(["true"], 2))
        assert (ended["state"], ended["clusters"], ended["attempt"]) == ("completed", ["b"], 1)
        wide = site.submit(["true"], 4)
        site.until(lambda: site.job(wide)["reason"] not in {"next_round", ""})
        assert site.job(wide)["attempt"] == 0, "nothing is claimed in b for it meanwhile"
        own["a"].start_controller()
        assert site.wait(wide)["state"] == "completed"


def test_wrappers_that_do_not_find_their_runner_say_so(own: SlurmTestbed, root: Path) -> None:
    launch = SlurmLaunches(root, own["a"], start="salloc", address="nowhere.invalid")
    report = launch.claim(launch.shell("true"))
    launch.close()
    assert report.reason == "step_failed"
    assert "did not reach the executor at nowhere.invalid" in report.detail
    assert "see the settings address and ports" in report.detail
