"""The command ``coalloc dashboard`` beside a real daemon: jobs, details, an outage and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.live_site import Running

TOKEN = "f00d" * 8


@contextmanager
def dashboard(site: Running, *options: str) -> Iterator[str]:
    """The process; yields where it serves."""
    command = [sys.executable, "-m", "coalloc.cli.main", "dashboard", "--address", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--config", str(site.config), *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+/", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()


def ask(url: str) -> Any:
    """An answer, with the token."""
    request = Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=20) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_a_dashboard_beside_a_daemon(tmp_path_factory: Any) -> None:
    root: Path = tmp_path_factory.mktemp("d")
    token = root / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with Running(root) as site:
        done = site.submit(["true"])
        site.wait(done)
        with dashboard(site, "--token-file", str(token)) as url:
            api = f"{url}api/v1"
            with pytest.raises(HTTPError, match="401") as refused:
                urlopen(f"{api}/status", timeout=20)
            refused.value.close()
            # what has ended before is known from the accounts
            site.until(lambda: len(ask(f"{api}/timeline")["ended"]) == 1)
            wide = site.submit(["sleep", "60"], 6, job={"proc_gbps": 0.05, "time_limit": 90.0})
            site.until(lambda: len(ask(f"{api}/plan")["bars"]) == 1)
            (bar,) = ask(f"{api}/plan")["bars"]
            assert (bar["job"], bar["kind"], bar["clusters"]) == (
                wide,
                "running",
                ["alpha", "beta"],
            )
            # equation (4): 0.05 * 4 * 2 / 5
            assert {name: round(load, 6) for name, load in bar["link_gbps"].items()} == {
                "alpha": 0.08,
                "beta": 0.08,
            }
            job = ask(f"{api}/jobs/{wide}")
            assert job["output"] == str(site.work / f"coalloc-{wide}.out")
            assert len(job["details"]["record"]["parts"]) == 2
            assert [event["kind"] for event in job["events"]][:2] == ["job_submitted", "job_placed"]

            site.kill("coallocd")
            site.until(lambda: not ask(f"{api}/status")["reachable"])
            status = ask(f"{api}/status")
            assert status["heard"] is not None
            assert status["states"]["running"] == 1, "unreachable is not empty"
            site.start_daemon()
            site.until(lambda: bool(ask(f"{api}/status")["reachable"]))
            site.ask("cancel", job=wide)
            site.until(lambda: ask(f"{api}/jobs?state=cancelled")["total"] == 1)
