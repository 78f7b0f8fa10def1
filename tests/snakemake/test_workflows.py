"""Workflows that real Snakemake runs on a real daemon with real executors."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

from tests.snakemake import flows
from tests.support.live_site import Running


def jobs_of(site: Running, rule: str) -> list[dict[str, Any]]:
    """Details of a rule's jobs."""
    rows = site.ask("queue", all=True)["jobs"]
    return [site.job(row["id"]) for row in rows if row["name"] == f"snakemake-{rule}"]


def test_a_fan_and_a_join_with_resources(site: Running, tmp_path: Path) -> None:
    code, said = flows.run(site, tmp_path, flows.FAN)
    assert code == 0, said
    lines = (tmp_path / "joined").read_text().split("\n")
    assert sorted(lines[:3]) == ["0", "1", "2"]
    assert lines[3] == "threads 2"
    parts, (join,) = jobs_of(site, "map"), jobs_of(site, "join")
    assert len(parts) == 3
    assert {part["job"]["time_limit"] for part in parts} == {300.0}
    assert {part["job"]["memory_mb_per_proc"] for part in parts} == {64}
    assert {part["job"]["procs"] for part in parts} == {1}
    asked = join["job"]
    assert (asked["procs"], asked["shape"]) == (1, {"cpus_per_proc": 2})
    assert (asked["memory_mb_per_proc"], asked["base_time"]) == (100, 20.0)
    assert (asked["time_limit"], asked["weight"]) == (420.0, 2.5)
    assert join["nodes"] == {"beta1": 1}
    assert not (tmp_path / ".snakemake" / "coalloc_logs").exists()


def test_failures_name_the_log_and_are_retried(site: Running, tmp_path: Path) -> None:
    code, said = flows.run(site, tmp_path, flows.FAILING, "--keep-going", "--retries", "1")
    assert code == 1, said
    assert (tmp_path / "good").exists()
    assert (tmp_path / "second").exists()
    assert len(jobs_of(site, "second")) == 2
    bad = jobs_of(site, "bad")
    assert len(bad) == 2
    for job in bad:
        assert f"coalloc job {job['id']} ended with exit code" in said
        log = next(iter(re.findall(rf"\S*coalloc_logs/rule_bad/{job['id']}\.log", said)))
        assert "the reason is here" in Path(log).read_text()


def test_an_interrupt_ends_the_jobs(site: Running, tmp_path: Path) -> None:
    process = flows.started(site, tmp_path, flows.LONG)
    try:
        site.until(lambda: all((tmp_path / f"running{n}").exists() for n in range(2)))
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=80)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0, said
    assert {job["state"] for job in jobs_of(site, "long")} == {"cancelled"}


def test_a_daemon_killed_in_mid_run_and_a_job_that_is_taken_away(root: Path) -> None:
    site = Running(root, clusters={"alpha": 2})
    site.start()
    folder = root / "flow"
    process = flows.started(site, folder, flows.LONG, "--retries", "1")
    try:
        site.until(lambda: all((folder / f"running{n}").exists() for n in range(2)))
        site.kill("coallocd")
        site.start_daemon()
        (folder / "running0").unlink()
        lost = next(
            job["id"] for job in jobs_of(site, "long") if "long:n=0" in job["launch"]["script"]
        )
        assert site.ask("cancel", job=lost)["type"] == "done"
        site.until((folder / "running0").exists)
        (folder / "gate").touch()
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert f"job {lost} cancelled" in said
        assert sorted(job["state"] for job in jobs_of(site, "long")) == [
            "cancelled",
            "completed",
            "completed",
        ]
    finally:
        process.kill()
        process.wait()
        site.stop()


def test_what_cannot_run_says_so(site: Running, tmp_path: Path) -> None:
    code, said = flows.run(site, tmp_path / "wide", flows.WIDE)
    assert code == 1
    assert "coalloc: needs 9 processes; 2 slots exist" in said
    code, said = flows.run(site, tmp_path / "misspelt", flows.MISSPELT)
    assert code == 1
    assert "coalloc_bandwith: there is no such resource; coalloc_procs" in said
