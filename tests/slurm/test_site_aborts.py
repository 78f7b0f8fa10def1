"""A co-allocated job of which one cluster cannot start its part: nothing starts anywhere."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.slurm import Cluster, SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite

SELDOM_S = 600.0
"""No reading but the first: the daemon knows nothing of what the test does to a cluster."""


@pytest.fixture
def own() -> Iterator[SlurmTestbed]:
    with bed(*alike(3, 2, conf="SlurmdTimeout=5")) as running:
        yield running


@pytest.fixture
def site(own: SlurmTestbed, root: Path) -> Iterator[SlurmSite]:
    running = SlurmSite(
        root,
        own,
        given={"command_limit_s": 3.0, "start": "salloc"},
        interval_s=SELDOM_S,
        start="backoff_first_s = 0.5\nbackoff_max_s = 1.0\nprepare_timeout_s = 10.0",
    )
    running.config.write_text(
        running.config.read_text().replace("max_age_s = 30.0", "max_age_s = 3600.0")
    )
    running.start()
    yield running
    running.stop()


def holds_claim(cluster: Cluster) -> bool:
    """Whether a part of ours has been given nodes."""
    return "coalloc:" in cluster.run("squeue", "-h", "-t", "R", "-o", "%k")


def refused(site: SlurmSite, job: str) -> bool:
    """Whether an attempt was given up."""
    return any(line["job"] == job for line in site.lines("job_requeued"))


@pytest.mark.slow
def test_cluster_that_refuses(site: SlurmSite, own: SlurmTestbed) -> None:
    """A local user takes a node that the daemon believes to be free."""
    mark = site.work / "began"
    own["b"].run("salloc", "--no-shell", "-w", "b1", "-t", "5", "-J", "local")
    job = site.submit(["touch", str(mark)], 6)
    site.until(lambda: refused(site, job))
    line = site.lines("job_requeued")[0]
    assert line["detail"].startswith("b: srun: "), line
    assert "Resources" in line["detail"]
    assert not mark.exists()
    own["b"].run("scancel", "--name=local")
    assert site.wait(job)["state"] == "completed"
    assert mark.exists()
    own.wait(lambda: all(cluster.is_idle() for cluster in own), "every claim was given back")


@pytest.mark.slow
def test_cluster_that_is_drained(site: SlurmSite, own: SlurmTestbed) -> None:
    mark = site.work / "began"
    own["c"].run("scontrol", "update", "NodeName=c1", "State=DRAIN", "Reason=test")
    job = site.submit(["touch", str(mark)], 6)
    site.until(lambda: refused(site, job))
    assert site.lines("job_requeued")[0]["detail"].startswith("c: ")
    assert not mark.exists()
    own["c"].run("scontrol", "update", "NodeName=c1", "State=RESUME")
    assert site.wait(job)["state"] == "completed"


@pytest.mark.slow
def test_cluster_that_dies_between_prepare_and_start(site: SlurmSite, own: SlurmTestbed) -> None:
    """One slurmctld hangs while the others' parts are at the barrier; then a node there dies."""
    mark = site.work / "began"
    controller = own["c"].controller
    assert controller is not None
    controller.send_signal(signal.SIGSTOP)
    job = site.submit(["touch", str(mark)], 6)
    own.wait(lambda: holds_claim(own["a"]) and holds_claim(own["b"]), "two parts have their nodes")
    own["a"].kill_node("a2")
    site.until(lambda: refused(site, job))
    assert not mark.exists()
    controller.send_signal(signal.SIGCONT)
    own["a"].start_node("a2")
    assert site.wait(job)["state"] == "completed"
    assert mark.exists()
    own.wait(lambda: all(cluster.is_idle() for cluster in own), "no claim is left behind", 60.0)
