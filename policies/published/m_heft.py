"""M-HEFT: HEFT for tasks on many processors, each task on the cluster and count that ends first.

A task's priority is the longest path to the end, with run times averaged over all counts of
processes on all clusters, and data over all pairs of clusters. By falling priority, each takes the
cluster and the count on which it ends first, of equal ends the smaller count.

========== ==============================================================================
m-heft      every count up to the whole cluster
m-heft-imp  counts up to the first step that shortens the run by less than `improvement`
m-heft-eff  counts whose efficiency, t(1) / (p t(p)), is `efficiency` or more
m-heft-max  counts up to `share` of the cluster's slots
========== ==============================================================================

Notes
-----
Plain M-HEFT gives a task whatever makes it end sooner, however little: where many tasks could run
side by side it lets them queue for whole clusters. The other three are the remedies of the
literature. Which of them is the baseline decides how others look beside it.

Deviations
----------
A task that names more processes than one to begin with is compared with its smallest allotment, not
with one process. Jobs that fit on no cluster alone are spread over several, as the links allow.

References
----------
N'Takpe, Suter, Casanova, "A Comparison of Scheduling Approaches for Mixed-Parallel Applications on
Heterogeneous Platforms", ISPDC 2007. Topcuoglu, Hariri, Wu, "Performance-Effective and
Low-Complexity Task Scheduling for Heterogeneous Computing", IEEE TPDS 13(3), 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.base import Budget, SolveFunction
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.one_pass import one_pass
from coalloc.policies.workflow.mapping import Mapper, MappingCosts

SLACK = 1e-12
"""By which a step may fall short of a threshold, relative: rounding."""


def mean_times(costs: MappingCosts) -> Floats:
    """Run time of each item, averaged over the counts of all clusters that hold it, seconds.

    Where no cluster holds it: its smallest allotment at power 1.
    """
    fits = np.isfinite(costs.seconds)
    totals = np.add.reduceat(np.where(fits, costs.seconds, 0.0).sum(axis=1), costs.first[:-1])
    counts = np.add.reduceat(fits.sum(axis=1), costs.first[:-1])
    alone = (costs.scaled + costs.fixed)[costs.first[:-1]]
    return np.where(counts > 0, totals / np.maximum(counts, 1), alone)


def mean_delays(mapper: Mapper) -> Floats:
    """Delay of each edge, averaged over the pairs of clusters, seconds; as `Graph.child` has them.

    Two tasks on the same cluster pass data for nothing: these pairs count as well. Clusters whose
    link carries nothing are left out.
    """
    problem, graph = mapper.problem, mapper.graph
    used = np.flatnonzero((mapper.costs.slots > 0) & (problem.link_gbps > 0.0))
    out = np.zeros(graph.child.size)
    if not used.size:
        return out
    apart = ~np.eye(used.size, dtype=np.bool_)
    links, waits = problem.link_gbps[used], problem.latency[used]
    slowest = np.minimum(links[:, None], links[None, :])
    per_gbit = float(np.where(apart, 1.0 / slowest, 0.0).mean())
    latency = float(np.where(apart, np.maximum(waits[:, None], waits[None, :]), 0.0).mean())
    carries = graph.child_gbit >= 0.0
    out[carries] = graph.child_gbit[carries] * per_gbit + latency
    return out


def improving_rows(
    costs: MappingCosts, single: Ints, improvement: float, seconds: Floats | None = None
) -> Ints:
    """Last row of each item and cluster before a step that gains less, of those that fit.

    `single` are the last rows that fit. One step in the allotment must shorten the run by the share
    `improvement`. The ladder of a very large range skips counts: there it is asked of each process.
    `seconds`: other run times than those of the costs.
    """
    seconds, procs = costs.seconds if seconds is None else seconds, costs.procs
    steps = np.maximum(procs[1:] - procs[:-1], 1)[:, None]
    with np.errstate(invalid="ignore"):
        enough = seconds[1:] <= (1.0 - improvement) ** steps * seconds[:-1] * (1.0 + SLACK)
    return _before_first(costs, single, ~enough)


def efficient_rows(costs: MappingCosts, single: Ints, efficiency: float) -> Ints:
    """Last row of each item and cluster before one of less efficiency, of those that fit."""
    item = np.repeat(np.arange(costs.first.size - 1), np.diff(costs.first))
    least = costs.first[:-1][item]
    area = costs.seconds * costs.procs[:, None]
    with np.errstate(invalid="ignore"):
        enough = area[least] >= efficiency * area * (1.0 - SLACK)
    return _before_first(costs, single, ~enough[1:])


def shared_rows(mapper: Mapper, share: float) -> Ints:
    """Last row of each item and cluster within a share of its slots; the smallest if none is."""
    limit = np.maximum((mapper.capacity * share + SLACK).astype(np.int64), 1)
    inside = mapper.costs.last_rows(limit)
    return np.minimum(np.maximum(inside, mapper.costs.first[:-1, None]), mapper.single)


def _before_first(costs: MappingCosts, single: Ints, bad: Flags) -> Ints:
    """Last row before the first step that is bad; step x leads to row x + 1."""
    steps, clusters = bad.shape
    nothing = np.full((1, clusters), np.iinfo(np.int64).max)
    blocked = np.concatenate((np.where(bad, np.arange(steps)[:, None], nothing), nothing))
    # the first bad step at or after each row
    following = np.minimum.accumulate(blocked[::-1], axis=0)[::-1]
    return np.minimum(single, following[costs.first[:-1]])


LIMITS: Mapping[str, Callable[[Mapper, Mapping[str, Any]], Ints]] = {
    "m-heft": lambda mapper, _: mapper.single,
    "m-heft-imp": lambda mapper, options: improving_rows(
        mapper.costs, mapper.single, options["improvement"]
    ),
    "m-heft-eff": lambda mapper, options: efficient_rows(
        mapper.costs, mapper.single, options["efficiency"]
    ),
    "m-heft-max": lambda mapper, options: shared_rows(mapper, options["share"]),
}


def priorities(mapper: Mapper, edge_data: bool = True) -> Floats:
    """Upward rank of each item, seconds."""
    delay = mean_delays(mapper) if edge_data else None
    return mapper.graph.bottom(mean_times(mapper.costs), delay)


def run(name: str, mapper: Mapper, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Map everything by one of the four, on a mapper that is clear."""
    order = mapper.in_order(priorities(mapper, options["edge_data"]))
    low = np.broadcast_to(mapper.costs.first[:-1, None], mapper.single.shape)
    high = LIMITS[name](mapper, options)
    mapper.map(order, np.ascontiguousarray(low), high, options["insertion"])
    return {}


Run = Callable[[Mapper, Mapping[str, Any]], Mapping[str, Any]]
"""Maps everything on a mapper that is clear, by a policy's options; what stats say of it."""


def solvers(runs: Mapping[str, Run]) -> Mapping[str, SolveFunction]:
    """The policies that map in these ways."""

    def lay(run: Run, planner: Planner, budget: Budget) -> tuple[Schedule, Mapping[str, Any]]:
        mapper = Mapper(planner)
        stats = run(mapper, planner.options)
        return mapper.schedule(), stats

    return {name: one_pass(name, partial(lay, run)) for name, run in runs.items()}


RUNS: Mapping[str, Run] = {name: partial(run, name) for name in LIMITS}
SOLVERS = solvers(RUNS)
