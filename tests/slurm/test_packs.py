"""An array through real Slurm: few batch jobs for many members, each of which runs once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.testbeds.slurm import alike, bed
from tests.testbeds.slurm_site import SlurmSite

TASKS = 300
START = "prepare_timeout_s = 30.0\nbackoff_first_s = 0.2\nbackoff_max_s = 2.0"


def test_members_run_once_while_an_executor_and_a_batch_job_are_killed(root: Path) -> None:
    """Each task leaves its own mark: who runs it, and in which job of Slurm's."""
    marks = root / "marks"
    marks.mkdir(mode=0o777)
    text = f"echo $PPID $COALLOC_SLURM_JOB_ID >> {marks}/$COALLOC_ARRAY_TASK_ID; sleep 0.02"
    with (
        bed(*alike(1, 2, cpus=4)) as running,
        SlurmSite(root, running, given={"slots": "cpus"}, start=START) as site,
    ):
        body = site.submission(["sh", "-c", text], job={"base_time": 0.02})
        body["launch"]["stdout"] = os.devnull
        number = site.ask("submit", **{**body, "array": list(range(TASKS))})["job"]
        site.until(lambda: len(os.listdir(marks)) > TASKS // 4)
        site.kill("a")
        site.start_executor("a")
        site.until(lambda: len(os.listdir(marks)) > TASKS // 2)
        site.until(lambda: killed_one(marks))
        site.until(lambda: not any(site.ask("status")[key] for key in ("waiting", "placed")), 120.0)
        told = {path.name: path.read_text().splitlines() for path in marks.iterdir()}
        ends = {n: str(site.job(f"{number}_{n}")["state"]) for n in range(TASKS)}
        assert not [name for name, lines in told.items() if len(lines) > 1]
        lost = [n for n, state in ends.items() if state == "lost"]
        assert len(lost) <= 1, "what ran in the batch job that was killed"
        assert {state for n, state in ends.items() if n not in lost} == {"completed"}
        # A member may be killed before it leaves its mark.
        assert set(map(str, ends)) - told.keys() <= set(map(str, lost))
        batch_jobs = {lines[0].split()[1] for lines in told.values()}
        assert len(batch_jobs) <= TASKS // 4
        running.wait(running["a"].is_idle, "no claim is left")


def killed_one(marks: Path) -> bool:
    """Kill what runs the newest of the members; whether it was there."""
    newest = max(marks.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    try:
        os.kill(int(newest.read_text().split()[0]), signal.SIGKILL)
    except (IndexError, ProcessLookupError):
        return False
    return True
