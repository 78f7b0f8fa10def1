"""The node-class program: which jobs take how many processes of which class, all starting now.

One function per family of constraints, named by the paper's symbols where it has them. Variables,
for a job j, a class c of equal free nodes, a power p and a cluster k:

* ``x[j, c]`` whole: processes of j on c (the paper's X_{j,r}, summed over equal nodes);
* ``y[j, p]`` binary: p is the level of j, no node it uses is weaker (so SP_j = 1 / p);
* ``u[j, k, n]`` binary: t_k of equation (5) is n, only where a link can become full;
* ``sc[j]``: SC_j, only where a threshold above 1 lets links saturate.

Notes
-----
Equation (5) is concave in t_k; choosing t_k by binaries makes any function of it linear. Two
inequalities that are implied in whole numbers tighten the relaxation: a job takes at most
``room * sum of y up to the class's power`` of a class, and on all nodes weaker than p together at
most ``tau * sum of y below p``.

Deviations
----------
From the published model: equation (9) is per job; a node takes one process of one job at a time
(nowhere written); SC is clamped at 1, where (8) rewards SC < 1; load of running work counts; a link
counts for SC_j only if j loads it; reservations, features and memory restrict the classes.

References
----------
Blanco, Castella, Lerida, Guirado, "Multiple Job Allocation in Multicluster System".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import pulp

from coalloc.policies.allocation.placing import Allocation, link_totals, overloaded
from coalloc.policies.allocation.scene import Scene, load
from coalloc.policies.mip.links import whole_row
from coalloc.policies.mip.runner import End, Limits, Outcome, run


class ClassModel:
    """The program for some candidates of a scene.

    Parameters
    ----------
    jobs : sequence of int
        Candidates that all must start.
    threshold : float
        Largest SC; 1 forbids saturation.
    every_link : bool
        Make ``u`` for all links, for an objective that counts the traffic.
    """

    def __init__(
        self, scene: Scene, jobs: Sequence[int], threshold: float = 1.0, every_link: bool = False
    ) -> None:
        self.scene, self.jobs, self.threshold = scene, tuple(jobs), threshold
        self.every_link = every_link
        self.levels = {j: scene.levels(scene.candidates[j]) for j in jobs}
        self.full = [k for k in range(len(scene.capacity)) if self._can_fill(k)]

    @property
    def size(self) -> int:
        """Variables that the program has."""
        own = sum(len(self.scene.candidates[j].room) + len(self.levels[j]) for j in self.jobs)
        return own + sum(len(self.counts(j, k)) for j in self.jobs for k in self._counted(j))

    def build(self) -> Any:
        """Make the program, without an objective.

        Returns
        -------
        pulp.LpProblem
        """
        self.problem = pulp.LpProblem("mbpc", pulp.LpMinimize)
        self._variables()
        self._gang_matching()
        self._exclusive_nodes()
        self._one_level()
        self._level_of_classes()
        self._one_cluster()
        self._processes_per_cluster()
        self._no_saturation()
        if self.threshold > 1.0:
            self._communication_slowdown()
        return self.problem

    def counts(self, j: int, k: int) -> range:
        """Numbers of processes that a job may have in a cluster."""
        return range(min(self._room(j, k), self.scene.candidates[j].procs) + 1)

    def _room(self, j: int, k: int) -> int:
        room = self.scene.candidates[j].room
        return sum(room.get(c, 0) for c in self.scene.of_cluster[k])

    def _loads(self, j: int) -> bool:
        job = self.scene.candidates[j]
        return job.splits and job.gbps > 0 and job.procs > 1

    def _can_fill(self, k: int) -> bool:
        """Whether the jobs could load a link beyond its capacity."""
        limit = self.scene.limit(k)
        if limit is None:
            return False
        most = Fraction(0)
        for j in self.jobs:
            if self._loads(j):
                half = self.scene.candidates[j].procs // 2
                most += load(self.scene.candidates[j], min(half, self._room(j, k)))
        return most > limit

    def _counted(self, j: int) -> list[int]:
        """Clusters for which a job needs ``u``."""
        if not self._loads(j):
            return []
        if self.every_link:
            return [k for k in range(len(self.scene.capacity)) if self._room(j, k)]
        return [k for k in self.full if self._room(j, k)]

    def _variables(self) -> None:
        scene = self.scene
        self.x = {
            (j, c): pulp.LpVariable(f"x_{j}_{c}", 0, room, pulp.LpInteger)
            for j in self.jobs
            for c, room in scene.candidates[j].room.items()
        }
        self.y = {
            (j, p): pulp.LpVariable(f"y_{j}_{n}", 0, 1, pulp.LpInteger)
            for j in self.jobs
            for n, p in enumerate(self.levels[j])
        }
        self.u = {
            (j, k, n): pulp.LpVariable(f"u_{j}_{k}_{n}", 0, 1, pulp.LpInteger)
            for j in self.jobs
            for k in self._counted(j)
            for n in self.counts(j, k)
        }
        self.sc: dict[int, Any] = {}

    def _gang_matching(self) -> None:
        """Equation (9), per job: the sum over r of X_{j,r} is tau_j."""
        for j in self.jobs:
            job = self.scene.candidates[j]
            self._add(f"gang_{j}", [(self.x[j, c], 1) for c in job.room], "==", job.procs)

    def _exclusive_nodes(self) -> None:
        """Unwritten in the paper: the sum over j of X_{j,r} is at most 1; and memory."""
        for c, one in enumerate(self.scene.classes):
            users = [j for j in self.jobs if (j, c) in self.x]
            self._add(f"nodes_{c}", [(self.x[j, c], 1) for j in users], "<=", one.capacity)
            if one.slots > 1 and one.memory_mb < float("inf"):
                needs = [(self.x[j, c], self.scene.candidates[j].memory_mb) for j in users]
                self._add(f"memory_{c}", needs, "<=", int(one.memory_mb) * len(one.nodes))

    def _one_level(self) -> None:
        """Equation (4): SP_j is 1 / p for one power p."""
        for j in self.jobs:
            self._add(f"level_{j}", [(self.y[j, p], 1) for p in self.levels[j]], "==", 1)

    def _level_of_classes(self) -> None:
        """Equation (4): no node used is weaker than the level; a reservation caps the run time."""
        for j in self.jobs:
            job, levels = self.scene.candidates[j], self.levels[j]
            for c, room in job.room.items():
                able = [p for p in levels if self._may_use(j, c, p)]
                terms = [(self.x[j, c], 1), *((self.y[j, p], -room) for p in able)]
                self._add(f"able_{j}_{c}", terms, "<=", 0)
            for n in range(1, len(levels)):
                weaker = [c for c in job.room if self.scene.classes[c].power < levels[n]]
                terms = [(self.x[j, c], 1) for c in weaker]
                terms += [(self.y[j, p], -job.procs) for p in levels[:n]]
                self._add(f"weaker_{j}_{n}", terms, "<=", 0)

    def _may_use(self, j: int, c: int, power: float) -> bool:
        job = self.scene.candidates[j]
        if self.scene.classes[c].power < power:
            return False
        return self.scene.admits(job, c, job.seconds(power, self.threshold))

    def _one_cluster(self) -> None:
        """A job that may not be split has all its processes in one cluster."""
        for j in self.jobs:
            job = self.scene.candidates[j]
            homes = [k for k in range(len(self.scene.capacity)) if self._room(j, k)]
            if job.splits or len(homes) < 2:
                continue
            whole = {k: pulp.LpVariable(f"home_{j}_{k}", 0, 1, pulp.LpInteger) for k in homes}
            self._add(f"home_{j}", [(whole[k], 1) for k in homes], "==", 1)
            for k in homes:
                terms = [*self._inside(j, k), (whole[k], -job.procs)]
                self._add(f"whole_{j}_{k}", terms, "==", 0)

    def _inside(self, j: int, k: int) -> list[tuple[Any, float]]:
        """t_k of a job as terms."""
        return [(self.x[j, c], 1) for c in self.scene.of_cluster[k] if (j, c) in self.x]

    def _processes_per_cluster(self) -> None:
        """Equation (5): one u per (j, k) is 1, that of t_k."""
        for j in self.jobs:
            for k in self._counted(j):
                counts = self.counts(j, k)
                self._add(f"count_{j}_{k}", [(self.u[j, k, n], 1) for n in counts], "==", 1)
                terms = [(self.u[j, k, n], -n) for n in counts]
                self._add(f"inside_{j}_{k}", [*self._inside(j, k), *terms], "==", 0)

    def _no_saturation(self) -> None:
        """Equations (6), (7), (10): sum of BW_{j,k} <= SC limit * ABW_k, in whole numbers."""
        for k in self.full:
            limit = self.scene.limit(k, self.threshold)
            assert limit is not None
            chosen = [(j, n) for j in self.jobs if k in self._counted(j) for n in self.counts(j, k)]
            loads = [load(self.scene.candidates[j], n) for j, n in chosen]
            row, right = whole_row(loads, limit)
            terms = [(self.u[j, k, n], a) for (j, n), a in zip(chosen, row, strict=True)]
            self._add(f"link_{k}", terms, "<=", right)

    def _communication_slowdown(self) -> None:
        """Equation (7): SC_j >= load_k / ABW_k for the links that j loads, SC_j >= 1."""
        thr = self.threshold
        for j in self.jobs:
            self.sc[j] = pulp.LpVariable(f"sc_{j}", 1.0, thr)
        for k in self.full:
            capacity, base = self.scene.capacity[k], self.scene.loaded[k]
            assert capacity is not None
            if capacity == 0:
                continue
            users = [j for j in self.jobs if k in self._counted(j)]
            use = [
                (self.u[i, k, n], float(load(self.scene.candidates[i], n) / capacity))
                for i in users
                for n in self.counts(i, k)
            ]
            for j in users:
                off = [n for n in self.counts(j, k) if n in (0, self.scene.candidates[j].procs)]
                terms = [*use, (self.sc[j], -1.0)]
                terms += [(self.u[j, k, n], 1.0 - thr) for n in off]
                self._add(f"sc_{j}_{k}", _joined(terms), "<=", -float(base / capacity))

    def cut(self, allocation: Allocation, k: int) -> None:
        """Forbid the counts that overload a link, which rounding had let pass."""
        terms = []
        for j, uses in zip(allocation.jobs, allocation.uses, strict=True):
            inside = self.scene.per_cluster(uses).get(k, 0)
            if (j, k, inside) in self.u and load(self.scene.candidates[j], inside) > 0:
                terms.append((self.u[j, k, inside], 1))
        self._add(f"cut_{k}_{len(self.problem.constraints)}", terms, "<=", len(terms) - 1)

    def run_times(self, scale: float = 1.0) -> list[tuple[Any, float]]:
        """Equation (8) as terms; what does not depend on the allocation is left out."""
        terms: list[tuple[Any, float]] = []
        for j in self.jobs:
            job = self.scene.candidates[j]
            terms += [(self.y[j, p], scale * job.scaled / p) for p in self.levels[j]]
            if j in self.sc:
                terms.append((self.sc[j], scale * job.fixed))
        return terms

    def fixed_seconds(self) -> float:
        """What `run_times` leaves out."""
        return sum(self.scene.candidates[j].fixed for j in self.jobs if j not in self.sc)

    def allocation(self, outcome: Outcome) -> Allocation:
        """Read a solution."""
        uses = []
        for j in self.jobs:
            found = {c: int(outcome.value(self.x[j, c])) for c in self.scene.candidates[j].room}
            uses.append({c: count for c, count in found.items() if count > 0})
        return Allocation(jobs=self.jobs, uses=tuple(uses))

    def start(self, allocation: Allocation) -> dict[str, float]:
        """Values of the variables for an allocation of the same jobs."""
        scene, out = self.scene, dict[str, float]()
        where = dict(zip(allocation.jobs, allocation.uses, strict=True))
        totals = link_totals(scene, allocation)
        for (j, c), x in self.x.items():
            out[x.name] = where[j].get(c, 0)
        for j in self.jobs:
            weakest = min(scene.classes[c].power for c in where[j])
            level = max(p for p in self.levels[j] if p <= weakest)
            inside = scene.per_cluster(where[j])
            for p in self.levels[j]:
                out[self.y[j, p].name] = float(p == level)
            for k in self._counted(j):
                for n in self.counts(j, k):
                    out[self.u[j, k, n].name] = float(n == inside.get(k, 0))
            if j in self.sc:
                shares = [
                    float(totals[k] / capacity)
                    for k, n in inside.items()
                    if load(scene.candidates[j], n) > 0 and (capacity := scene.capacity[k])
                ]
                out[self.sc[j].name] = min(max([1.0, *shares]), self.threshold)
        return out

    def _add(self, name: str, terms: Iterable[tuple[Any, float]], sense: str, right: float) -> None:
        left = pulp.LpAffineExpression(list(terms))
        if not left:
            return
        row = {"<=": left <= right, "==": left == right, ">=": left >= right}[sense]
        self.problem += row, name


def solve_model(
    model: ClassModel,
    objective: list[tuple[Any, float]],
    limits: Limits,
    start: Allocation | None = None,
    on_allocation: Callable[[Allocation], None] | None = None,
) -> tuple[Outcome, Allocation | None]:
    """Minimise an objective over a built model; the answer keeps the links exactly.

    Returns
    -------
    outcome, allocation
        Of the last run of the solver; None if it found no allocation.
    """
    model.problem.setObjective(pulp.LpAffineExpression(objective))
    first = model.start(start) if start is not None else None
    scene, threshold = model.scene, model.threshold

    def offer(outcome: Outcome) -> None:
        found = model.allocation(outcome)
        if on_allocation is not None and not overloaded(scene, found, threshold):
            on_allocation(found)

    while True:
        outcome = run(model.problem, limits, first, offer)
        if outcome.values is None:
            return outcome, None
        found = model.allocation(outcome)
        over = overloaded(scene, found, threshold)
        if not over:
            return outcome, found
        for k in over:
            model.cut(found, k)
        if outcome.end is not End.OPTIMAL:
            return Outcome(end=End.STOPPED, values=None, bound=outcome.bound, nodes=0), None


def _joined(terms: Iterable[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Terms with one coefficient per variable."""
    out: dict[Any, float] = {}
    for variable, value in terms:
        out[variable] = out.get(variable, 0.0) + value
    return list(out.items())
