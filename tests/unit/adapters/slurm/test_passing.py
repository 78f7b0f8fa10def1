"""Operators' reservations in Slurm: made, kept in step, removed, and no other touched."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.batch.passing import LINGER_S, RETRY_S
from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.launcher import SlurmLauncher
from coalloc.adapters.slurm.passing import YEAR_S, SlurmPassing
from coalloc.adapters.slurm.reading import Answers, kept_nodes
from coalloc.adapters.slurm.records import NodeEntry, QueueEntry, ReservationEntry
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.slurm.share import Share
from coalloc.model.parts import PartSpec
from coalloc.model.ranges import EVENT
from coalloc.model.reading import PassedReservation
from coalloc.model.reserved import Reserved
from coalloc.model.values import replace

NOW = 1_900_000_000.0
NODES = tuple(NodeEntry(name=f"n{i}", states=("IDLE",), cpus=4) for i in range(1, 5))
ME = pwd.getpwuid(os.getuid()).pw_name
KEPT = Reserved(
    name="course", nodes=("n1", "n2"), start=NOW + 600.0, end=NOW + 4200.0, users=("ada", "bob")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scontrol(Slurm):
    """Keeps reservations as slurmctld does, as far as these words go."""

    there: dict[str, ReservationEntry] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def run(self, name: str, *arguments: str, **options: object) -> str:
        assert name == "scontrol"
        self.said.append(" ".join(arguments))
        if self.fails:
            raise self.fails[0]
        words = dict(word.split("=", 1) for word in arguments if "=" in word)
        name = words.pop("ReservationName")
        if arguments[0] == "delete":
            if name in self.used:
                raise CommandRefusedError("scontrol", "Requested reservation is in use", 1)
            del self.there[name]
            return ""
        old = self.there.get(name, ReservationEntry(name=name, nodes=(), start=NOW, end=NOW))
        self.there[name] = replace(
            old,
            nodes=_split(words.get("Nodes"), old.nodes),
            users=_split(words.get("Users"), old.users),
            flags=_split(words.get("Flags"), old.flags),
            start=_time(words.get("StartTime"), old.start),
            end=_time(words.get("EndTime"), old.end),
        )
        return ""


def _split(text: str | None, old: tuple[str, ...]) -> tuple[str, ...]:
    return old if text is None else tuple(text.split(","))


def _time(text: str | None, old: float) -> float:
    if text is None:
        return old
    return NOW if text == "now" else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class Bed:
    """A cluster whose reservations are kept."""

    def __init__(self, account: str = "", **given: object) -> None:
        settings: dict[str, object] = {"pass_reservations": True, **given}
        self.settings = SlurmSettings(cluster="alpha", **settings)  # type: ignore[arg-type]
        self.slurm = Scontrol()
        self.account = account
        self.restart()

    def restart(self) -> None:
        self.passing = SlurmPassing(settings=self.settings, slurm=self.slurm, account=self.account)

    def tell(self, *kept: Reserved, store: str = "5f0c") -> None:
        self.passing.tell(store, kept)

    def read(self, at: float = 0.0, queue: tuple[QueueEntry, ...] = ()) -> list[str]:
        """One reading, and what it has shown to be due; the commands."""
        before = len(self.slurm.said)
        there = tuple(self.slurm.there.values())
        answers = Answers(now=NOW + at, nodes=NODES, queue=queue, reservations=there)
        self.passing.plan(answers, NODES, 0.0)
        for act in self.passing.due():
            act.run()
        return self.slurm.said[before:]

    def only(self) -> ReservationEntry:
        (entry,) = self.slurm.there.values()
        return entry


def test_reservation_is_made_once_for_its_users_and_used_by_their_parts() -> None:
    bed = Bed()
    bed.tell(KEPT)
    (said,) = bed.read()
    assert said.startswith("create reservation ReservationName=coalloc.alpha.course.")
    made = bed.only()
    assert (made.nodes, made.users) == (("n1", "n2"), ("ada", "bob"))
    assert made.flags == ("IGNORE_JOBS", "FLEX")
    assert (made.start, made.end) == (KEPT.start, KEPT.end)
    assert not list(bed.passing.passed), "not known yet"
    assert bed.passing.reservation_of("ada", {"n1"}, None, NOW) == ""
    assert bed.read() == []
    assert list(bed.passing.passed) == [PassedReservation(name="course")]
    assert bed.passing.reservation_of("ada", {"n1", "n3"}, None, NOW) == made.name
    assert bed.passing.reservation_of("ada", {"n1"}, 500.0, NOW) == "", "it ends before"
    assert bed.passing.reservation_of("ada", {"n3"}, None, NOW) == ""
    assert bed.passing.reservation_of("eve", {"n1"}, None, NOW) == ""
    assert bed.passing.reservation_of("ada", {"n1"}, None, KEPT.end - 5.0) == "", "too late"


def test_one_for_nobody_is_for_maintenance_and_nothing_of_ours_names_it() -> None:
    bed = Bed()
    bed.tell(replace(KEPT, users=(), start=NOW - 5.0, end=EVENT.high))
    (said,) = bed.read()
    assert " StartTime=now " in said
    made = bed.only()
    assert made.flags == ("MAINT", "IGNORE_JOBS")
    assert made.users == ("root",)
    assert made.end == NOW + YEAR_S
    bed.read()
    assert bed.passing.reservation_of("root", {"n1"}, None, NOW) == ""
    assert bed.read(YEAR_S / 2 - 60.0) == []
    (said,) = bed.read(YEAR_S / 2 + 60.0)
    assert said.startswith("update ReservationName=")
    assert bed.only().end == NOW + YEAR_S / 2 + 60.0 + YEAR_S, "prolonged"


def test_executor_of_one_user_lets_in_that_account_which_submits_for_all() -> None:
    bed = Bed(account="svc")
    bed.tell(KEPT)
    bed.read()
    bed.read()
    assert bed.only().users == ("svc",)
    assert bed.passing.reservation_of("svc", {"n1"}, None, NOW) == bed.only().name


def test_what_differs_is_changed_and_a_restarted_executor_makes_no_second() -> None:
    bed = Bed()
    bed.tell(KEPT)
    bed.read()
    bed.restart()
    assert bed.read() == [], "nothing is known of what is wanted: nothing is touched"
    bed.tell(KEPT)
    assert bed.read() == []
    name = bed.only().name
    bed.slurm.there[name] = replace(bed.only(), nodes=("n1",), users=("ada",), end=NOW + 700.0)
    (said,) = bed.read()
    assert said.startswith("update")
    assert said.count("=") == 4
    assert (bed.only().nodes, bed.only().end) == (("n1", "n2"), KEPT.end)
    bed.slurm.there.clear()
    assert [text.split()[0] for text in bed.read()] == ["create"], "somebody has deleted it"


def test_one_taken_back_is_deleted_after_claims_under_way() -> None:
    bed = Bed()
    bed.tell(KEPT)
    bed.read()
    bed.tell()
    assert bed.read(1.0) == []
    assert bed.passing.names == (), "its nodes are kept from us until it is gone"
    assert [text.split()[0] for text in bed.read(1.0 + LINGER_S)] == ["delete"]
    assert bed.slurm.there == {}


@pytest.mark.parametrize(("start", "words"), [(-10.0, 1), (600.0, 2)])
def test_one_in_use_is_made_to_end(start: float, words: int) -> None:
    bed = Bed()
    bed.tell(replace(KEPT, start=NOW + start))
    bed.read()
    name = bed.only().name
    bed.slurm.used.add(name)
    bed.tell()
    bed.read(1.0)
    _, said = bed.read(10.0)
    assert said.startswith(f"update ReservationName={name}")
    assert said.count("Time=") == words
    assert bed.only().end == NOW + 20.0
    assert bed.read(12.0) == bed.read(30.0) == [], "it ends by itself"


def test_those_of_others_are_left_alone_and_respected() -> None:
    bed = Bed()
    bed.tell(KEPT, store="other")
    bed.read()
    names = (bed.only().name, "coalloc-alpha", "coalloc.alpha.course", "coalloc.alphab.x.y.z", "m")
    foreign = {name: replace(bed.only(), name=name) for name in names}
    bed.slurm.there.clear()
    bed.slurm.there.update(foreign)
    bed.restart()
    bed.tell()
    assert bed.read() == bed.read(60.0) == []
    bed.tell(KEPT)
    bed.read()
    bed.read()
    there = tuple(bed.slurm.there.values())
    answers = Answers(now=NOW, nodes=NODES, queue=(), reservations=there)
    kept = kept_nodes(bed.settings, answers, NODES, bed.passing.names)
    assert {each.id for each in kept} == {f"alpha:{name}" for name in names}


def test_refusal_is_told_and_asked_again_after_a_while() -> None:
    bed = Bed()
    why = "Requested reservation overlaps with another reservation"
    bed.slurm.fails.append(CommandRefusedError("scontrol", why, 1))
    bed.tell(KEPT)
    assert len(bed.read()) == 1
    assert bed.read(1.0) == []
    assert bed.passing.passed == (PassedReservation(name="course", why=why),)
    assert bed.passing.reservation_of("ada", {"n1"}, None, NOW) == ""
    bed.slurm.fails.clear()
    assert len(bed.read(RETRY_S + 1.0)) == 1
    bed.read(RETRY_S + 2.0)
    assert bed.passing.passed == (PassedReservation(name="course"),)


def test_silence_of_slurmctld_is_no_refusal() -> None:
    bed = Bed()
    bed.slurm.fails.append(UnreachableError("scontrol", "no answer"))
    bed.tell(KEPT)
    with pytest.raises(AdapterError, match="no answer"):
        bed.read()
    bed.slurm.fails.clear()
    assert len(bed.read(1.0)) == 1


def test_local_jobs_that_run_into_it_are_named() -> None:
    bed = Bed()
    bed.tell(KEPT)
    bed.read()
    long, short, far = (
        QueueEntry(id=name, state="RUNNING", nodes=nodes, end=NOW + length)
        for name, nodes, length in (
            ("7", ("n2",), 900.0),
            ("8", ("n2",), 60.0),
            ("9", ("n3",), 9e3),
        )
    )
    bed.read(1.0, (long, short, far))
    assert bed.passing.passed == (PassedReservation(name="course", running=("7",)),)


def test_nothing_is_passed_unless_the_site_wants_it() -> None:
    bed = Bed(pass_reservations=False)
    bed.tell(KEPT)
    assert bed.read() == bed.read() == []
    assert (bed.passing.passed, bed.passing.near) == ((), frozenset())


def test_a_claim_names_one_reservation(tmp_path: Path) -> None:
    """The passed one on its nodes, that of the share on others, never both."""
    bed = Bed(max_share=0.5)
    kept = replace(KEPT, users=(ME,))
    bed.tell(kept)
    bed.read()
    bed.read()
    share = Share(settings=bed.settings, slurm=bed.slurm)
    share._nodes = frozenset({"n3", "n4"})
    launcher = SlurmLauncher(bed.settings, tmp_path, share, bed.passing)
    try:
        launcher._names = frozenset(node.name for node in NODES)

        def options(*nodes: str) -> list[str]:
            part = PartSpec(
                job="1",
                attempt=1,
                part=0,
                cluster="alpha",
                argv=("true",),
                nodes=tuple((name, 1) for name in nodes),
                first_rank=0,
                size=len(nodes),
                nodelist=",".join(nodes),
            )
            launcher._check_nodes(part)
            found: list[str] = launcher._site(part)["options"]
            return found

        assert options("n1") == [f"--reservation={bed.only().name}"]
        assert options("n3") == ["--reservation=coalloc-alpha"]
        with pytest.raises(ClaimRefusedError, match="one of them"):
            options("n1", "n3")
    finally:
        launcher.close()
