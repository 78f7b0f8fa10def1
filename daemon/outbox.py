"""Orders to executors: kept until carried out, sent with credit, replayed after a gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coalloc.core.base.messages import Numbered, Order, Prepare
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace

CREDIT = 256
"""Orders under way to one executor that it has not yet carried out."""


@dataclass(slots=True)
class Outbox:
    """One cluster's orders that it has not carried out, by number."""

    orders: dict[int, Order] = field(default_factory=dict)
    sent: int = 0


class Delivery:
    """Sends each cluster's orders in sequence; `tell` returns whether a message went out.

    Orders are kept without what they execute: `launch_of` has it by a job's number,
    `task_launch_of` by the order of a workflow's task.
    """

    def __init__(
        self,
        tell: Callable[[str, Numbered], bool],
        launch_of: Callable[[str], Launch | None],
        *,
        epoch: int,
        task_launch_of: Callable[[Prepare], Launch | None] | None = None,
    ) -> None:
        self._tell, self._launch_of, self._epoch = tell, launch_of, epoch
        self._task_launch_of = task_launch_of
        self._boxes: dict[str, Outbox] = {}

    def restore(self, orders: dict[str, dict[int, Order]]) -> None:
        """Take over what an earlier run of the daemon left undelivered."""
        for cluster, kept in orders.items():
            self._boxes[cluster] = Outbox(orders=dict(kept), sent=min(kept, default=1) - 1)

    def add(self, cluster: str, seq: int, order: Order) -> None:
        """Send an order that is on disk."""
        box = self._boxes.setdefault(cluster, Outbox(sent=seq - 1))
        box.orders[seq] = order
        self.pump(cluster)

    def replay(self, cluster: str, from_seq: int) -> None:
        """Send again from a number on."""
        box = self._boxes.setdefault(cluster, Outbox())
        box.sent = from_seq - 1
        self.pump(cluster)

    def done(self, cluster: str, through_seq: int) -> None:
        """The executor has carried out its orders up to a number."""
        box = self._boxes.setdefault(cluster, Outbox())
        for seq in [seq for seq in box.orders if seq <= through_seq]:
            del box.orders[seq]
        self.pump(cluster)

    def waiting(self) -> dict[str, int]:
        """Orders not carried out, by cluster."""
        return {cluster: len(box.orders) for cluster, box in self._boxes.items()}

    def pump(self, cluster: str) -> None:
        """Send what there is credit for."""
        box = self._boxes[cluster]
        while box.sent + 1 in box.orders:
            oldest = next(iter(box.orders))
            if box.sent + 1 - oldest >= CREDIT:
                return
            order = box.orders[box.sent + 1]
            if isinstance(order, Prepare):
                order = replace(order, launch=self._launch(order))
            if not self._tell(cluster, Numbered(epoch=self._epoch, seq=box.sent + 1, order=order)):
                return
            box.sent += 1

    def _launch(self, order: Prepare) -> Launch | None:
        if order.task and self._task_launch_of is not None:
            return self._task_launch_of(order)
        return self._launch_of(order.job.partition("_")[0].partition(".")[0])
