"""The published time-slot program of OAS, equation by equation.

Each function adds one family and carries its number. Symbols: Z, X, Y, s, f, SP, ct, BW as in the
paper; a resource r is one slot of one node; t counts from 1 to theta; eta is the slot in seconds.

Deviations
----------
(9) f_max >= f_j. (11) Z >= X and Z <= sum of X. (17) f_j >= X * t. (18) with SP_j >= Z_{j,r} /
Gamma_r, which no equation of the paper says. (19) (f - s) * eta <= Tb * ct + eta - epsilon: with
(20) the published form forces (f - s) * eta = Tb * ct. (21), (22) BW_{j,k,t} is defined by
binaries N_{j,k,n} ("t_k is n") and R_{j,t} ("j runs in t"), scaled to whole numbers; one process
loads nothing. Where links may be saturated, SC_j of (5) to (7) is at least the share of each link
that is loaded in each slot in which j loads it, at most the threshold, and part of (18). Releases,
precedence, busy slots, reservations, features, memory and jobs that may not be split restrict X
and Z.

References
----------
Blanco, Guirado, Lerida, Albornoz, "OAS: a MIP model for ordering and allocating parallel jobs on
multi-cluster systems", equations (9) to (23).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import pulp

from coalloc.model.plan import Placement
from coalloc.policies.allocation.scene import bandwidth, exact
from coalloc.policies.bounds.supply import threshold_of
from coalloc.policies.kernel.instance.kinds import floored_power
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.mip.runner import SolverOutcome, whole_row
from coalloc.policies.published.slot_grid import SlotGrid, seconds_of

EPSILON = 1e-3
"""Of (19'), in slots: a run that passes a slot's end by less needs no further slot."""


class SlotModel:
    """The program for the items of a planner in `theta` slots."""

    def __init__(self, grid: SlotGrid, theta: int) -> None:
        self.grid, self.theta = grid, theta
        intake = grid.planner.intake
        step = grid.planner.options.get("power_step", 0.0)
        self.items: list[Item] = grid.planner.items
        self.J = range(len(self.items))
        self.T = range(1, theta + 1)
        self.K = range(len(grid.capacity))
        self.node = [n for n, node in enumerate(intake.nodes) for _ in range(node.slots)]
        self.R = range(len(self.node))
        self.gamma = [floored_power(intake.nodes[n].power, step) for n in self.node]
        self.tau = [item.modes[0][0] for item in self.items]
        self.threshold = threshold_of(grid.planner)

    @property
    def size(self) -> int:
        """Rows and columns, about: X, and the rows of (13) and (14)."""
        cells = len(self.J) * len(self.R) * self.theta
        return 2 * cells + cells * self.theta // 2

    def build(self) -> Any:
        """Make the whole program."""
        self.problem = pulp.LpProblem("oas_slots", pulp.LpMinimize)
        self._eq_23_domains()
        self._eq_9_makespan()
        self._eq_10_one_job_per_resource()
        self._eq_11_assignment()
        self._eq_12_all_tasks()
        self._eq_13_together()
        self._eq_14_nothing_before_the_start()
        self._eq_15_one_start()
        self._eq_16_start()
        self._eq_17_end()
        self._eq_18_cost()
        self._eq_19_not_longer()
        self._eq_20_long_enough()
        self._eq_21_22_bandwidth()
        self._restrictions()
        return self.problem

    def _eq_23_domains(self) -> None:
        """(23): Z, X, Y binary; s, f, ct, SP at least 0."""

        def binary(name: str) -> Any:
            return pulp.LpVariable(name, 0, 1, pulp.LpInteger)

        J, R, T = self.J, self.R, self.T
        self.Z = {(j, r): binary(f"Z_{j}_{r}") for j in J for r in R}
        self.X = {(j, r, t): binary(f"X_{j}_{r}_{t}") for j in J for r in R for t in T}
        self.Y = {(j, t): binary(f"Y_{j}_{t}") for j in J for t in T}
        self.s = {j: pulp.LpVariable(f"s_{j}", 0, self.theta) for j in J}
        self.f = {j: pulp.LpVariable(f"f_{j}", 0, self.theta) for j in J}
        self.SP = {j: pulp.LpVariable(f"SP_{j}", 0) for j in J}
        self.ct = {j: pulp.LpVariable(f"ct_{j}", 0) for j in J}
        self.SC = {j: pulp.LpVariable(f"SC_{j}", 1, self.threshold) for j in J}

    def _eq_9_makespan(self) -> None:
        """(9): minimise max_j f_j."""
        self.f_max = pulp.LpVariable("f_max", 0, self.theta)
        self.problem.setObjective(pulp.LpAffineExpression([(self.f_max, 1)]))
        for j in self.J:
            self._add([(self.f[j], 1), (self.f_max, -1)], "<=", 0)

    def _eq_10_one_job_per_resource(self) -> None:
        """(10): the sum over j of X_{j,r,t} is at most 1."""
        for r in self.R:
            for t in self.T:
                self._add([(self.X[j, r, t], 1) for j in self.J], "<=", 1)

    def _eq_11_assignment(self) -> None:
        """(11): Z_{j,r} = max_t X_{j,r,t}."""
        for j in self.J:
            for r in self.R:
                for t in self.T:
                    self._add([(self.X[j, r, t], 1), (self.Z[j, r], -1)], "<=", 0)
                terms = [(self.X[j, r, t], -1) for t in self.T]
                self._add([(self.Z[j, r], 1), *terms], "<=", 0)

    def _eq_12_all_tasks(self) -> None:
        """(12): the sum over r of Z_{j,r} is tau_j."""
        for j in self.J:
            self._add([(self.Z[j, r], 1) for r in self.R], "==", self.tau[j])

    def _eq_13_together(self) -> None:
        """(13): the sum over r' of X_{j,r',t} is at least tau_j * X_{j,r,t}."""
        for j in self.J:
            for t in self.T:
                for r in self.R:
                    terms = dict.fromkeys(self.R, 1.0)
                    terms[r] -= self.tau[j]
                    self._add([(self.X[j, i, t], a) for i, a in terms.items()], ">=", 0)

    def _eq_14_nothing_before_the_start(self) -> None:
        """(14): X_{j,r,t'} <= 1 - Y_{j,t} for t' < t."""
        for j in self.J:
            for r in self.R:
                for t in self.T:
                    for before in range(1, t):
                        self._add([(self.X[j, r, before], 1), (self.Y[j, t], 1)], "<=", 1)

    def _eq_15_one_start(self) -> None:
        """(15): the sum over t of Y_{j,t} is 1."""
        for j in self.J:
            self._add([(self.Y[j, t], 1) for t in self.T], "==", 1)

    def _eq_16_start(self) -> None:
        """(16): s_j = sum over t of Y_{j,t} * t - 1."""
        for j in self.J:
            terms = [(self.Y[j, t], -t) for t in self.T]
            self._add([(self.s[j], 1), *terms], "==", -1)

    def _eq_17_end(self) -> None:
        """(17): f_j = max over r, t of X_{j,r,t} * t."""
        for j in self.J:
            for r in self.R:
                for t in self.T:
                    self._add([(self.f[j], 1), (self.X[j, r, t], -t)], ">=", 0)

    def _eq_18_cost(self) -> None:
        """(18): ct_j = sigma_j * SP_j + (1 - sigma_j) * SC_j; (3): SP_j >= Z_{j,r} / Gamma_r."""
        for j in self.J:
            sigma = self.items[j].job.sigma
            terms = [(self.ct[j], 1.0), (self.SP[j], -sigma), (self.SC[j], sigma - 1.0)]
            self._add(terms, "==", 0)
            for r in self.R:
                self._add([(self.SP[j], 1), (self.Z[j, r], -1 / self.gamma[r])], ">=", 0)

    def _eq_19_not_longer(self) -> None:
        """(19'): (f_j - s_j) * eta <= Tb_j * ct_j + eta - epsilon."""
        for j in self.J:
            terms = [(self.f[j], 1), (self.s[j], -1), (self.ct[j], -self._base(j))]
            self._add(terms, "<=", 1 - EPSILON)

    def _eq_20_long_enough(self) -> None:
        """(20): the sum over r, t of X_{j,r,t} * eta is at least Tb_j * ct_j * tau_j."""
        for j in self.J:
            terms = [(self.X[j, r, t], 1.0) for r in self.R for t in self.T]
            allowed = EPSILON * self.tau[j] / 2
            cost = self._base(j) * self.tau[j]
            self._add([*terms, (self.ct[j], -cost)], ">=", -allowed)

    def _eq_21_22_bandwidth(self) -> None:
        """(21), (22): MBW_k - sum over j of BW_{j,k,t} >= 0, BW from (4)."""
        self.N: dict[tuple[int, int, int], Any] = {}
        runs: dict[tuple[int, int], Any] = {}
        for k in self.K:
            limit = self.grid.capacity[k]
            users = [j for j in self.J if self.tau[j] > 1 and self.items[j].proc_gbps > 0]
            if limit is None or not users:
                continue
            self._count_processes(users, k)
            for j in users:
                self._note_runs(j, runs)
            chosen = [(j, n) for j in users for n in range(self.tau[j] + 1)]
            loads = [bandwidth(exact(self.items[j].proc_gbps), self.tau[j], n) for j, n in chosen]
            for t in self.T:
                other = self.grid.links[k].peak(t - 1, t)
                if self.threshold > 1.0 and limit > 0:
                    shares = [float(load / limit) for load in loads]
                    used = float(other / limit)
                    self._slow_down(k, t, dict(zip(chosen, shares, strict=True)), used, runs)
                    continue
                row, right = whole_row(loads, max(limit - other, Fraction(0)))
                total = self._total(k, t, dict(zip(chosen, row, strict=True)), runs)
                self._add(total, "<=", right)

    def _slow_down(
        self,
        k: int,
        t: int,
        shares: Mapping[tuple[int, int], float],
        other: float,
        runs: Mapping[tuple[int, int], Any],
    ) -> None:
        """(5) to (7): SC_j is at least the load of link k, by its capacity, if j loads it in t."""
        total = self._total(k, t, shares, runs)
        self._add(total, "<=", max(self.threshold - other, 0.0))
        big = max(self.threshold, other) - 1.0
        for j in dict.fromkeys(j for j, _ in shares):
            idle = [(self.N[j, k, n], -big) for n in (0, self.tau[j])]
            terms = [*total, (self.SC[j], -1.0), (runs[j, t], big), *idle]
            self._add(terms, "<=", big - other)

    def _total(
        self,
        k: int,
        t: int,
        row: Mapping[tuple[int, int], float],
        runs: Mapping[tuple[int, int], Any],
    ) -> list[tuple[Any, float]]:
        """The sum over j of BW_{j,k,t}, with what defines it."""
        total: list[tuple[Any, float]] = []
        for j in dict.fromkeys(j for j, _ in row):
            most = max(row[j, n] for n in range(self.tau[j] + 1))
            bw = pulp.LpVariable(f"BW_{j}_{k}_{t}", 0)
            terms = [(self.N[j, k, n], -row[j, n]) for n in range(self.tau[j] + 1)]
            self._add([(bw, 1), *terms, (runs[j, t], -most)], ">=", -most)
            total.append((bw, 1))
        return total

    def _count_processes(self, users: Iterable[int], k: int) -> None:
        """N_{j,k,n} is 1 for n = t_k, the sum over r in k of Z_{j,r}."""
        inside = [r for r in self.R if self.grid.cluster(self.node[r]) == k]
        for j in users:
            counts = range(self.tau[j] + 1)
            for n in counts:
                self.N[j, k, n] = pulp.LpVariable(f"N_{j}_{k}_{n}", 0, 1, pulp.LpInteger)
            self._add([(self.N[j, k, n], 1) for n in counts], "==", 1)
            terms = [(self.N[j, k, n], -n) for n in counts]
            self._add([*((self.Z[j, r], 1) for r in inside), *terms], "==", 0)

    def _note_runs(self, j: int, runs: dict[tuple[int, int], Any]) -> None:
        """R_{j,t} >= X_{j,r,t}."""
        for t in self.T:
            if (j, t) in runs:
                continue
            runs[j, t] = pulp.LpVariable(f"R_{j}_{t}", 0, 1)
            for r in self.R:
                self._add([(runs[j, t], 1), (self.X[j, r, t], -1)], ">=", 0)

    def _restrictions(self) -> None:
        """Restrictions that the paper's platform does not have; see the module's Deviations."""
        intake = self.grid.planner.intake
        taken = self._taken()
        for j, item in enumerate(self.items):
            need = intake.groups[item.group].need
            for r in self.R:
                n = self.node[r]
                kind = intake.kinds[intake.node_kind[n]]
                if not kind.usable or need[intake.node_kind[n]] <= 0:
                    self._add([(self.Z[j, r], 1)], "<=", 0)
                    continue
                shut = self.grid.closed(item, n)
                for t in self.T:
                    before = t <= self.grid.up(item.release) or t <= taken[r]
                    if before or any(a < t <= b for a, b in shut):
                        self._add([(self.X[j, r, t], 1)], "<=", 0)
            for parent, _ in item.parents:
                self._add([(self.s[j], 1), (self.f[parent], -1)], ">=", 0)
            if not item.splits:
                self._one_cluster(j)

    def _taken(self) -> list[int]:
        """Slots of time at whose beginning each resource is still used by other work."""
        out = []
        for n, busy in enumerate(self.grid.nodes):
            ends = sorted((b for _, b, m in busy.intervals for _ in range(int(m))), reverse=True)
            count = self.grid.planner.intake.nodes[n].slots
            out += (ends + [0] * count)[:count]
        return out

    def _one_cluster(self, j: int) -> None:
        homes = {k: pulp.LpVariable(f"home_{j}_{k}", 0, 1, pulp.LpInteger) for k in self.K}
        for r in self.R:
            self._add([(self.Z[j, r], 1), (homes[self.grid.cluster(self.node[r])], -1)], "<=", 0)
        self._add([(home, 1) for home in homes.values()], "==", 1)

    def _base(self, j: int) -> float:
        """Tb_j in slots."""
        _, scaled, fixed, _ = self.items[j].modes[0]
        return (scaled + fixed) / self.grid.slot

    def _add(self, terms: Iterable[tuple[Any, float]], sense: str, right: float) -> None:
        left = pulp.LpAffineExpression(list(terms))
        self.problem += {"<=": left <= right, "==": left == right, ">=": left >= right}[sense]

    def placements(self, outcome: SolverOutcome) -> tuple[Placement, ...]:
        """Read a solution; ends are the true ones of the cost model."""
        nodes = self.grid.planner.intake.nodes
        out = []
        for j, item in enumerate(self.items):
            used = [r for r in self.R if outcome.value(self.Z[j, r]) > 0.5]
            first = next(t for t in self.T if outcome.value(self.Y[j, t]) > 0.5)
            sc = max(outcome.value(self.SC[j]), 1.0)
            counts = Counter(self.node[r] for r in used)
            start = self.grid.at(first - 1)
            end = start + seconds_of(self.grid.planner, item, counts, sc)
            named = {nodes[n].name: count for n, count in counts.items()}
            out.append(Placement(job=item.job.id, start=start, end=end, nodes=named, sc=sc))
        return tuple(out)
