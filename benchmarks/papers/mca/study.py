"""The workflows of the MCA-HEFT paper under every policy: what its figure and tables are read from.

Notes
-----
Each workflow of Table 1's shapes is drawn anew `DRAWS` times and planned alone on DAS-3, with
malleable tasks. `workflow` gets a fixed amount of work, so that the same seed gives the same rows.
Of a policy that did not see all draws, the figures are of those it saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from benchmarks.papers.study import Run, Study
from benchmarks.papers.workflow_instances import TABLE_1, table_1
from coalloc.model.jobs import WorkflowJob
from coalloc.model.snapshot import Snapshot
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.graph import graph_of
from coalloc.simulation.reproduce.rows import Estimate, Row, Rows, estimate
from coalloc.simulation.reproduce.solving import Solved, solve

DRAWS, QUICK_DRAWS = 30, 1
OURS = 3
"""Draws that `workflow`, which takes longest, and its bound see."""
QUICK_NUMBERS = (1, 3)
WORK, QUICK_WORK = 200_000, 20_000
"""Items that `workflow` may place."""
BEST_FIT, SEARCH = "mca-heft, best fit", "workflow"
POLICIES = (
    "mca-heft",
    BEST_FIT,
    "m-heft",
    "m-heft-imp",
    "m-heft-eff",
    "m-heft-max",
    "hcpa",
    "mcpa",
    SEARCH,
)
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    BEST_FIT: ("mca-heft", {"nodes": "best-fit"}),
    "workflow": ("workflow", {"workflow_links": "idle"}),  # as those that it is compared with
}
"""Policies that are one of the registry with options of its own."""
SET_NAMES = {"few": "few tasks by level", "various": "various", "many": "many tasks by level"}
MOST_CLUSTERS = 5


def _study(run: Run) -> Iterator[Row]:
    draws = QUICK_DRAWS if run.quick else DRAWS
    first = run.seed * DRAWS
    cases = [
        (name, number, draw, snapshot)
        for draw in range(first, first + draws)
        for name in TABLE_1
        for number, snapshot in enumerate(table_1(name, draw), 1)
        if not run.quick or number in QUICK_NUMBERS
    ]
    for name, number, draw, snapshot in run.steps("MCA-HEFT workflows", cases):
        work = QUICK_WORK if run.quick else WORK
        solved = {
            policy: solve(snapshot, known, options, work=work if policy == SEARCH else None)
            for policy in POLICIES
            if policy != SEARCH or draw - first < OURS
            for known, options in (VARIANTS.get(policy, (policy, {})),)
        }
        job = workflow_of(snapshot)
        of_tasks = np.array([task.work for task in job.tasks], dtype=np.float64)
        path = float(graph_of(Planner(snapshot, {}).items).bottom(of_tasks).max())
        for policy, found in solved.items():
            yield {
                "set": name,
                "number": number,
                "draw": draw,
                "tasks": len(job.tasks),
                "critical_path_s": path,
                "bound_s": solved[SEARCH].plan.objective.bound if SEARCH in solved else None,
                "policy": policy,
                "makespan_s": found.makespan,
                **measures(snapshot, job, found),
            }


STUDY = Study(name="mca", measure=_study)
"""Every workflow under every policy."""


def by_set(rows: Rows, cell: Callable[[Rows, str], str], policies: Sequence[str] = POLICIES) -> str:
    """Lines of a table of policies by sets of workflows; its head is in the template."""
    of_set = rows.grouped("set").values()
    lines = ([f"`{p}`", *(cell(group, p) for group in of_set)] for p in policies)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def over_draws(rows: Rows, value: Callable[[Rows], float]) -> Estimate:
    """A value of the workflows of each draw: its mean, with an interval over the draws."""
    return estimate([value(group) for group in rows.grouped("draw").values()])


def seen_by(rows: Rows, policy: str) -> Rows:
    """The rows of the draws that a policy saw."""
    draws = set(rows.where(policy=policy).column("draw"))
    return rows.only(lambda row: row["draw"] in draws)


def steps(rows: Rows, value: Callable[[Rows], float]) -> list[Estimate]:
    """A value of each set less that of the set before."""

    def step(before: str, here: str) -> Estimate:
        return over_draws(
            rows, lambda draw: value(draw.where(set=here)) - value(draw.where(set=before))
        )

    return [step(before, here) for before, here in pairwise(rows.distinct("set"))]


def workflow_of(snapshot: Snapshot) -> WorkflowJob:
    """The only job of the queue."""
    (job,) = snapshot.queue
    assert isinstance(job, WorkflowJob)
    return job


def measures(snapshot: Snapshot, job: WorkflowJob, solved: Solved) -> dict[str, Any]:
    """Processes, clusters and communication of the tasks of a plan."""
    tasks = {task.id: task for task in job.tasks}
    home = {node.name: (cluster.name, node.power) for cluster, node in snapshot.nodes()}
    procs, uses, comm = [], Counter[int](), []
    for placement in solved.plan.placements:
        assert placement.task is not None
        task = tasks[placement.task]
        count = sum(placement.nodes.values())
        power = min(home[name][1] for name in placement.nodes)
        share = 1.0 - task.parallel_fraction + task.parallel_fraction / count
        procs.append(count)
        uses[len({home[name][0] for name in placement.nodes})] += 1
        comm.append(max(placement.end - placement.start - task.work / power * share, 0.0))
    return {
        "resources": fmean(procs),
        "spread": 1.0 - uses[1] / len(procs),
        "comm_s": fmean(comm),
        "comm_sd_s": pstdev(comm),
        **{f"on_{k}": uses[k] for k in range(1, MOST_CLUSTERS + 1)},
    }
