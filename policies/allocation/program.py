"""The program of the MBPC paper as it stands, a variable per job and node.

Each function carries the paper's equation. A node with several slots stands for as many resources.

Deviations
----------
Without them the program means nothing: (9) is per job; the sum over j of X_{j,r} is at most 1;
(5) is not linear in t_k and gets a binary per value of t_k. Load of running work, reservations,
features and memory restrict it further. SC is at least 1, since communication gets no faster on an
empty link: where links may not be saturated, SC = 1 wherever (10) holds, and is no variable. Where
they may, or as printed, SC_j is (7) over the links that j loads; as printed below 1 too.

References
----------
Blanco, Castella, Lerida, Guirado, "Multiple Job Allocation in Multicluster System", equations (4)
to (10).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf
from typing import Any

import pulp

from coalloc.policies.allocation.placing import Allocation
from coalloc.policies.allocation.scene import Scene, load
from coalloc.policies.mip.runner import SolverOutcome, whole_row

Terms = list[tuple[Any, float]]
"""Variables with their coefficients."""


class PublishedModel:
    """The program for some candidates of a scene.

    Where it is `printed`, SC falls below 1.
    """

    def __init__(self, scene: Scene, jobs: Sequence[int], *, printed: bool = False) -> None:
        self.scene, self.jobs = scene, tuple(jobs)
        self.threshold, self.printed = scene.threshold, printed
        used = sorted({c for j in jobs for c in scene.candidates[j].room})
        self.of = [c for c in used for _ in range(scene.classes[c].capacity)]
        self.P = range(len(self.of))

    @property
    def size(self) -> int:
        """Variables that the program has, about."""
        return len(self.jobs) * (len(self.P) + 1) * 2

    def build(self) -> Any:
        """Make the whole program; the objective comes with `objective`."""
        self.problem = pulp.LpProblem("mbpc_published", pulp.LpMinimize)
        candidates = self.scene.candidates
        self.X = {
            (j, r): pulp.LpVariable(f"X_{j}_{r}", 0, 1, pulp.LpInteger)
            for j in self.jobs
            for r in self.P
            if self.of[r] in candidates[j].room
        }
        self.SP = {j: pulp.LpVariable(f"SP_{j}", 0) for j in self.jobs}
        self.SC: dict[int, Any] = {}
        self.T: dict[tuple[int, int, int], Any] = {}
        self._eq_4_processing_slowdown()
        self._eq_5_tasks_per_cluster()
        self._eq_9_gang_matching()
        self._one_job_per_node()
        self._eq_10_no_saturation()
        if self.printed or self.threshold > 1.0:
            self._eq_7_communication_slowdown()
        self._restrictions()
        return self.problem

    def minimise(self, terms: Terms) -> None:
        """Set the objective."""
        self.problem.setObjective(pulp.LpAffineExpression(terms))

    def run_times(self, scale: float = 1.0) -> Terms:
        """(8): the sum of T' * SD, less what does not depend on the allocation."""
        of = self.scene.candidates
        terms = [(self.SP[j], scale * of[j].scaled) for j in self.jobs]
        return terms + [(slowdown, scale * of[j].fixed) for j, slowdown in self.SC.items()]

    def fixed_seconds(self) -> float:
        """Constant part of the run times, which `run_times` leaves out; 0 as printed."""
        of = self.scene.candidates
        return 0.0 if self.printed else sum(of[j].fixed for j in self.jobs if j not in self.SC)

    def traffic(self) -> list[tuple[Any, Fraction]]:
        """The sum of BW_{j,k} as terms, Gbit/s."""
        of = self.scene.candidates
        return [(chosen, load(of[j], n)) for (j, _, n), chosen in self.T.items() if n]

    def _eq_4_processing_slowdown(self) -> None:
        """(4): SP_j >= X_{j,r} / Gamma_r."""
        for (j, r), x in self.X.items():
            self.add([(self.SP[j], 1), (x, -1 / self._power(r))], ">=", 0)

    def _eq_5_tasks_per_cluster(self) -> None:
        """(5): a binary T_{j,k,n} is 1 for n = t_k."""
        for j in self.jobs:
            job = self.scene.candidates[j]
            for k in range(len(self.scene.capacity)) if job.splits and job.gbps else ():
                inside = [x for (i, r), x in self.X.items() if i == j and self._home(r) == k]
                counts = range(job.procs + 1)
                for n in counts:
                    name = f"T_{j}_{k}_{n}"
                    self.T[j, k, n] = pulp.LpVariable(name, 0, 1, pulp.LpInteger)
                self.add([(self.T[j, k, n], 1) for n in counts], "==", 1)
                terms = [(self.T[j, k, n], -n) for n in counts]
                self.add([*((x, 1) for x in inside), *terms], "==", 0)

    def _eq_9_gang_matching(self) -> None:
        """(9): the sum over r of X_{j,r} is tau_j."""
        for j in self.jobs:
            terms = [(x, 1) for (i, _), x in self.X.items() if i == j]
            self.add(terms, "==", self.scene.candidates[j].procs)

    def _one_job_per_node(self) -> None:
        """Unwritten: the sum over j of X_{j,r} is at most 1."""
        for r in self.P:
            self.add([(self.X[j, r], 1) for j in self.jobs if (j, r) in self.X], "<=", 1)

    def _eq_10_no_saturation(self) -> None:
        """(6), (7), (10): the sum over j of BW_{j,k} is at most ABW_k."""
        for k in range(len(self.scene.capacity)):
            limit = self.scene.limit(k, self.threshold)
            chosen = [key for key in self.T if key[1] == k]
            if limit is None or not chosen:
                continue
            loads = [load(self.scene.candidates[j], n) for j, _, n in chosen]
            row, right = whole_row(loads, limit)
            terms = [(self.T[key], a) for key, a in zip(chosen, row, strict=True)]
            self.add(terms, "<=", right)

    def _eq_7_communication_slowdown(self) -> None:
        """(7): SC_j >= (sum over i of BW_{i,k}) / ABW_k if j loads the link of k."""
        least = 0.0 if self.printed else 1.0
        self.SC = {
            j: pulp.LpVariable(f"SC_{j}", least, self.threshold)
            for j in sorted({j for j, _, _ in self.T})
        }
        for k, capacity in enumerate(self.scene.capacity):
            if not capacity:  # without a limit, or without a link
                continue
            use = [
                (chosen, float(load(self.scene.candidates[i], n) / capacity))
                for (i, at, n), chosen in self.T.items()
                if at == k
            ]
            base = float(self.scene.loaded[k] / capacity)
            for j, slowdown in self.SC.items():
                away = {self.T[j, k, 0], self.T[j, k, self.scene.candidates[j].procs]}
                spare = base + self.threshold - least
                terms = [(x, a - spare if x in away else a) for x, a in use]
                self.add([*terms, (slowdown, -1)], "<=", -base)

    def _restrictions(self) -> None:
        """One cluster, memory, reservations: what the paper's platform does not have."""
        scene = self.scene
        for j in self.jobs:
            job = scene.candidates[j]
            if not job.splits and len(scene.capacity) > 1:
                self._one_cluster(j)
            for (i, r), x in self.X.items():
                exempt = scene.intake.groups[job.item.group].exempt
                ends = [at for n, at in scene.classes[self.of[r]].closes_at if n not in exempt]
                left = min(ends, default=inf) - scene.snapshot.time
                if i == j and left < job.item.limit:
                    weakest = min(self._power(q) for q in self.P)
                    longest = job.scaled / weakest + job.fixed * self.threshold
                    big = max(longest - left, 0.0)
                    terms, fixed = [(self.SP[j], job.scaled), (x, big)], job.fixed
                    if j in self.SC and not self.printed:
                        terms, fixed = [*terms, (self.SC[j], job.fixed)], 0.0
                    self.add(terms, "<=", left + big - fixed)
        for c in sorted(set(self.of)):
            one = scene.classes[c]
            if one.slots > 1 and one.memory_mb < float("inf"):
                terms = [
                    (x, scene.candidates[j].memory_mb)
                    for (j, r), x in self.X.items()
                    if self.of[r] == c
                ]
                self.add(terms, "<=", int(one.memory_mb) * len(one.nodes))
        for j in self.jobs:
            job = scene.candidates[j]
            for c, most in job.room.items():
                # by its memory, a job may use a part of a class only
                if most < min(scene.classes[c].capacity, job.procs):
                    terms = [(x, 1) for (i, r), x in self.X.items() if i == j and self.of[r] == c]
                    self.add(terms, "<=", most)

    def _one_cluster(self, j: int) -> None:
        homes = {
            k: pulp.LpVariable(f"home_{j}_{k}", 0, 1, pulp.LpInteger)
            for k in range(len(self.scene.capacity))
        }
        self.add([(home, 1) for home in homes.values()], "==", 1)
        for (i, r), x in self.X.items():
            if i == j:
                self.add([(x, 1), (homes[self._home(r)], -1)], "<=", 0)

    def _power(self, r: int) -> float:
        return self.scene.classes[self.of[r]].power

    def _home(self, r: int) -> int:
        return self.scene.classes[self.of[r]].cluster

    def add(self, terms: Sequence[tuple[Any, float]], sense: str, right: float) -> None:
        """Add a row."""
        left = pulp.LpAffineExpression(list(terms))
        self.problem += {"<=": left <= right, "==": left == right, ">=": left >= right}[sense]

    def allocation(self, outcome: SolverOutcome) -> Allocation:
        """Read a solution."""
        uses: dict[int, dict[int, int]] = {j: {} for j in self.jobs}
        for (j, r), x in self.X.items():
            if outcome.value(x) > 0.5:
                uses[j][self.of[r]] = uses[j].get(self.of[r], 0) + 1
        return Allocation(jobs=self.jobs, uses=tuple(uses[j] for j in self.jobs))
