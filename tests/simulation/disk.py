"""What the daemon has on disk, and a disk that fills up, goes read-only or is slow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from coalloc.core.base.effects import (
    AddUsage,
    AppendEvent,
    DropHistory,
    DropOrders,
    DropPromises,
    DropStartError,
    Effect,
    SaveHistory,
    SaveJob,
    SaveLaunch,
    SaveMeta,
    SavePromises,
    SaveStartError,
    SaveToken,
    SaveUsage,
    SendOrder,
)
from coalloc.core.base.messages import Order
from coalloc.core.base.projects import ProjectUser, Usage
from coalloc.core.base.records import JobRecord
from coalloc.core.base.start_intervals import Calibration, Promise, StartError
from coalloc.core.base.state_tables import LastNumbers, Learning, Maintenance, Presence, Sharing
from coalloc.core.clusters.presence import MARK as EXECUTOR
from coalloc.core.commands.reservations import META as RESERVED
from coalloc.core.commands.reservations import read_reserved
from coalloc.core.coordinator import StoredState
from coalloc.core.jobs.after_restore import MARK as RESTORED
from coalloc.core.jobs.after_restore import RESTORED as RESTORATION
from coalloc.core.jobs.after_restore import TOLD
from coalloc.daemon.store.recall import drained_of
from coalloc.daemon.store.restore import highest, renumbered, unprepared
from coalloc.model.sites.parts import Launch


class FullError(Exception):
    """Nothing was written."""


@dataclass
class Disk:
    """The daemon's store: whole transactions, or nothing."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    launches: dict[str, Launch] = field(default_factory=dict)
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    history: dict[str, tuple[float, ...]] = field(default_factory=dict)
    promises: dict[str, tuple[Promise, ...]] = field(default_factory=dict)
    start_errors: dict[int, StartError] = field(default_factory=dict)
    outbox: dict[str, dict[int, Order]] = field(default_factory=dict)
    usage: dict[ProjectUser, Usage] = field(default_factory=dict)
    days: dict[ProjectUser, dict[int, float]] = field(default_factory=dict)
    charged: float = 0.0
    """Processor-seconds that the last commit has added."""
    last_event: int = 0
    is_full: bool = False
    changed: dict[str, tuple[JobRecord | None, JobRecord]] = field(default_factory=dict)
    """Records of the last commit, with what stood there before."""

    @property
    def epoch(self) -> int:
        """Of the daemon that uses it."""
        return int(self.meta.get("epoch", "0"))

    @property
    def unreconciled(self) -> frozenset[str]:
        """Clusters that were not heard of since it was restored."""
        return frozenset(
            key.removeprefix(RESTORED)
            for key, value in self.meta.items()
            if key.startswith(RESTORED) and value
        )

    def copied(self) -> Disk:
        """What `coalloc backup` writes now."""
        return replace(
            self,
            jobs=dict(self.jobs),
            launches=dict(self.launches),
            tokens=dict(self.tokens),
            meta=dict(self.meta),
            history=dict(self.history),
            promises=dict(self.promises),
            start_errors=dict(self.start_errors),
            usage=dict(self.usage),
            days={owner: dict(days) for owner, days in self.days.items()},
            outbox={name: dict(box) for name, box in self.outbox.items()},
            is_full=False,
            changed={},
        )

    def restored(self, former: Disk | None, now: float) -> Disk:
        """What `coalloc restore` makes of this copy in the place of the former store.

        Parameters
        ----------
        former : Disk or None
            None where it cannot be read.
        """
        fresh = self.copied()
        known = {} if former is None else highest(former.meta, former.last_event)
        last = max((int(_number(job)) for job in self.jobs), default=0)
        own = highest(self.meta, self.last_event)
        meta, fresh.last_event = renumbered(own, known, last, now)
        fresh.meta |= meta
        fresh.outbox.clear()
        fresh.jobs = {job: unprepared(record) for job, record in self.jobs.items()}
        return fresh

    def commit(self, effects: Iterable[Effect]) -> None:
        """Write what is persistent among the effects.

        Raises
        ------
        FullError
        AssertionError
            If the event stream has a gap.
        """
        if self.is_full:
            raise FullError
        self.changed = {}
        self.charged = 0.0
        for effect in effects:
            match effect:
                case SaveJob(record=record):
                    before = self.changed.get(record.id, (self.jobs.get(record.id), record))[0]
                    self.changed[record.id] = (before, record)
                    self.jobs[record.id] = record
                case SaveLaunch(job=job, launch=launch):
                    self.launches[job] = launch
                case SaveToken(user=user, token=token, job=job):
                    self.tokens[user, token] = job
                case SaveMeta(key=key, value=value):
                    self.meta[key] = value
                case SaveHistory(key=key, values=values):
                    self.history[key] = values
                case DropHistory(key=key):
                    self.history.pop(key, None)
                case SavePromises(job=job, promises=kept):
                    self.promises[job] = kept
                case DropPromises(job=job):
                    self.promises.pop(job, None)
                case SaveStartError(error=error):
                    self.start_errors[error.number] = error
                case DropStartError(number=number):
                    self.start_errors.pop(number, None)
                case SendOrder(cluster=cluster, seq=seq, order=order):
                    self.outbox.setdefault(cluster, {})[seq] = order
                case DropOrders(cluster=cluster, through_seq=through):
                    box = self.outbox.get(cluster, {})
                    self.outbox[cluster] = {s: o for s, o in box.items() if s > through}
                case SaveUsage(project=project, user=user, proc_s=proc_s, at=at):
                    self.usage[project, user] = Usage(proc_s, at)
                case AddUsage(day=day, project=project, user=user, proc_s=proc_s):
                    days = self.days.setdefault((project, user), {})
                    days[day] = days.get(day, 0.0) + proc_s
                    self.charged += proc_s
                case AppendEvent(seq=seq):
                    self.last_event = seq

    def recall(self, clusters: Iterable[str]) -> StoredState:
        """What a daemon that starts now reads; it begins a new epoch."""
        self.meta["epoch"] = str(self.epoch + 1)
        return StoredState(
            jobs=list(self.jobs.values()),
            tokens=dict(self.tokens),
            seqs={name: int(self.meta.get(f"seq.{name}", "1")) for name in clusters},
            unacked={name: min(box) for name, box in self.outbox.items() if box},
            learning=Learning(
                history=dict(self.history),
                promises=dict(self.promises),
                calibration=Calibration.of(self.start_errors[n] for n in sorted(self.start_errors)),
            ),
            sharing=Sharing(
                usage=dict(self.usage),
                days={owner: dict(days) for owner, days in self.days.items()},
            ),
            maintenance=Maintenance(
                drained=drained_of(self.meta.get("drained", "")),
                reserved=read_reserved(self.meta.get(RESERVED, "")),
            ),
            paused=bool(self.meta.get("paused")),
            presence=Presence(
                unreconciled=set(self.unreconciled),
                restored=self.meta.get(RESTORATION, ""),
                told={
                    key.removeprefix(TOLD): value
                    for key, value in self.meta.items()
                    if key.startswith(TOLD)
                },
                identities={
                    key.removeprefix(EXECUTOR): value
                    for key, value in self.meta.items()
                    if key.startswith(EXECUTOR)
                },
            ),
            epoch=self.epoch,
            store="s",
            last=LastNumbers(job=int(self.meta.get("last_job", "0")), event=self.last_event),
        )


def _number(job: str) -> str:
    return job.partition("_")[0].partition(".")[0]
