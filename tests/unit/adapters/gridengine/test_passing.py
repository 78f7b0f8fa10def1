"""Operators' reservations in Grid Engine: made host by host, kept in step, removed when empty."""

from __future__ import annotations

import dataclasses
from calendar import timegm
from dataclasses import dataclass, field
from typing import Any

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.passing import LINGER_S, RETRY_S
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import AdvanceReservation, JobEntry, QueueEntry
from coalloc.adapters.gridengine.part_commands import request
from coalloc.adapters.gridengine.passing import ENDLESS, OFFSET_S, GridEnginePassing
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.adapters.runner.command import Answer, CommandRefusedError, UnreachableError
from coalloc.model.ranges import EVENT
from coalloc.model.reading import PassedReservation
from coalloc.model.reserved import Reserved
from coalloc.model.values import replace

NOW = 1_900_000_000.0
KEPT = Reserved(
    name="course", nodes=("n1", "n2"), start=NOW + 600.0, end=NOW + 4200.0, users=("ada", "bob")
)
NO_ROOM = "advance_reservation: no suitable queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class Qrsub(GridEngine):
    """Keeps advance reservations as qmaster does, as far as these words go.

    Attributes
    ----------
    room : dict of host to [(from, slots)]
        Slots that can be granted from these times on.
    jobs : dict of job to reservation
        The jobs that run.
    """

    there: dict[str, AdvanceReservation] = field(default_factory=dict)
    room: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)
    state: str = "w"

    def run(self, name: str, *arguments: str, **options: object) -> str:
        self.said.append(" ".join((name, *arguments)))
        if self.fails:
            raise self.fails[0]
        if name == "qstat":
            return _running(self.jobs)
        if name == "qrdel":
            for each in arguments[0].split(","):
                del self.there[each]
            return ""
        plain = [word for word in arguments if word != "smp"]  # the only option with two values
        words = dict(zip(plain[::2], plain[1::2], strict=True))
        queue, _, host = words["-q"].partition("@")
        start = _time(words.get("-a"), NOW)
        end = _time(words["-e"], NOW)
        taken = sum(each.slots.get((queue, host), 0) for each in self.there.values())
        most = int(words["-pe"].rpartition("-")[2]) if "-pe" in words else 1
        free = sum(slots for since, slots in self.room.get(host, [(0.0, 4)]) if since <= start)
        if free <= taken:
            raise CommandRefusedError("qrsub", NO_ROOM, 1)
        id = str(len(self.said))
        self.there[id] = AdvanceReservation(
            id=id,
            name=words["-N"],
            state=self.state,
            start=start,
            end=end,
            slots={(queue, host): min(free - taken, most)},
            users=tuple(words["-u"].split(",")) if "-u" in words else (),
        )
        return ""

    def ask(self, name: str, *arguments: str, **options: object) -> Answer:
        numbers = arguments[1].split(",")
        text = "".join(f"job_number: {n}\nar_id:   {self.jobs[n]}\n" for n in numbers)
        return Answer(code=0, out=text, err="")


def _time(text: str | None, absent: float) -> float:
    if text is None:
        return absent
    fields = (text[:4], text[4:6], text[6:8], text[8:10], text[10:12], text[13:])
    return float(timegm(tuple(map(int, fields))))


def _running(jobs: dict[str, str]) -> str:
    listed = "".join(
        f"<job_list><JB_job_number>{number}</JB_job_number><state>r</state></job_list>"
        for number in jobs
    )
    return f"<job_info><queue_info>{listed}</queue_info></job_info>"


class Bed:
    """A cell of two hosts, whose reservations are kept."""

    def __init__(self, account: str = "", **given: Any) -> None:
        fields = {"pass_reservations": True, **given}
        self.settings = GridEngineSettings(cluster="gamma", queue="main", **fields)
        self.cell = Qrsub()
        self.account = account
        self.now = NOW
        self.restart()

    def restart(self) -> None:
        self.passing = GridEnginePassing(
            settings=self.settings, commands=self.cell, account=self.account, clock=lambda: self.now
        )

    def tell(self, *kept: Reserved, store: str = "5f0c") -> None:
        self.passing.tell(store, kept)

    def read(self, at: float = 0.0, jobs: tuple[JobEntry, ...] = ()) -> list[str]:
        """One reading with these jobs on n1, and what it has shown to be due; the commands."""
        before = len(self.cell.said)
        used = sum(job.slots for job in jobs)
        entries = (
            QueueEntry(queue="main", host="n1", slots=4, used=used, jobs=jobs),
            QueueEntry(queue="main", host="n2", slots=4),
        )
        self.now = NOW + at
        self.passing.plan(tuple(self.cell.there.values()), entries, frozenset(), self.now)
        for act in self.passing.due():
            act.run()
        return self.cell.said[before:]

    def granted(self) -> list[tuple[str, int, float]]:
        """Host, slots and start of what is there."""
        return sorted(
            (host, slots, each.start)
            for each in self.cell.there.values()
            for (_, host), slots in each.slots.items()
        )


def job(number: str, slots: int, limit_s: float | None, start: float = NOW) -> JobEntry:
    return JobEntry(number=number, state="r", slots=slots, start=start, time_limit=limit_s)


def test_reservation_is_made_on_each_host_and_used_by_its_users_parts() -> None:
    bed = Bed()
    bed.tell(KEPT)
    first, second = bed.read()
    assert first.startswith("qrsub -N coalloc.gamma.course.")
    assert first.endswith("-pe smp 1-4 -u ada,bob")
    assert "-q main@n2" in second
    assert bed.granted() == [("n1", 4, KEPT.start), ("n2", 4, KEPT.start)]
    assert not list(bed.passing.passed), "not known yet"
    assert bed.read() == []
    assert list(bed.passing.passed) == [PassedReservation(name="course")]
    id = next(iter(bed.cell.there))
    assert bed.passing.candidates("ada", "n1", 4, 60.0, NOW) == {}, "it has not begun"
    assert bed.passing.own_slots("n1") == 0
    start, end = bed.passing.borders(NOW)
    assert (start.id, end.id) == ("gamma:the start of course", "gamma:the end of course")
    assert (start.nodes, start.start, end.start) == (("n1", "n2"), KEPT.start, KEPT.end)

    bed.cell.there[id] = dataclasses.replace(bed.cell.there[id], state="r")
    bed.read(700.0)
    later = NOW + 700.0
    assert bed.passing.candidates("ada", "n1", 4, 60.0, later) == {id: KEPT.end}
    assert bed.passing.candidates("ada", "n1", 5, 60.0, later) == {}
    assert bed.passing.candidates("ada", "n2", 4, 60.0, later) == {}, "that one has not begun"
    assert bed.passing.candidates("eve", "n1", 1, 60.0, later) == {}
    assert bed.passing.candidates("ada", "n1", 1, 3600.0, later) == {}, "it ends before"
    assert bed.passing.candidates("ada", "n1", 1, None, later) == {}, "nobody knows"
    assert bed.passing.own_slots("n1") == 4


def test_one_for_nobody_without_an_end_lets_no_part_in() -> None:
    bed = Bed()
    bed.cell = dataclasses.replace(bed.cell, state="r")
    bed.restart()
    bed.tell(replace(KEPT, users=(), start=NOW - 5.0, end=EVENT.high))
    words = bed.read()[0].split()
    assert "-u" not in words
    assert "-a" not in words, "from now on"
    assert words[words.index("-e") + 1] == "210001010000.00"
    assert bed.read() == [], "it is as wanted"
    assert bed.passing.candidates("root", "n1", 1, None, NOW) == {}
    (whole,) = bed.passing.borders(NOW)
    assert (whole.start, whole.end, whole.nodes) == (NOW, ENDLESS, ("n1", "n2"))


def test_executor_of_one_user_lets_in_that_account_and_slots_need_no_environment() -> None:
    bed = Bed(account="svc")
    bed.cell = dataclasses.replace(bed.cell, state="r")
    bed.restart()
    bed.tell(replace(KEPT, nodes=("n2",), start=NOW, end=EVENT.high))
    (said,) = bed.read()
    assert said.endswith("-u svc")
    bed.read()
    assert len(bed.passing.candidates("svc", "n2", 4, None, NOW)) == 1, "it has no end either"


def test_what_differs_is_made_anew_and_a_restarted_executor_makes_no_second() -> None:
    bed = Bed()
    bed.tell(KEPT)
    bed.read()
    before = dict(bed.cell.there)
    bed.restart()
    assert bed.read() == [], "nothing is known of what is wanted: nothing is touched"
    bed.tell(KEPT)
    assert bed.read() == []
    bed.tell(replace(KEPT, users=("ada",), nodes=("n1",)))
    bed.read()
    bed.read()
    (left,) = bed.cell.there.values()
    assert left.users == ("ada",)
    assert left.id not in before


def test_taken_slots_are_kept_from_when_they_must_be_free_and_joined_when_they_are() -> None:
    bed = Bed()
    bed.tell(replace(KEPT, nodes=("n1",), start=NOW))
    until = NOW + 1000.0 + OFFSET_S
    bed.cell.room["n1"] = [(0.0, 3), (until, 1)]
    local = job("7", 1, 1000.0)
    for _ in range(3):
        bed.read(0.0, (local,))
    assert bed.granted() == [("n1", 1, until + 2.0), ("n1", 3, NOW)]
    assert bed.passing.passed == (PassedReservation(name="course", running=("7",)),)
    bed.cell.room["n1"] = [(0.0, 4)]
    assert [text.split()[0] for text in bed.read(10.0)] == ["qstat", "qrdel", "qrsub"]
    assert bed.granted() == [("n1", 4, NOW)]
    assert bed.read(11.0) == []
    assert bed.passing.passed == (PassedReservation(name="course"),)


def test_pieces_that_jobs_are_in_are_not_joined() -> None:
    bed = Bed()
    bed.tell(replace(KEPT, nodes=("n1",), start=NOW))
    bed.cell.room["n1"] = [(0.0, 2)]
    bed.read(0.0, (job("7", 2, None),))
    bed.cell.room["n1"] = [(0.0, 4)]
    bed.read(1.0, (job("8", 1, 60.0),))
    assert bed.granted() == [("n1", 2, NOW), ("n1", 2, NOW)]
    bed.cell.jobs["8"] = next(iter(bed.cell.there))
    bed.read(2.0)
    assert bed.granted() == [("n1", 2, NOW)], "the other one goes, and is asked for again"
    bed.cell.jobs.clear()
    bed.read(3.0)
    bed.read(4.0)
    assert bed.granted() == [("n1", 4, NOW)]


def test_one_taken_back_goes_when_no_job_is_in_it() -> None:
    bed = Bed()
    bed.tell(KEPT)
    bed.read()
    first, second = bed.cell.there
    bed.cell.jobs["9"] = first
    bed.tell()
    assert bed.read(1.0) == []
    assert bed.passing.own_slots("n1") == 0, "its slots are kept from us until it is gone"
    assert bed.read(1.0 + LINGER_S)[-1] == f"qrdel {second}"
    assert bed.read(7.0)[-1].startswith("qstat"), "the job would end with it"
    bed.cell.jobs.clear()
    bed.read(8.0)
    assert bed.cell.there == {}


def test_those_of_others_are_left_alone() -> None:
    bed = Bed()
    bed.tell(KEPT, store="other")
    bed.read()
    there = dict(bed.cell.there)
    bed.restart()
    bed.tell()
    assert bed.read() == bed.read(60.0) == []
    assert bed.cell.there == there


def test_refusal_is_told_and_asked_again_after_a_while() -> None:
    bed = Bed()
    bed.cell.room["n2"] = []
    bed.tell(KEPT)
    assert len(bed.read()) == 2
    assert bed.read(1.0) == []
    assert bed.passing.passed == (PassedReservation(name="course", why=f"n2: {NO_ROOM}"),)
    del bed.cell.room["n2"]
    assert len(bed.read(RETRY_S + 1.0)) == 1
    bed.read(RETRY_S + 2.0)
    assert bed.passing.passed == (PassedReservation(name="course"),)


def test_silence_of_qmaster_is_no_refusal() -> None:
    bed = Bed()
    bed.cell.fails.append(UnreachableError("qrsub", "no answer"))
    bed.tell(KEPT)
    with pytest.raises(AdapterError, match="no answer"):
        bed.read()
    bed.cell.fails.clear()
    assert len(bed.read(1.0)) == 2


def test_nothing_is_passed_unless_the_site_wants_it() -> None:
    bed = Bed(pass_reservations=False)
    bed.tell(KEPT)
    assert bed.read() == bed.read() == []
    assert (bed.passing.passed, bed.passing.borders(NOW)) == ((), ())


def test_job_in_a_reservation_asks_for_no_more_time_than_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coalloc.adapters.gridengine.part_commands.time.time", lambda: NOW)
    site: dict[str, Any] = {"queue": "main", "pe": "smp", "avoid": [], "options": []}
    site |= {"reservations": {"n1": {"7": NOW + 90.0}}}
    limits = {"time_limit_s": 20.0, "lease_s": 60.0, "grace_s": 5.0}
    spec = {"site": site, "token": {"name": "coalloc-x"}, **limits}
    inside = request(spec, "n1", 2, reservation="7")
    assert inside[inside.index("-ar") + 1] == "7"
    assert "h_rt=90" in inside
    outside = request(spec, "n1", 2)
    assert "-ar" not in outside
    assert "h_rt=145" in outside
