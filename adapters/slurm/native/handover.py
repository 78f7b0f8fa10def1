"""Jobs that a cluster's own users hand over: those that wait, and why one is not ours to start yet.

Pure functions from Slurm's answers, like `coalloc.adapters.slurm.reading`.
"""

from __future__ import annotations

from collections.abc import Iterable

from coalloc.adapters.slurm.native.shapes import Asked, asked_for
from coalloc.adapters.slurm.parsers.records import WAITS, QueueEntry
from coalloc.adapters.slurm.reading import Answers, chosen_nodes, is_handed
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.sites.reading import NativeJob

SELF_HELD = frozenset(
    {"JobHeldUser", "Dependency", "DependencyNeverSatisfied", "BeginTime", "JobArrayTaskLimit"}
)
NOT_YET_JUDGED = "None"
HELD_BACK = SELF_HELD | {"JobHeldAdmin", "PartitionDown", "PartitionInactive"}
"""Reasons under which Slurm starts nothing by itself."""


def handed_jobs(settings: SlurmSettings, answers: Answers) -> tuple[NativeJob, ...]:
    """All that were handed over and have not begun."""
    if not settings.hands_over:
        return ()
    found = []
    for entry in answers.queue:
        claimed = entry.id in answers.claimed
        if not claimed and not (entry.state in WAITS and is_handed(settings, entry)):
            continue
        fields = answers.layouts.get(entry.number, {})
        asked = asked_for(fields, whole_nodes=settings.slots == "node")
        if asked is None:
            asked = Asked(procs=_procs(settings, answers, entry))
        found.append(
            NativeJob(
                id=entry.id,
                submitted=answers.now if entry.submitted is None else entry.submitted,
                name=entry.name,
                user=entry.user,
                uid=entry.uid,
                gid=entry.gid,
                procs=asked.procs,
                memory_mb_per_proc=asked.memory_mb_per_proc,
                shape=asked.shape,
                time_limit=entry.time_limit,
                features=simple_features(entry.features) or (),
                waits="" if claimed else _waits(settings, entry, answers.now),
                claimed=claimed,
            )
        )
    return tuple(found)


def _procs(settings: SlurmSettings, answers: Answers, entry: QueueEntry) -> int:
    """The slots that a handed job takes."""
    if settings.slots == "node":
        return entry.node_count
    if not entry.exclusive:
        return entry.cpus
    most = max((node.cpus for node in chosen_nodes(settings, answers.nodes)), default=1)
    return max(entry.cpus, entry.node_count * most)


def is_heterogeneous(entry: QueueEntry) -> bool:
    """Whether it is a component of a job of several, which start together and are not ours to."""
    return "+" in entry.id


def _waits(settings: SlurmSettings, entry: QueueEntry, now: float) -> str:
    by_comment = bool(settings.handover_comment) and entry.comment == settings.handover_comment
    if entry.odd:
        return f"not understood: {entry.odd}"
    if is_heterogeneous(entry):
        return "heterogeneous job"
    if entry.reason == "JobHeldUser" and by_comment:
        return ""  # held for us: that is how it is handed over
    if entry.reason in SELF_HELD:
        return entry.reason
    if entry.dependency:
        return "Dependency"
    if entry.reason == NOT_YET_JUDGED and entry.start is not None and entry.start > now:
        return "BeginTime"
    if simple_features(entry.features) is None:
        return f"constraint {entry.features} is not a list of features"
    if entry.required_nodes:
        return f"asks for nodes {entry.required_nodes}"
    return ""


def simple_features(text: str) -> tuple[str, ...] | None:
    """Features that every node must have; None where the constraint says more than that."""
    if not text:
        return ()
    words = text.replace(",", "&").split("&")
    return tuple(words) if all(word.replace("_", "").isalnum() for word in words) else None


def to_hold(settings: SlurmSettings, queue: Iterable[QueueEntry]) -> list[str]:
    """Handed jobs that Slurm could start by itself at any moment."""
    return [
        entry.id
        for entry in queue
        if entry.state == "PENDING"
        and is_handed(settings, entry)
        and not is_heterogeneous(entry)
        # A hold would hide why it waits; and where it may start, it starts before it is judged.
        and entry.reason not in HELD_BACK | {NOT_YET_JUDGED}
    ]
