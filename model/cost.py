"""The cost model: how long a placement runs and what it asks of the links.

Notes
-----
Equation numbers are those of the extended OAS paper (``base_time`` is Tb, ``sigma`` is
sigma, ``power`` is Gamma, ``proc_gbps`` is PTBW, ``procs`` is tau, ``inside`` is t_j^k).

Deviations
----------
A one-process job loads no link: equation (4) divides by zero there. SC is clamped at 1
from below: a link that is not saturated does not make a job faster.

References
----------
Blanco, Guirado, Lerida, Albornoz, "OAS: a MIP model for ordering and allocating parallel
jobs on multi-cluster systems".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from math import inf

from coalloc.model.jobs import DivisibleJob, Edge, Job, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.platform import Cluster


def piece_time(chunk_s: float, chunks: int, procs: int, min_power: float) -> float:
    """Seconds that processes take which share whole chunks: those of the one with the most.

    One chunk takes `chunk_s` on a full-speed node; `min_power` is of the weakest node, (0, 1].
    """
    return -(-chunks // procs) * chunk_s / min_power


def pieces_of(
    job: DivisibleJob, chunks: int, procs: int, min_power: float
) -> Iterator[tuple[int, float]]:
    """Chunks and seconds of pieces one after the other, none longer than the job's time limit.

    A piece of one chunk a process that runs into the limit ends there.
    """
    each = chunks
    if job.time_limit is not None:
        fitting = int(job.time_limit * (1.0 + 1e-12) * min_power / job.chunk_s)
        each = max(fitting, 1) * procs
    while chunks > 0:
        count = min(each, chunks)
        seconds = within_limit(job, piece_time(job.chunk_s, count, min(procs, count), min_power))
        yield count, seconds
        chunks -= count


def run_time(base_time: float, sigma: float, min_power: float, sc: float = 1.0) -> float:
    """Equations (1)-(3): Te = Tb * (sigma * SP + (1 - sigma) * SC), SP = 1 / min power.

    Both times are in seconds, Tb on dedicated full-speed nodes; sigma is in 0..1, the power of the
    weakest node in (0, 1], and SC, the communication slowdown, at least 1.
    """
    return base_time * (sigma / min_power + (1.0 - sigma) * sc)


def within_limit(job: Job, seconds: float) -> float:
    """Seconds that a run of it is planned for: at its time limit it is killed, on any nodes.

    Of a workflow or divisible job the limit is that of each task and piece.
    """
    return seconds if job.time_limit is None else min(seconds, job.time_limit)


def link_load(proc_gbps: float, procs: int, inside: int) -> float:
    """Equation (4): BW = PTBW * t * (tau - t) / (tau - 1), Gbit/s on one cluster's link."""
    if procs <= 1:
        return 0.0
    return proc_gbps * inside * (procs - inside) / (procs - 1)


def link_loads(proc_gbps: float, inside: Mapping[str, int]) -> dict[str, float]:
    """Load on each link of a placement, given its processes per cluster; empty on one cluster."""
    procs = sum(inside.values())
    loads = {name: link_load(proc_gbps, procs, count) for name, count in inside.items()}
    return {name: load for name, load in loads.items() if load > 0.0}


def base_time(job: RigidJob | MoldableJob, procs: int) -> float:
    """Seconds on `procs` dedicated full-speed nodes."""
    return job.base_time if isinstance(job, RigidJob) else job.speedup.time(procs)


def shortest_time(job: Job) -> float:
    """Seconds on dedicated full-speed nodes, as many as it can use: no placement is quicker.

    Of a workflow the longest path, data and communication left out; of divisible work one chunk.
    """
    if isinstance(job, WorkflowJob):
        return _longest_path(job)
    if isinstance(job, DivisibleJob):
        return min(job.work, job.chunk_s)
    return base_time(job, job.procs if isinstance(job, RigidJob) else job.max_procs)


def _longest_path(job: WorkflowJob) -> float:
    before: dict[str, list[str]] = {task.id: [] for task in job.tasks}
    for edge in job.edges:
        before[edge.child].append(edge.parent)
    tasks = {task.id: task for task in job.tasks}
    ends: dict[str, float] = {}
    for name in TopologicalSorter(before).static_order():
        pf, procs = tasks[name].parallel_fraction, tasks[name].max_procs
        seconds = tasks[name].work * (1.0 - pf + pf / procs)
        ends[name] = seconds + max((ends[parent] for parent in before[name]), default=0.0)
    return max(ends.values(), default=0.0)


def task_time(
    task: Task, inside: Mapping[str, int], min_power: float, clusters: Mapping[str, Cluster]
) -> float:
    """Run time of a workflow task with these processes inside each cluster, seconds.

    work / power * (1 - pf + pf / n) + 8 * comm / (n * intra), and on several clusters
    max_k 8 * comm * (n_k / n) * ((n - n_k) / (n - 1)) / link_k on top.
    """
    procs = sum(inside.values())
    fraction = task.parallel_fraction
    seconds = task.work / min_power * (1.0 - fraction + fraction / procs)
    seconds += _transfer(task.comm_gb / procs, min(clusters[name].intra_gbps for name in inside))
    if len(inside) > 1:
        links = {name: clusters[name].link_gbps for name in inside}
        seconds += max(_crossing_times(task, inside, links).values())
    return seconds


def _crossing_times(
    task: Task, inside: Mapping[str, int], links: Mapping[str, float]
) -> dict[str, float]:
    """Seconds that each cluster's idle link takes for what a task on several sends over it."""
    procs = sum(inside.values())
    share = {name: (n / procs) * ((procs - n) / (procs - 1)) for name, n in inside.items()}
    return {name: _transfer(task.comm_gb * share[name], links[name]) for name in inside}


def task_loads(
    task: Task, inside: Mapping[str, int], links: Mapping[str, float]
) -> dict[str, float]:
    """Load of a task's placement on each link, Gbit/s; empty on one cluster and without traffic.

    All that it sends, at the pace that its run time charges: of the slowest of its links. A link of
    capacity 0 carries nothing, whatever the pace. `links` are in Gbit/s.
    """
    if len(inside) < 2 or task.comm_gb == 0.0:
        return {}
    times = _crossing_times(task, inside, links)
    pace = max(times.values())
    if pace == inf:
        return {name: task.comm_gb for name in inside if links[name] == 0.0}
    return {name: links[name] * (times[name] / pace) for name in inside if times[name] > 0.0}


def edge_delay(
    edge: Edge, parent: Iterable[str], child: Iterable[str], clusters: Mapping[str, Cluster]
) -> float:
    """Seconds between the end of a parent task and the start of its child.

    Nothing where both tasks use the same set of clusters.
    """
    ours, theirs = set(parent), set(child)
    if ours == theirs:
        return 0.0
    used = [clusters[name] for name in ours | theirs]
    return _transfer(edge.gb, min(c.link_gbps for c in used)) + max(c.link_latency_s for c in used)


def _transfer(gb: float, gbps: float) -> float:
    """Seconds for a volume in gigabytes; a link of capacity 0 never ends, but for nothing."""
    if gb == 0.0:
        return 0.0
    return 8.0 * gb / gbps if gbps > 0.0 else inf
