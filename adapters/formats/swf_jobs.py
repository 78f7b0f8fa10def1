"""From the lines of a job log to jobs of coalloc.

Notes
-----
The rule, for every log:

- ``procs`` is the number of processors requested (field 8), else the number allocated (field 5).
  A job with neither is left out.
- The real base time is the run time (field 4). A job whose run time is not known is left out, and
  so is one that was cancelled (status 5) before it ran. A run time of 0 counts as 1 s, the
  resolution of the format.
- The estimate, which is the ``base_time`` that planning sees, is the requested time (field 9),
  else the real run time. The job is killed at its estimate: a real run time beyond it is cut.
  Estimate and real run time are both base times, seconds on nodes of power 1; a placement
  stretches them alike by the cost model. That takes the machine of the log for one of power 1.
- Times start at the first submission.
- ``sigma`` and ``proc_gbps`` are in no log. They are 1 and 0 unless said otherwise (all
  processing, no communication known, so that a job splits over clusters freely), or drawn for
  each job in the order of submission from one generator with a given seed: two numbers per
  job, first for sigma, then for the bandwidth, so that a shorter log has the same values.
- Any cluster may run any job, unless clusters are to be kept: then a job stays on the cluster of
  its partition (field 16), by the platform's table of partitions, or on the clusters that its
  resource request names as ``cl_NAME`` (.xswf, column 21).
- Memory asked for (field 10) is KiB of each process, as the format says; in an extended log
  (.xswf) it is bytes of each node, by the processes per node of its resource request. It counts
  where the rule says so, which is sensible on nodes with memory only.
- Of the resources that accounts name (`sacct_log`) those count that the platform has; where it has
  only the family of a type, that.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil, isfinite
from typing import Any

from msgspec import Struct

from coalloc.adapters.formats.swf import SwfJob, SwfLog
from coalloc.model.cost import base_time
from coalloc.model.errors import InputError
from coalloc.model.jobs import MoldableJob, RigidJob, WorkflowJob
from coalloc.model.platform import Cluster
from coalloc.model.shape import ONE_SLOT, Shape, supplies
from coalloc.model.values import replace

SHORTEST_RUN_S = 1.0
CANCELLED = 5
DEMAND_COLUMN = 2
"""Of the extra columns of .xswf, the one with the resources asked for."""
UNITS_GBPS = {"": 1.0, "gbps": 1.0, "mbps": 1e-3, "kbps": 1e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A value per job: always the same, or drawn."""

    kind: str = "constant"
    """``constant``, ``uniform`` (between two values) or ``choice`` (of several)."""
    values: tuple[float, ...]

    def draw(self, number: float) -> float:
        """Return the value for a uniform number in [0, 1)."""
        if self.kind == "uniform":
            low, high = self.values
            return low + (high - low) * number
        return self.values[int(number * len(self.values))]


def read_draw(text: str, where: str, *, low: float, high: float, unit: bool = False) -> Draw:
    """Read ``0.7``, ``uniform:0.3,1`` or ``choice:0.05,0.2``, with values of low..high, inclusive.

    With `unit` they are bandwidths, in Gbit/s or with ``Gbps``, ``Mbps`` or ``kbps`` after them;
    `where` names the option in the `InputError`.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        kind, rest = "constant", text
    if kind not in ("constant", "uniform", "choice"):
        raise InputError(where, f"{kind!r} is not one of uniform, choice")
    values = tuple(_number(part, where, unit) for part in rest.split(","))
    for value in values:
        if not low <= value <= high:
            bounds = f"outside {low:g}..{high:g}" if isfinite(high) else f"below {low:g}"
            raise InputError(where, f"{value:g} is {bounds}")
    if kind == "constant" and len(values) != 1:
        raise InputError(where, f"{text!r} is not one number")
    if kind == "uniform" and (len(values) != 2 or values[0] > values[1]):
        raise InputError(where, f"{text!r} is not uniform:LOW,HIGH")
    return Draw(kind=kind, values=values)


def _number(text: str, where: str, unit: bool) -> float:
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-zA-Z]*)\s*", text)
    suffix = match[2].lower() if match else ""
    try:
        value = float(match[1]) if match else float("nan")
    except ValueError:
        value = float("nan")
    if not isfinite(value) or suffix not in (UNITS_GBPS if unit else ("",)):
        raise InputError(where, f"{text!r} is not a {'bandwidth' if unit else 'number'}")
    return value * UNITS_GBPS[suffix] if suffix else value


read_sigma = partial(read_draw, where="--sigma", low=0.0, high=1.0)
read_bandwidth = partial(read_draw, where="--bandwidth", low=0.0, high=float("inf"), unit=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """A rule for making jobs of log lines; see the module's notes."""

    sigma: Draw = Draw(values=(1.0,))
    bandwidth: Draw = Draw(values=(0.0,))
    """Per process, Gbit/s."""
    seed: int = 0
    """Of the generator behind both."""
    keep_clusters: bool = False
    """A job stays on the clusters that the log names."""
    partitions: Mapping[int, str] = field(default_factory=dict)
    """Cluster of each partition."""
    clusters: tuple[str, ...] = ()
    """Those that exist."""
    counts_memory: bool = False
    """Jobs need the memory that the log asks for."""
    resources: frozenset[str] = frozenset()
    """Named resources that exist."""

    @classmethod
    def on(cls, clusters: Iterable[Cluster], **more: Any) -> JobRule:
        """The rule by which what these clusters tell of is counted."""
        clusters = tuple(clusters)
        nodes = [node for cluster in clusters for node in cluster.nodes]
        supplied = [*(node.resources for node in nodes), *(c.resources for c in clusters)]
        return cls(
            clusters=tuple(cluster.name for cluster in clusters),
            counts_memory=any(node.memory_mb is not None for node in nodes),
            resources=frozenset(name for amounts in supplied for name in supplies(amounts)),
            **more,
        )


class LoggedJob(Struct, frozen=True, kw_only=True):
    """A job of a log, as planning sees it and as it really was."""

    job: RigidJob
    """Its ``base_time`` is the estimate."""
    run_s: float
    """Real base time, at most the estimate, seconds."""
    killed: bool
    """The log has it running beyond its estimate."""
    number: int
    line: int
    moldable: MoldableJob | None = None
    """Submitted in place of `job`: on as many processes it takes as long."""
    flow: WorkflowJob | None = None
    """Submitted in place of `job`, with the same work; of a run, the workflow of its task."""
    task: str = ""
    """Of a run: which task of `flow` it is; else empty."""
    user: str = ""
    application: str = ""
    """Names or numbers of its user and program in the log; empty where that does not know."""
    waited_s: float = 0.0
    """From its submission to its start in the log, seconds; 0 where the log does not know."""

    @property
    def logged_end(self) -> float:
        """Its end in the log, on the axis of submit times."""
        return self.job.submitted + self.waited_s + self.run_s

    @property
    def is_exact(self) -> bool:
        """Whether it runs for as long as was estimated."""
        return self.run_s == self.job.base_time

    def real_time(self, procs: int) -> float:
        """Real base time on so many processes, seconds."""
        if self.moldable is None:
            return self.run_s
        estimate = base_time(self.moldable, procs)
        return estimate if self.is_exact else estimate * (self.run_s / self.job.base_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeJobs:
    """The jobs of a log, by rising submit time, and what the rule did to them."""

    jobs: tuple[LoggedJob, ...]
    left_out: Mapping[str, int]
    adjusted: Mapping[str, int]


def make_jobs(log: SwfLog, rule: JobRule | None = None) -> MadeJobs:
    """Make jobs of a log, which has them by rising submit time, by the rule of this module.

    Raises `InputError` where clusters are to be kept, and the platform has none of them.
    """
    rule = rule or JobRule()
    generator = random.Random(rule.seed)
    first = log.jobs[0].submit_s if log.jobs else 0.0
    left_out: Counter[str] = Counter()
    adjusted: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    jobs = []
    for line in log.jobs:
        # Drawn for jobs that are left out as well: a value belongs to a place in the log.
        sigma = rule.sigma.draw(generator.random())
        gbps = rule.bandwidth.draw(generator.random())
        reason = _unusable(line)
        if reason:
            left_out[reason] += 1
            continue
        name = line.name or str(line.number)
        seen[name] += 1
        times = _times(line, adjusted)
        job = RigidJob(
            id=f"{name}.{seen[name]}" if seen[name] > 1 else name,
            submitted=line.submit_s - first,
            earliest=line.submit_s - first,
            procs=line.requested or line.allocated or 0,
            base_time=times[0],
            sigma=sigma,
            proc_gbps=gbps,
            memory_mb_per_proc=_memory_mb(line, rule, adjusted),
            clusters=_clusters(line, rule),
            shape=_shape(line, rule, adjusted),
        )
        jobs.append(
            LoggedJob(
                job=job,
                run_s=times[1],
                killed=times[2],
                number=line.number,
                line=line.line,
                user=line.owner or _named(line.user),
                application=line.program or _named(line.application),
                waited_s=max(line.wait_s or 0.0, 0.0),
            )
        )
    return MadeJobs(jobs=tuple(jobs), left_out=dict(left_out), adjusted=dict(adjusted))


def _unusable(line: SwfJob) -> str:
    if line.unusable:
        return line.unusable
    if not line.requested and not line.allocated:
        return "no number of processors"
    if not line.run_s and line.status == CANCELLED:
        return "cancelled before it ran"
    if line.run_s is None:
        return "no run time"
    return ""


def _named(number: int | None) -> str:
    return "" if number is None else str(number)


def _times(line: SwfJob, adjusted: Counter[str]) -> tuple[float, float, bool]:
    """Estimate, real base time, and whether it was killed at the estimate."""
    run = line.run_s or 0.0
    if run < SHORTEST_RUN_S:
        adjusted["run time below 1 s counted as 1 s"] += 1
        run = SHORTEST_RUN_S
    if not line.requested_s:
        adjusted["run time stands in for the estimate"] += 1
        return run, run, False
    estimate = max(line.requested_s, SHORTEST_RUN_S)
    if run > estimate:
        adjusted["run time cut at the estimate"] += 1
        return estimate, estimate, True
    return estimate, run, False


def _memory_mb(line: SwfJob, rule: JobRule, adjusted: Counter[str]) -> int:
    """MiB of memory that each process asks for; 0 where the log does not know."""
    if not line.requested_kb and not line.shape.memory_mb_per_node:
        return 0
    if not rule.counts_memory:
        adjusted["memory that is not counted: no node has memory_mb"] += 1
        return 0
    adjusted["memory counted"] += 1
    if not line.requested_kb:
        return 0
    if len(line.extra) <= DEMAND_COLUMN:
        return ceil(line.requested_kb / 1024.0)
    per_node = re.search(r":ppn=([1-9][0-9]*)", line.extra[DEMAND_COLUMN])
    return ceil(line.requested_kb / (int(per_node[1]) if per_node else 1) / 2.0**20)


def _shape(line: SwfJob, rule: JobRule, adjusted: Counter[str]) -> Shape:
    """The shape of a line, as far as the platform has what it names."""
    shape = line.shape
    if shape == ONE_SLOT:
        return shape

    def there(amounts: Mapping[str, int]) -> dict[str, int]:
        known = Counter[str]()
        for name, count in amounts.items():
            found = name if name in rule.resources else name.partition(":")[0]
            is_there = found in rule.resources
            adjusted[f"{name} {'' if is_there else 'that the platform lacks not '}counted"] += 1
            known[found] += count if is_there else 0
        return dict(+known)

    memory = shape.memory_mb_per_node if rule.counts_memory else 0
    per_node, per_job = there(shape.per_node), there(shape.per_job)
    return replace(shape, memory_mb_per_node=memory, per_node=per_node, per_job=per_job)


def _clusters(line: SwfJob, rule: JobRule) -> tuple[str, ...] | None:
    if not rule.keep_clusters:
        return None
    named: tuple[str, ...] = (line.cluster,) if line.cluster else ()
    if len(line.extra) > DEMAND_COLUMN:
        named = tuple(dict.fromkeys(re.findall(r":cl_([^:#]+)", line.extra[DEMAND_COLUMN])))
    elif line.partition is not None and rule.partitions:
        name = rule.partitions.get(line.partition)
        if name is None:
            raise InputError(
                f"line {line.line}", f"the platform has no cluster for partition {line.partition}"
            )
        named = (name,)
    for name in named:
        if name not in rule.clusters:
            raise InputError(f"line {line.line}", f"the platform has no cluster {name!r}")
    return named or None
