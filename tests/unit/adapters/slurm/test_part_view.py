"""What Slurm's commands answer of a job: there, gone, or not known."""

from __future__ import annotations

from typing import ClassVar

import pytest

from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.part_view import ShownJob
from coalloc.adapters.slurm.pending_reasons import waits
from coalloc.adapters.ssh.shell import CommandOutput
from tests.support.part_specs import batch_spec

GONE = CommandOutput(code=1, out="", err="slurm_load_jobs error: Invalid job id specified\n")
NONE_KEPT = CommandOutput(code=1, out="", err="Slurm accounting storage is disabled\n")
REFUSALS = (
    # of whatever stands before Slurm, or of a Slurm that we do not know
    CommandOutput(code=255, out="", err="Control socket connect(/x): Connection reset by peer\n"),
    CommandOutput(code=1, out="", err="squeue: this cluster is in maintenance until 17:00\n"),
    CommandOutput(code=1, out="", err="slurm_load_jobs error: Access/permission denied\n"),
    CommandOutput(code=2, out="", err=""),
)


class Said(Slurm):
    """Commands that answer what they are told to."""

    __slots__ = ()
    answers: ClassVar[dict[str, CommandOutput]] = {}

    def ask(self, name: str, *arguments: str, **given: object) -> CommandOutput:
        return self.answers[name]


def shown(**answers: CommandOutput) -> ShownJob:
    Said.answers = answers
    return ShownJob(Said(), batch_spec())


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_that_is_not_understood_leaves_a_job_unknown(refusal: CommandOutput) -> None:
    job = shown(scontrol=refusal, squeue=refusal, sacct=NONE_KEPT)
    assert job.state("7") == (None, "")
    assert job.turn("7") is None
    with pytest.raises(Exception, match="squeue"):
        job.listed_after("7", 0.0)
    job = shown(scontrol=GONE, squeue=GONE, sacct=refusal)
    assert job.state("7")[0] is None, "accounting is asked again, too"
    assert job.canceller("7", 0.0) == ""


def test_a_job_that_slurm_does_not_know() -> None:
    job = shown(scontrol=GONE, squeue=GONE, sacct=NONE_KEPT)
    assert job.state("7") == ("", "")
    assert job.listed_after("7", 0.0) == ""
    turn = job.turn("7")
    assert turn is not None
    assert turn.state == ""


def test_a_number_that_was_given_again_is_not_given_up_with_others() -> None:
    """A slurmctld that was killed has given 8 and 9 to other claims since, and may so give 11."""
    job = shown(squeue=CommandOutput(code=0, out="", err=""))
    mark = job._spec["token"]["comment"]
    ours = mark.partition(":")[0]
    job.marks.add(f"{ours}:along")
    rows = f"7 {mark}\n8 {ours}:another\n9 {ours}:third\n10 {ours}:along\n12 of a user\n"
    Said.answers["squeue"] = CommandOutput(code=0, out=rows, err="")
    assert job.own("7,8,10,11,12") == ["7", "10", "12"]
    rows = f"PENDING {ours}:another\nRUNNING {ours}:along\n"
    Said.answers["squeue"] = CommandOutput(code=0, out=rows, err="")
    assert job.listed_after("8,10", 0.0) == "RUNNING"


def test_accounting_says_who_has_cancelled_a_job() -> None:
    job = shown(scontrol=GONE, sacct=CommandOutput(code=0, out="CANCELLED by 0\n", err=""))
    assert job.state("7")[0] == "CANCELLED"
    assert job.canceller("7", 0.0) == "0"


def test_a_job_that_slurmd_could_not_launch_is_told_from_one_that_was_cancelled() -> None:
    """22.05 cancels it where it may not be requeued; neither state nor reason says so."""
    form = "JobId=7 JobState=CANCELLED Reason=None ExitCode={} NodeList={}\n"
    for code, node, reason in (
        ("0:0", "a1", "not_launched"),
        ("0:54", "a1", "not_launched"),
        ("0:15", "a1", "None"),
        ("0:40", "a1", "None"),
        ("143:0", "a1", "None"),
        ("0:0", "", "None"),
    ):
        job = shown(scontrol=CommandOutput(code=0, out=form.format(code, node), err=""))
        assert job.state("7") == ("CANCELLED", reason), (code, node)


@pytest.mark.parametrize(
    ("said", "word", "text"),
    [
        ("Priority", "others_first", "Priority"),
        ("JobHeldUser", "held_by_owner", "JobHeldUser"),
        ("JobHeldAdmin", "held_by_admin", "JobHeldAdmin"),
        (
            "ReqNodeNotAvail,_UnavailableNodes:a[4-5]",
            "node_unavailable",
            "it needs nodes that are not up: a[4-5] (ReqNodeNotAvail)",
        ),
        ("Licenses", "over_limit", "licences it asks for are in use (Licenses)"),
        (
            "QOSMaxJobsPerUserLimit",
            "over_limit",
            "a limit of its QOS is reached (QOSMaxJobsPerUserLimit)",
        ),
    ],
)
def test_reasons_of_slurms_in_our_words(said: str, word: str, text: str) -> None:
    assert waits(said) == (word, text)
