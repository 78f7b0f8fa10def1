"""What is due in Slurm after a reading, and how it is done."""

from __future__ import annotations

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.slurm.share import Share
from coalloc.adapters.slurm.upkeep import AT_ONCE, Due, acts

SAID: list[str] = []


class Recorded(Slurm):
    """Keeps what it is asked."""

    def run(self, name: str, *arguments: str, **options: object) -> str:
        SAID.append(" ".join((name, *arguments)))
        return ""


class Refusing(Slurm):
    """Some job has ended since."""

    def run(self, name: str, *arguments: str, **options: object) -> str:
        raise CommandRefusedError(name, "Job/step already completing or completed", 1)


class Away(Slurm):
    """slurmctld does not answer."""

    def run(self, name: str, *arguments: str, **options: object) -> str:
        raise UnreachableError(name, "no answer")


def share(slurm: Slurm) -> Share:
    return Share(settings=SlurmSettings(cluster="a"), slurm=slurm)


def test_jobs_are_held_and_cancelled_in_lots() -> None:
    SAID.clear()
    slurm = Recorded()
    jobs = tuple(str(n) for n in range(AT_ONCE + 1))
    found = acts(Due(handed=jobs, revived=("7", "8")), slurm, share(slurm))
    assert [act.what for act in found] == ["hold_jobs", "hold_jobs", "cancel_revived_jobs"]
    for act in found:
        act.run()
    assert [
        f"scontrol hold {','.join(jobs[:AT_ONCE])}",
        f"scontrol hold {AT_ONCE}",
        "scancel 7 8",
    ] == SAID


def test_nothing_is_due_after_an_ordinary_reading() -> None:
    assert acts(Due(), Recorded(), share(Recorded())) == ()
    assert Due(handed=("7",)).notices == ()
    assert Due(revived=("7",)).notices == (
        "slurmctld had forgotten the end of our jobs 7: cancelled again",
    )


def test_a_refusal_is_no_failure_and_silence_is_one() -> None:
    (refused,) = acts(Due(handed=("7",)), Refusing(), share(Refusing()))
    refused.run()
    (lost,) = acts(Due(handed=("7",)), Away(), share(Away()))
    with pytest.raises(AdapterError, match="no answer"):
        lost.run()
