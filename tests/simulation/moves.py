"""Moves out of the queues of batch systems, followed in what the daemon writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coalloc.core.base.effects import AppendEvent, Effect
from coalloc.core.base.messages import Withdraw
from coalloc.core.base.records import JobState
from tests.simulation.disk import Disk

EVENTS = frozenset({"move_ordered", "job_moved", "move_overtaken"})


@dataclass
class MovesKept:
    """Counts the orders to leave a queue by itself, on each disk afresh.

    Attributes
    ----------
    margin_s : float
        A first move gains more than this, and each further one twice as much; 0: there is none.
    seen : Counter of event kind
    """

    margin_s: float
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._disk: Disk | None = None
        self._ordered: dict[str, set[int]] = {}
        self._first: dict[str, int] = {}
        """Moves that a job had when this disk was new."""
        self._known: set[tuple[str, int]] = set()

    def at_commit(self, disk: Disk) -> None:
        """An order to leave a queue is written with its mark and its count, or not at all.

        Raises
        ------
        AssertionError
        """
        if disk is not self._disk:
            self._disk, self._ordered = disk, {}
            self._first = {job: record.moves for job, record in disk.jobs.items()}
            self._known = {(name, seq) for name, box in disk.outbox.items() for seq in box}
        for name, box in disk.outbox.items():
            for seq, order in box.items():
                if (name, seq) in self._known:
                    continue
                self._known.add((name, seq))
                if isinstance(order, Withdraw):
                    self._look(disk, name, order)

    def _look(self, disk: Disk, cluster: str, order: Withdraw) -> None:
        record = disk.jobs[order.job]
        ordered = self._ordered.setdefault(order.job, set())
        ordered.add(order.attempt)
        assert self.margin_s > 0.0, f"job {order.job} is moved, and none may be"
        assert not record.foreign, f"job {order.job} is another queue's, and is moved"
        assert not record.flow, f"{order.job} is a part of a job, and is moved"
        if record.attempt == order.attempt and record.state is JobState.PREPARING:
            waits = any(p.cluster == cluster and p.granted is None for p in record.parts)
            assert not waits or record.leaving == cluster, f"the move of job {order.job} is lost"
        counted = record.moves - self._first.get(order.job, 0)
        assert counted >= len(ordered), f"job {order.job} moves again, and {counted} are counted"

    def look(self, effects: Iterable[Effect]) -> None:
        """A job moves for no less than it has to gain.

        Raises
        ------
        AssertionError
        """
        for effect in effects:
            if not isinstance(effect, AppendEvent) or effect.kind not in EVENTS:
                continue
            self.seen[effect.kind] += 1
            if effect.kind == "move_ordered":
                before = len(self._ordered.get(effect.job, ()))
                gain, least = effect.fields["gain_s"], self.margin_s * 2.0**before
                assert gain > least - 1e-3, f"job {effect.job} moves for {gain} s, not {least}"
                assert effect.fields["wait_elsewhere_s"] >= 0.0
                assert effect.fields["to"] != effect.fields["cluster"]
