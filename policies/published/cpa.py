"""HCPA and MCPA: allotments by critical path and area first, then a list of what is ready.

CPA begins with the smallest allotment of each task. While the critical path is longer than the mean
area, the sum of processes x seconds over the platform's processes, the task on the path that gains
most by one more process gets it; gain is the fall of t(p) / p. The list takes tasks by their
longest path to the end, each where it ends first.

`hcpa` counts in processes of a reference cluster as slow as the slowest: the platform has as many
of them as its powers add up to. On each cluster a task gets the fewest processes with which it is
no slower than on the reference. `mcpa` gives no level more processes than there are.

Notes
-----
With `packing`, a task may take fewer processes than allotted if it ends no later so. The rows of
very large ranges are a ladder: a step is one row there, its gain by the process.

Deviations
----------
The critical path leaves out what data take between tasks. `mcpa` was published for one cluster:
here it counts in the same reference processes as `hcpa`.

References
----------
N'Takpe, Suter, "Critical path and area based scheduling of parallel task graphs on heterogeneous
platforms", ICPADS 2006 (HCPA). Bansal, Kumar, Singh, "An improved two-step algorithm for task and
data parallel scheduling in distributed memory machines", Parallel Computing 32, 2006 (MCPA).
Radulescu, van Gemund, "A low-cost approach towards mixed task and data parallel scheduling",
ICPP 2001 (CPA).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from coalloc.policies.array_types import Ints
from coalloc.policies.kernel.search.cpa import Paths, Tasks, grow
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.published.m_heft import Run, mean_delays, solvers
from coalloc.policies.workflow.mapping import Mapper

SLACK = 1e-9


class Allotments:
    """Allotments of all items in reference processes, as they grow.

    `row` is the row of each item now; its processes are the reference's, and `seconds` the run time
    of each row there. `path` and `area` are the critical path and the mean area, seconds.
    """

    def __init__(self, mapper: Mapper) -> None:
        costs, graph = mapper.costs, mapper.graph
        self.mapper = mapper
        used = costs.power[costs.slots > 0]
        power = float(used.min(initial=1.0))
        intra = float(mapper.problem.inverse_intra[costs.slots > 0].max(initial=0.0))
        run = costs.scaled / power + costs.fixed + costs.gbit * intra
        self.seconds = np.maximum(run, SHORTEST)
        self.total = float((costs.slots * costs.power).sum() / power)
        most = np.floor(mapper.capacity * np.maximum(costs.power / power, 1.0)).max(axis=1)
        self.last = np.maximum(costs.last_rows(most.astype(np.int64)), costs.first[:-1])
        self.row = costs.first[:-1].copy()
        self.path = self.area = 0.0
        crowd = np.zeros(int(graph.level.max(initial=0)) + 1, dtype=np.int64)
        self._paths = Paths(np.zeros(graph.size), np.zeros(graph.size), crowd)
        self._tasks = Tasks(
            order=graph.order,
            parent_first=graph.parent_first,
            parent=graph.parent,
            child_first=graph.child_first,
            child=graph.child,
            level=graph.level,
            procs=costs.procs,
            seconds=self.seconds,
            last=self.last,
        )

    def grow(self, *, by_level: bool) -> None:
        """Go on until the path is at most the area."""
        out = np.zeros(2)
        grow(self._tasks, self.total, by_level, self.row, self._paths, out)
        self.path, self.area = float(out[0]), float(out[1])

    def rows(self) -> Ints:
        """The row of each item on each cluster, N x K: the first that is no slower, if it fits.

        Where none is, the largest that fits; the row before the item's first where none does.
        """
        costs = self.mapper.costs
        target = self.seconds[self.row] * (1.0 + SLACK)
        item = np.repeat(np.arange(costs.first.size - 1), np.diff(costs.first))
        slower = costs.seconds > target[item, None]
        slower[np.isinf(costs.seconds)] = False
        count = np.add.reduceat(slower.astype(np.int64), costs.first[:-1])
        return np.minimum(costs.first[:-1, None] + count, self.mapper.single)


def by_list(
    mapper: Mapper, allotments: Allotments, options: Mapping[str, Any]
) -> tuple[Ints, Ints, Ints]:
    """Order of the items, and the first and last row each may take on each cluster."""
    delay = mean_delays(mapper) if options["edge_data"] else None
    priority = mapper.graph.bottom(allotments.seconds[allotments.row], delay)
    high = allotments.rows()
    first = np.broadcast_to(mapper.costs.first[:-1, None], high.shape)
    low = np.ascontiguousarray(first) if options["packing"] else np.maximum(high, first)
    return mapper.in_order(priority), low, high


def run(name: str, mapper: Mapper, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Map everything by HCPA or MCPA, on a mapper that is clear."""
    allotments = Allotments(mapper)
    allotments.grow(by_level=name == "mcpa")
    mapper.map(*by_list(mapper, allotments, options), options["insertion"])
    return {"critical_path_s": allotments.path, "mean_area_s": allotments.area}


RUNS: Mapping[str, Run] = {name: partial(run, name) for name in ("hcpa", "mcpa")}
SOLVERS = solvers(RUNS)
