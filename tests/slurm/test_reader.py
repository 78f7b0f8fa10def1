"""The reader against real Slurm: what is busy, what is drained, what is kept, what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.settings import SlurmSettings, read_settings
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading
from coalloc.model.values import replace
from tests.testbeds.slurm import Cluster, ClusterShape, SlurmTestbed, bed

CPUS = 4


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmTestbed]:
    shape = ClusterShape(
        name="r",
        nodes=6,
        cpus=CPUS,
        partitions="PartitionName=small Nodes=r[1-2] State=UP\n"
        "PartitionName=coalloc Nodes=ALL State=DOWN\n"
        "PartitionName=open Nodes=ALL State=UP",
    )
    with bed(shape) as running:
        yield running


@pytest.fixture
def cluster(site: SlurmTestbed) -> Iterator[Cluster]:
    """The cluster with no job, no reservation and no drained node."""
    cluster = site["r"]
    yield cluster
    cluster.run("scancel", "-u", "root")
    site.wait(lambda: not cluster.run("squeue", "-h"), "every job has gone")


def settings(**given: object) -> SlurmSettings:
    return read_settings({"load": "none", **given}, "alpha")


def read(cluster: Cluster, **given: object) -> ClusterReading:
    return SlurmReader(settings(**given), cluster.slurm).read()


def submit(cluster: Cluster, *options: str, command: str = "sleep 600") -> str:
    return cluster.run(
        "sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", command
    ).strip()


def wait_running(site: SlurmTestbed, cluster: Cluster, *jobs: str) -> None:
    def all_run() -> bool:
        states = cluster.run("squeue", "-h", "-j", ",".join(jobs), "-o", "%t").split()
        return states == ["R"] * len(jobs)

    site.wait(all_run, f"jobs {jobs} run")


def test_local_jobs_hold_their_nodes_until_their_limit(
    site: SlurmTestbed, cluster: Cluster
) -> None:
    whole = submit(cluster, "-w", "r[1-2]", "-N2", "--exclusive", "-t", "10")
    some = submit(cluster, "-w", "r3", "-n", "3", "-t", "5")
    ours = submit(cluster, "-w", "r4", "-t", "5", "--comment", "coalloc:7.1.0:c0ffee")
    wait_running(site, cluster, whole, some, ours)
    submit(cluster, "-w", "r1", "-t", "5")
    now = time.time()

    reading = read(cluster, slots="cpus")
    busy = {job.id: job for job in reading.running}
    assert {k: dict(j.nodes) for k, j in busy.items()} == {
        f"alpha:{whole}": {"r1": CPUS, "r2": CPUS},
        f"alpha:{some}": {"r3": 3},
    }
    assert busy[f"alpha:{whole}"].end == pytest.approx(now + 600, abs=20)
    assert busy[f"alpha:{some}"].end == pytest.approx(now + 300, abs=20)
    assert not any(job.ours for job in reading.running)
    assert reading.waiting == 1
    assert [node.slots for node in reading.nodes] == [CPUS] * 6

    reading = read(cluster, slots="node")
    assert {k.id: dict(k.nodes) for k in reading.running} == {
        f"alpha:{whole}": {"r1": 1, "r2": 1},
        f"alpha:{some}": {"r3": 1},
    }
    assert [node.slots for node in reading.nodes] == [1] * 6


def test_nodes_shared_by_local_jobs(site: SlurmTestbed, cluster: Cluster) -> None:
    short = submit(cluster, "-w", "r5", "-n", "1", "-t", "5")
    long = submit(cluster, "-w", "r5", "-n", "2", "-t", "50")
    wait_running(site, cluster, short, long)
    (job,) = read(cluster).running
    assert (job.id, dict(job.nodes)) == (f"alpha:{long}", {"r5": 1})
    counts = {job.id: dict(job.nodes) for job in read(cluster, slots="cpus").running}
    assert counts == {f"alpha:{short}": {"r5": 1}, f"alpha:{long}": {"r5": 2}}


def test_uneven_shares_follow_what_slurm_allocated(site: SlurmTestbed, cluster: Cluster) -> None:
    filler = submit(cluster, "-w", "r1", "-n", "3", "-t", "5")
    wait_running(site, cluster, filler)
    # Five CPUs on two nodes, of which one has a single CPU left.
    uneven = submit(cluster, "-w", "r[1-2]", "-N2", "-n", "5", "-t", "5")
    wait_running(site, cluster, uneven)
    taken: dict[str, int] = {}
    for job in read(cluster, slots="cpus").running:
        for node, count in job.nodes.items():
            taken[node] = taken.get(node, 0) + count
    assert taken == {"r1": 4, "r2": 4}


def test_drained_and_down_nodes(site: SlurmTestbed, cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "NodeName=r6", "State=DRAIN", "Reason=fan State=IDLE broken")
    cluster.run("scontrol", "update", "NodeName=r5", "State=DOWN", "Reason=power")
    job = submit(cluster, "-w", "r4", "-t", "5")
    wait_running(site, cluster, job)
    cluster.run("scontrol", "update", "NodeName=r4", "State=DRAIN", "Reason=later")
    nodes = {node.name: node for node in read(cluster).nodes}
    assert [nodes[f"r{i}"].state for i in range(3, 7)] == [
        NodeState.UP,
        NodeState.DRAINING,
        NodeState.DOWN,
        NodeState.DRAINING,
    ]
    assert nodes["r6"].reason.startswith("fan")
    assert nodes["r5"].reason.startswith("power")
    assert nodes["r3"].reason == ""
    for name in ("r4", "r5", "r6"):
        cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    site.wait(
        lambda: all(node.state is NodeState.UP for node in read(cluster).nodes),
        "every node is up again",
    )


def test_reservations_are_kept(cluster: Cluster) -> None:
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 3600))
    cluster.run(
        "scontrol",
        "create",
        "reservation",
        *("ReservationName=maint", f"StartTime={start}", "Duration=30", "Users=root"),
        *("Nodes=r[1-2]", "Flags=MAINT"),
    )
    try:
        (kept,) = read(cluster).reservations
        assert (kept.id, kept.nodes) == ("alpha:maint", ("r1", "r2"))
        assert kept.start == pytest.approx(time.time() + 3600, abs=20)
        assert kept.end - kept.start == 1800
        assert read(cluster, reservation="maint").reservations == ()
        (kept,) = read(cluster, partitions=["small"], nodes="r[2-4]").reservations
        assert kept.nodes == ("r2",)
    finally:
        cluster.run("scontrol", "delete", "ReservationName=maint")


def test_pending_jobs_keep_what_slurm_expects_for_them(
    site: SlurmTestbed, cluster: Cluster
) -> None:
    first = submit(cluster, "-w", "r[1-2]", "-N2", "--exclusive", "-t", "10")
    wait_running(site, cluster, first)
    waiting = submit(cluster, "-w", "r1", "-N1", "--exclusive", "-t", "5")

    def is_expected() -> bool:
        return "r1" in cluster.run("squeue", "-h", "-j", waiting, "-o", "%Y")

    site.wait(is_expected, "the backfill scheduler has a plan for the waiting job")
    assert read(cluster).reservations == ()
    (kept,) = read(cluster, pending="respect").reservations
    assert (kept.id, kept.nodes) == (f"alpha:{waiting}", ("r1",))
    assert kept.start == pytest.approx(time.time() + 600, abs=60)
    assert kept.end - kept.start == 300


def test_partitions_node_sets_and_names(cluster: Cluster) -> None:
    assert [n.name for n in read(cluster, partitions=["small"]).nodes] == ["r1", "r2"]
    assert [n.name for n in read(cluster, nodes="r[2-3]").nodes] == ["r2", "r3"]
    qualified = read(cluster, partitions=["small"], qualified=True)
    assert [n.name for n in qualified.nodes] == ["alpha/r1", "alpha/r2"]
    assert {n.address for n in qualified.nodes} == {"127.0.0.1"}
    powers = read(cluster, power=0.5, power_by_node={"r[1-2]": 0.25}).nodes
    assert [node.power for node in powers] == [0.25, 0.25, 0.5, 0.5, 0.5, 0.5]


def test_handed_jobs_are_seen_and_held(site: SlurmTestbed, cluster: Cluster) -> None:
    by_partition = submit(cluster, "-p", "coalloc", "-N2", "-t", "3")
    array = submit(cluster, "-p", "coalloc", "-a", "0-2", "-t", "3")
    held = submit(cluster, "-p", "coalloc", "--hold", "-t", "3")
    after = submit(cluster, "-p", "coalloc", "-d", f"afterok:{held}", "-t", "3")
    by_comment = submit(cluster, "--hold", "--comment", "order", "-t", "3")
    strange = submit(cluster, "--hold", "--comment", "order me", "-t", "3")
    given = {
        "partition": "main",
        "handover_partition": "coalloc",
        "handover_comment": "order",
    }
    assert read(cluster).handed == ()
    jobs = {job.id: job for job in read(cluster, **given).handed}
    assert strange not in jobs
    assert {i: job.waits for i, job in jobs.items()} == {
        by_partition: "",
        f"{array}_0": "",
        f"{array}_1": "",
        f"{array}_2": "",
        held: "JobHeldUser",
        after: "Dependency",
        by_comment: "",
    }
    first = jobs[by_partition]
    assert (first.procs, first.time_limit, first.user) == (2, 180.0, "root")
    assert first.submitted == pytest.approx(time.time(), abs=20)


def test_what_slurm_would_start_by_itself_is_held(site: SlurmTestbed, cluster: Cluster) -> None:
    blocker = submit(cluster, "-w", "r1", "--exclusive", "-t", "5")
    wait_running(site, cluster, blocker)
    job = submit(cluster, "-p", "open", "-w", "r1", "--exclusive", "-t", "3")

    given = settings(partition="main", handover_partition="open")
    reader = SlurmReader(given, cluster.slurm)

    def is_held() -> bool:
        reader.read()
        for act in reader.due():
            act.run()
        return cluster.run("squeue", "-h", "-j", job, "-o", "%r").strip() == "JobHeldAdmin"

    site.wait(is_held, "a job that a partition in use would start is held")


class Counted(Slurm):
    """Commands that are counted."""

    def run(self, name: str, *arguments: str, **kwargs: object) -> str:
        COUNTED.append(name)
        return super().run(name, *arguments, **kwargs)  # type: ignore[arg-type]


COUNTED: list[str] = []


def test_a_long_queue_costs_one_call_per_kind(cluster: Cluster) -> None:
    submit(cluster, "--hold", "-a", "1-500", "-t", "1")
    reader = SlurmReader(settings(pending="respect"), Counted(conf=str(cluster.conf)))
    reader.read()
    COUNTED.clear()
    begun = time.monotonic()
    reading = reader.read()
    spent = time.monotonic() - begun
    assert reading.waiting == 500
    assert COUNTED == ["squeue", "scontrol"], "what rarely changes is not asked for each time"
    assert spent < settings().command_limit_s


def test_unreachable_is_not_empty(cluster: Cluster, tmp_path: Path) -> None:
    absent = tmp_path / "slurm.conf"
    absent.write_text(
        "ClusterName=gone\nSlurmctldHost=localhost\nSlurmctldPort=1\n"
        f"AuthInfo=socket={cluster.folder.parent}/munge/socket\n"
        "NodeName=g1\nPartitionName=main Nodes=ALL\n"
    )
    reader = SlurmReader(settings(command_limit_s=1.0), Slurm(conf=str(absent)))
    with pytest.raises(AdapterError, match="squeue"):
        reader.read()
    slow = SlurmReader(replace(settings(), command_limit_s=1e-4), cluster.slurm)
    with pytest.raises(AdapterError, match=r"no answer within 0\.0001 s"):
        slow.read()
