"""Orders to executors: kept until carried out, sent with credit, replayed after a gap.

What a part executes stays in the store until its order is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from structlog.stdlib import BoundLogger

from coalloc.core.base.composites import flow_of
from coalloc.core.base.messages import Numbered, Order, Prepare
from coalloc.daemon.store.errors import StoreCorruptError
from coalloc.daemon.store.records_json import read_launch
from coalloc.daemon.store.sqlite import Store
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

    Orders are kept without what they execute, which `launch_of` has.
    """

    def __init__(
        self,
        tell: Callable[[str, Numbered], bool],
        launch_of: Callable[[Prepare], Launch | None],
        *,
        epoch: int,
    ) -> None:
        self._tell, self._launch_of, self._epoch = tell, launch_of, epoch
        self._boxes: dict[str, Outbox] = {}

    def restore(self, orders: dict[str, dict[int, Order]]) -> None:
        """Take over what an earlier run of the daemon left undelivered."""
        for cluster, kept in orders.items():
            self._boxes[cluster] = Outbox(orders=dict(kept), sent=min(kept, default=1) - 1)

    def add(self, cluster: str, seq: int, order: Order) -> None:
        box = self._boxes.setdefault(cluster, Outbox(sent=seq - 1))
        box.orders[seq] = order
        self.pump(cluster)

    def replay(self, cluster: str, from_seq: int | None) -> None:
        """Send orders again, from a number on; None: the newest that was sent."""
        box = self._boxes.setdefault(cluster, Outbox())
        if from_seq is not None:
            box.sent = from_seq - 1
        elif box.sent in box.orders:
            box.sent -= 1
        self.pump(cluster)

    def done(self, cluster: str, through_seq: int) -> None:
        box = self._boxes.setdefault(cluster, Outbox())
        for seq in [seq for seq in box.orders if seq <= through_seq]:
            del box.orders[seq]
        self.pump(cluster)

    def waiting(self) -> dict[str, int]:
        return {cluster: len(box.orders) for cluster, box in self._boxes.items()}

    def pump(self, cluster: str) -> None:
        box = self._boxes[cluster]
        while box.sent + 1 in box.orders:
            oldest = next(iter(box.orders))
            if box.sent + 1 - oldest >= CREDIT:
                return
            order = box.orders[box.sent + 1]
            if isinstance(order, Prepare):
                order = replace(order, launch=self._launch_of(order))
            if not self._tell(cluster, Numbered(epoch=self._epoch, seq=box.sent + 1, order=order)):
                return
            box.sent += 1


PLACEHOLDER = re.compile(r"\{(task|name|id|procs)\}")


class Launches:
    """Reads launches on demand.

    The tasks of a workflow come in long runs, and share all but their commands: what the last
    one shared is kept.
    """

    def __init__(self, store: Store, log: BoundLogger) -> None:
        self._store, self._log = store, log
        self._shared: tuple[str, Launch] | None = None

    def of(self, order: Prepare) -> Launch | None:
        """Of the part that an order is about."""
        if order.task:
            return self.of_task(order)
        return self.of_job(number_of(order.job))

    def of_job(self, number: str) -> Launch | None:
        """Of a job, or of all members of an array; without one its claim is refused."""
        try:
            body = self._store.launch(number)
        except StoreCorruptError as error:
            self._log.error("store_damaged", why=str(error), job=number)
            return None
        return None if body is None else read_launch(body)

    def of_task(self, order: Prepare) -> Launch | None:
        """Of a task: its own command, or the workflow's with the placeholders filled in."""
        workflow, _ = flow_of(order.job)
        if self._shared is None or self._shared[0] != workflow:
            shared = self.of_job(workflow)
            if shared is None:
                return None
            self._shared = (workflow, shared)
        launch = self._shared[1]
        if not launch.argv:
            own = self.of_job(order.job)
            return None if own is None else replace(launch, argv=own.argv)
        values = {
            "task": order.task,
            "name": order.name.removesuffix(f".{order.task}"),
            "id": order.job,
            "procs": str(order.size),
        }
        argv = (PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in launch.argv)
        return replace(launch, argv=tuple(argv))


def number_of(job: str) -> str:
    """The number under which what a job executes is kept, that of its array or divisible job."""
    return job.partition("_")[0].partition(".")[0]
