"""The real daemon under compiled policies: by name, after reloads, and when the solver dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.live_site import ROUNDS_ALONE, Running, warm_site

WARM_S = 400.0
POLICIES = ("auto", "easy", "conservative", "fcfs", "sjf", "bjf", "fpfs", "spt", "lpt")


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    with warm_site(root, WARM_S, policy="auto", rounds=ROUNDS_ALONE) as running:
        yield running


def set_policy(site: Running, old: str, new: str) -> None:
    """Change the policy and reload, as an operator would."""
    text = site.config.read_text()
    site.config.write_text(text.replace(f'policy = "{old}"', f'policy = "{new}"'))
    reloads = len(site.lines("configuration_reloaded"))
    site.processes["coallocd"].send_signal(signal.SIGHUP)
    site.until(lambda: len(site.lines("configuration_reloaded")) > reloads)


@pytest.mark.slow
def test_every_policy_runs_a_stream_of_jobs_under_its_own_name(site: Running) -> None:
    current = "auto"
    for policy in POLICIES:
        if policy != current:
            set_policy(site, current, policy)
            current = policy
        rigid = [site.submit(["true"], procs, job={"proc_gbps": 0.02}) for procs in (1, 6, 2, 8)]
        moldable = {"kind": "moldable", "times": [4.0, 2.5, 2.0]}
        body = site.submission(["sh", "-c", "echo $COALLOC_SIZE"])
        body["job"] = moldable
        jobs = [*rigid, str(site.ask("submit", **body)["job"])]
        for job in jobs:
            details = site.wait(job)
            assert details["state"] == "completed", details
            assert details["policy"] == policy
        used = {line["policy"] for line in site.lines("round_finished") if line["started"]}
        assert policy in used
    assert not site.lines("policy_failed")


@pytest.mark.slow
def test_a_dead_solver_costs_a_fallback_and_not_the_service(site: Running) -> None:
    daemon = psutil.Process(site.processes["coallocd"].pid)
    for child in daemon.children(recursive=True):
        os.kill(child.pid, signal.SIGKILL)
    assert site.wait(site.submit(["true"]))["state"] == "completed"
    site.until(lambda: len(site.lines("solver_warmed")) == 2, WARM_S)
    job = site.submit(["true"])
    assert site.wait(job)["state"] == "completed"
    assert site.job(job)["policy"] == "auto"


@pytest.mark.slow
def test_a_stopped_solver_is_late_and_the_round_falls_back(site: Running) -> None:
    """A solver that hangs is killed at its limit; the chain ends in one that needs no solver."""
    daemon = psutil.Process(site.processes["coallocd"].pid)
    children: set[psutil.Process] = set()
    # Again until there are no new ones: the template may just be making a spare.
    while new := set(daemon.children(recursive=True)) - children:
        for child in new:
            os.kill(child.pid, signal.SIGSTOP)
        children |= new
    job = site.submit(["true"], 2)
    site.until(lambda: site.job(job)["state"] == "completed", 120.0)
    assert site.job(job)["policy"] == "plain"
    tried = [line["policy"] for line in site.lines("policy_failed")]
    assert tried == ["auto", "easy", "fcfs"]
    for child in children:
        if child.is_running():
            os.kill(child.pid, signal.SIGCONT)
