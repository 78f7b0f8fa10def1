"""Faults of a Slurm cluster that answers: closed partitions, clocks, jobs that come back.

Pure functions. Their words become the notices of a reading, which the service logs once each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from coalloc.adapters.batch.token import parse_comment
from coalloc.adapters.slurm.parsers.records import (
    HOLDS_NODES,
    WAITS,
    NodeRecord,
    PartitionEntry,
    QueueEntry,
    ReservationEntry,
)
from coalloc.adapters.slurm.reading import Answers, slots_of
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.snapshot import Running
from coalloc.model.values import replace

Record = NodeRecord | PartitionEntry | QueueEntry | ReservationEntry
POWERED_DOWN = frozenset(
    {
        *("POWER", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"),
        *("POWER_DOWN", "POWER_SAVING", "POWER_UP"),
    }
)
"""Flags of nodes that Slurm boots for the job that gets them (``POWER`` until 20.11)."""
ODD_NAMED = 3
"""Of each kind, so many are named that are not understood."""
CLOCK_SLACK_S = 2.0
"""Below this, a difference is that of whole seconds and of a slow answer."""


def closed_nodes(
    settings: SlurmSettings, partitions: tuple[PartitionEntry, ...], nodes: Iterable[NodeRecord]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Nodes on which Slurm would start nothing of ours, with the reason of each; notices.

    One outside the partition where parts run is open to jobs that name another of its partitions.
    """
    wanted = settings.partition  # to which parts are submitted
    target = next((p for p in partitions if (p.name == wanted if wanted else p.is_default)), None)
    open_names = {p.name for p in partitions if p.state == "UP"} - {settings.handover_partition}
    if settings.partitions:
        open_names &= {*settings.partitions, settings.partition}
    why, notices = "", tuple[str, ...]()
    if target is None:
        why = f"there is no partition {settings.partition or 'by default'}"
    elif target.state != "UP":
        why = f"partition {target.name} is {target.state}"
    if why:
        notices = (f"{why}: nothing can be started that names no other partition",)
    else:
        why = "in no partition that is up"
    return {n.name: why for n in nodes if not open_names.intersection(n.partitions)}, notices


def shut(node: NodeRecord, why: str) -> NodeRecord:
    """A node that is as good as drained, with the reason; itself where there is none."""
    if not why:
        return node
    reason = f"{why}; {node.reason}" if node.reason else why
    return replace(node, states=(*node.states, "DRAIN"), reason=reason)


def awake(node: NodeRecord) -> NodeRecord:
    """A node as it is once Slurm has booted it."""
    if not POWERED_DOWN & {*node.states}:
        return node
    return replace(node, states=tuple(word for word in node.states if word not in POWERED_DOWN))


def powered_down(
    settings: SlurmSettings, answers: Answers, nodes: Iterable[NodeRecord], boot_s: float
) -> tuple[Running, ...]:
    """The nodes that Slurm would have to boot, as work of others that ends when they could be up.

    So nothing starts there now, and what needs them waits in Slurm's queue, which boots them.
    """
    used = {name for entry in answers.queue if entry.state != "PENDING" for name in entry.nodes}
    slots = {
        settings.published(node.name): slots_of(settings, node)
        for node in nodes
        if POWERED_DOWN & {*node.states} and node.name not in used
    }
    name, now = f"{settings.cluster}:powered down", answers.now
    work = Running(id=name, nodes=slots, start=now, end=now + boot_s, ours=False)
    return (work,) if slots else ()


def odd_records(answers: Answers) -> tuple[str, ...]:
    """Notices of what is not understood, and of a cluster that has no nodes."""
    lists: tuple[tuple[str, Sequence[Record], str], ...] = (
        ("node", answers.nodes, "it counts as down"),
        ("partition", answers.partitions, "it counts as closed"),
        ("reservation", answers.reservations, "its nodes are kept"),
        ("job", answers.queue, "its nodes count as taken"),
    )
    notices = [] if answers.nodes else ["it has no nodes"]
    for what, records, then in lists:
        odd = [record for record in records if record.odd]
        for record in odd[:ODD_NAMED]:
            name = record.id if isinstance(record, QueueEntry) else record.name
            notices.append(f"{what} {name} is not understood ({record.odd}): {then}")
        if len(odd) > ODD_NAMED:
            notices.append(f"{len(odd) - ODD_NAMED} more {what}s are not understood")
    return tuple(notices)


def clock_offset(there: float, asked: float, answered: float) -> float:
    """Lead of slurmctld's clock over ours, seconds; 0 where that cannot be told.

    `there` is its whole second; we asked before and were answered after it.
    """
    early, late = there - answered, there + 1.0 - asked
    if early <= CLOCK_SLACK_S and late >= -CLOCK_SLACK_S:
        return 0.0
    return (early + late) / 2.0


def clock_notice(offset_s: float) -> tuple[str, ...]:
    """Notice for an operator of a clock that is off."""
    if not offset_s:
        return ()
    way = "ahead of" if offset_s > 0.0 else "behind"
    return (
        f"slurmctld's clock is {abs(offset_s):.0f} s {way} this machine's: "
        "its times are taken as shifted",
    )


def on_our_clock(answers: Answers, offset_s: float) -> Answers:
    """The answers with starts and ends by our clock.

    The time of a submission stays Slurm's: it tells a handed job from a later one of its number.
    """
    if not offset_s:
        return answers

    def ours(entry: QueueEntry) -> QueueEntry:
        start, end = (None if t is None else t - offset_s for t in (entry.start, entry.end))
        return replace(entry, start=start, end=end)

    return replace(
        answers,
        queue=tuple(ours(entry) for entry in answers.queue),
        reservations=tuple(
            replace(kept, start=kept.start - offset_s, end=kept.end - offset_s)
            for kept in answers.reservations
        ),
    )


def revived_jobs(queue: Iterable[QueueEntry], given_back: Collection[str]) -> list[str]:
    """Jobs of parts that are over and done with, which slurmctld has again.

    One that is killed forgets what happened in its last seconds, the end of a job too.
    """
    found = []
    for entry in queue:
        token = parse_comment(entry.comment)
        if token is None or token.claim not in given_back or entry.state == "COMPLETING":
            continue
        if entry.state in HOLDS_NODES | WAITS:
            found.append(entry.id)
    return found
