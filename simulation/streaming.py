"""Replay on the kernel's own profile, without a snapshot per event.

For rigid jobs under the simple orders and backfilling. The starts are those of the general path,
which a test holds it to; what differs is the cost: an instant costs what has changed in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Reason
from coalloc.model.platform import NodeState
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.orders.options import EASY_ORDERS, Order
from coalloc.policies.orders.queue_orders import AGEING, KEYS, Traits
from coalloc.simulation.workload import Floats, Ints, SlotMap, Workload

if TYPE_CHECKING:
    from coalloc.policies.orders.simple import Laying

CHUNK = 20_000
"""Instants between two reports of progress."""
STREAMED = ("fcfs", "sjf", "bjf", "spt", "lpt", "fpfs", *EASY_ORDERS, "conservative")
LASTING = tuple(name for name in get_args(Order) if name not in AGEING)
"""Orders in which two jobs keep their places while time goes by."""
UNDERSTOOD: Mapping[str, tuple[Any, ...]] = {
    "skip": (False, True),
    "guard_after": (None, 0),
    "coallocation": ("sooner", "needed", "forbidden"),
    "power_step": (0.0,),
    "coallocate_moldable": (False, True),
    "objective": ("makespan", "weighted_completion"),
    "queue_order": LASTING,
    "backfill_order": LASTING,
}
"""Options that this path knows, with the values it can follow; and any `wait_limit`."""


@dataclass(frozen=True, slots=True)
class StreamResult:
    """Result of the replay."""

    index: Ints
    """Jobs that were replayed; the others cannot run here. Those of `log` and `out` are these."""
    log: Any
    """`Stream`: start and end, seconds; NaN where a job never started."""
    out: Any
    """`Outcome` of the kernel: the classes of nodes that a job uses, with processes on each."""
    class_nodes: list[list[int]]
    """Nodes of each class, by number in snapshot order."""
    reasons: Mapping[int, tuple[Reason, str]]
    """Why a job is not replayed."""


def can_stream(policy: str, options: Mapping[str, Any]) -> bool:
    """Whether this path knows the policy and all that its options ask for."""
    return policy in STREAMED and all(
        name == "wait_limit" or value in UNDERSTOOD.get(name, ()) for name, value in options.items()
    )


def replay_streaming(
    workload: Workload,
    slot_map: SlotMap,
    policy: str,
    options: Mapping[str, Any],
    on_progress: Callable[[int], None] | None = None,
) -> StreamResult:
    """Replay a workload under a policy for which `can_stream` holds, with all its options.

    `on_progress` is told the number of jobs that have ended or were refused.
    """
    # Loaded here: the compiler takes a moment, and help pages do not need it.
    from coalloc.policies.orders.simple import laying

    sample, item, reasons = _sampled(workload, slot_map, options)
    index = np.flatnonzero(item >= 0)
    problem = _problem(sample.problem, workload, index, item[index])
    laid = laying(policy, options)
    log, out = _log(workload, index, problem, laid), _outcome(problem)
    for ended in _replayed(sample.base, problem, log, out, laid):
        if on_progress:
            on_progress(ended + len(reasons))
    return StreamResult(index, log, out, sample.class_nodes, reasons)


def _sampled(
    workload: Workload, slot_map: SlotMap, options: Mapping[str, Any]
) -> tuple[Any, Ints, dict[int, tuple[Reason, str]]]:
    """Let the kernel's own intake judge one job of each sort.

    What it decides (which nodes, whether to split, whether it can ever run) depends on the number
    of processes, the clusters, and for a job larger than any cluster on its bandwidth. Each job
    gets the item of its sample, below 0 where it cannot run, and then a reason.
    """
    from coalloc.policies.kernel.instance.arrays import compile_intake
    from coalloc.policies.kernel.instance.intake import read_queue

    sorts: dict[Any, int] = {}
    sample: list[RigidJob] = []
    sort_of = np.empty(len(workload.jobs), np.int64)
    sizes = {
        cluster.name: sum(
            node.slots for node in cluster.nodes if node.state is NodeState.UP and not cluster.stale
        )
        for cluster in slot_map.platform.clusters
    }
    largest: dict[Any, int] = {None: max(sizes.values())}
    for i, logged in enumerate(workload.jobs):
        job = logged.job
        if job.clusters not in largest:
            largest[job.clusters] = max(sizes[name] for name in job.clusters or ())
        wide = job.procs > largest[job.clusters]
        key = (job.procs, job.proc_gbps if wide else 0.0, job.clusters)
        sort_of[i] = sorts.setdefault(key, len(sample))
        if sort_of[i] == len(sample):
            sample.append(replace(job, id=str(len(sample))))
    begin = float(workload.submit[0])
    clusters = tuple(
        replace(cluster, nodes=tuple(replace(node, free_at=begin) for node in cluster.nodes))
        for cluster in slot_map.platform.clusters
    )
    intake = read_queue(Snapshot(time=begin, clusters=clusters, queue=tuple(sample)), options)
    item_of_sort = np.full(len(sample), -1, np.int64)
    for number, item in enumerate(intake.items):
        item_of_sort[item.number] = number
    never = {int(entry.job): entry for entry in intake.deferred}
    left = np.flatnonzero(item_of_sort[sort_of] < 0).tolist()
    reasons = {i: (never[int(sort_of[i])].reason, never[int(sort_of[i])].detail) for i in left}
    return compile_intake(intake), item_of_sort[sort_of], reasons


def _problem(sample: Any, workload: Workload, index: Ints, item: Ints) -> Any:
    """Return the kernel's problem for all jobs: one mode each, no precedence."""
    count = len(index)
    estimate, sigma = workload.estimate[index], workload.sigma[index]
    return sample._replace(
        mode_first=np.arange(count + 1, dtype=np.int64),
        mode_procs=workload.procs[index],
        mode_scaled=estimate * sigma,
        mode_fixed=estimate * (1.0 - sigma),
        mode_comm=np.zeros(count),
        item_group=sample.item_group[item],
        item_release=workload.submit[index],
        item_limit=np.full(count, inf),
        item_gbps=workload.gbps[index],
        item_splits=sample.item_splits[item],
        item_apart=np.full(count, -1, np.int64),
        item_wide=np.full(count, -1, np.int64),
        parent_first=np.zeros(count + 1, np.int64),
        child_first=np.zeros(count + 1, np.int64),
    )


def _log(workload: Workload, index: Ints, problem: Any, laid: Laying) -> Any:
    """Return the jobs as the kernel follows them, before the first has arrived."""
    from coalloc.policies.kernel.profiles.stream_state import Stream

    count, apart = len(index), laid.queue != laid.order
    return Stream(
        key=_keys(laid.queue, problem),
        scaled=(workload.run * workload.sigma)[index],
        fixed=(workload.run * (1.0 - workload.sigma))[index],
        exact=(workload.run == workload.estimate)[index],
        queue=np.zeros(count, np.int64),
        second=_keys(laid.order, problem) if apart else np.zeros(0),
        line=np.zeros(count if apart else 0, np.int64),
        heap_time=np.zeros(count + 1),
        heap_job=np.zeros(2 * count + 1, np.int64),
        start=np.full(count, np.nan),
        end=np.full(count, np.nan),
        counts=np.zeros(8, np.int64),
    )


def _outcome(problem: Any) -> Any:
    """Return room for the answer, with a place of its own for every job's uses."""
    from coalloc.policies.kernel.record import room_for
    from coalloc.policies.kernel.state import Outcome

    count = len(problem.item_group)
    most = np.minimum(problem.mode_procs, len(problem.class_power))
    ends = np.cumsum(most, dtype=np.int64)
    total = int(ends[-1]) if count else 1
    start, end = np.full((2, count), np.nan)
    return room_for(Outcome, N=count, pool=total, start=start, end=end, use_first=ends - most)


def _replayed(base: Any, problem: Any, log: Any, out: Any, laid: Laying) -> Iterator[int]:
    """Let the kernel follow the log to its end; yields the jobs that have ended, now and then."""
    from coalloc.policies.kernel.instance import arrays
    from coalloc.policies.kernel.instance.decoding import DECODERS
    from coalloc.policies.kernel.profiles import stream
    from coalloc.policies.kernel.profiles.stream_state import ENDED
    from coalloc.policies.kernel.state import ProfileState

    limit = inf if laid.wait_limit is None else laid.wait_limit
    decoder = DECODERS[laid.decoder]
    profile, scratch = arrays.make_profile(problem, base), arrays.make_scratch(problem)
    state = ProfileState(problem, profile, scratch, out, arrays.any_mode(len(log.start)))
    stream.clear_profile(problem, base, profile)
    more = len(log.start) > 0
    while more:
        more = stream.advance(state, log, decoder, limit, CHUNK)
        yield int(log.counts[ENDED])


def _keys(order: str, problem: Any) -> Floats:
    """Sort key of the queue."""
    jobs = Traits(
        procs=problem.mode_procs.astype(np.float64),
        seconds=problem.mode_scaled + problem.mode_fixed,
        submitted=problem.item_release,
        waited=np.zeros(len(problem.mode_procs)),
    )
    return KEYS[order](jobs).copy()
