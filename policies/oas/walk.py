"""The annealing of the window: its seeds, its cycles, and what becomes of what it finds.

The annealing goes in cycles, each as long as the two before together, from warm to cold and from
the best choices known.
"""

from __future__ import annotations

from math import inf

import numpy as np

from coalloc.policies.incumbent import Incumbent
from coalloc.policies.kernel.annealing_loop import BEST, CURRENT, IMPROVED, TRIALS, warm_up
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.kernel.record import copy_of
from coalloc.policies.kernel.search.annealing import LAST, LATEST
from coalloc.policies.kernel.search.lister import Lister, begin_annealing, domains_of
from coalloc.policies.kernel.search.listing_state import MADE, ListingGenes
from coalloc.policies.kernel.state import MAKESPAN, TOL, WEIGHING
from coalloc.policies.oas.orders import THEN, objective_of
from coalloc.policies.oas.seeds import RULES, balanced, by_rule
from coalloc.policies.oas.window import choose, complete
from coalloc.policies.orders.simple import as_before

WARM, WARMER, COLD = 0.001, 0.003, 0.00005
"""First and last temperature of a cycle, by the value; every second cycle begins warmer."""
FIRST_CYCLE = 100
"""Moves per item in the first cycle."""
SETTLED = 10
"""A search that begins with the best seed from the round before is so much less patient."""
CHUNK = 10_000
"""Items placed between two looks at the clock."""


class Walk:
    """The annealing of the window, so many jobs.

    The incumbent has a schedule, and gets every better one. Communication may be slowed down by the
    threshold at most. `phase`, MAKESPAN or WEIGHTED, is what is annealed now.
    """

    def __init__(
        self, planner: Planner, incumbent: Incumbent[Schedule], window: int, threshold: float
    ) -> None:
        self.planner, self.incumbent, self.threshold = planner, incumbent, threshold
        booked = planner.decode([], "insert")
        self.inside, self.rest = choose(planner, booked, window)
        self.lister = Lister(planner, self.inside, booked)
        self.size = max(len(self.inside), 1)
        self.turns = objective_of(planner) == THEN
        self.phase = WEIGHING if objective_of(planner) == WEIGHTED else MAKESPAN
        steps = np.linspace(1.0, threshold, 5 if threshold > 1.0 else 1)
        self.domains = domains_of(self.lister, steps.tolist())
        self.state = begin_annealing(incumbent.budget.seed)
        self.cycle, self.left = FIRST_CYCLE * self.size, 0
        self.current = self.top = self.lister.genes()
        self.pending, self.first, self.calm = False, True, True
        self.quiet, self.settled = 0, False
        self.energy = inf

    @property
    def improved(self) -> bool:
        """Whether the annealing knows better choices than were taken."""
        return bool(self.state.value[BEST] < self.taken)

    def begin(self) -> None:
        """Start from the best of the seeds."""
        self.taken = inf
        found = inf
        items, previous = self.planner.items, set(self.incumbent.budget.previous or ())
        known = 2 if previous and all(items[n].job.id in previous for n in self.inside) else 0
        for number, genes in enumerate(self._seeds()):
            value = self._measured(genes)
            self.incumbent.work += len(self.inside)
            if value < found:
                found, self.top = value, genes
                self.settled = number < known
        self.state.value[BEST] = found
        if found < inf:
            self.take()

    def start_from(self, order: list[int], homes: list[int]) -> None:
        """Take items by start, all of which block, as the best choices, if they are better."""
        genes = self.lister.genes(order)
        genes.block[:] = 1
        genes.home[order] = homes
        value = self._measured(genes)
        if value < self.state.value[BEST]:
            self.top = genes
            self.state.value[BEST] = value
            self.state.count[IMPROVED] = self.state.count[TRIALS]

    def _measured(self, genes: ListingGenes) -> float:
        """The value of choices in the present phase."""
        latest = float(self.state.value[LATEST])
        self.energy = self.lister.evaluate(genes, self.phase, inf, latest)
        if self.phase == MAKESPAN and self.energy < inf:
            return float(self.lister.desk.measure[MADE])
        return self.energy

    def _seeds(self) -> list[ListingGenes]:
        planner, lister = self.planner, self.lister
        seeds = []
        previous = self.incumbent.budget.previous
        if previous:
            seeds.append(lister.genes(as_before(planner, self.inside, previous)))
            seeds.append(copy_of(seeds[0]))
            seeds[1].block[:] = 1
        seeds.append(balanced(lister, self.domains))
        seeds.append(self._like_best())
        for name in ("lpt", "bjf", "fpfs", "spt", "sjf", *RULES):
            seeds.append(lister.genes(by_rule(planner, self.inside, name)))
        if self.threshold > 1.0:
            for genes in seeds:
                genes.sc[:] = np.where(self.domains.loads > 0, self.threshold, 1.0)
        return seeds

    def _like_best(self) -> ListingGenes:
        """The order of starts of the best plan, in which everything blocks."""
        best = self.incumbent.best
        assert best is not None
        start = np.nan_to_num(best.outcome.start, nan=np.inf)
        genes = self.lister.genes(sorted(self.inside, key=lambda n: float(start[n])))
        genes.block[:] = 1
        genes.mode[:] = np.where(np.isnan(best.outcome.start), 0, best.outcome.mode)
        return genes

    def step(self, most: int | None) -> int:
        """A chunk of moves; how many."""
        incumbent, state = self.incumbent, self.state
        if not self.inside or state.value[BEST] == inf:
            self.quiet += CHUNK
            return CHUNK
        if self.left <= 0:
            self._warm_up()
        moves = min(incumbent.chunk(CHUNK) // self.size, self.left)
        moves = max(moves if most is None else min(moves, most), 1)
        self.lister.anneal(self.current, self.top, self.domains, state, self.phase, moves)
        self.left -= moves
        incumbent.trials += moves
        incumbent.work += moves * self.size
        return moves

    def _warm_up(self) -> None:
        """Begin a cycle from the best choices; of two objectives, the other one."""
        state = self.state
        self.left = self.cycle
        self.cycle *= 2
        if self.turns:
            self._turn()
        self.current = copy_of(self.top)
        self._measured(self.current)
        state.value[CURRENT] = self.energy
        state.count[LAST] = self.lister.last_item()
        warm = WARM if self.calm else WARMER
        self.calm = not self.calm
        warm_up(state, warm, COLD, self.energy, self.left)

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

    def take(self, origin: str = "annealing") -> None:
        """Turn the best choices into a schedule and offer it."""
        self.taken = float(self.state.value[BEST])
        genes = copy_of(self.top)
        self._measured(genes)
        out = self.lister.outcome()
        sc = np.where((out.missing > 0) & ~np.isnan(out.end), genes.sc, 1.0)
        if self.rest and self.taken == inf:
            return
        schedule = complete(self.planner, self.lister, out, sc, self.rest, 0)
        if self.incumbent.offer(schedule, origin):
            self.pending = True

    def flush(self) -> None:
        """Report what was taken since the last report."""
        if self.pending:
            self.pending = False
            self.incumbent.report()

    def tired(self, patience: int | None) -> bool:
        """Whether nothing has improved for so many moves per item.

        Behind the previous round's plan, if that is the best seed, a tenth of them: what it leaves
        was looked for before.
        """
        if patience is None:
            return False
        if self.settled and self.state.count[IMPROVED] == 0:
            patience = -(-patience // SETTLED)
        since = int(self.state.count[TRIALS]) - int(self.state.count[IMPROVED]) + self.quiet
        return since > patience * self.size
