"""Reads a Grid Engine cell: hosts, slots, load and jobs, with one command.

``qstat -f -xml -F … -r -u *`` says all of it at one instant. It runs with a clean environment, in
UTC, and under a time limit. Whatever fails, the cluster is unknown, not empty.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.node_load import Load, LoadWatch, effective_power
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import (
    CellStatus,
    QstatError,
    QueueInstance,
    parse_status,
)
from coalloc.adapters.gridengine.reading import (
    MEMORY,
    chosen_queues,
    measured,
    relative_power,
    running_jobs,
    sized,
    state_of,
    waiting_count,
)
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.adapters.runner.command import BatchError
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.sites.site_rules import PartitionRules, SiteRules
from coalloc.model.values import replace

UTC = {"TZ": "UTC"}
RESOURCES = "num_proc,mem_total,load_short,slots,h_rt,arch"
WAYS = {
    "at_once": "at once, where slots are free",
    "queue": "at once, else as jobs that wait their turn",
}
"""How parts get in."""


class GridEngineReader:
    """Reads one Grid Engine cell; `claims` are those of our parts (absent: every token is ours)."""

    def __init__(
        self,
        settings: GridEngineSettings,
        commands: GridEngine,
        *,
        claims: Callable[[], Collection[str]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._commands = settings, commands
        self._claims, self._clock = claims, clock
        self._loads = LoadWatch(settings.load)

    def read(self) -> ClusterReading:
        settings, odd = self._settings, list[str]()
        status = read_status(settings, self._commands, odd)
        # After it: a job that is in the queue has its claim on disk.
        claims = None if self._claims is None else self._claims()
        now = self._clock()
        entries = chosen_queues(settings, status)
        if not entries and status.queues:
            raise AdapterError(f"qstat: no slots of queue {settings.queue} on any host of ours")
        loads = self._loads.loads(measured(entries, status), now)
        strange = "".join(state_of(entry.state)[2] for entry in entries)
        return ClusterReading(
            cluster=settings.cluster,
            nodes=tuple(self._node(entry, loads.get(entry.host, Load())) for entry in entries),
            running=running_jobs(settings, entries, now, claims),
            waiting=waiting_count(status, claims),
            queues=settings.start == "queue",
            way=WAYS[settings.start],
            unknown=dict(Counter(f"queue state {letter}" for letter in strange)),
            notices=tuple(odd if status.queues or odd else ["it has no hosts"]),
            rules=SiteRules(
                honoured=("account", "partition"),
                usual=BatchOptions(partition=settings.queue),
                partitions=(PartitionRules(name=settings.queue),),
                bounds_memory=MEMORY in settings.complexes,
            ),
        )

    def _node(self, entry: QueueInstance, load: Load) -> NodeReading:
        settings = self._settings
        state, reason, _ = state_of(entry.state)
        host = sized(settings, entry)
        return replace(
            host,
            power=effective_power(relative_power(settings, entry.host), load),
            features=(entry.arch,) if entry.arch and entry.arch != "-" else (),
            state=state,
            load=load.share,
            address=entry.host if host.name != entry.host else "",
            load_age_s=load.age_s,
            reason=reason,
            partitions=(settings.queue,),
        )


def read_status(
    settings: GridEngineSettings, commands: GridEngine, odd: list[str] | None = None
) -> CellStatus:
    """All queue instances and jobs; `odd` as for `parse_status`. Raises `AdapterError`."""
    names = ",".join([RESOURCES, *settings.complexes.values()])
    try:
        words = ("-f", "-xml", "-F", names, "-r", "-u", "*")
        return parse_status(commands.run("qstat", *words, env=UTC), odd)
    except BatchError as error:
        raise AdapterError(str(error)) from error
    except QstatError as error:
        raise AdapterError(f"Grid Engine's answer is not understood: {error}") from error
