"""An exact model of workflows on whole clusters in CP-SAT, for comparison with our own search.

``python -m tests.support.cpsat_workflows`` reads one JSON object a line and writes one a line. It
imports
nothing of coalloc, and knows clusters of equal nodes only; no task is split over clusters.

In: ``{"nodes": [4, 3], "modes": [[[0, 2, 3100], ...], ...], "edges": [[0, 1, 500], ...],
"below": 4300}``: nodes of each cluster, for each task its choices of cluster, processes and
milliseconds, edges with the milliseconds that data take to another cluster, and a makespan that
must be undercut, or null.
Out: ``{"status": "optimal", "value": 4.2, "bound": 4.2}``, seconds; `none` as status: nothing is
below; `open`: neither is proved.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ortools.sat.python import cp_model

UNITS = 1000.0
LIMIT = 20.0
"""Of CP-SAT's own deterministic time, which is near seconds on a free core."""


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Minimise the makespan."""
    model = cp_model.CpModel()
    moves = sum(edge[2] for edge in case["edges"])
    horizon = moves + sum(max(mode[2] for mode in modes) for modes in case["modes"])
    if case["below"] is not None:
        horizon = min(horizon, case["below"] - 1)
    starts, ends, homes = [], [], []
    spans: list[list[Any]] = [[] for _ in case["nodes"]]
    takes: list[list[int]] = [[] for _ in case["nodes"]]
    for modes in case["modes"]:
        start = model.new_int_var(0, horizon, "")
        end = model.new_int_var(0, horizon, "")
        home = [model.new_bool_var("") for _ in case["nodes"]]
        chosen: list[list[Any]] = [[] for _ in case["nodes"]]
        for k, procs, ticks in modes:
            literal = model.new_bool_var("")
            spans[k].append(model.new_optional_interval_var(start, ticks, end, literal, ""))
            takes[k].append(procs)
            chosen[k].append(literal)
        for literal, literals in zip(home, chosen, strict=True):
            model.add(sum(literals) == literal)
        model.add_exactly_one(home)
        starts.append(start)
        ends.append(end)
        homes.append(home)
    for parent, child, ticks in case["edges"]:
        model.add(starts[child] >= ends[parent])
        for k, here in enumerate(homes[child]):
            apart = [here, homes[parent][k].negated()]
            model.add(starts[child] >= ends[parent] + ticks).only_enforce_if(apart)
    for nodes, intervals, demands in zip(case["nodes"], spans, takes, strict=True):
        model.add_cumulative(intervals, demands, nodes)
    last = model.new_int_var(0, horizon, "")
    model.add_max_equality(last, ends)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = LIMIT
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return {"status": "none", "value": None, "bound": case["below"] / UNITS}
    return {
        "status": "optimal" if status == cp_model.OPTIMAL else "open",
        "value": None if status == cp_model.UNKNOWN else solver.objective_value / UNITS,
        "bound": solver.best_objective_bound / UNITS,
    }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
