"""A part's jobs in OAR, behind commands that only say that they were asked."""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.oar.part_job import OarJob
from tests.support.part_specs import batch_spec

COMMANDS = {
    "oarstat": """echo '{"7": {"name": "coalloc-1"}, "8": {"name": "another"}}'""",
    "oardel": """cd "${0%/*}"; test -e up || { echo "can't connect to it" >&2; exit 2; }
echo $* > it""",
}


def test_a_job_that_may_be_there_is_given_back_only_once_it_is_deleted(tmp_path: Path) -> None:
    for name, text in COMMANDS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    where = str(tmp_path)
    site = {"bin": where, "scripts": where, "queue_wait_s": 60.0, "asked": {"n1": 1}}
    job = OarJob(batch_spec(("n1", 1), site=site), where)
    job.is_unsure = True
    assert not job.release(has_run=False)
    assert job.number == "7", "it is known from now on"
    (tmp_path / "up").touch()
    job.number = ""
    assert job.release(has_run=False)
    assert (tmp_path / "it").read_text() == "7\n"
