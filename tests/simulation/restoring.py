"""`coalloc backup` and `restore`, and the operator who looks at what executors tell afterwards.

What a restoration promises is checked where it can be broken: parts that run on, of which the
restored store knows nothing, are not ended unless somebody asks (`Batch.spared`), and no job starts
again of which any executor still knows or remembers a later attempt. What the former daemon did and
nobody remembers any more counts as not done: it may be done again, under the same numbers.
"""

from __future__ import annotations

import random

from coalloc.core.base.messages import Prepare
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Cancel, Command, Release, ResumeRounds
from coalloc.core.base.state import whole_id
from coalloc.core.jobs.after_restore import OVERTAKEN
from coalloc.model.sites.parts import PartKey, PartState
from tests.simulation.batch import Batch
from tests.simulation.daemon import DaemonHost
from tests.simulation.disk import Disk
from tests.simulation.executors import ExecutorHost
from tests.simulation.users import Users

COPY_EVERY, RESTORE_EVERY = 80, 400
"""Steps, on the average."""
LOOKS_FOR_S = 10.0
"""The operator sees every cluster where anything was started for so long before rounds go on."""
DOWN_S = 60.0
"""A cluster where nothing was started may be heard of so late, seconds."""


def whole(job: str) -> str:
    """The job of a task or a piece; others are their own."""
    return job.partition(".")[0]


class Restorations:
    """Copies of the daemon's store, made and put back in half of all worlds.

    Parameters
    ----------
    seed : int or None
        Of the world; None: no copy is made.

    Attributes
    ----------
    touched : set of job
        What was started after a copy was made that is the store now, and what ran in it and no
        executor has any more.
    """

    def __init__(
        self,
        seed: int | None,
        daemon: DaemonHost,
        executors: dict[str, ExecutorHost],
        batches: dict[str, Batch],
        users: Users,
    ) -> None:
        self._dice = random.Random(f"restorations {seed}")
        self._happen = seed is not None and self._dice.random() < 0.5
        self._down = random.Random(f"down {seed}")
        self._daemon, self._executors, self._batches = daemon, executors, batches
        self._users = users
        self._copy: Disk | None = None
        self._restored: Disk | None = None
        self._epoch = -1
        self._together_since: float | None = None
        self._is_looking = False
        self.touched: set[str] = set()
        users.on_wish = self._asked

    def fail(self, now: float) -> str:
        """Make a copy, or stop the daemon and put the copy back; returns what was done."""
        dice = self._dice
        if not self._happen:
            return ""
        if dice.random() < 1.0 / COPY_EVERY:
            self._copy = self._daemon.disk.copied()
            return "a backup is made"
        if self._copy is None or dice.random() >= 1.0 / RESTORE_EVERY:
            return ""
        self._daemon.crash()
        # Without the store in between, a second restoration of one copy gives its numbers again.
        is_readable = self._copy is self._restored or dice.random() < 0.7
        fresh = self._copy.restored(self._daemon.disk if is_readable else None, now)
        self._restored = self._copy
        self._daemon.disk, self._epoch = fresh, fresh.epoch
        for batch in self._batches.values():
            batch.is_strict = True
            batch.spared = {key for key in batch.parts if self._is_later(key)}
        for cluster, executor in self._executors.items():
            executor.restored = fresh.epoch
            self.rewind(cluster)
            if self._is_empty(cluster) and self._down.random() < 0.5:
                self._daemon.network.cut(cluster, now + DOWN_S)
        there = self._there()
        for record in fresh.jobs.values():
            if record.is_placed and (record.id, record.attempt) not in there:
                self.touched.add(record.flow or record.id)
        self._users.restored(fresh)
        self._together_since, self._is_looking = None, True
        return f"the daemon is stopped, and its store is restored as epoch {fresh.epoch}"

    def is_over(self) -> bool:
        """Nothing is left for the operator to do."""
        return not self._is_looking and not self._overtaken()

    def _is_later(self, key: PartKey) -> bool:
        """A part of an attempt that the store does not know of."""
        job, attempt = key.job, key.attempt
        record = self._daemon.disk.jobs.get(job)
        is_later = record is None or record.attempt < attempt
        if is_later:
            self.touched.add(whole(job))
        return is_later

    def rewind(self, cluster: str) -> None:
        """Forget what ran on a cluster after the copy, and no executor knows any more."""
        ran = {
            key.start
            for batch in self._batches.values()
            for key, part in batch.parts.items()
            if part.started is not None
        }
        known = ran.union(*(each.remembered for each in self._executors.values()))
        batch = self._batches[cluster]
        for key in sorted(batch.claimed):
            job, attempt = key.job, key.attempt
            stored = {whole(job), whole_id(job.partition("_")[0])}
            is_known = not stored.isdisjoint(self._daemon.disk.jobs)
            is_there = key in batch.parts or key.start in known
            if is_known and self._is_later(key) and not is_there:
                batch.never_claimed(key)
                batch.starts.get(job, {}).pop(attempt, None)

    def _there(self) -> set[tuple[str, int]]:
        """Jobs and attempts of which executors know parts."""
        return {key.start for batch in self._batches.values() for key in batch.parts}

    def lost_state(self, cluster: str) -> None:
        """An executor forgets what it knew, perhaps before the restored daemon hears of it."""
        if self._is_looking and cluster in self._daemon.disk.unreconciled:
            self.rewind(cluster)

    def is_former(self, cluster: str, order: Prepare) -> bool:
        """Whether a start was ordered before the restoration.

        One that was let go behind another of its slot may begin after the executor has heard of
        the next daemon.
        """
        core, batch = self._executors[cluster].core, self._batches[cluster]
        record = self._daemon.disk.jobs.get(order.job)
        is_known = record is not None and record.attempt == order.attempt and record.is_placed
        was_let_go = order.key in batch.spared and batch.parts[order.key].is_let_go
        is_former = core is not None and core.state.epoch <= self._epoch
        if is_known or not (is_former or was_let_go):
            return False
        self.touched.add(whole(order.job))
        batch.spared.add(order.key)
        return True

    def _asked(self, command: Command) -> None:
        """Somebody wants the end of a job, or that it runs again: what runs of it may be ended."""
        match command:
            case Cancel(job=asked) | Release(job=asked):
                for job in self.touched:
                    if asked in {job, job.partition("_")[0]}:
                        self._give_up(job, is_again=isinstance(command, Release))
            case _:
                pass

    def _give_up(self, job: str, *, is_again: bool) -> None:
        jobs = self._daemon.disk.jobs
        for batch in self._batches.values():
            batch.spared = {key for key in batch.spared if whole(key.job) != job}
            for name in [name for name in batch.starts if is_again and whole(name) == job]:
                known = jobs.get(name)
                if known is None or not (known.is_ended or known.is_placed):
                    del batch.starts[name]
        record = jobs.get(job)
        if record is not None and record.origin:
            self._batches[record.origin].guests.jobs[record.foreign].is_unwanted = True

    def operate(self, now: float) -> str:
        """The operator of docs/operations/recovery.md; returns what was asked for."""
        if not (self._is_looking or self._overtaken()) or not self._sees_all(now):
            return ""
        asked = [wish.command for wish in self._users.wishes.values()]
        for record in self._overtaken():
            if self._runs(record) or any(getattr(c, "job", "") == record.id for c in asked):
                continue
            again = self._dice.random() < 0.5
            self._users.ask_for(Release(job=record.id) if again else Cancel(job=record.id))
            return f"the operator decides on job {record.id}"
        if self._is_looking:
            self._is_looking = False
            self._users.ask_for(ResumeRounds())
            return "the operator resumes rounds"
        return ""

    def _sees_all(self, now: float) -> bool:
        core = self._daemon.core
        if core is None or not all(
            each.connected or self._is_empty(name) for name, each in core.state.clusters.items()
        ):
            self._together_since = None
            return False
        if self._together_since is None:
            self._together_since = now
        return now - self._together_since >= LOOKS_FOR_S

    def _is_empty(self, cluster: str) -> bool:
        """Nothing was ever started there that the store might not know of; nobody waits for it."""
        executor = self._executors[cluster]
        return not executor.remembered and not self._batches[cluster].parts

    def _overtaken(self) -> list[JobRecord]:
        if self._restored is None:
            return []
        return [
            record
            for record in self._daemon.disk.jobs.values()
            if record.state is JobState.HELD and record.reason == OVERTAKEN
        ]

    def _runs(self, record: JobRecord) -> bool:
        """Some of it runs; whoever does not wait for its end has it ended."""
        return self._dice.random() < 0.95 and any(
            part.state is PartState.RUNNING and whole(key.job) == record.id
            for batch in self._batches.values()
            for key, part in batch.parts.items()
        )
