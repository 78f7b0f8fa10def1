"""The real daemon under ``policy = "oas"``: a stream of jobs to the end, and no fallback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_site import ROUNDS_ALONE, Running, warm_site

WARM_S = 600.0


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    with warm_site(
        root, WARM_S, policy="oas", rounds=f"time_limit_s = 20.0\n{ROUNDS_ALONE}"
    ) as running:
        yield running


@pytest.mark.slow
def test_a_stream_of_jobs_runs_under_oas_alone(site: Running) -> None:
    warm = len(site.lines("round_finished"))
    widths = (3, 6, 1, 8, 2, 5, 4, 1, 7, 2)
    jobs = [site.submit(["true"], procs, job={"proc_gbps": 0.02}) for procs in widths]
    for job in jobs:
        details = site.wait(job)
        assert details["state"] == "completed", details
        assert details["policy"] == "oas"
    # A round with an empty queue needs no solver.
    rounds = [line for line in site.lines("round_finished")[warm:] if line["queued"]]
    assert rounds
    assert {line["policy"] for line in rounds} == {"oas"}
    for line in rounds:
        assert line["status"] in ("optimal", "feasible", "time_limit")
        assert line["bound"] is not None
        assert line["bound"] <= line["objective"]
    assert not site.lines("policy_failed")
    assert not site.lines("solver_policy_failed")
