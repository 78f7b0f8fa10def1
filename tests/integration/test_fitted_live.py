"""Ranges of processes without a speed-up: fitted from what the real daemon saw, or refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live_site import Running

WORK = '#!/bin/sh\nexec sleep "$(awk "BEGIN {print 0.1 + 0.8 / $COALLOC_SIZE}")"\n'


def coalloc(site: Running, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coalloc.cli.main", *words],
        cwd=site.work,
        env={**os.environ, "COALLOC_CONFIG": str(site.config)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def submitted(site: Running, *words: str) -> str:
    done = coalloc(site, "submit", "--parsable", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_two_sizes_are_enough_for_the_third_submit(root: Path) -> None:
    with Running(root, clusters={"alpha": 4}) as site:
        (site.work / "work.sh").write_text(WORK)
        refused = coalloc(site, "submit", "-n", "1-4", "work.sh")
        assert refused.returncode == 1
        assert "give a speed-up (--speedup amdahl:0.95 --base-time TIME)" in refused.stderr
        for size in ("1", "4"):
            job = submitted(site, "-n", size, "--base-time", "1s", "work.sh")
            assert site.wait(job)["state"] == "completed"
        site.kill("coallocd")
        site.start_daemon()
        site.until(site.is_complete)
        fitted = submitted(site, "-n", "1-4", "work.sh")
        assert site.wait(fitted)["state"] == "completed"
        assert (
            "(fitted from 2 runs of work.sh at 2 sizes, error "
            in coalloc(site, "show", fitted).stdout
        )
        details = site.job(fitted)
        assert details["job"]["speedup"]["model"] == "amdahl"
        assert 0.0 < details["job"]["speedup"]["parallel_fraction"] <= 1.0
        # that run counts, too
        again = site.job(submitted(site, "-n", "1-4", "work.sh"))
        assert again["sources"]["speedup_fit"].startswith("3 runs")
        assert site.wait(again["id"])["state"] == "completed"
        warned = coalloc(site, "submit", "--times", "1:10,2:12", "--", "true")
        assert "warning: job 5: time rises or work falls at 2 processes" in warned.stderr
