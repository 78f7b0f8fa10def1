"""Moldable jobs on equal processors in CP-SAT, for comparison with bounds and engines.

``python -m tests.support.cpsat_moldable`` reads one JSON object a line and writes one a line. It
imports
nothing of coalloc (ortools and highspy do not go into one process).

In: ``{"jobs": [{"times": {"1": 700, "2": 400}, "weight": 12}], "procs": 8, "objective":
"makespan" or "weighted_completion", "cap": null, "limit": 6.0}``: times and the cap, which no job
may end after, in whole units; weights are whole; the limit is CP-SAT's own measure of work, a few
seconds each, so that a loaded machine proves as much.
Out: ``{"value": 1900, "bound": 1900}``, equal where the optimum is proved within the limit; both
null where no schedule ends by the cap.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ortools.sat.python import cp_model


def answer(case: dict[str, Any]) -> dict[str, int | None]:
    """One optional interval for each count of processors, and one cumulative resource."""
    model = cp_model.CpModel()
    horizon = sum(max(job["times"].values()) for job in case["jobs"])
    if case["cap"] is not None:
        horizon = min(horizon, case["cap"])
    spans, sizes, ends = [], [], []
    for job in case["jobs"]:
        start, end = model.new_int_var(0, horizon, ""), model.new_int_var(0, horizon, "")
        chosen = []
        for procs, seconds in job["times"].items():
            if int(procs) > case["procs"] or seconds > horizon:
                continue
            here = model.new_bool_var("")
            spans.append(model.new_optional_interval_var(start, seconds, end, here, ""))
            sizes.append(int(procs))
            chosen.append(here)
        model.add_exactly_one(chosen)
        ends.append(end)
    model.add_cumulative(spans, sizes, case["procs"])
    if case["objective"] == "makespan":
        last = model.new_int_var(0, horizon, "")
        model.add_max_equality(last, ends)
        model.minimize(last)
    else:
        model.minimize(
            sum(job["weight"] * end for job, end in zip(case["jobs"], ends, strict=True))
        )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = case["limit"]
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return {"value": None, "bound": None}
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError("no schedule found in time")
    bound = solver.objective_value if status == cp_model.OPTIMAL else solver.best_objective_bound
    return {"value": round(solver.objective_value), "bound": round(bound)}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
