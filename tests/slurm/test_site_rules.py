"""A site with rules: accounts, QOS, partitions, GRES; told at submit, planned by, passed on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import ClusterShape, SlurmTestbed, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

ALPHA = ClusterShape(
    name="a",
    nodes=3,
    cpus=2,
    conf="GresTypes=gpu\nLicenses=matlab:2\nAccountingStorageTRES=gres/gpu",
    partitions="PartitionName=short Nodes=a[1-2] MaxTime=5 MaxNodes=1\n"
    "PartitionName=chem Nodes=ALL AllowAccounts=chem",
    groups=((1, "Weight=50 Feature=rack2 Gres=gpu:fake:2"), (1, "Weight=5 Feature=rack1")),
    gres="NodeName=a1 Name=gpu Type=fake File=/dev/null,/dev/zero\n",
)
BETA = ClusterShape(name="b", nodes=1, cpus=2)
ADDED = (
    ("account", "chem", "bio", "cluster=a"),
    ("account", "guest", "cluster=b"),
    ("qos", "tiny", "MaxWall=00:03:00", "MaxTRESPerJob=node=1,gres/gpu=3"),
)


@contextmanager
def running(root: Path) -> Iterator[tuple[SlurmTestbed, SlurmSite]]:
    """Two clusters with an account of ann's in each, and her own daemon."""
    with accounts("ann") as (ann,), bed(ALPHA, BETA, accounting=True) as made:
        cluster = made["a"]
        for words in (
            *ADDED,
            ("user", ann.pw_name, "account=chem", "cluster=a", "qos=normal,tiny"),
            ("user", ann.pw_name, "account=bio", "cluster=a"),
            ("user", ann.pw_name, "account=guest", "cluster=b"),
        ):
            cluster.run("sacctmgr", "-i", "add", *words)
        site = SlurmSite(root, made, account=ann)
        text = site.config.read_text()
        place = text.index('name = "b"')
        head, tail = text[:place], text[place:].replace("\n", '\naccounts = { "*" = "guest" }\n', 1)
        site.config.write_text(head + tail)
        with site:
            yield made, site


def told(site: SlurmSite, procs: int = 1, limit: float = 60.0, on: str = "ab", **batch: Any) -> str:
    """What a submit is refused with; empty where it is queued."""
    words = site.submission(
        ["true"], procs, job={"time_limit": limit, "clusters": list(on)}, batch=batch
    )
    answer = site.ask("submit", **words)
    return str(answer["message"]) if answer["type"] == "refused" else ""


def shown(cluster: Any, field: str) -> str:
    """A field of the cluster's only job."""
    return str(cluster.run("squeue", "-h", "-O", f"{field}:60")).strip()


@contextmanager
def runs(site: SlurmSite, job: dict[str, Any], **batch: Any) -> Iterator[str]:
    """A job of one process that runs meanwhile, and is cancelled in the end."""
    number = site.submit(["sleep", "60"], 1, job=job, batch=batch)
    site.until(lambda: site.job(number)["state"] == "running")
    yield number
    site.ask("cancel", job=number)
    site.wait(number)


def test_rules_of_a_site_are_known_told_and_passed_on(root: Path) -> None:
    with running(root) as (made, site):
        there = {"clusters": ["a"]}
        assert told(site, limit=600.0, partition="short") == (
            "a: partition short allows 5 min, the job asks for 10 min; "
            "b: there is no partition short"
        )
        assert "a: at most 1 node at once" in told(site, 2, partition="short")
        assert "a: partition chem is not for account bio" in told(
            site, account="bio", partition="chem"
        )
        assert "is not in account phys there, only in" in told(site, on="a", account="phys")
        assert "QOS tiny" in told(site, limit=600.0, on="a", qos="tiny")
        assert told(site, on="a", qos="nosuch") == "a: there is no QOS nosuch"
        assert told(site, licenses="matlab:9") == (
            "a: there are 2 licences matlab, the job asks for 9; b: there is no licence matlab"
        )
        shaped = site.submission(["true"], 1, job={"shape": {"per_node": {"gpu": 9}}})
        assert "with 9 gpu" in site.ask("submit", **shaped)["message"]
        two = {"clusters": ["a"], "shape": {"per_node": {"gpu": 4}}}
        narrow = site.submission(["true"], 1, job=two, batch={"qos": "tiny"})
        assert "at most 3 gpu at once" in site.ask("submit", **narrow)["message"]
        assert "no node there has --nodelist=a9" in told(site, on="a", passed=["--nodelist=a9"])

        # The node of the least weight among equals; the account's name in each cluster.
        with runs(site, there, account="bio") as job:
            assert list(site.job(job)["nodes"]) == ["a3"], site.job(job)["nodes"]
            assert shown(made["a"], "Account") == "bio"
        asked = {"qos": "tiny", "partition": "chem", "licenses": "matlab"}
        gpu = {**there, "shape": {"per_node": {"gpu:fake": 1}}}
        with runs(site, gpu, **asked) as job:
            assert list(site.job(job)["nodes"]) == ["a1"]
            assert shown(made["a"], "tres-per-node") == "gres:gpu:fake:1"
            assert shown(made["a"], "QOS") == "tiny"
            assert shown(made["a"], "Partition") == "chem"
            assert shown(made["a"], "Licenses") == "matlab"
        with runs(site, there, passed=["--exclude=a[2-3]"]) as job:
            assert list(site.job(job)["nodes"]) == ["a1"]
        with runs(site, {"clusters": ["b"]}, account="chem"):
            assert shown(made["b"], "Account") == "guest"
        with runs(site, there, constraint="rack1|rack2") as job:
            assert list(site.job(job)["nodes"]) == ["a2"]

        # Its limit would run into the maintenance of the node of least weight.
        words = ("StartTime=now+4minutes", "Duration=10", "Nodes=a3", "Users=root", "Flags=MAINT")
        made["a"].run("scontrol", "create", "reservation", "ReservationName=maint", *words)
        site.until(lambda: "of its nodes" not in told(site, on="a", reservation="maint"))
        with runs(site, {**there, "time_limit": 600.0}) as job:
            assert list(site.job(job)["nodes"]) == ["a2"]
            assert site.job(job)["attempt"] == 1

        # What the rules that were read do not tell is learnt from the refusal.
        job = site.submit(["true"], 1, batch={"constraint": "rack1|rack9"}, job=there)
        site.until(lambda: site.job(job)["state"] == "held")
        assert "Invalid feature specification" in site.job(job)["detail"]
