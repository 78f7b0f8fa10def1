"""Beds that others use too: a background user, accounts, groups of nodes, reservations, limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from pwd import struct_passwd

import pytest

from coalloc.adapters.runner.command import CommandRefusedError
from tests.testbeds.accounts import accounts
from tests.testbeds.background import BackgroundUser
from tests.testbeds.slurm import ClusterShape, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts")

SHAPE = ClusterShape(
    name="x",
    nodes=4,
    cpus=4,
    conf="SelectTypeParameters=CR_Core_Memory\nGresTypes=gpu",
    partitions="PartitionName=short Nodes=x[1-2] MaxTime=5 PriorityTier=5 State=UP",
    groups=((2, "Weight=10 Feature=skylake"), (1, "Weight=100 RealMemory=32000 Gres=gpu:2")),
    gres="NodeName=x3 Name=gpu File=/dev/null\nNodeName=x3 Name=gpu File=/dev/zero\n",
)


@pytest.fixture(scope="module")
def users() -> Iterator[list[struct_passwd]]:
    with accounts("ann", "bob") as made:
        yield made


def test_groups_of_nodes_differ(users: list[struct_passwd]) -> None:
    with bed(SHAPE) as running:
        cluster = running["x"]
        lines = cluster.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %m %w %G %f").splitlines()
        assert [line.split() for line in lines] == [
            ["x1", "16000", "10", "(null)", "skylake"],
            ["x2", "16000", "10", "(null)", "skylake"],
            ["x3", "32000", "100", "gpu:2", "(null)"],
            ["x4", "16000", "1", "(null)", "(null)"],
        ]
        job = ("sbatch", "--parsable", "--gres=gpu:1", "-o", "/dev/null", "--wrap", "sleep 60")
        number = cluster.run(*job, account=users[0]).strip()
        where = ("squeue", "-h", "-j", number, "-o", "%N %u")
        running.wait(
            lambda: cluster.run(*where).split() == ["x3", users[0].pw_name], "it runs there"
        )


def test_background_user_keeps_jobs_waiting(users: list[struct_passwd]) -> None:
    with (
        bed(ClusterShape(name="x", nodes=2)) as running,
        BackgroundUser(running, users[0], run_s=(0.2, 0.4), every_s=0.1) as local,
    ):
        cluster = running["x"]
        running.wait(lambda: len(local.waits(cluster)) >= 6, "six of his jobs have started")
        assert len(cluster.run("squeue", "-h", "-t", "PD", "-o", "%u").split()) <= 3
        assert set(cluster.run("squeue", "-h", "-o", "%u").split()) == {users[0].pw_name}
    assert local.submitted >= 6


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_associations_and_limits_are_enforced(users: list[struct_passwd]) -> None:
    ann, bob = users
    with bed(ClusterShape(name="x", nodes=2), accounting=True) as running:
        cluster = running["x"]
        for words in (
            ("add", "account", "phys", "cluster=x"),
            ("add", "qos", "tiny", "MaxTRESPerJob=node=1", "Flags=DenyOnLimit"),
            ("add", "user", ann.pw_name, "account=phys", "qos=normal,tiny"),
        ):
            cluster.run("sacctmgr", "-i", *words)
        job = ("sbatch", "--parsable", "-t", "1", "-o", "/dev/null", "--wrap", "true")
        with pytest.raises(CommandRefusedError, match="Invalid account"):
            cluster.run(*job, account=bob)
        with pytest.raises(CommandRefusedError, match="Job violates accounting/QOS policy"):
            cluster.run(*job, "-N2", "--qos=tiny", account=ann)
        number = cluster.run(*job, "-N1", "--qos=tiny", account=ann).strip()
        told = ("sacct", "-n", "-X", "-P", "-j", number, "-o", "State,Account,QOS")
        running.wait(lambda: cluster.run(*told).strip() == "COMPLETED|phys|tiny", "is accounted")


def test_site_of_an_ordinary_user(users: list[struct_passwd], root: Path) -> None:
    """Daemon and executor are his, and so is every job."""
    with bed(ClusterShape(name="x", nodes=2)) as running:
        with SlurmSite(root, running, account=users[0]) as site:
            job = site.submit(["id", "-un"], 2)
            assert site.wait(job)["state"] == "completed"
        said = (site.work / f"coalloc-{job}.out").read_text().split()
        assert said == [users[0].pw_name] * 2
