"""What a job's user, and an administrator, do in Slurm to a claim that waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coalloc.adapters.runner.command import Account
from tests.slurm.test_waiting import occupy, runs
from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
START = "prepare_timeout_s = 20.0\nbackoff_first_s = 0.5\nbackoff_max_s = 5.0\nmove_margin_s = 0.0"


@pytest.fixture(scope="module")
def ann() -> Iterator[Account]:
    with accounts("ann") as (made,):
        yield made


@pytest.fixture(scope="module")
def own(ann: Account) -> Iterator[SlurmTestbed]:
    with bed(*alike(2, 2), accounting=True) as running:
        for words in (("account", "phys"), ("user", ann.name, "account=phys")):
            running["a"].run("sacctmgr", "-i", "add", *words)
        yield running


class Claims:
    """A site all of whose nodes others have, and the claims that wait there."""

    def __init__(self, site: SlurmSite, own: SlurmTestbed, user: Account) -> None:
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
        self.own[cluster].run(*words, number, account=self.user if user else None)

    def says(self, job: str, holds: Callable[[dict[str, object]], bool]) -> dict[str, object]:
        self.site.until(lambda: holds(self.site.job(job)))
        return self.site.job(job)


@pytest.fixture
def claims(own: SlurmTestbed, root: Path, ann: Account) -> Iterator[Claims]:
    with SlurmSite(root, own, given={"start": "sbatch"}, account=ann, start=START) as site:
        yield Claims(site, own, ann)
    for cluster in own:
        cluster.run("scancel", f"--user={ann.name}")
        cluster.run("scancel", "--name=local")
    own.wait(lambda: all(cluster.is_idle() for cluster in own), "all is idle again")


def test_a_cancelled_claim_does_not_come_back(claims: Claims) -> None:
    mine, theirs, free = claims.submit("a"), claims.submit("a"), claims.submit()
    claims.act(mine, "a", "scancel", user=True)
    claims.act(theirs, "a", "scancel")
    (there, *_) = claims.claims(free)
    other = {"a": "b", "b": "a"}[there]
    claims.act(free, there, "scancel")
    ended = claims.says(mine, lambda job: job["state"] in ENDED)
    assert (ended["state"], ended["detail"]) == ("cancelled", "cancelled in a")
    ended = claims.says(theirs, lambda job: job["state"] in ENDED)
    why = "a: cancelled by an administrator of a"
    assert (ended["state"], ended["detail"]) == ("cancelled", why)
    barred = {there: f"cancelled by an administrator of {there}"}
    claims.says(free, lambda job: job["barred"] == barred)
    claims.own.wait(lambda: [*claims.claims(free)] == [other], "it waits elsewhere")
    assert not claims.claims(mine)
    assert not claims.claims(theirs)
    claims.own[other].run("scancel", claims.local[other])
    assert claims.site.wait(free)["state"] == "completed"


def test_a_held_claim_waits_until_it_is_released_there(claims: Claims) -> None:
    mine, theirs, free = claims.submit(), claims.submit("a"), claims.submit()
    at = {job: next(iter(claims.claims(job))) for job in (mine, theirs, free)}
    before = {job: claims.claims(job) for job in (mine, theirs)}
    claims.act(mine, at[mine], "scontrol", "hold", user=True)
    claims.act(theirs, "a", "scontrol", "hold")
    claims.act(free, at[free], "scontrol", "hold")
    shown = claims.says(mine, lambda job: job["reason"] == "held_by_owner")
    assert f"held in {at[mine]} by its user" in str(shown["detail"])
    shown = claims.says(theirs, lambda job: job["reason"] == "held_by_admin")
    assert "held by an administrator of a" in str(shown["detail"])
    claims.says(free, lambda job: at[free] in job["barred"])
    claims.own.wait(lambda: at[free] not in claims.claims(free), "it has left that queue")
    for cluster in claims.own:
        cluster.run("scancel", claims.local[cluster.name])
    assert claims.site.wait(free)["state"] == "completed"
    assert {job: claims.claims(job) for job in (mine, theirs)} == before
    claims.act(mine, at[mine], "scontrol", "release", user=True)
    claims.act(theirs, "a", "scontrol", "release")
    assert claims.site.wait(mine)["state"] == "completed"
    assert claims.site.wait(theirs)["state"] == "completed"
