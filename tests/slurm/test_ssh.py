"""Jobs over clusters that are reached by ssh alone, as an ordinary user of theirs."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.ssh_kills import LASTING, battered, hit_of, site_by_ssh, submitted
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
        ended = site.wait(job)
        assert ended["state"] == "completed", ended
        assert sorted(lines.read_text().split()[1::2]) == list("0123")
        site.bed.wait(lambda: all(each.is_idle() for each in site.bed), "no job is left")
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
