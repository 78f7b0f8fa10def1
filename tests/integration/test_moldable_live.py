"""Moldable jobs under the real daemon: sizes that reach their processes, and a batch's barrier."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_site import ROUNDS_ALONE, Running, warm_site

WARM_S = 400.0
POLICIES = ("bicriteria", "bicriteria-batch", "auto")
TIMES = [8.0, 4.5, 3.2, 2.6]


@pytest.fixture(params=POLICIES)
def site(root: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    with warm_site(root, WARM_S, rounds=ROUNDS_ALONE, policy=request.param) as running:
        yield running


@pytest.fixture
def batches(root: Path) -> Iterator[Running]:
    with warm_site(root, WARM_S, rounds=ROUNDS_ALONE, policy="bicriteria-batch") as running:
        yield running


def submit_moldable(site: Running, argv: Sequence[str], times: Sequence[float] = TIMES) -> str:
    body = site.submission(argv)
    body["job"] = {"kind": "moldable", "times": list(times)}
    return str(site.ask("submit", **body)["job"])


def processes(details: dict[str, Any]) -> int:
    return sum(count for part in details["parts"] for count in part["nodes"].values())


@pytest.mark.slow
def test_every_job_ends_under_the_policy_named_in_the_file(site: Running) -> None:
    policy = site.config.read_text().partition('policy = "')[2].partition('"')[0]
    script = 'echo "$COALLOC_SIZE" > "size.$COALLOC_JOB_ID.$COALLOC_RANK"'
    moldable = [submit_moldable(site, ["sh", "-c", script]) for _ in range(5)]
    rigid = [site.submit(["true"], procs, job={"proc_gbps": 0.02}) for procs in (1, 6, 2)]
    for job in (*moldable, *rigid):
        details = site.wait(job)
        assert details["state"] == "completed", details
        assert details["policy"] == policy
    for job in moldable:
        size = processes(site.job(job))
        written = [path.read_text().strip() for path in site.work.glob(f"size.{job}.*")]
        assert written == [str(size)] * size
    assert not site.lines("policy_failed")
    assert not site.lines("solver_policy_failed")
    used = {line["policy"] for line in site.lines("round_finished") if line["started"]}
    assert used == {policy}


@pytest.mark.slow
def test_the_barrier_of_a_batch_outlives_the_daemon(batches: Running) -> None:
    site = batches
    waits = ["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]
    first = submit_moldable(site, waits, [3600.0])
    site.until(lambda: site.job(first)["state"] == "running")
    second = submit_moldable(site, ["true"], [1.0])
    site.until(lambda: site.job(second)["reason"] == "planned")
    # A daemon whose solver is not warm plans by arrival alone, and knows no barrier.
    site.ask("pause_rounds")
    warmed = len(site.lines("solver_warmed"))
    site.kill("coallocd", signal.SIGKILL)
    site.start_daemon()
    site.until(site.is_complete)
    site.until(lambda: len(site.lines("solver_warmed")) > warmed, WARM_S)
    rounds = len(site.lines("round_finished"))
    site.ask("resume_rounds")
    site.ask("round_now")
    site.until(lambda: len(site.lines("round_finished")) > rounds)
    assert site.lines("round_finished")[-1]["policy"] == "bicriteria-batch"
    assert site.job(second)["state"] == "pending"
    (site.work / "go").touch()
    assert site.wait(first)["state"] == "completed"
    ended = site.wait(second)
    assert ended["state"] == "completed"
    assert ended["policy"] == "bicriteria-batch"
