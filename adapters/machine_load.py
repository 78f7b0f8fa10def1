"""Load of this machine by work that is not ours, from the CPU time of processes in two samples.

It is at most what the CPUs were busy less what processes of ours took. That is too much where one
of ours has begun and ended between the samples, or has ended and none of ours has waited for it.
So it is at most what all other processes took, too, and what is of no process: interrupts, and what
a hypervisor gave to others. From inside a container, or with ``hidepid``, other processes cannot be
seen, and this second bound does not count.

Notes
-----
The time of a process is its own and that of the children it has waited for: short ones are not
missed. What a child had in the first sample is taken off what the process that has waited for it
has gained. The first process waits for orphans of all kinds: what it has gained so says nothing.

On nodes with CPUs of their own, the time of ours is attributed by the affinity of the process that
used it; what children used is spread over what the CPUs' busy time leaves unexplained.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

import psutil
from msgspec import Struct

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.node_load import NOISE

PPID, TIMES, STARTED = 1, slice(11, 15), 19
"""Fields of ``/proc/PID/stat`` behind the name, see proc(5)."""
HZ = os.sysconf("SC_CLK_TCK")
INIT = 1
EVERYONE = 0xEFFFFFFC
"""Inode of the namespace that has all processes, see ``linux/proc_ns.h``."""


class ProcessTime(Struct, frozen=True):
    """CPU time of one process, seconds."""

    parent: int
    started: int
    """Ticks since the machine's start: who has the number again is another."""
    own: float
    waited: float
    """That of the children it waited for."""
    is_ours: bool = False
    cpus: frozenset[int] = frozenset()
    """Processors that it may run on, where that was asked, of ours."""


class MachineSample(Struct, frozen=True):
    """The machine at one instant; processes by process id, CPUs by number."""

    at: float
    busy: tuple[float, ...]
    processes: Mapping[int, ProcessTime]
    of_none: float = 0.0
    """CPU time of no process, seconds."""
    is_whole: bool = False
    """All processes can be seen."""


def sample(
    is_top: Callable[[int, bytes], bool], *, has_pinned: bool = False, limit_s: float = inf
) -> MachineSample:
    """The machine now; ours are the processes for which `is_top` holds, and all below those.

    `is_top` is asked with a process id and its name, and may raise OSError.
    Raises `AdapterError` where it takes longer than `limit_s`, or the machine cannot be read.
    """
    now = time.monotonic()
    try:
        cpus = psutil.cpu_times(percpu=True)
        is_whole = os.stat("/proc/self/ns/pid").st_ino == EVERYONE
        processes = _processes(is_top, has_pinned, now + limit_s)
    except (psutil.Error, OSError) as error:
        raise AdapterError(f"this machine cannot be read: {error}") from error
    if time.monotonic() > now + limit_s:
        raise AdapterError(f"reading took longer than {limit_s:g} s")
    return MachineSample(
        at=now,
        # guest time is part of user time already
        busy=tuple(sum(t) - t.idle - t.iowait - t.guest - t.guest_nice for t in cpus),
        processes=processes,
        of_none=sum(t.irq + t.softirq + t.steal for t in cpus),
        is_whole=is_whole and INIT in processes,
    )


def _processes(
    is_top: Callable[[int, bytes], bool], has_pinned: bool, end: float
) -> dict[int, ProcessTime]:
    """The processes that can be seen; those that were found by `end`."""
    table: dict[int, list[bytes]] = {}
    children: dict[int, list[int]] = {}
    front: list[int] = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if time.monotonic() > end:
            break
        with contextlib.suppress(OSError, IndexError):  # it has just ended
            with open(f"/proc/{pid}/stat", "rb") as file:
                head, _, rest = file.read().rpartition(b")")
            fields = rest.split()
            children.setdefault(int(fields[PPID]), []).append(pid)
            table[pid] = fields
            if is_top(pid, head.partition(b"(")[2]):
                front.append(pid)
    ours: dict[int, frozenset[int]] = {}
    while front:
        for pid in front:
            with contextlib.suppress(OSError):  # this one, too
                ours[pid] = frozenset(os.sched_getaffinity(pid) if has_pinned else ())
        front = [child for pid in front for child in children.get(pid, ()) if child not in ours]
    return {
        pid: _process_time(fields, pid in ours, ours.get(pid, frozenset()))
        for pid, fields in table.items()
    }


def _process_time(fields: list[bytes], is_ours: bool, cpus: frozenset[int]) -> ProcessTime:
    """The times of a process, from what stands behind its name in ``/proc/PID/stat``."""
    user, system, waited_user, waited_system = (int(text) / HZ for text in fields[TIMES])
    return ProcessTime(
        parent=int(fields[PPID]),
        started=int(fields[STARTED]),
        own=user + system,
        waited=waited_user + waited_system,
        is_ours=is_ours,
        cpus=cpus,
    )


def foreign_loads(
    old: MachineSample, new: MachineSample, pinned: Iterable[frozenset[int]] = ()
) -> dict[frozenset[int] | None, float]:
    """Share of the CPUs, 0..1, taken by work that is not ours, between two samples.

    It is answered for each set of `pinned` CPUs, and for the whole machine (None).
    """
    span = max(new.at - old.at, 1e-6)
    cpus = range(min(len(old.busy), len(new.busy)))
    left = {cpu: max(0.0, new.busy[cpu] - old.busy[cpu]) for cpu in cpus}
    sets, unexplained, foreign = list(pinned), 0.0, new.of_none - old.of_none
    for pid, own, waited in _gains(old, new):
        process = new.processes[pid]
        if not process.is_ours:
            foreign += own + (waited if pid != INIT else 0.0)
            continue
        unexplained += waited
        home = next((each for each in sets if process.cpus <= each), None)
        if home is None:
            unexplained += own
        else:
            _take(left, home, own)
    _take(left, frozenset(cpus), unexplained)
    if old.is_whole and new.is_whole:
        _take(left, frozenset(cpus), max(0.0, sum(left.values()) - foreign))
    loads: dict[frozenset[int] | None, float] = {}
    for each in [None, *sets]:
        inside = [left[cpu] for cpu in (cpus if each is None else each) if cpu in left]
        load = min(1.0, sum(inside) / (span * len(inside))) if inside else 0.0
        loads[each] = 0.0 if load < NOISE else load
    return loads


def _gains(old: MachineSample, new: MachineSample) -> Iterator[tuple[int, float, float]]:
    """Time that each process has used between two samples, and that children told it, seconds."""

    def goes_on(pid: int) -> bool:
        now, before = new.processes.get(pid), old.processes.get(pid)
        return now is not None and before is not None and now.started == before.started

    known: dict[int, float] = {}
    """Time that those had first which have ended, by who waited for them or their parents, s."""
    for pid, process in old.processes.items():
        if not goes_on(pid):
            heir = process.parent
            while heir in old.processes and not goes_on(heir):
                heir = old.processes[heir].parent
            known[heir] = known.get(heir, 0.0) + process.own + process.waited
    for pid, process in new.processes.items():
        own, waited = process.own, process.waited
        if goes_on(pid):
            before = old.processes[pid]
            own, waited = own - before.own, waited - before.waited - known.get(pid, 0.0)
        yield pid, own, max(0.0, waited)


def _take(left: dict[int, float], cpus: frozenset[int], seconds: float) -> None:
    """Take CPU time off these CPUs' busy time, in proportion to it."""
    inside = [cpu for cpu in cpus if cpu in left]
    total = sum(left[cpu] for cpu in inside)
    if total > 0.0:
        keep = max(0.0, 1.0 - seconds / total)
        for cpu in inside:
            left[cpu] *= keep
