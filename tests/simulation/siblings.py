"""What holds of siblings: claims of one job in several clusters' queues, of which one runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from coalloc.core.base.messages import Abort, Forget
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.jobs.after_restore import is_held
from coalloc.core.sharing.limits import LimitBook
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import PART_ENDED, PartKey, PartState
from tests.simulation import shares
from tests.simulation.batch import Batch
from tests.simulation.daemon import DaemonHost
from tests.simulation.disk import Disk
from tests.simulation.part import HELD

NOTICED_S = 8.0
"""The end of a claim that nobody wants is ordered within this, where nothing fails, seconds."""
GIVEN_BACK_S = 30.0
"""It is given back within this then: lost orders, up to some dozens, are sent again before, s."""


def at_commit(daemon: DaemonHost) -> None:
    """One is chosen when all clusters were heard of, and the others are withdrawn with it.

    Raises
    ------
    AssertionError
    """
    disk = daemon.disk
    for before, record in disk.changed.values():
        if record.siblings:
            _are_alternatives(record)
        was_open = before is not None and before.siblings and before.attempt == record.attempt
        if before is None or not was_open or record.state is not JobState.STARTING:
            continue
        assert not record.siblings, f"job {record.id} is to start with siblings"
        assert len(record.parts) == 1, f"job {record.id} is to start in {record.clusters}"
        assert not disk.unreconciled, (
            f"job {record.id} is to start, and nothing was heard of {set(disk.unreconciled)}"
        )
        for part in before.parts:
            is_chosen = part.cluster in record.clusters
            assert (
                is_chosen
                or part.state in PART_ENDED
                or _is_ended(disk, part.cluster, (record.id, record.attempt))
            ), f"job {record.id} is to start, and its claim in {part.cluster} stands"
    _count_once(daemon)


def _are_alternatives(record: JobRecord) -> None:
    assert record.state is JobState.PREPARING, f"job {record.id} is {record.state} with siblings"
    assert not record.flow, f"task {record.id} has siblings"
    assert not record.foreign, f"job {record.id} is another queue's, and has siblings"
    assert len(set(record.clusters)) == len(record.parts), f"{record.id}: {record.clusters}"
    sizes = {sum(part.nodes.values()) for part in record.parts}
    assert len(sizes) == 1, f"siblings of job {record.id} have {sizes} processes"


def _is_ended(disk: Disk, cluster: str, start: tuple[str, int]) -> bool:
    """An order that ends what a cluster has of an attempt is written, or its end was heard."""
    orders = disk.outbox.get(cluster, {}).values()
    return any(isinstance(o, Abort | Forget) and (o.job, o.attempt) == start for o in orders)


def _count_once(daemon: DaemonHost) -> None:
    """No limit counts a job more than once."""
    core, projects = daemon.core, daemon.settings.projects
    if core is None or not projects:
        return
    book = LimitBook(core.state, 0.0)
    for record in daemon.disk.jobs.values():
        name = shares.project_of(daemon, record) if record.siblings else ""
        most = projects[name].max_procs if name else None
        if most is not None and record.job.shape == ONE_SLOT:
            used = sum(each.placed_slots for each in shares.placed_of(daemon, name))
            assert book.room(record) == max(0, most - used), f"{name} uses {used} of {most}"


@dataclass
class Strays:
    """Claims that nobody wants any more, while nothing fails."""

    since: dict[tuple[str, PartKey, bool], float] = field(default_factory=dict)
    """By cluster, part, and whether its end is ordered, s."""

    def look(self, disk: Disk, batches: dict[str, Batch], now: float) -> None:
        """Each is given back in a while.

        Raises
        ------
        AssertionError
        """
        strays = {
            (name, key, _is_ended(disk, name, key.start))
            for name, batch in batches.items()
            for key, part in batch.parts.items()
            if (part.state in HELD or part.state is PartState.WAITING)
            and not part.is_let_go  # it begins when those before it have ended
            and not _is_wanted(disk, name, key)
        }
        self.since = {each: self.since.get(each, now) for each in strays}
        for (name, key, is_ordered), since in self.since.items():
            most = GIVEN_BACK_S if is_ordered else NOTICED_S
            assert now - since <= most, f"nobody wants {key}, and {name} keeps it"


def _is_wanted(disk: Disk, cluster: str, key: PartKey) -> bool:
    """It is a part of its job, or somebody is to say what becomes of that."""
    record, whole = disk.jobs.get(key.job), disk.jobs.get(key.job.partition(".")[0])
    if is_held(whole) or record is None or record.attempt != key.attempt:
        return is_held(whole)
    places = {(part.cluster, part.index) for part in record.parts}
    return record.is_placed and (cluster, key.part) in places
