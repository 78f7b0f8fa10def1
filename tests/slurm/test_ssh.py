"""Jobs over clusters that are reached by ssh alone, as an ordinary user of theirs."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.ssh_kills import LASTING, battered, ends_once, hit_of, site_by_ssh, submitted
from tests.testbeds.slurm import alike, bed
from tests.testbeds.ssh import masters, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")


def test_a_job_outlives_every_connection(root: Path) -> None:
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running) as (site, nodes, ada):
        lines = Path(ada.pw_dir) / "lines"
        job = submitted(site, ada, lines, 3.0)
        site.until(lambda: lines.exists() and len(lines.read_text().split()) == 8)
        for pid in masters(ada):
            os.kill(pid, signal.SIGKILL)
        ends_once(site, job, lines)
        assert [node.accepted for node in nodes.values()] == [2, 2]


@pytest.mark.parametrize(
    ("seeds", "longest_s"),
    [
        pytest.param(range(8), 1.0, marks=pytest.mark.slow),
        pytest.param(range(100), 30.0, marks=pytest.mark.nightly),
    ],
    ids=["some", "many"],
)
def test_whatever_is_killed_or_cut_a_job_runs_once(
    root: Path, seeds: range, longest_s: float
) -> None:
    with battered(root) as site:
        for seed in seeds:
            hit = hit_of(seed, longest_s)
            assert not (why := site.suffer(str(seed), hit)), f"{seed} {hit}: {why}"
        assert not (left := site.left()), left


@pytest.mark.nightly
@pytest.mark.parametrize("what", LASTING)
def test_ten_minutes_without_a_connection(root: Path, what: str) -> None:
    with battered(root) as site:
        hit = replace(hit_of(0, 1.0), what=what, where=("a", "b"), lasts_s=600.0, run_s=5.0)
        assert not (why := site.suffer(what, hit)), why
        assert not (left := site.left()), left


def test_nodes_that_reach_nobody_start_together_and_leave_nothing(root: Path) -> None:
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running, "files") as (site, nodes, ada):
        lines = Path(ada.pw_dir) / "lines"
        ends_once(site, submitted(site, ada, lines, 0.5), lines)
        failed = site.wait(site.submit(["sh", "-c", "exit 3"], 1, cwd=ada.pw_dir))
        assert (failed["state"], failed["exit_code"]) == ("failed", 3)
        wrong = site.wait(site.submit(["no-such-program"], 1, cwd=ada.pw_dir))
        assert "no-such-program: no such command" in wrong["detail"]
        long = site.submit(["sleep", "600"], 4, cwd=ada.pw_dir)
        site.until(lambda: site.job(long)["state"] == "running")
        site.ask("cancel", job=long)
        assert site.wait(long)["state"] == "cancelled"
        site.bed.wait(lambda: all(each.is_idle() for each in site.bed), "no job is left")
        site.bed.wait(lambda: not Path(ada.pw_dir, ".coalloc").exists(), "no file is left")
        assert [node.accepted for node in nodes.values()] == [1, 1]


@pytest.mark.nightly
def test_jobs_by_files_outlive_kills_at_any_time(root: Path) -> None:
    draw = random.Random("files")
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running, "files") as (site, _, ada):
        for number in range(24):
            lines = Path(ada.pw_dir) / f"lines{number}"
            job = submitted(site, ada, lines, 1.0)
            time.sleep(draw.uniform(0.0, 6.0))
            name = draw.choice("ab")
            if number % 2:
                os.kill(draw.choice(masters(ada)), signal.SIGKILL)
            else:
                site.kill(name)
                site.start_executor(name)
            ends_once(site, job, lines)
        site.bed.wait(lambda: not Path(ada.pw_dir, ".coalloc").exists(), "no file is left")
