"""The real daemon with the published models as its policy, and the command line with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.papers.mbpc.study import case_2

from coalloc.model.formats.snapshot_json import write_snapshot
from tests.support.live_site import ROUNDS_ALONE, Running

WARM_S = 400.0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mbpc", "jpn", "cbs", "pas", "mbpc-published", "oas-slots"])
def test_a_stream_of_jobs_runs_under_the_policy(root: Path, policy: str) -> None:
    # 6 + 4: cbs wants three quarters of the 8 processes in one cluster
    clusters = {"alpha": 6, "beta": 4}
    with Running(root, policy=policy, clusters=clusters, rounds=ROUNDS_ALONE) as site:
        site.until(lambda: bool(site.lines("solver_warmed")), WARM_S)
        jobs = [site.submit(["true"], n, job={"proc_gbps": 0.02}) for n in (1, 6, 2, 8, 3, 5)]
        for job in jobs:
            details = site.wait(job)
            assert details["state"] == "completed", details
            assert details["policy"] == policy
        used = {line["policy"] for line in site.lines("round_finished") if line["started"]}
        assert used == {policy}
        assert not site.lines("policy_failed")


@pytest.mark.slow
def test_solve_ends_at_its_time_limit_with_a_plan(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(json.dumps(write_snapshot(case_2(0.7, seed=0))))
    command = [sys.executable, "-m", "coalloc.cli.main", "solve", "--policy", "mbpc-published"]
    command += ["--time-limit", "3", str(snapshot)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["status"] == "time_limit"
    assert len(plan["placements"]) == 3
    assert plan["objective"]["bound"] is None or (
        plan["objective"]["bound"] < plan["objective"]["value"]
    )
