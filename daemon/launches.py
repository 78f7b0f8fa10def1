"""Commands of jobs and tasks from the store; templates filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from structlog.stdlib import BoundLogger

from coalloc.core.base.composites import flow_of
from coalloc.core.base.messages import Prepare
from coalloc.daemon.store.errors import StoreCorruptError
from coalloc.daemon.store.records_json import read_launch
from coalloc.daemon.store.sqlite import Store
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace

PLACEHOLDER = re.compile(r"\{(task|name|id|procs)\}")


class Launches:
    """Reads launches on demand.

    The tasks of a workflow come in long runs, and share all but their commands: what the last
    one shared is kept.
    """

    def __init__(self, store: Store, log: BoundLogger) -> None:
        self._store, self._log = store, log
        self._shared: tuple[str, Launch] | None = None

    def of(self, number: str) -> Launch | None:
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
            shared = self.of(workflow)
            if shared is None:
                return None
            self._shared = (workflow, shared)
        launch = self._shared[1]
        if not launch.argv:
            own = self.of(order.job)
            return None if own is None else replace(launch, argv=own.argv)
        values = {
            "task": order.task,
            "name": order.name.removesuffix(f".{order.task}"),
            "id": order.job,
            "procs": str(order.size),
        }
        return replace(launch, argv=filled(launch.argv, values))


def filled(argv: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a command with ``{task}``, ``{name}``, ``{id}`` and ``{procs}`` filled in."""
    return tuple(PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in argv)
