"""The ranges of amounts that the formats, the daemon and the settings admit.

Notes
-----
A double has 53 bits: at 1.8e9 s, today, its neighbours are 2.4e-7 s apart, at 1e12 s 1.2e-4 s, at
1e15 s 0.125 s. The kernel plans no run shorter than `SHORTEST` (5e-7 s) or four neighbouring
doubles of its start (`FINEST`), whichever is longer; the checker allows 1e-6 s, 1e-9 of the
distance from now and 1e-15 of the time itself. So with the ranges below

- the shortest run, 1e-6 s, lasts at today's time, and in a plan that reaches 1e15 s it is
  lengthened by less than the checker allows;
- the longest derived run, a work of 1e12 s on a node of power 1e-3, ends at 1e15 s, and sums of a
  million of them stay below 1e21 s;
- products of the largest amounts, their squares, and the quotients of any two of them are finite,
  and none is a denormal.

What a plan derives from admitted values is read back as long as it is below `DERIVED`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Range(Struct, frozen=True, kw_only=True):
    """Bounds of an amount, inclusive."""

    low: float
    high: float
    zero: bool = False
    """0 is admitted as well."""

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.zero and value == 0)

    @property
    def meta(self) -> Meta:
        """The bounds of a field's type; the gap above 0 is `structs.gap_faults`'s to refuse."""
        if not self.zero:
            return Meta(ge=self.low, le=self.high)
        gap = {"anyOf": [{"const": 0}, {"minimum": self.low}]}
        return Meta(ge=0, le=self.high, extra={"least": self.low}, extra_json_schema=gap)


LARGEST = 10**18
"""No number without a range of its own is larger; errors and documents name no bound like this."""
INSTANT = Range(low=-1e10, high=1e10)
"""Now, submit times, begin times, s: up to the year 2286."""
EVENT = Range(low=-1e15, high=1e15)
"""Starts and ends of running work and reservations, s: derived from `INSTANT` and `SPAN`."""
SPAN = Range(low=1e-6, high=1e9)
"""Run times, time limits and chunks, s: from a microsecond to 31 years."""
WORK = Range(low=1e-6, high=1e12)
"""Work of divisible jobs, s on one full-speed node."""
TASK_WORK = Range(low=1e-6, high=1e12, zero=True)
"""Work of tasks, s on one full-speed node; a task of no work only orders others."""
POWER = Range(low=1e-3, high=1.0)
"""Effective power of a node. The daemon gives no new work to a weaker one."""
WEIGHT = Range(low=1e-6, high=1e9, zero=True)
"""Weights; quotients of weight and time stay normal numbers."""
PRIORITY = Range(low=-1e3, high=1e3)
"""Doublings of a weight: an operator's word, and shares."""
GBPS = Range(low=1e-9, high=1e9, zero=True)
"""Bandwidths, Gbit/s: a link's capacity, a process's peak."""
INSIDE_GBPS = Range(low=1e-9, high=1e9)
"""Bandwidth inside a cluster, Gbit/s: data are divided by it."""
LOAD_GBPS = Range(low=0.0, high=1e12)
"""Load of running work on a link, Gbit/s; derived."""
LATENCY = Range(low=0.0, high=1e6)
"""Latency of links, s."""
DATA_GB = Range(low=0.0, high=1e9)
"""Volumes, GB."""
MEMORY_MB = Range(low=0, high=10**12)
"""Memory, MiB: that of a million processes is a whole number of 64 bits."""
SHARE = Range(low=1e-12, high=1.0, zero=True)
"""Sigma, parallel fractions; a share of a time is a normal number too."""
PARALLELISM = Range(low=1.0, high=1e9)
"""Downey's A."""
VARIANCE = Range(low=0.0, high=1e9)
"""Downey's sigma."""
OVERRUN = Range(low=0.0, high=1e9)
"""For how long running work past its end is expected to go on, s."""
SLOWDOWN = Range(low=1.0, high=1e18)
"""Accepted slowdown of communication, in plans."""
DERIVED = Range(low=-1e100, high=1e100)
"""Times, values, bounds and gaps of plans: what is derived from all these is far smaller."""

Instant = Annotated[float, INSTANT.meta]
EventTime = Annotated[float, EVENT.meta]
Span = Annotated[float, SPAN.meta]
Work = Annotated[float, WORK.meta]
TaskWork = Annotated[float, TASK_WORK.meta]
Power = Annotated[float, POWER.meta]
Weight = Annotated[float, WEIGHT.meta]
Priority = Annotated[float, PRIORITY.meta]
Gbps = Annotated[float, GBPS.meta]
InsideGbps = Annotated[float, INSIDE_GBPS.meta]
LoadGbps = Annotated[float, LOAD_GBPS.meta]
Latency = Annotated[float, LATENCY.meta]
DataGb = Annotated[float, DATA_GB.meta]
MemoryMb = Annotated[int, MEMORY_MB.meta]
Share = Annotated[float, SHARE.meta]
Parallelism = Annotated[float, PARALLELISM.meta]
Variance = Annotated[float, VARIANCE.meta]
Overrun = Annotated[float, OVERRUN.meta]
Slowdown = Annotated[float, SLOWDOWN.meta]
Derived = Annotated[float, DERIVED.meta]
Procs = Annotated[int, Meta(ge=1, le=10**9)]
"""Processes of a job, chunks of a piece."""
Slots = Annotated[int, Meta(ge=1, le=1_000_000)]
"""Slots of a node, and processes on it."""
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Name = Annotated[str, Meta(min_length=1)]
