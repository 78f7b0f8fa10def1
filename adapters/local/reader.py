"""Reads this machine: how much of each node is not taken by work that is not ours.

Effective power is the node's relative speed times the share of its CPUs that other people's
work leaves free, measured between two readings.

Notes
-----
Ours are all processes below one whose name begins with ``coalloc`` (executor, fork server, part
runners, daemon, also those of the other clusters on this machine) and which belongs to root or
to our own user. Their CPU time is the sum, over the living ones, of their own time and that of
the children they waited for: a sum that does not fall when a process ends and is waited for by
one of ours, so short jobs are not taken for other people's. Where the topmost process of a tree
ended itself, the last load is kept as an upper bound for one reading.

On nodes with CPUs of their own, time is attributed by the affinity of the process that used it;
time of processes that ended is spread over what the CPUs' busy time leaves unexplained.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping

import psutil
from msgspec import Struct

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.node_load import NOISE, Load, effective_power
from coalloc.adapters.local.settings import LocalNode, LocalSettings
from coalloc.adapters.runner.status import uid_of
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.sites.site_rules import PartitionRules, SiteRules

LEAST_INTERVAL_S = 0.2
"""Two readings closer than this are one: the kernel counts in ticks of 10 ms."""

FIRST_SPAN_S = 0.25
"""Between the two samples of the first reading, seconds."""

SHARED = [name for name in NodeReading.__struct_fields__ if name in LocalNode.__struct_fields__]
OURS = b"coalloc"
PPID, TIMES, STARTED = 1, slice(11, 15), 19
"""Fields of ``/proc/PID/stat`` behind the name, see proc(5)."""
HZ = os.sysconf("SC_CLK_TCK")
BOOTED = psutil.boot_time()


class ProcessTime(Struct, frozen=True):
    """CPU time of one process of ours, seconds."""

    parent: int
    created: float
    own: float
    """CPU time of the process itself, s."""
    waited: float
    """That of the children it waited for."""
    cpus: frozenset[int]
    """Processors that the process may run on."""


class MachineSample(Struct, frozen=True):
    """The machine at one instant; processes by process id, CPUs by number."""

    at: float
    wall: float
    busy: tuple[float, ...]
    ours: Mapping[int, ProcessTime]


class LocalReader:
    """Reads one cluster on this machine; `kept` gives the nodes that take no new work, and why."""

    def __init__(
        self, settings: LocalSettings, kept: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._settings, self._kept = settings, kept
        self._pinned = {frozenset(node.pinned) for node in settings.nodes if node.pinned}
        self._last: MachineSample | None = None
        self._loads: dict[frozenset[int] | None, float] = {}
        self._is_bounded = False
        """The loads are those before, since of ours not all was known."""

    def read(self) -> ClusterReading:
        """Return the nodes as they are now; the first reading takes as long as its span."""
        if self._last is None:
            # The next plan is made with this reading, and a load is a difference of two samples.
            self._last = self._sample()
            time.sleep(FIRST_SPAN_S)
        if time.monotonic() - self._last.at >= LEAST_INTERVAL_S:
            sample = self._sample()
            loads, is_complete = foreign_loads(self._last, sample, self._pinned)
            # Once only: where something of ours ends in each reading, none would ever be new.
            self._is_bounded = not (is_complete or self._is_bounded)
            if self._is_bounded:
                loads = {
                    cpus: min(load, self._loads.get(cpus, 0.0)) for cpus, load in loads.items()
                }
            self._loads, self._last = loads, sample
        nodes, kept = [], self._kept()
        for node in self._settings.nodes:
            load = self._loads.get(frozenset(node.pinned) if node.pinned else None, 0.0)
            shared = {name: getattr(node, name) for name in SHARED}
            shared["power"] = effective_power(node.power, Load(share=load))
            nodes.append(
                NodeReading(
                    **shared,
                    load=load,
                    state=NodeState.DRAINING if node.name in kept else NodeState.UP,
                    reason=kept.get(node.name, ""),
                    address=self._settings.address,
                )
            )
        names = {name for node in self._settings.nodes for name in node.partitions}
        rules = SiteRules(
            honoured=("account", "partition") if names else ("account",),
            partitions=tuple(PartitionRules(name=name) for name in sorted(names)),
            bounds_memory=False,
        )
        return ClusterReading(rules=rules, cluster=self._settings.cluster, nodes=tuple(nodes))

    def _sample(self) -> MachineSample:
        try:
            return self._sampled(time.monotonic())
        except (psutil.Error, OSError) as error:
            raise AdapterError(f"this machine cannot be read: {error}") from error

    def _sampled(self, now: float) -> MachineSample:
        busy = tuple(
            # guest time is part of user time already
            sum(t) - t.idle - t.iowait - t.guest - t.guest_nice
            for t in psutil.cpu_times(percpu=True)
        )
        if any(cpu >= len(busy) for cpus in self._pinned for cpu in cpus):
            highest = max(cpu for cpus in self._pinned for cpu in cpus)
            raise AdapterError(f"there is no CPU {highest}: this machine has {len(busy)}")
        ours = self._ours(now + self._settings.read_limit_s)
        return MachineSample(at=now, wall=time.time(), busy=busy, ours=ours)

    def _ours(self, end: float) -> dict[int, ProcessTime]:
        everyone = frozenset(range(os.cpu_count() or 1))
        users = {0, os.getuid()}
        known: dict[int, list[bytes]] = {}
        children: dict[int, list[int]] = {}
        front: list[int] = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            if time.monotonic() > end:
                raise AdapterError(f"reading took longer than {self._settings.read_limit_s:g} s")
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    front_part, _, rest = file.read().rpartition(b")")
                pid, fields = int(name), rest.split()
                known[pid] = fields
                children.setdefault(int(fields[PPID]), []).append(pid)
                is_ours = front_part.partition(b"(")[2].startswith(OURS)
                if pid == os.getpid() or (is_ours and uid_of(pid) in users):
                    front.append(pid)
            except (OSError, IndexError):
                continue  # it has just ended
        found: dict[int, ProcessTime] = {}
        while front:
            for pid in front:
                with contextlib.suppress(OSError):
                    cpus = frozenset(os.sched_getaffinity(pid)) if self._pinned else everyone
                    found[pid] = _process_time(known[pid], cpus)
            front = [
                child for pid in front for child in children.get(pid, ()) if child not in found
            ]
        return found


def _process_time(fields: list[bytes], cpus: frozenset[int]) -> ProcessTime:
    """The times of a process, from what stands behind its name in ``/proc/PID/stat``."""
    user, system, waited_user, waited_system = (int(text) / HZ for text in fields[TIMES])
    return ProcessTime(
        parent=int(fields[PPID]),
        created=BOOTED + int(fields[STARTED]) / HZ,
        own=user + system,
        waited=waited_user + waited_system,
        cpus=cpus,
    )


def foreign_loads(
    old: MachineSample, new: MachineSample, pinned: Iterable[frozenset[int]]
) -> tuple[dict[frozenset[int] | None, float], bool]:
    """Share of the CPUs taken by work that is not ours, between two samples.

    It is answered for each set of `pinned` CPUs, and for the whole machine (None); and whether all
    CPU time of ours was known: of a whole tree that ended, the last is not, and counts as load.
    """
    span = max(new.at - old.at, 1e-6)
    cpus = range(min(len(old.busy), len(new.busy)))
    left = {cpu: max(0.0, new.busy[cpu] - old.busy[cpu]) for cpu in cpus}
    sets = list(pinned)
    unexplained, is_complete = 0.0, True
    for pid, process in new.ours.items():
        before = old.ours.get(pid)
        if before is not None and before.created != process.created:
            before = None
        if before is None and process.created < old.wall - 1.0:
            continue  # it has only now come to be ours: its past says nothing of this span
        own = process.own - (before.own if before else 0.0)
        unexplained += process.waited - (before.waited if before else 0.0)
        home = next((each for each in sets if process.cpus <= each), None)
        if home is None:
            unexplained += own
        else:
            _take(left, home, own)
    for pid, process in old.ours.items():
        after = new.ours.get(pid)
        if after is None or after.created != process.created:
            if process.parent in old.ours:
                unexplained -= process.own + process.waited
            else:
                is_complete = False
    unexplained = max(0.0, unexplained)
    _take(left, frozenset(cpus), unexplained)
    loads: dict[frozenset[int] | None, float] = {}
    for each in [None, *sets]:
        inside = [left[cpu] for cpu in (cpus if each is None else each) if cpu in left]
        load = min(1.0, sum(inside) / (span * len(inside))) if inside else 0.0
        loads[each] = 0.0 if load < NOISE else load
    return loads, is_complete


def _take(left: dict[int, float], cpus: frozenset[int], seconds: float) -> None:
    """Take CPU time off these CPUs' busy time, in proportion to it."""
    inside = [cpu for cpu in cpus if cpu in left]
    total = sum(left[cpu] for cpu in inside)
    if total > 0.0:
        keep = max(0.0, 1.0 - seconds / total)
        for cpu in inside:
            left[cpu] *= keep
