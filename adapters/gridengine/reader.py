"""Reads a Grid Engine cell: hosts, slots, load and jobs, with one command.

``qstat -f -xml -F … -r -u *`` says all of it at one instant; where reservations of ours are kept
in Grid Engine, ``qrstat`` tells of them. It runs with a clean environment, in
UTC, and under a time limit. Whatever fails, the cluster is unknown, not empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.node_load import Load, LoadWatch, effective_power
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import ParseError, QueueEntry, Status, parse_status
from coalloc.adapters.gridengine.part_commands import SLACK_S
from coalloc.adapters.gridengine.passing import (
    OFFSET_S,
    GridEnginePassing,
    read_reservations,
)
from coalloc.adapters.gridengine.reading import (
    chosen_queues,
    measured,
    relative_power,
    running_jobs,
    slots_of,
    state_of,
    waiting_count,
)
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.adapters.runner.command import BatchError
from coalloc.model.batch_options import BatchOptions
from coalloc.model.reading import ClusterReading, NodeReading
from coalloc.model.site_rules import PartitionRules, SiteRules

UTC = {"TZ": "UTC"}
RESOURCES = "num_proc,mem_total,load_short,slots,h_rt,arch"
WAYS = {
    "at_once": "at once, where slots are free",
    "queue": "at once, else as jobs that wait their turn",
}
"""How parts get in."""
ADDED_S = SLACK_S + 70.0 + OFFSET_S
"""What Grid Engine adds to a job's limit, with the usual lease and grace, seconds."""
QSTAT = ("-f", "-xml", "-F", RESOURCES, "-r", "-u", "*")


class GridEngineReader:
    """Reads one Grid Engine cell.

    Parameters
    ----------
    commands : GridEngine
    claims : callable, optional
        The claims of our parts, as tokens name them; absent: every token is ours.
    passing : GridEnginePassing, optional
        Reservations of ours that Grid Engine is to have, planned with every reading.
    clock : callable
        Wall-clock seconds.
    """

    def __init__(
        self,
        settings: GridEngineSettings,
        commands: GridEngine,
        *,
        claims: Callable[[], Collection[str]] | None = None,
        passing: GridEnginePassing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._commands = settings, commands
        self._passing = (
            GridEnginePassing(settings=settings, commands=commands) if passing is None else passing
        )
        self._claims, self._clock = claims, clock
        self._loads = LoadWatch(settings.load)

    def read(self) -> ClusterReading:
        """Return the cluster as Grid Engine describes it now.

        Raises
        ------
        AdapterError
            The command failed, its answer was not understood, or there is no such queue.
        """
        granted = read_reservations(self._commands) if self._passing.is_told else ()
        status = read_status(self._commands)
        # After it: a job that is in the queue has its claim on disk.
        claims = None if self._claims is None else self._claims()
        settings, now = self._settings, self._clock()
        entries = chosen_queues(settings, status)
        if not entries:
            raise AdapterError(f"qstat: no slots of queue {settings.queue} on any host of ours")
        self._passing.plan(granted, entries, claims, now)
        borders = self._passing.borders(now)
        entries = [self._without_own(entry) for entry in entries]
        loads = self._loads.loads(measured(entries, status), now)
        unknown: dict[str, int] = {}
        for letter in "".join(state_of(entry.state)[2] for entry in entries):
            unknown[f"queue state {letter}"] = unknown.get(f"queue state {letter}", 0) + 1
        return ClusterReading(
            cluster=settings.cluster,
            nodes=tuple(self._node(entry, loads.get(entry.host, Load())) for entry in entries),
            running=running_jobs(settings, entries, now, claims),
            waiting=waiting_count(status, claims),
            queues=settings.start == "queue",
            way=WAYS[settings.start],
            unknown=unknown,
            rules=SiteRules(
                honoured=("account", "partition"),
                usual=BatchOptions(partition=settings.queue),
                partitions=(PartitionRules(name=settings.queue),),
                added_s=ADDED_S,
                reservations=tuple(each.id for each in borders),
            ),
            reservations=borders,
            passed=self._passing.passed,
        )

    def _without_own(self, entry: QueueEntry) -> QueueEntry:
        """The same with reservations of others only: of ours the daemon knows by itself."""
        own = self._passing.own_slots(entry.host)
        return replace(entry, reserved=max(0, entry.reserved - own)) if own else entry

    def _node(self, entry: QueueEntry, load: Load) -> NodeReading:
        settings = self._settings
        state, reason, _ = state_of(entry.state)
        name = settings.published(entry.host)
        return NodeReading(
            name=name,
            power=effective_power(relative_power(settings, entry.host), load),
            slots=slots_of(settings, entry),
            features=(entry.arch,) if entry.arch and entry.arch != "-" else (),
            memory_mb=entry.memory_mb,
            state=state,
            load=load.share,
            address=entry.host if name != entry.host else "",
            load_age_s=load.age_s,
            reason=reason,
            partitions=(settings.queue,),
        )


def read_status(commands: GridEngine) -> Status:
    """All queue instances and jobs.

    Raises
    ------
    AdapterError
    """
    try:
        return parse_status(commands.run("qstat", *QSTAT, env=UTC))
    except BatchError as error:
        raise AdapterError(str(error)) from error
    except ParseError as error:
        raise AdapterError(f"Grid Engine's answer is not understood: {error}") from error
