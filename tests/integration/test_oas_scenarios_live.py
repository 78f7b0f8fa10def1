"""The real daemon under `oas` with scenarios: jobs to the end, and its own history used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_site import Running, warm_site

WARM_S = 600.0
ROUNDS = """\
time_limit_s = 2.0

[rounds.options]
scenarios = 8
scenario_objective = "p90"
"""


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    with warm_site(root, WARM_S, policy="oas", rounds=ROUNDS) as running:
        yield running


@pytest.mark.slow
def test_jobs_run_to_the_end_over_scenarios_of_their_history(site: Running) -> None:
    warm = len(site.lines("round_finished"))
    go = site.work / "go"
    short = ["sh", "-c", "true"]
    for job in [site.submit(short, 2) for _ in range(3)]:
        assert site.wait(job)["state"] == "completed"
    waits = ["sh", "-c", f"until test -e {go}; do sleep 0.05; done"]
    jobs = [site.submit(waits, 8), *(site.submit(short, n) for n in (3, 6, 1, 8, 2, 5, 4))]

    def stats() -> dict[str, Any]:
        """Of the newest plan, if all but one job wait in it."""
        answer = site.ask("plan")["plan"] or {"plan": {"placements": ()}}
        plan = answer["plan"]
        found: dict[str, Any] = plan["stats"] if len(plan["placements"]) >= 7 else {}
        return found

    # Only the history can have made samples differ.
    site.until(lambda: stats().get("scenarios") == 8)
    assert stats()["scenario_p90"] <= stats()["deterministic_p90"] * (1 + 1e-9)
    go.touch()
    for job in jobs:
        details = site.wait(job)
        assert details["state"] == "completed", details
        assert details["policy"] == "oas"
    rounds = [line for line in site.lines("round_finished")[warm:] if line["queued"]]
    assert rounds
    assert {line["policy"] for line in rounds} == {"oas"}
    assert not site.lines("policy_failed")
    assert not site.lines("solver_policy_failed")
