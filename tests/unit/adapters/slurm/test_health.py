"""Closed partitions, clocks that are off, jobs whose end was forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.slurm.health import (
    clock_notice,
    clock_offset,
    closed_nodes,
    on_our_clock,
    revived_jobs,
)
from coalloc.adapters.slurm.launcher import Ledger
from coalloc.adapters.slurm.parsers.records import (
    NodeRecord,
    ParseError,
    PartitionEntry,
    QueueEntry,
    ReservationEntry,
)
from coalloc.adapters.slurm.parsers.rules import parse_partitions
from coalloc.adapters.slurm.parsers.text import parse_clock
from coalloc.adapters.slurm.part_commands import refusal
from coalloc.adapters.slurm.reading import Answers
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.sites.site_rules import Limits

MAIN = PartitionEntry(name="main", state="UP", is_default=True)
GPU = PartitionEntry(name="gpu", state="UP", limits=Limits(time_s=3600.0))
NODES = (
    NodeRecord(name="n1", partitions=("main", "gpu")),
    NodeRecord(name="n2", partitions=("gpu",)),
)


def site(partition: str = "") -> SlurmSettings:
    return SlurmSettings(cluster="a", partition=partition)


def test_partitions_as_recorded(shared_file: Callable[[str], Path]) -> None:
    path = shared_file("data/slurm/22.05.8-recorded/scontrol_show_part.txt")
    assert parse_partitions(path.read_text()) == (GPU, MAIN)


@pytest.mark.parametrize("text", ["", "PartitionName=x Default=YES", "slurm_load error\n"])
def test_senseless_partitions(text: str) -> None:
    with pytest.raises(ParseError):
        parse_partitions(text)


def test_nodes_where_nothing_of_ours_starts() -> None:
    assert closed_nodes(site(), (GPU, MAIN), NODES) == ({}, ())  # a job may name partition gpu
    shut = PartitionEntry(name="gpu", state="DRAIN")
    assert closed_nodes(site(), (shut, MAIN), NODES) == ({"n2": "in no partition that is up"}, ())
    assert closed_nodes(site("gpu"), (GPU, MAIN), NODES) == ({}, ())
    down = PartitionEntry(name="main", state="DRAIN", is_default=True)
    why = "partition main is DRAIN"
    assert closed_nodes(site(), (down,), NODES) == (
        {"n1": why, "n2": why},
        (f"{why}: nothing can be started that names no other partition",),
    )
    closed, notices = closed_nodes(site("lost"), (MAIN,), NODES)
    assert set(closed) == {"n2"}
    assert "there is no partition lost" in notices[0]


def test_clocks() -> None:
    there = parse_clock("Configuration data as of 2026-11-21T20:00:00\nAccounting = x\n")
    # the whole second, and a slow answer, are no difference
    assert clock_offset(there, there + 0.1, there + 0.9) == 0.0
    assert clock_offset(there, there - 1.0, there + 3.0) == 0.0
    assert clock_offset(there, there - 180.0, there - 179.9) == pytest.approx(180.45)
    assert "180 s ahead of" in clock_notice(180.0)[0]
    assert "60 s behind" in clock_notice(-60.0)[0]
    assert clock_notice(0.0) == ()
    with pytest.raises(ParseError):
        parse_clock("nonsense")


def test_times_by_our_clock_but_for_the_submission() -> None:
    job = QueueEntry(id="1", start=1000.0, end=None, submitted=900.0)
    kept = ReservationEntry(name="r", nodes=("n1",), start=2000.0, end=3000.0)
    answers = Answers(now=950.0, nodes=NODES, queue=(job,), reservations=(kept,))
    shifted = on_our_clock(answers, 100.0)
    assert (shifted.queue[0].start, shifted.queue[0].end, shifted.queue[0].submitted) == (
        900.0,
        None,
        900.0,
    )
    assert (shifted.reservations[0].start, shifted.reservations[0].end) == (1900.0, 2900.0)
    assert on_our_clock(answers, 0.0) is answers


def test_only_jobs_of_parts_that_are_over_are_revived() -> None:
    def job(number: str, claim: str, state: str) -> QueueEntry:
        return QueueEntry(id=number, state=state, comment=f"coalloc:7.1.0:{claim}")

    queue = (
        job("1", "over", "RUNNING"),
        job("2", "over", "PENDING"),
        job("3", "over", "COMPLETING"),
        job("4", "living", "RUNNING"),
        QueueEntry(id="5", state="RUNNING", comment="over"),
    )
    assert revived_jobs(queue, {"over"}) == ["1", "2"]


def test_ledger_keeps_the_newest(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "claims", most=3)
    for number in range(20):
        ledger.add(f"c{number}")
    assert ledger.claims == {"c17", "c18", "c19"}
    assert Ledger(tmp_path / "claims", most=3).claims == ledger.claims
    assert len((tmp_path / "claims").read_text().split()) <= 7
    # what cannot be written is kept in memory
    lost = Ledger(tmp_path / "absent" / "claims")
    lost.add("x")
    assert lost.claims == {"x"}


def test_a_full_queue_is_told_from_a_silent_one() -> None:
    late = UnreachableError("salloc", "no answer within 4 s: Slurm job queue full, sleeping")
    assert refusal(late) == "slurm_full"
    assert refusal(UnreachableError("salloc", "no answer within 4 s")) == "unreachable"
    assert (
        refusal(CommandRefusedError("sbatch", "temporarily unable to accept job", 1))
        == "slurm_full"
    )
