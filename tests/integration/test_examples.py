"""The examples do what they say, against a real daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.live_site import Running

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(site: Running, *command: str) -> str:
    """Run a command in the site's work folder as its user would."""
    done = subprocess.run(
        command,
        cwd=site.work,
        env={**os.environ, "COALLOC_CONFIG": str(site.config)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_run(root: Path) -> None:
    site = Running(root)
    site.start()
    try:
        cli = [sys.executable, "-m", "coalloc.cli.main"]
        job = run(site, *cli, "submit", "--parsable", str(EXAMPLES / "hello.sh"), "world").strip()
        assert site.wait(job)["state"] == "completed"
        lines = (site.work / f"coalloc-{job}.out").read_text().splitlines()
        assert len(lines) == 6
        assert "hello world from rank 5 of 6 on beta" in lines
        told = run(site, sys.executable, str(EXAMPLES / "sweep.py"), "0.1", "0.2")
        assert [line.split()[-1] for line in told.splitlines()] == ["completed", "completed"]
        told = run(site, sys.executable, str(EXAMPLES / "watch.py"), "0.1", "0.2")
        kinds = ["job_submitted", "job_placed", "job_started", "job_ended"]
        for value in ("0.1", "0.2"):
            lines = [line for line in told.splitlines() if line.startswith(value)]
            assert lines == [f"{value}: {kind}" for kind in kinds]
        counted = run(site, sys.executable, str(EXAMPLES / "primes.py"), "20000")
        assert counted == "2262 primes below 20000\n"
    finally:
        site.stop()
