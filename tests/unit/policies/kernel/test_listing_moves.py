"""The moves of `annealing`: what they change and take back, and which item ends last."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from coalloc.policies.kernel.annealing_loop import CURRENT, IMPROVED, WARMTH, warm_up
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.record import copy_of
from coalloc.policies.kernel.search.annealing import LAST
from coalloc.policies.kernel.search.lister import Lister, begin_annealing, domains_of
from coalloc.policies.kernel.search.listing_state import ListingGenes
from coalloc.policies.kernel.state import MAKESPAN, WEIGHING
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid


def lister_of(jobs: int) -> Lister:
    queue = [rigid(n, 1 + n % 3, 5.0 + 3 * (n * 7 % 5)) for n in range(jobs)]
    planner = Planner(case([cluster("a", 4), cluster("b", 2, power=0.6)], queue), {})
    return Lister(planner, range(jobs), planner.decode([], "insert"))


def same(one: ListingGenes, other: ListingGenes) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("objective", [MAKESPAN, WEIGHING])
def test_the_item_that_ends_last_is_that_of_the_current_schedule(objective: int) -> None:
    lister = lister_of(20)
    state, current, best = begin_annealing(seed=3), lister.genes(), lister.genes()
    domains = domains_of(lister)
    state.value[CURRENT] = lister.evaluate(current, objective)
    state.value[WARMTH] = 0.002 * state.value[CURRENT]
    state.count[LAST] = lister.last_item()
    rejected = 0
    for _ in range(400):
        before = copy_of(current)
        lister.anneal(current, best, domains, state, objective, 1)
        rejected += same(before, current)
        lister.evaluate(copy_of(current), objective)
        ends = lister.outcome().end
        assert ends[state.count[LAST]] == ends.max()
    assert rejected > 100


def test_a_choice_that_leaves_no_place_is_kept_and_listed_without() -> None:
    lister = lister_of(6)
    free = lister.evaluate(lister.genes(), MAKESPAN)
    genes = lister.genes()
    genes.home[2], genes.level[2] = 1, 0  # 3 processes, on the 2 nodes of b
    before = copy_of(genes)
    for cutoff in (inf, free / 2.0):
        lister.evaluate(genes, MAKESPAN, cutoff)
        assert same(before, genes)
    assert lister.evaluate(genes, MAKESPAN) < inf
    assert not np.isnan(lister.outcome().end).any()


def test_an_annealing_is_the_same_however_it_is_cut_into_calls() -> None:
    found = []
    for pieces in ([400], [1] * 400, [150, 250]):
        lister = lister_of(20)
        state, genes, best = begin_annealing(seed=5), lister.genes(), lister.genes()
        state.value[CURRENT] = lister.evaluate(genes, MAKESPAN)
        warm_up(state, 0.01, 0.0001, float(state.value[CURRENT]), 400)
        for trials in pieces:
            lister.anneal(genes, best, domains_of(lister), state, MAKESPAN, trials)
        found.append([*genes, *best, *state])
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert found[0][-2][IMPROVED] > 0
