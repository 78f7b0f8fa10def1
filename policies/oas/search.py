"""The engine of `oas`: simple orders, annealing, exact search, with the best plan at any time.

Notes
-----
*Work* counts items placed, by whichever decoder, and nodes of the exact search. The search ends

- proved: the value meets the bound, or the exact search has ended;
- by its work limit, or by *patience*: so many moves per item in a row without an improvement;
- when the caller's `stop` says so, which is asked after each chunk of some ms.

The annealing goes in cycles, each as long as the two before together, from warm to cold and from
the best choices known.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from coalloc.model.plan import Plan, Status
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.bounds import Bound, lower_bound
from coalloc.policies.kernel.annealing import BEST, COOLING, CURRENT, IMPROVED, LATEST, TRIALS
from coalloc.policies.kernel.annealing import WARMTH as STATE_WARMTH
from coalloc.policies.kernel.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.kernel.lister import Lister, copy_of, make_state
from coalloc.policies.kernel.listing import MADE, MAKESPAN, Genes
from coalloc.policies.kernel.listing import WEIGHTED as WEIGHING
from coalloc.policies.kernel.state import TOL
from coalloc.policies.oas.exact import ExactSearch, why_not
from coalloc.policies.oas.seeds import RULES, as_before, balanced, by_rule
from coalloc.policies.oas.window import choose, complete

Orders = tuple[tuple[str, str], ...]
PROVED = 1e-9
"""Relative gap at which a plan counts as optimal."""
THEN = "makespan_then_weighted_completion"
WARM, WARMER, COLD = 0.001, 0.003, 0.00005
"""First and last temperature of a cycle, by the value; every second cycle begins warmer."""
FIRST_CYCLE = 100
"""Moves per item in the first cycle."""
CHUNK = 10_000
"""Items placed between two looks at the clock."""
REPORT_AFTER = 20_000
"""Items placed, at least, between two incumbents of the annealing."""
EXACT_ITEMS = 14
"""The exact search has proved nothing larger in reasonable time."""
EXACT_CHUNK = 50_000


class Search:
    """The best plan of a snapshot so far, and what makes it better.

    Parameters
    ----------
    policy : str
        The name that plans carry.
    options : mapping
        Complete; `objective`, `window`, `patience`, `exact_work`, `saturation_threshold` are read.
    """

    def __init__(
        self,
        planner: Planner,
        policy: str,
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> None:
        self.planner, self.policy, self.budget = planner, policy, budget
        self.on_incumbent = on_incumbent
        options: Mapping[str, Any] = planner.options
        self.objective = options.get("objective", "makespan")
        self.patience = options.get("patience")
        self.exact_work = options.get("exact_work") or 0
        self.window = options.get("window") or len(planner.snapshot.queue)
        self.threshold = options.get("saturation_threshold", 1.0)
        self.best: Schedule | None = None
        self.bound: Bound | None = None
        self.origin = ""
        self.work, self.trials, self.tried = 0, 0, 0
        self.proved = self.stopped = False
        self._reported = -inf
        self.walk: _Walk | None = None

    def rank(self, schedule: Schedule) -> tuple[float, ...]:
        """Smaller is better: items without a place, then the objective, then the other one."""
        first, second = schedule.makespan, schedule.weighted_completion
        if self.objective == WEIGHTED:
            first, second = second, first
        return schedule.unplaced, first, second

    def value(self, schedule: Schedule) -> float:
        """The objective that is bounded."""
        return self.rank(schedule)[1]

    def offer(self, schedule: Schedule, origin: str) -> bool:
        """Keep a schedule if it is better; whether it is."""
        if self.best is not None and self.rank(schedule) >= self.rank(self.best):
            return False
        self.best, self.origin = schedule, origin
        return True

    def report(self) -> None:
        """Hand the best plan to the caller."""
        if self.on_incumbent is not None and self.best is not None:
            self._reported = float(self.work)
            self.on_incumbent(self.plan())

    @property
    def met(self) -> bool:
        """Whether the value meets the bound."""
        if self.best is None or self.bound is None or self.best.unplaced:
            return False
        return self.value(self.best) <= self.bound.value * (1.0 + PROVED)

    @property
    def spent(self) -> bool:
        """Whether the work is done or the caller wants the plan."""
        if self.budget.work is not None and self.work >= self.budget.work:
            return True
        self.stopped = self.stopped or self.budget.stop()
        return self.stopped

    def try_orders(self, orders: Orders) -> None:
        """Decode simple orders."""
        for name, decoder in orders:
            if self.best is not None and self.spent:
                return
            schedule = self.planner.decode(by_rule(self.planner, self._all(), name), decoder)
            self.work += len(self.planner.items)
            self.tried += 1
            skips = decoder == "event" and name != "fpfs"
            self.offer(schedule, f"{name}, skipping" if skips else name)

    def _all(self) -> range:
        return range(len(self.planner.items))

    def find_bound(self, effort: str) -> None:
        """Bound the objective; of two, the first."""
        name = WEIGHTED if self.objective == WEIGHTED else "makespan"
        found = lower_bound(self.planner, name, self.budget.stop, effort)
        if self.bound is None or found.value > self.bound.value:
            self.bound = found

    def run(self, first: Orders, more: Orders) -> None:
        """Search until it is proved, spent, or out of patience.

        Parameters
        ----------
        first, more : tuple of (order, decoder)
            The first incumbent is the best of `first`; `more` are tried next.
        """
        self.try_orders(first)
        self.report()
        before = self.best
        self.try_orders(more)
        if self.best is not before:
            self.report()
        self.find_bound("quick")
        if self.met and self.objective != THEN:
            self.proved = True
            return
        if self.spent:
            return
        self._anneal_and_prove()

    def _anneal_and_prove(self) -> None:
        self.walk = walk = _Walk(self)
        walk.begin()
        self._walk(walk, FIRST_CYCLE)
        if not self.spent and not (self.met and self.objective != THEN):
            self.find_bound("full")
        exact = self._exact()
        while not self.spent:
            if self.met and self.objective != THEN:
                self.proved = True
                return
            if exact is not None:
                if self._prove(exact):
                    return
                if exact.work >= self.exact_work:
                    exact = None
            tired = walk.tired(self.patience)
            if tired and exact is None:
                return
            if not tired:
                self._walk(walk, None)
        self.proved = self.met and self.objective != THEN

    def _walk(self, walk: _Walk, share: int | None) -> None:
        """One chunk of annealing, or a share of moves per item; reports what it finds."""
        moves = None if share is None else share * walk.size
        while moves is None or moves > 0:
            done = walk.step(moves)
            if walk.improved:
                walk.take()
            if self.best is not None and self.work >= self._reported + REPORT_AFTER:
                walk.flush()
            if moves is None or self.spent or self.met:
                break
            moves -= done
        if share is not None:
            walk.flush()

    def _exact(self) -> ExactSearch | None:
        """The exact search, where it applies."""
        if self.best is None or self.best.unplaced or not self.exact_work:
            return None
        if len(self.planner.items) > min(EXACT_ITEMS, self.window) or not self.planner.items:
            return None
        if why_not(self.planner, self.objective) is not None:
            return None
        lower = 0.0 if self.bound is None else self.bound.value
        return ExactSearch(self.planner, self.objective, self.best, lower)

    def _prove(self, exact: ExactSearch) -> bool:
        """Some work of the exact search; True once it has proved the best plan."""
        room = EXACT_CHUNK
        if self.budget.work is not None:
            room = max(min(room, self.budget.work - self.work), 1)
        before = exact.work
        ended = exact.run(room)
        self.work += exact.work - before
        if exact.best is not None and self.offer(exact.best, "exact search"):
            self.report()
        if self.bound is None or exact.bound > self.bound.value:
            self.bound = Bound(value=exact.bound, parts={"exact search": exact.bound})
        self.proved = ended
        return ended

    def plan(self) -> Plan:
        """The best plan with its bound and status."""
        assert self.best is not None
        stats: dict[str, Any] = {
            "work": self.work,
            "order": self.origin,
            "tried": self.tried,
            "trials": self.trials,
        }
        if self.objective == THEN:
            stats["weighted_completion"] = self.best.weighted_completion
        if self.bound is not None:
            stats["bounds"] = {name: float(value) for name, value in self.bound.parts.items()}
        return self.planner.plan(
            self.best,
            self.policy,
            self.budget.seed,
            stats,
            bound=None if self.bound is None else self.bound.value,
            status=self._status(),
        )

    def _status(self) -> Status:
        if self.proved and self.best is not None and not self.best.unplaced:
            return Status.OPTIMAL
        if self.bound is None:
            return Status.HEURISTIC
        return Status.TIME_LIMIT if self.stopped else Status.FEASIBLE


class _Walk:
    """The annealing of the window."""

    def __init__(self, search: Search) -> None:
        self.search, planner = search, search.planner
        self.inside, self.rest = choose(planner, search.window)
        booked = planner.decode([], "insert")
        self.lister = Lister(planner, self.inside, booked)
        self.size = max(len(self.inside), 1)
        self.phase = WEIGHING if search.objective == WEIGHTED else MAKESPAN
        steps = np.linspace(1.0, search.threshold, 5 if search.threshold > 1.0 else 1)
        self.state = make_state(self.lister, search.budget.seed, steps.tolist())
        self.cycle, self.left = FIRST_CYCLE * self.size, 0
        self.current = self.top = self.lister.genes()
        self.pending, self.first, self.calm = False, True, True
        self.quiet = 0
        self.energy = inf

    @property
    def improved(self) -> bool:
        """Whether the annealing knows better choices than were taken."""
        return bool(self.state.value[BEST] < self.taken)

    def begin(self) -> None:
        """Start from the best of the seeds."""
        self.taken = inf
        found = inf
        for genes in self._seeds():
            value = self._measured(genes)
            self.search.work += len(self.inside)
            if value < found:
                found, self.top = value, genes
        self.state.value[BEST] = found
        if found < inf:
            self.take()

    def _measured(self, genes: Genes) -> float:
        """The value of choices in the present phase."""
        latest = float(self.state.value[LATEST])
        self.energy = self.lister.evaluate(genes, self.phase, inf, latest)
        if self.phase == MAKESPAN and self.energy < inf:
            return float(self.lister.desk.measure[MADE])
        return self.energy

    def _seeds(self) -> list[Genes]:
        planner, lister = self.search.planner, self.lister
        seeds = []
        previous = self.search.budget.previous
        if previous:
            seeds.append(lister.genes(as_before(planner, self.inside, previous)))
            seeds.append(copy_of(seeds[0]))
            seeds[1].block[:] = 1
        seeds.append(balanced(lister, self.state))
        seeds.append(self._like_best())
        for name in ("lpt", "bjf", "fpfs", "spt", "sjf", *RULES):
            seeds.append(lister.genes(by_rule(planner, self.inside, name)))
        if self.search.threshold > 1.0:
            for genes in seeds:
                genes.sc[:] = np.where(self.state.loads > 0, self.search.threshold, 1.0)
        return seeds

    def _like_best(self) -> Genes:
        """The order of starts of the best plan, in which everything blocks."""
        best = self.search.best
        assert best is not None
        start = np.nan_to_num(best.outcome.start, nan=np.inf)
        genes = self.lister.genes(sorted(self.inside, key=lambda n: float(start[n])))
        genes.block[:] = 1
        genes.mode[:] = np.where(np.isnan(best.outcome.start), 0, best.outcome.mode)
        return genes

    def step(self, most: int | None) -> int:
        """A chunk of moves; how many."""
        search, state = self.search, self.state
        if not self.inside or state.value[BEST] == inf:
            self.quiet += CHUNK
            return CHUNK
        if self.left <= 0:
            self._warm_up()
        moves = max(min(CHUNK // self.size, self.left), 1)
        if most is not None:
            moves = max(min(moves, most), 1)
        if search.budget.work is not None:
            moves = max(min(moves, (search.budget.work - search.work) // self.size), 1)
        self.lister.anneal(self.current, self.top, state, self.phase, moves)
        self.left -= moves
        search.trials += moves
        search.work += moves * self.size
        return moves

    def _warm_up(self) -> None:
        """Begin a cycle from the best choices; of two objectives, the other one."""
        state = self.state
        self.left = self.cycle
        self.cycle *= 2
        if self.search.objective == THEN:
            self._turn()
        self.current = copy_of(self.top)
        self._measured(self.current)
        state.value[CURRENT] = self.energy
        warm = WARM if self.calm else WARMER
        self.calm = not self.calm
        state.value[STATE_WARMTH] = warm * self.energy
        state.value[COOLING] = (COLD / warm) ** (1.0 / self.left)

    def _turn(self) -> None:
        """Change the phase; weighted completion keeps the makespan that was reached."""
        if self.phase == MAKESPAN and not self.first:
            self.phase = WEIGHING
            now = float(self.lister.rows.time[0])
            self.state.value[LATEST] = inf
            self.lister.evaluate(copy_of(self.top), MAKESPAN)
            self.state.value[LATEST] = now + float(self.lister.desk.measure[MADE]) - TOL
        else:
            self.phase = MAKESPAN
            self.state.value[LATEST] = inf
        self.first = False
        self.taken = self.state.value[BEST] = self._measured(copy_of(self.top))

    def take(self) -> None:
        """Turn the best choices into a schedule and offer it."""
        self.taken = float(self.state.value[BEST])
        genes = copy_of(self.top)
        self._measured(genes)
        out = self.lister.outcome()
        sc = np.where((out.missing > 0) & ~np.isnan(out.end), genes.sc, 1.0)
        if self.rest and self.taken == inf:
            return
        schedule = complete(self.search.planner, self.lister, out, sc, self.rest, 0)
        if self.search.offer(schedule, "annealing"):
            self.pending = True

    def flush(self) -> None:
        """Report what was taken since the last report."""
        if self.pending:
            self.pending = False
            self.search.report()

    def tired(self, patience: int | None) -> bool:
        """Whether nothing has improved for so many moves per item."""
        if patience is None:
            return False
        since = int(self.state.count[TRIALS]) - int(self.state.count[IMPROVED]) + self.quiet
        return since > patience * self.size
