"""Memory: asked for as the user says, and kept apart where he says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.slurm import ClusterShape, SlurmTestbed, bed
from tests.testbeds.slurm_site import SlurmSite

SHAPE = ClusterShape(
    name="x",
    nodes=1,
    cpus=4,
    conf="SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory",
)


@pytest.fixture
def site(root: Path) -> Iterator[SlurmSite]:
    with bed(SHAPE) as running, SlurmSite(root, running, given={"slots": "cpus"}) as found:
        yield found


def memory(running: SlurmTestbed) -> list[str]:
    """Of the jobs that run, as Slurm has it for each CPU."""
    return sorted(running["x"].run("squeue", "-h", "-t", "R", "-o", "%m").split())


def test_two_jobs_share_the_memory_of_a_node(site: SlurmSite) -> None:
    jobs = [site.submit(["sleep", "60"], 2) for _ in range(2)]
    site.until(lambda: all(site.job(job)["state"] == "running" for job in jobs))
    assert memory(site.bed) == ["4000M", "4000M"], "16000 MiB over four CPUs"
    assert not site.lines("job_requeued")


def test_memory_that_is_asked_for_reaches_slurm(site: SlurmSite) -> None:
    job = site.submit(["sleep", "60"], 2, job={"memory_mb_per_proc": 500})
    site.until(lambda: site.job(job)["state"] == "running")
    assert memory(site.bed) == ["500M"]
