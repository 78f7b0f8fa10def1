"""The examples do what they say, against a real daemon."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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


CLI = [sys.executable, "-m", "coalloc.cli.main"]
MPI = {
    # Several of Open MPI's daemons are on one machine here, which may have loopback alone.
    "PMIX_MCA_gds": "hash",
    "MPIRUN_OPTIONS": "--oversubscribe --mca oob_tcp_if_include lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    root = Path(tempfile.mkdtemp(prefix="co-"))
    with Running(root) as site:
        yield site
    shutil.rmtree(root, ignore_errors=True)


def output(site: Running, *command: str) -> list[str]:
    """Submit six processes, which is more than one cluster has; the lines that they print."""
    words = ["--parsable", "-n", "6", "--bandwidth", "75Mbps", "-t", "1m", "--", *command]
    job = run(site, *CLI, "submit", *words).strip()
    ended = site.wait(job)
    lines = (site.work / f"coalloc-{job}.out").read_text().splitlines()
    assert ended["state"] == "completed", (ended["detail"], lines)
    assert ended["clusters"] == ["alpha", "beta"]
    return lines


def test_supersteps_over_two_clusters(site: Running) -> None:
    lines = output(site, str(EXAMPLES / "bsp.py"), "3")
    assert [line.partition(",")[0] for line in lines] == [
        f"superstep {step}: 12000 keys sorted by 6 ranks" for step in (1, 2, 3)
    ]


def test_training_over_two_clusters(site: Running) -> None:
    (line,) = output(site, str(EXAMPLES / "train.py"))
    assert re.fullmatch(r"6 ranks with (Torch|Sockets): 3\.000 x -1\.000", line)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_mpirun_over_two_clusters(site: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in MPI.items():
        monkeypatch.setenv(name, value)
    rank = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"'
    lines = output(site, str(EXAMPLES / "mpirun.py"), "sh", "-c", rank)
    # Open MPI may warn besides, of its own daemons
    ranks = sorted(line for line in lines if line.startswith("rank "))
    assert ranks == [f"rank {rank} of 6" for rank in range(6)]


def test_the_examples_run(site: Running) -> None:
    job = run(site, *CLI, "submit", "--parsable", str(EXAMPLES / "hello.sh"), "world").strip()
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
