"""The end of a part's job in Slurm, with commands that answer from a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from coalloc.adapters.slurm.part_job import SlurmJob
from tests.support.part_specs import batch_spec

MARK = batch_spec()["token"]["comment"]


@pytest.fixture
def job(tmp_path: Path) -> SlurmJob:
    site = {"conf": "", "bin": str(tmp_path), "exclusive": False}
    return SlurmJob(batch_spec(site=site), str(tmp_path), "7")


def spell(folder: Path, name: str, text: str) -> None:
    """Write a command; it knows its folder as ``$here``."""
    path = folder / name
    path.write_text(f"#!/bin/sh\nhere={folder}\n{text}\n")
    path.chmod(0o755)


def test_nodes_that_are_cleaned_up_for_long_are_waited_for(tmp_path: Path, job: SlurmJob) -> None:
    """Ten looks take more than a second."""
    spell(
        tmp_path,
        "squeue",
        'echo >> $here/asked; [ "$(wc -l < $here/asked)" -gt 10 ] || echo COMPLETING',
    )
    spell(tmp_path, "scancel", "touch $here/cancelled")
    assert job.release(has_run=True)
    assert not (tmp_path / "cancelled").exists(), "it is accounted as completed"


def test_a_job_that_was_requeued_after_its_run_is_cancelled(tmp_path: Path, job: SlurmJob) -> None:
    spell(tmp_path, "squeue", f"[ -e $here/cancelled ] || {listed(MARK)}")
    spell(tmp_path, "scancel", 'echo "$@" > $here/cancelled')
    assert job.release(has_run=True)
    assert (tmp_path / "cancelled").read_text() == "7\n"


def test_a_number_that_was_given_again_is_not_cancelled(tmp_path: Path, job: SlurmJob) -> None:
    """A slurmctld that was killed gives its last numbers again: this one is another claim's."""
    spell(tmp_path, "squeue", listed(MARK + "0"))
    spell(tmp_path, "scontrol", f"echo JobId=7 JobState=RUNNING Reason=None Comment={MARK}0")
    spell(tmp_path, "scancel", "touch $here/cancelled")
    job.cancel()
    assert job.release(has_run=True)
    assert job.release(has_run=False)
    assert not (tmp_path / "cancelled").exists()
    assert job.state() == ("", "")
    turn = job.turn()
    assert turn is not None
    assert turn.state == ""


def listed(mark: str) -> str:
    """The pending job as squeue lists it, by what it is asked for."""
    return f'case "$*" in *%i*) echo "7 {mark}";; *) echo "PENDING {mark}";; esac'
