"""Jobs while daemon, executors and slurmctlds are killed: nothing is lost, nothing runs twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm import stream
from tests.testbeds.slurm import bed
from tests.testbeds.slurm_site import SlurmSite

OPTIONS = {
    "powers": stream.POWERS,
    "interval_s": 1.0,
    "daemon": "keep_ended = 100000",
    "start": "prepare_timeout_s = 30.0\nbackoff_max_s = 10.0",
}


def ends_once(
    root: Path, *, scale: int, count: int, mean_s: float, kills: int, every_s: float
) -> None:
    """Every job ends, every process of it was started once, and no node is kept.

    Only Slurm itself may end a job: one whose start a killed slurmctld had not yet written down.
    """
    lines = root / "runs"
    jobs = stream.workload(
        count, widest=2 * scale, mean_s=mean_s, wide=[4 * scale] * max(1, count // 50)
    )
    with (
        bed(*stream.shapes(scale, root)) as running,
        SlurmSite(root, running, **OPTIONS) as site,  # type: ignore[arg-type]
    ):
        chaos = stream.Chaos(site, kills, every_s=every_s) if kills else None
        _, rows = stream.drive(site, jobs, lines, chaos=chaos, limit_s=3400.0)
        assert stream.runs(lines) == stream.expected(jobs)
        done = {row["id"] for row in rows if row["state"] == "completed"}
        forgotten = set() if chaos is None else set(stream.forgotten(rows, chaos.kills))
        others = [row for row in rows if row["id"] not in done | forgotten]
        assert not others, others
        running.wait(
            lambda: all(cluster.is_idle() for cluster in running), "no claim is left", 180.0
        )


@pytest.mark.slow
def test_some_jobs_while_all_is_well(root: Path) -> None:
    ends_once(root, scale=2, count=30, mean_s=1.0, kills=0, every_s=0.0)


@pytest.mark.slow
def test_some_jobs_and_six_kills(root: Path) -> None:
    ends_once(root, scale=2, count=30, mean_s=2.0, kills=6, every_s=5.0)


@pytest.mark.nightly
def test_a_thousand_jobs_and_thirty_kills(root: Path) -> None:
    ends_once(root, scale=8, count=1000, mean_s=8.0, kills=30, every_s=12.0)
