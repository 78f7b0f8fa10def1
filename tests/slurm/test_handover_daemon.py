"""Jobs that start in Slurm, ordered by a real daemon and let go by a real executor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.model.formats.nodeset import expand
from tests.support.live_site import Running
from tests.testbeds.slurm import Cluster, ClusterShape, SlurmTestbed, bed

SETTINGS = (
    'adapter = "slurm"\nsettings = {{ conf = "{conf}", load = "none", partition = "main", '
    'handover_partition = "coalloc" }}'
)


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmTestbed]:
    shape = ClusterShape(
        name="g",
        nodes=4,
        conf="KillWait=2",
        partitions="PartitionName=coalloc Nodes=ALL State=DOWN",
    )
    with bed(shape) as running:
        yield running


@pytest.fixture
def cluster(site: SlurmTestbed) -> Iterator[Cluster]:
    cluster = site["g"]
    yield cluster
    cluster.run("scancel", "-u", "root")
    site.wait(lambda: not cluster.run("squeue", "-h"), "every job has gone")


@pytest.fixture
def service(root: Path, cluster: Cluster) -> Iterator[Running]:
    running = Running(root, clusters={"gamma": 1})
    text = running.config.read_text()
    written = re.sub(r"settings = .*", SETTINGS.format(conf=cluster.conf), text)
    running.config.write_text(written)
    running.start()
    yield running
    running.stop()


def submit(cluster: Cluster, *options: str, command: str = "true") -> str:
    answer = cluster.run(
        *("sbatch", "--parsable", "-p", "coalloc", "-o", "/dev/null", "-t", "5"),
        *options,
        *("--wrap", command),
    )
    return answer.strip()


def handed(service: Running) -> dict[str, dict[str, object]]:
    """Jobs of ours by their id in Slurm."""
    jobs = service.ask("queue", all=True)["jobs"]
    return {job["foreign"]: job for job in jobs if job["origin"] == "gamma"}


def state(service: Running, job: str) -> str:
    return str(handed(service).get(job, {}).get("state", ""))


def test_they_queue_with_ours_and_run_in_order(service: Running, cluster: Cluster) -> None:
    # Its first three nodes are chosen by our rounds, so the second must wait for it.
    first = submit(cluster, "-N3", "-n3", "-J", "first", command="srun -n3 sleep 2")
    service.until(lambda: state(service, first) == "running")
    second = submit(cluster, "-N2", "-n2", "-J", "second", command="exit 5")
    service.until(lambda: state(service, second) == "pending")
    assert cluster.run("squeue", "-h", "-j", second, "-o", "%T %P").strip() == "PENDING coalloc"
    service.until(lambda: state(service, second) == "failed")
    jobs = handed(service)
    assert set(jobs) == {first, second}
    assert (jobs[first]["state"], jobs[first]["name"]) == ("completed", "first")
    assert jobs[second]["exit_code"] == 5
    for job in (first, second):
        where = cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%N").strip()
        assert set(expand(where)) == set(service.job(str(jobs[job]["id"]))["nodes"])
    # Ours had to be over before Slurm got the second.
    ends, starts = jobs[first]["ended"], jobs[second]["started"]
    assert isinstance(ends, float)
    assert isinstance(starts, float)
    assert starts >= ends
    details = service.job(str(jobs[first]["id"]))
    assert details["job"]["clusters"] == ["gamma"]
    assert details["events"][0]["kind"] == "job_handed_over"


def test_cancelled_on_either_side(service: Running, cluster: Cluster) -> None:
    filler = submit(cluster, "-N4", command="sleep 600")
    service.until(lambda: state(service, filler) == "running")
    here, there = submit(cluster, "-N4"), submit(cluster, "-N4")
    service.until(lambda: {here, there} <= set(handed(service)))
    service.ask("cancel", job=handed(service)[here]["id"])
    cluster.run("scancel", there)
    service.until(lambda: state(service, there) == "cancelled")

    def is_cancelled() -> bool:
        answer = cluster.run("squeue", "-h", "-t", "all", "-j", here, "-o", "%T")
        return answer.strip() == "CANCELLED"

    service.until(is_cancelled)
    service.ask("cancel", job=handed(service)[filler]["id"])
    service.until(lambda: state(service, filler) == "cancelled")


def test_a_job_runs_once_though_both_are_killed(
    service: Running, cluster: Cluster, root: Path
) -> None:
    log = root / "runs"
    log.touch(mode=0o666)
    jobs = [submit(cluster, "-N1", command=f"echo $SLURM_JOB_ID >> {log}; sleep 1") for _ in "abc"]
    service.until(lambda: bool(handed(service)))
    for name in ("gamma", "coallocd"):
        service.kill(name)
    service.start_daemon()
    service.start_executor("gamma")
    service.until(lambda: all(state(service, job) == "completed" for job in jobs))
    assert sorted(log.read_text().split()) == sorted(jobs)
    assert len(handed(service)) == len(jobs)
