"""The node-class program: which jobs take how many processes of which nodes, all starting now.

One function per family of constraints, named by the paper's symbols where it has them. Free nodes
of one cluster that the same jobs may use form a *stratum*. Variables, for a job j, a stratum g, a
power p and a cluster k:

* ``z[j, g, p]`` whole: processes of j on g, if p is the level of j (the paper's X_{j,r}, summed);
* ``y[j, p]`` binary: p is the level of j, no node it uses is weaker (so SP_j = 1 / p);
* ``u[j, k, n]`` binary: t_k of equation (5) is n, only where a link can become full;
* ``sc[j]``: SC_j, only where a threshold above 1 lets links saturate.

Notes
-----
Equation (5) is concave in t_k; choosing t_k by binaries makes any function of it linear.

The sets "nodes of g with at least power p" are nested, and all jobs start at one instant. So by
Hall's theorem nodes can be found if and only if, for each p, the processes of levels >= p on g are
at most the slots of power >= p: no variable names a node, and equal nodes cost nothing.

Deviations
----------
From the published model: equation (9) is per job; a node takes one process of one job at a time
(nowhere written); SC is clamped at 1, where (8) rewards SC < 1; load of running work counts; a link
counts for SC_j only if j loads it; reservations, features and memory restrict the nodes.

References
----------
Blanco, Castella, Lerida, Guirado, "Multiple Job Allocation in Multicluster System".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import inf
from typing import Any

import pulp

from coalloc.policies.allocation.placing import Allocation, link_totals, slowdown
from coalloc.policies.allocation.scene import Scene, load
from coalloc.policies.mip.links import whole_row
from coalloc.policies.mip.runner import Outcome
from coalloc.policies.mip.strata import strata_of


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
    levels : bool
        False: one level for all, the weakest power, so that jobs which differ in run time only are
        alike to the solver. Strata that reservations close need levels in any case.
    at_most : float
        Seconds: levels are left out at which the sum of run times is larger whatever the others do.
    """

    def __init__(
        self,
        scene: Scene,
        jobs: Sequence[int],
        threshold: float = 1.0,
        *,
        every_link: bool = False,
        levels: bool = True,
        at_most: float = inf,
    ) -> None:
        self.scene, self.jobs, self.threshold = scene, tuple(jobs), threshold
        self.every_link = every_link
        self.strata = strata_of(scene, jobs)
        self.levels = {j: scene.levels(scene.candidates[j]) for j in jobs}
        if not levels and not any(one.closes_at for one in scene.classes):
            weakest = min((one.power for one in scene.classes), default=1.0)
            self.levels = {j: [weakest] for j in jobs}
        elif at_most < inf:
            self._drop_levels(at_most * (1.0 + 1e-9))
        self.full = [k for k in range(len(scene.capacity)) if self._can_fill(k)]

    @property
    def size(self) -> int:
        """Variables that the program has."""
        own = sum((len(self.strata) + 1) * len(self.levels[j]) for j in self.jobs)
        return own + sum(len(self.counts(j, k)) for j in self.jobs for k in self._counted(j))

    def build(self) -> Any:
        """Make the program, without an objective.

        Returns
        -------
        pulp.LpProblem
        """
        self.problem = pulp.LpProblem("mbpc", pulp.LpMinimize)
        self._variables()
        self._one_level()
        self._gang_matching()
        self._exclusive_nodes()
        self._one_cluster()
        self._processes_per_cluster()
        self._no_saturation()
        if self.threshold > 1.0:
            self._communication_slowdown()
        return self.problem

    def _drop_levels(self, at_most: float) -> None:
        """Keep the levels of each job that leave the others their best alone."""
        candidates = self.scene.candidates
        alone = {j: candidates[j].seconds(self.levels[j][-1]) for j in self.jobs}
        spare = at_most - sum(alone.values())
        for j in self.jobs:
            kept = [p for p in self.levels[j] if candidates[j].seconds(p) <= alone[j] + spare]
            self.levels[j] = kept or self.levels[j][-1:]

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

    def _most(self, j: int, g: int, power: float) -> int:
        """Processes that a job of this level can have on a stratum."""
        scene, job = self.scene, self.scene.candidates[j]
        classes = [c for c in self.strata[g].classes if scene.classes[c].power >= power]
        seconds = job.seconds(power, self.threshold)
        if not classes or not scene.admits(job, classes[0], seconds):
            return 0
        return min(sum(job.room.get(c, 0) for c in classes), job.procs)

    def _variables(self) -> None:
        self.y = {
            (j, p): pulp.LpVariable(f"y_{j}_{n}", 0, 1, pulp.LpInteger)
            for j in self.jobs
            for n, p in enumerate(self.levels[j])
        }
        self.z: dict[tuple[int, int, float], Any] = {}
        for j in self.jobs:
            for n, p in enumerate(self.levels[j]):
                for g in range(len(self.strata)):
                    most = self._most(j, g, p)
                    if most > 0:
                        name = f"z_{j}_{g}_{n}"
                        self.z[j, g, p] = pulp.LpVariable(name, 0, most, pulp.LpInteger)
        self.u = {
            (j, k, n): pulp.LpVariable(f"u_{j}_{k}_{n}", 0, 1, pulp.LpInteger)
            for j in self.jobs
            for k in self._counted(j)
            for n in self.counts(j, k)
        }
        self.home: dict[tuple[int, int], Any] = {}
        self.sc: dict[int, Any] = {}

    def _one_level(self) -> None:
        """Equation (4): SP_j is 1 / p for one power p."""
        for j in self.jobs:
            self.add(f"level_{j}", [(self.y[j, p], 1) for p in self.levels[j]], "==", 1)
        for (j, _, p), z in self.z.items():
            if len(self.levels[j]) > 1:
                self.add(f"on_{z.name}", [(z, 1), (self.y[j, p], -z.upBound)], "<=", 0)

    def _gang_matching(self) -> None:
        """Equation (9), per job: the sum over r of X_{j,r} is tau_j, on nodes of its level."""
        for j in self.jobs:
            procs = self.scene.candidates[j].procs
            for n, p in enumerate(self.levels[j]):
                terms = [(self.z[key], 1) for key in self._of(j, p)]
                self.add(f"gang_{j}_{n}", [*terms, (self.y[j, p], -procs)], "==", 0)

    def _of(self, j: int, p: float) -> list[tuple[int, int, float]]:
        return [(j, g, p) for g in range(len(self.strata)) if (j, g, p) in self.z]

    def _exclusive_nodes(self) -> None:
        """Unwritten in the paper: the sum over j of X_{j,r} is at most 1; and memory."""
        for g, stratum in enumerate(self.strata):
            powers = sorted({self.scene.classes[c].power for c in stratum.classes})
            users = [(key, z) for key, z in self.z.items() if key[1] == g]
            for n, power in enumerate(powers):
                slots = sum(
                    self.scene.classes[c].capacity
                    for c in stratum.classes
                    if self.scene.classes[c].power >= power
                )
                above = powers[n - 1] if n else 0.0
                terms = [(z, 1) for (_, _, p), z in users if p > above]
                self.add(f"nodes_{g}_{n}", terms, "<=", slots)
            if stratum.shares_memory:
                one = self.scene.classes[stratum.classes[0]]
                needs = [(z, self.scene.candidates[j].memory_mb) for (j, _, _), z in users]
                self.add(f"memory_{g}", needs, "<=", int(one.memory_mb) * len(one.nodes))

    def _one_cluster(self) -> None:
        """A job that may not be split has all its processes in one cluster."""
        for j in self.jobs:
            job = self.scene.candidates[j]
            homes = [k for k in range(len(self.scene.capacity)) if self._room(j, k)]
            if job.splits or len(homes) < 2:
                continue
            for k in homes:
                self.home[j, k] = pulp.LpVariable(f"home_{j}_{k}", 0, 1, pulp.LpInteger)
                terms = [*self._inside(j, k), (self.home[j, k], -job.procs)]
                self.add(f"whole_{j}_{k}", terms, "==", 0)
            self.add(f"home_{j}", [(self.home[j, k], 1) for k in homes], "==", 1)

    def _inside(self, j: int, k: int) -> list[tuple[Any, float]]:
        """t_k of a job as terms."""
        return [(z, 1) for (i, g, _), z in self.z.items() if i == j and self.strata[g].cluster == k]

    def _processes_per_cluster(self) -> None:
        """Equation (5): one u per (j, k) is 1, that of t_k."""
        for j in self.jobs:
            for k in self._counted(j):
                counts = self.counts(j, k)
                self.add(f"count_{j}_{k}", [(self.u[j, k, n], 1) for n in counts], "==", 1)
                terms = [(self.u[j, k, n], -n) for n in counts]
                self.add(f"inside_{j}_{k}", [*self._inside(j, k), *terms], "==", 0)

    def _no_saturation(self) -> None:
        """Equations (6), (7), (10): sum of BW_{j,k} <= SC limit * ABW_k, in whole numbers."""
        for k in self.full:
            limit = self.scene.limit(k, self.threshold)
            assert limit is not None
            chosen = [(j, n) for j in self.jobs if k in self._counted(j) for n in self.counts(j, k)]
            loads = [load(self.scene.candidates[j], n) for j, n in chosen]
            row, right = whole_row(loads, limit)
            terms = [(self.u[j, k, n], a) for (j, n), a in zip(chosen, row, strict=True)]
            self.add(f"link_{k}", terms, "<=", right)

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
                self.add(f"sc_{j}_{k}", _joined(terms), "<=", -float(base / capacity))

    def cut(self, allocation: Allocation, k: int) -> None:
        """Forbid the counts that overload a link, which rounding had let pass."""
        terms = []
        for j, uses in zip(allocation.jobs, allocation.uses, strict=True):
            inside = self.scene.per_cluster(uses).get(k, 0)
            if (j, k, inside) in self.u and load(self.scene.candidates[j], inside) > 0:
                terms.append((self.u[j, k, inside], 1))
        self.add(f"cut_{k}_{len(self.problem.constraints)}", terms, "<=", len(terms) - 1)

    def run_times(self, scale: float = 1.0) -> list[tuple[Any, float]]:
        """Equation (8) as terms; what does not depend on the allocation is left out."""
        terms: list[tuple[Any, float]] = []
        for j in self.jobs:
            job = self.scene.candidates[j]
            terms += [(self.y[j, p], scale * job.scaled / p) for p in self.levels[j]]
            if j in self.sc:
                terms.append((self.sc[j], scale * job.fixed))
        return terms

    def traffic(self) -> list[tuple[Any, Fraction]]:
        """The sum of BW_{j,k} as terms, Gbit/s; needs `every_link`."""
        return [(u, load(self.scene.candidates[j], n)) for (j, _, n), u in self.u.items() if n]

    def fixed_seconds(self) -> float:
        """Constant part of the run times, which `run_times` leaves out."""
        return sum(self.scene.candidates[j].fixed for j in self.jobs if j not in self.sc)

    def allocation(
        self, outcome: Outcome, rank: Callable[[int], float] | None = None
    ) -> Allocation:
        """Read a solution and give each job classes.

        Jobs of the highest level choose first; `rank` orders the classes, by default by power.
        """
        rank = rank or (lambda c: self.scene.classes[c].power)
        level = {j: p for (j, p), y in self.y.items() if outcome.value(y) > 0.5}
        left = [one.capacity for one in self.scene.classes]
        uses: dict[int, dict[int, int]] = {j: {} for j in self.jobs}
        for j in sorted(self.jobs, key=lambda j: -level[j]):
            room = self.scene.candidates[j].room
            for _, g, p in self._of(j, level[j]):
                need = int(outcome.value(self.z[j, g, p]))
                for c in sorted(self.strata[g].classes, key=rank):
                    if self.scene.classes[c].power >= p:
                        count = min(need, left[c], room[c])
                        left[c] -= count
                        need -= count
                        if count > 0:
                            uses[j][c] = count
        return Allocation(jobs=self.jobs, uses=tuple(uses[j] for j in self.jobs))

    def start(self, allocation: Allocation) -> dict[str, float]:
        """Values of the variables for an allocation of the same jobs."""
        scene = self.scene
        out = dict.fromkeys((z.name for z in self.z.values()), 0.0)
        totals = link_totals(scene, allocation)
        stratum = {c: g for g, one in enumerate(self.strata) for c in one.classes}
        for j, uses in zip(allocation.jobs, allocation.uses, strict=True):
            weakest = min(scene.classes[c].power for c in uses)
            level = max(p for p in self.levels[j] if p <= weakest)
            inside = scene.per_cluster(uses)
            for p in self.levels[j]:
                out[self.y[j, p].name] = float(p == level)
            for c, count in uses.items():
                out[self.z[j, stratum[c], level].name] += count
            for k in self._counted(j):
                for n in self.counts(j, k):
                    out[self.u[j, k, n].name] = float(n == inside.get(k, 0))
            for i, k in self.home:
                if i == j:
                    out[self.home[j, k].name] = float(k in inside)
            if j in self.sc:
                out[self.sc[j].name] = min(
                    slowdown(scene, scene.candidates[j], uses, totals), self.threshold
                )
        return out

    def add(self, name: str, terms: Iterable[tuple[Any, float]], sense: str, right: float) -> None:
        """Add a row; one without terms is left out."""
        left = pulp.LpAffineExpression(list(terms))
        if not left:
            return
        row = {"<=": left <= right, "==": left == right, ">=": left >= right}[sense]
        self.problem += row, name


def _joined(terms: Iterable[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Terms with one coefficient per variable."""
    out: dict[Any, float] = {}
    for variable, value in terms:
        out[variable] = out.get(variable, 0.0) + value
    return list(out.items())
