"""Jobs over Grid Engine cells and other clusters, from the submit to the last exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.gridengine import GridEngineTestbed
from tests.testbeds.mixed_site import MixedSite
from tests.testbeds.slurm import alike, missing
from tests.testbeds.slurm import bed as slurm_bed


@pytest.fixture
def site(cells: GridEngineTestbed, root: Path) -> Iterator[MixedSite]:
    with MixedSite(root, cells) as running:
        yield running
    for cell in cells:
        cell.delete_all()
        cells.wait(cell.is_idle, "all is idle again")


def output(site: MixedSite, job: str) -> list[str]:
    return (site.work / f"coalloc-{job}.out").read_text().splitlines()


def test_job_wider_than_any_cluster(site: MixedSite) -> None:
    """Two cells of four slots and two local nodes: nine processes need all three."""
    text = 'echo "$COALLOC_RANK $COALLOC_SIZE $COALLOC_CLUSTER"'
    job = site.submit(["sh", "-c", text], 9)
    ended = site.wait(job)
    assert ended["state"] == "completed", ended
    assert len(ended["clusters"]) == 3
    assert ended["skew_ms"] is not None
    rows = [line.split() for line in output(site, job)]
    assert sorted(int(row[0]) for row in rows) == list(range(9))
    assert {row[1] for row in rows} == {"9"}
    assert {row[2] for row in rows} == {"p", "q", "alpha"}


def test_a_stream_of_jobs_runs_to_the_end(site: MixedSite) -> None:
    widths = [1, 3, 2, 10, 4, 1, 6, 2]
    jobs = {site.submit(["sh", "-c", f"exit {n % 2}"], n): n for n in widths}
    for job, procs in jobs.items():
        ended = site.wait(job)
        assert ended["state"] == ("failed" if procs % 2 else "completed"), ended
        assert ended["exit_code"] == procs % 2


def test_local_job_is_waited_for(site: MixedSite, cells: GridEngineTestbed) -> None:
    """A job of the cell's own has two slots of p; ours needs every slot there is."""
    number = cells["p"].submit("-pe", "smp", "2", "-l", "h_rt=600")
    cells.wait(lambda: cells["p"].status().queues[0].used == 2, "it runs")
    site.until(lambda: site.free("p") == 2)
    mark = site.work / "began"
    job = site.submit(["touch", str(mark)], 10)
    site.until(lambda: site.job(job)["state"] == "pending" and bool(site.job(job)["reason"]))
    assert not mark.exists()
    cells["p"].run("qdel", number)
    assert site.wait(job)["state"] == "completed"
    assert mark.exists()


def test_cancelled_job_ends_everywhere(site: MixedSite, cells: GridEngineTestbed) -> None:
    job = site.submit(["sleep", "600"], 8)
    site.until(lambda: site.job(job)["state"] == "running")
    assert site.ask("cancel", job=job)["type"] == "done"
    assert site.wait(job)["state"] == "cancelled"
    for cell in cells:
        cells.wait(cell.is_idle, "its jobs are gone")


def test_killed_daemon_and_executor_find_the_job_again(site: MixedSite) -> None:
    go = site.work / "go"
    job = site.submit(["sh", "-c", f"echo up; while ! test -e {go}; do sleep 0.1; done"], 9)
    site.until(lambda: site.job(job)["state"] == "running")
    site.kill("p")
    site.kill("coallocd")
    site.start_daemon()
    site.start_executor("p")
    site.until(lambda: site.job(job)["state"] == "running")
    go.touch()
    assert site.wait(job)["state"] == "completed"
    assert output(site, job) == ["up"] * 9


@pytest.mark.skipif(bool(missing()), reason=f"Slurm is not installed: {missing()}")
def test_one_job_over_grid_engine_slurm_and_this_machine(
    cells: GridEngineTestbed, root: Path
) -> None:
    with slurm_bed(*alike(1, 2)) as others, MixedSite(root, cells, others) as site:
        job = site.submit(["sh", "-c", "echo $COALLOC_CLUSTER"], 12)
        ended = site.wait(job)
        assert ended["state"] == "completed", ended
        assert sorted(output(site, job)) == sorted(
            ["p"] * 4 + ["q"] * 4 + ["alpha"] * 2 + ["a"] * 2
        )
        assert ended["skew_ms"] is not None
        print(f"skew {ended['skew_ms']} ms")
