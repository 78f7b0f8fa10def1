"""``why`` of a real daemon: with a cold solver, a warm one, and from a snapshot it gave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from coalloc.client.client import Client
from tests.support.live_site import Running

WARM_S = 180.0


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    """Its solver finds its kernels compiled."""
    yield from running(root)


@pytest.fixture
def cold_site(root: Path) -> Iterator[Running]:
    """Its solver has everything to compile."""
    yield from running(root, cache=root / "cache")


def running(root: Path, **fields: Any) -> Iterator[Running]:
    with Running(root, policy="easy", rounds="fallbacks = []", **fields) as site:
        yield site


@pytest.fixture
def client(site: Running) -> Iterator[Client]:
    with Client(site.endpoint, timeout_s=30.0) as client:
        yield client


def ask(site: Running, *words: str) -> str:
    command = [sys.executable, "-m", "coalloc.cli.main", "why", *words]
    environ = {**os.environ, "COALLOC_CONFIG": str(site.config)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60.0)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fill(site: Running, **job: Any) -> tuple[str, str]:
    """A job on three of eight nodes for ten minutes, and one that has to wait for them."""
    first = site.submit(["sleep", "600"], 3, job={"base_time": 600.0, "clusters": ["alpha"]})
    site.until(lambda: site.job(first)["state"] == "running")
    return first, site.submit(["true"], 6, job={"base_time": 60.0, "proc_gbps": 0.05, **job})


def test_without_a_solver_it_says_what_it_knows(cold_site: Running) -> None:
    """Stopped before it is warm, the template never becomes so."""
    site = cold_site
    daemon = psutil.Process(site.processes["coallocd"].pid)
    stopped = daemon.children(recursive=True)
    for child in stopped:
        os.kill(child.pid, signal.SIGSTOP)
    try:
        assert not site.lines("solver_warmed"), "to compile takes a minute"
        _, job = fill(site)
        with Client(site.endpoint, timeout_s=30.0) as client:
            why = client.why(job)
        assert "warming up" in why.unexplained
        assert (why.lines, why.explanation) == ((), None)
        assert any("free now: alpha 1, beta 4" in fact for fact in why.facts)
        assert "no explanation: the solver is still warming up" in ask(site, job)
    finally:
        for child in stopped:
            os.kill(child.pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_waiting_job_is_explained(site: Running, client: Client, tmp_path: Path) -> None:
    site.until(lambda: bool(site.lines("solver_warmed")), WARM_S)
    first, job = fill(site)
    site.until(lambda: client.why(job).reason == "planned")
    why = client.why(job)
    assert why.unexplained == ""
    assert why.explanation is not None
    assert why.explanation["policy"] == "easy"
    slots = why.explanation["slots"]
    assert (slots["needed"], slots["free_now"], slots["enders"]) == (6, 5, [first])
    assert {c["kind"] for c in why.explanation["constraints"]} == {"running", "slots"}
    assert any(f"when job {first} ends" in line for line in why.lines)
    assert any("with 5 processes doing the same work" in line for line in why.lines)
    assert "with 5 processes doing the same work" in ask(site, job)

    held = client.submit(["true"], base_time=60.0, hold=True).job
    assert "if it were released it would start now" in ask(site, held)
    needs = client.submit(["true"], base_time=60.0, needs=[("afterok", first)]).job
    assert f"if it did not wait for job {first} it would start now" in ask(site, needs)

    path = tmp_path / "now.json"
    path.write_text(json.dumps(client.snapshot()))
    off_line = json.loads(ask(site, job, "--snapshot", str(path), "--policy", "easy", "--json"))
    assert off_line["explanation"]["slots"]["enders"] == [first]
    assert client.why(first).explanation is None
    client.cancel(first)
    client.wait(job, 60.0)
    assert client.why(job).lines == ()
