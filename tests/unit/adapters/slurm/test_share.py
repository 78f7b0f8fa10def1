"""Which nodes are kept for us, what of them is wanted, and by how much local jobs wait longer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.parsers.records import NodeRecord, QueueEntry, ReservationEntry
from coalloc.adapters.slurm.reading import Answers
from coalloc.adapters.slurm.settings import SlurmSettings, read_settings
from coalloc.adapters.slurm.share import LASTS_S, LINGER_S, STUCK_S, LocalDelays, Share, chosen
from coalloc.model.errors import InputError
from coalloc.model.values import replace

NOW = 1000.0
NODES = tuple(NodeRecord(name=f"n{i}", states=("IDLE",), partitions=("main",)) for i in range(1, 5))


@dataclass(frozen=True, kw_only=True)
class Recorded(Slurm):
    """Commands that are written down; each may be refused."""

    refuses: str = ""
    said: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, name: str, *arguments: str, **options: object) -> str:
        if self.refuses:
            raise CommandRefusedError(name, self.refuses, 1)
        self.said.append(arguments)
        return ""


def share(refuses: str = "", **given: float) -> tuple[Share, Recorded]:
    settings = SlurmSettings(cluster="alpha", **{"max_share": 0.5, **given})  # type: ignore[arg-type]
    slurm = Recorded(refuses=refuses)
    return Share(settings=settings, slurm=slurm), slurm


def answers(*queue: QueueEntry, **fields: object) -> Answers:
    return Answers(now=NOW, nodes=NODES, queue=queue, **fields)  # type: ignore[arg-type]


def keep(mine: Share, found: Answers, nodes: tuple[NodeRecord, ...]) -> None:
    mine.plan(found, nodes)
    if mine.is_due:
        mine.carry_out()


def beyond(mine: Share, found: Answers) -> set[str]:
    return {node for kept in mine.beyond(found, NODES) for node in kept.nodes}


def running(name: str, *nodes: str, end: float = NOW + 100.0, comment: str = "") -> QueueEntry:
    return QueueEntry(id=name, state="RUNNING", nodes=nodes, end=end, comment=comment)


def pending(name: str, nodes: int = 1, reason: str = "Resources") -> QueueEntry:
    return QueueEntry(
        id=name,
        state="PENDING",
        node_count=nodes,
        reason=reason,
        submitted=NOW - 10.0,
        partition="main",
    )


def reserved(*nodes: str, end: float = NOW + LASTS_S) -> ReservationEntry:
    return ReservationEntry(name="coalloc-alpha", nodes=nodes, start=NOW - 100.0, end=end)


OURS = "coalloc:7.1.0:0123456789abcdef0123456789abcdef"


def test_ours_come_first_then_kept_then_those_soonest_free() -> None:
    nodes = [
        NodeRecord(name="busy"),
        NodeRecord(name="idle", weight=5),
        NodeRecord(name="light", weight=1),
        NodeRecord(name="kept"),
        NodeRecord(name="ours"),
    ]
    busy, since = {"busy": NOW + 50.0, "kept": NOW + 20.0}, {"kept": NOW - 1.0}
    assert chosen(nodes, {"ours"}, busy, since, 4, NOW) == ["ours", "kept", "light", "idle"]
    assert chosen(nodes, {"ours"}, busy, since, 0, NOW) == ["ours"], "where a part runs stays"


def test_kept_node_that_stays_busy_is_changed_for_a_free_one() -> None:
    nodes = [NodeRecord(name="stuck"), NodeRecord(name="idle")]
    since = {"stuck": NOW - STUCK_S - 1.0}
    assert chosen(nodes, (), {"stuck": NOW + 9000.0}, since, 1, NOW) == ["idle"]
    assert chosen(nodes, (), {"stuck": NOW}, since, 1, NOW) == ["stuck"]


def test_nothing_is_done_without_a_share() -> None:
    mine, slurm = share(max_share=0.0)
    mine.want(10)
    keep(mine, answers(pending("1")), NODES)
    assert slurm.said == []
    assert mine.use is None
    assert beyond(mine, answers()) == set()


def test_no_more_is_kept_than_is_wanted_nor_than_the_share() -> None:
    for wanted, count in ((0, 0), (1, 1), (2, 2), (10, 2)):
        mine, slurm = share()
        mine.want(wanted)
        keep(mine, answers(pending("1")), NODES)
        assert len(mine.nodes) == count
        assert len(slurm.said) == (count > 0)
        open_nodes = {node.name for node in NODES} - beyond(mine, answers(pending("1")))
        assert open_nodes == mine.nodes


def test_share_is_open_without_a_reservation_while_nobody_waits() -> None:
    mine, slurm = share()
    quiet = answers(running("1", "n1"))
    keep(mine, quiet, NODES)
    assert slurm.said == []
    assert beyond(mine, quiet) == {"n1", "n4"}


def test_reservation_follows_its_nodes_and_is_extended() -> None:
    mine, slurm = share()
    mine.want(4)
    keep(mine, answers(reservations=(reserved("n1"),)), NODES)
    assert slurm.said == [("update", "ReservationName=coalloc-alpha", "Nodes=n1,n2")]
    slurm.said.clear()
    keep(mine, answers(reservations=(reserved("n1", "n2"),)), NODES)
    assert slurm.said == []
    keep(mine, answers(reservations=(reserved("n1", "n2", end=NOW + 60.0),)), NODES)
    # 100 s old, and to last as long as a new one from now on
    assert slurm.said == [("update", "ReservationName=coalloc-alpha", "Duration=12")]


def test_reservation_goes_when_nothing_is_wanted_and_nothing_runs() -> None:
    mine, slurm = share()
    keep(mine, answers(running("1", "n2", comment=OURS), reservations=(reserved("n2"),)), NODES)
    assert slurm.said == []
    assert mine.nodes == {"n2"}
    later = replace(answers(reservations=(reserved("n2"),)), now=NOW + 6.0)
    keep(mine, later, NODES)
    assert slurm.said == [("delete", "ReservationName=coalloc-alpha")]
    assert mine.nodes == frozenset()


def test_without_the_right_the_ordinary_way_is_taken_and_said() -> None:
    mine, _ = share("Invalid user id: permission denied")
    mine.want(1)
    keep(mine, answers(pending("1")), NODES)
    assert not mine.is_granted
    assert "no reservation" in mine.way
    assert beyond(mine, answers(pending("1"))) == set()


def test_claims_pause_while_a_local_job_has_waited_too_long_for_us() -> None:
    mine, _ = share(max_delay_s=30.0)
    mine.want(4)
    full = running("1", "n1", "n2", "n3", "n4")
    ours = running("2", "n3", "n4", comment=OURS)
    waits = answers(pending("9"), running("1", "n1", "n2"), ours)
    kept = (reserved("n3", "n4"),)
    for passed in (0.0, 20.0, 40.0):
        keep(mine, replace(waits, now=NOW + passed, reservations=kept), NODES)
    assert mine.use is not None
    assert "job 9 has waited 40 s" in mine.use.paused
    assert mine.use.delay_s == 40.0
    assert beyond(mine, waits) == {"n1", "n2", "n3", "n4"}
    keep(mine, replace(answers(full), now=NOW + 41.0), NODES)
    assert mine.use.paused == "", "it has begun"
    assert mine.use.delay_s == 0.0


def test_local_job_is_delayed_only_where_kept_nodes_would_let_it_run() -> None:
    delays = LocalDelays()
    queue = [pending("a"), pending("b", 2), pending("c", 9), pending("d", reason="Dependency")]
    delays.take(NOW, queue, idle=1, kept=2)
    delays.take(NOW + 10.0, queue, idle=1, kept=2)
    # a runs on the idle node, b on the two kept ones; c fits nowhere, d waits for something else
    assert delays.worst == ("b", 10.0)
    assert LocalDelays().worst == ("", 0.0)


def test_unreachable_slurm_is_the_acts_failure() -> None:
    class Away(Recorded):
        def run(self, name: str, *arguments: str, **options: object) -> str:
            raise UnreachableError(name, "away")

    mine = Share(settings=SlurmSettings(cluster="alpha", max_share=0.5), slurm=Away())
    mine.want(1)
    with pytest.raises(UnreachableError):
        keep(mine, answers(pending("1")), NODES)


def test_share_and_a_reservation_of_the_site_exclude_each_other() -> None:
    with pytest.raises(InputError, match="max_share"):
        read_settings({"max_share": 0.5, "reservation": "ours"}, "alpha")


class Partition:
    """Six nodes, first come first served, of which half may be ours; jobs of all widths.

    Ours that fit the share start where nodes are open to them, the others wait in the queue.
    """

    nodes = tuple(
        NodeRecord(name=f"n{i}", states=("IDLE",), partitions=("main",)) for i in range(6)
    )
    bound_s = 20.0

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.jobs = [
            Simulated(
                name=str(i),
                width=draw.randint(1, 6),
                run_s=draw.uniform(2.0, 20.0),
                submitted=NOW + draw.uniform(0.0, 300.0),
                ours=draw.random() < 0.7,
            )
            for i in range(90)
        ]
        self.share, _ = share(max_delay_s=self.bound_s)
        self.now, self.last_use = NOW, NOW
        self.reserved, self.delays = frozenset[str](), [0.0]

    def answers(self) -> Answers:
        there = [job for job in self.jobs if job.submitted <= self.now]
        queue = [job.entry() for job in there if job.nodes and self.now < job.end]
        queue += [job.entry() for job in there if not job.nodes and not job.at_once]
        kept = (reserved(*sorted(self.reserved), end=self.now + LASTS_S),) if self.reserved else ()
        return Answers(now=self.now, nodes=self.nodes, queue=tuple(queue), reservations=kept)

    def read(self) -> None:
        found = self.answers()
        waiting = [j for j in self.jobs if j.at_once and not j.nodes and j.submitted <= self.now]
        self.share.want(sum(job.width for job in waiting))
        keep(self.share, found, self.nodes)
        assert self.share.use is not None
        self.reserved = self.share.nodes
        self.delays.append(self.share.use.delay_s)
        inside = [job for job in self.jobs if job.at_once and self.now < job.end]
        assert len(self.reserved) <= 3
        if not waiting and not inside:
            assert not self.reserved or self.now - self.last_use <= LINGER_S + 5.0
        else:
            self.last_use = self.now
        shut = {node for each in self.share.beyond(found, self.nodes) for node in each.nodes}
        for job in waiting:
            self.start(job, {node.name for node in self.nodes} - shut)

    def start(self, job: Simulated, among: set[str]) -> bool:
        busy = {name for other in self.jobs if self.now < other.end for name in other.nodes}
        free = sorted(among - busy)
        if len(free) < job.width:
            return False
        job.nodes, job.end = tuple(free[: job.width]), self.now + job.run_s
        return True

    def step(self) -> None:
        self.now += 1.0
        if self.now % 5.0 == 0.0:
            self.read()
        waiting = [j for j in self.jobs if not j.nodes and not j.at_once]
        for job in sorted(waiting, key=lambda job: job.submitted):
            others = {node.name for node in self.nodes} - self.reserved
            if job.submitted > self.now or not self.start(job, others):
                break


@dataclass(kw_only=True)
class Simulated:
    name: str
    width: int
    run_s: float
    submitted: float
    ours: bool
    nodes: tuple[str, ...] = ()
    end: float = 0.0

    @property
    def at_once(self) -> bool:
        return self.ours and self.width <= 3

    def entry(self) -> QueueEntry:
        comment = OURS if self.ours else ""
        if self.nodes:
            return running(self.name, *self.nodes, end=self.end, comment=comment)
        return replace(pending(self.name, self.width), submitted=self.submitted, comment=comment)


@pytest.mark.parametrize("seed", range(6))
def test_every_job_starts_and_local_ones_are_delayed_no_longer_than_they_may(seed: int) -> None:
    site = Partition(seed)
    while not all(job.nodes for job in site.jobs):
        site.step()
        assert site.now < NOW + 3600.0, [job for job in site.jobs if not job.nodes]
    # What runs when the bound is passed runs on.
    assert max(site.delays) <= site.bound_s + 20.0 + 5.0
