"""An oracle for allocation at one instant: CP-SAT on nodes, one variable per job and node.

``python -m tests.support.cpsat_allocation`` reads a JSON list of cases and writes one of answers.
It runs
in a process of its own, since ortools and highspy do not always live in one. A case is
``{"links": [text], "nodes": [[cluster, power]], "jobs": [[procs, base, sigma, gbps]], "of": what}``
with exact numbers as texts such as ``3/40``; `what` is ``run`` (the sum of run times) or
``traffic``. An answer is the optimum as a text, or null if the jobs do not fit together.
"""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from math import floor, lcm
from typing import Any

from ortools.sat.python import cp_model


def ask(cases: list[dict[str, Any]]) -> list[Fraction | None]:
    """Answer cases in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cpsat_allocation"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [None if text is None else Fraction(text) for text in json.loads(done.stdout)]


def solve(case: dict[str, Any]) -> Fraction | None:
    """The optimum of one case."""
    links = [Fraction(text) for text in case["links"]]
    nodes = [(int(k), Fraction(power)) for k, power in case["nodes"]]
    jobs = [tuple(Fraction(text) for text in row) for row in case["jobs"]]
    model = cp_model.CpModel()
    use = [[model.new_bool_var("") for _ in nodes] for _ in jobs]
    for r in range(len(nodes)):
        model.add(sum(use[j][r] for j in range(len(jobs))) <= 1)
    costs: list[tuple[Any, Fraction]] = []
    fixed = Fraction(0)
    loads: list[list[tuple[Any, Fraction]]] = [[] for _ in links]
    for j, (tau, base, sigma, gbps) in enumerate(jobs):
        procs = int(tau)
        model.add(sum(use[j]) == procs)
        levels = {power: model.new_bool_var("") for _, power in nodes}
        model.add_exactly_one(levels.values())
        for r, (_, power) in enumerate(nodes):
            for level, chosen in levels.items():
                if power < level:
                    model.add_implication(use[j][r], chosen.Not())
        if case["of"] == "run":
            costs += [(chosen, base * sigma / level) for level, chosen in levels.items()]
            fixed += base * (1 - sigma)
        for k in range(len(links)):
            inside = [use[j][r] for r, (home, _) in enumerate(nodes) if home == k]
            counts = [model.new_bool_var("") for _ in range(procs + 1)]
            model.add_exactly_one(counts)
            model.add(sum(inside) == sum(n * count for n, count in enumerate(counts)))
            if procs > 1:
                table = [gbps * n * (procs - n) / (procs - 1) for n in range(procs + 1)]
                loads[k] += list(zip(counts, table, strict=True))
    for k, terms in enumerate(loads):
        scale = lcm(1, *(load.denominator for _, load in terms))
        model.add(sum(int(load * scale) * x for x, load in terms) <= floor(links[k] * scale))
        if case["of"] == "traffic":
            costs += terms
    scale = lcm(1, *(cost.denominator for _, cost in costs))
    model.minimize(sum(int(cost * scale) * x for x, cost in costs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return Fraction(round(solver.objective_value), scale) + fixed


if __name__ == "__main__":
    answers = [solve(case) for case in json.load(sys.stdin)]
    json.dump([None if value is None else str(value) for value in answers], sys.stdout)
