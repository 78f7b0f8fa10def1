"""The loop of annealing, on orders of a few numbers that should be sorted."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from coalloc.policies.kernel.annealing_loop import (
    ACCEPTED,
    BEST,
    CURRENT,
    IMPROVED,
    LIMIT,
    TRIALS,
    WARMTH,
    make_annealing,
    warm_up,
)
from coalloc.policies.kernel.record import Ints
from tests.unit.policies.kernel.sorting_case import (
    ENDED,
    EVALUATED,
    SIZE,
    anneal,
    reversed_numbers,
)


def value_of(order: Ints) -> int:
    return int(np.abs(order - np.arange(SIZE)).sum())


def test_it_finds_the_minimum() -> None:
    search, state = reversed_numbers(), make_annealing(seed=1)
    warm_up(state, 0.3, 0.01, 32.0, 3000)
    anneal(search, state, 3000, True)
    assert search.numbers.best.tolist() == list(range(SIZE))
    assert state.value[BEST] == 0.0
    assert state.value[WARMTH] == pytest.approx(0.32)
    assert 0 < state.count[IMPROVED] < state.count[TRIALS] == 3000
    assert state.count[ACCEPTED] > 0


def test_what_is_at_hand_is_current_and_the_best_is_kept() -> None:
    search, state = reversed_numbers(), make_annealing(seed=2)
    warm_up(state, 0.5, 0.5, 32.0, 1)
    least = inf
    for number in range(300):
        anneal(search, state, 1, number == 0)
        assert sorted(search.numbers.order) == list(range(SIZE))
        assert state.value[CURRENT] == value_of(search.numbers.order)
        least = min(least, value_of(search.numbers.order))
        assert state.value[BEST] == value_of(search.numbers.best) == least
    assert state.count[ENDED] > 0


def test_nothing_worse_is_accepted_once_it_is_cold() -> None:
    search, state = reversed_numbers(), make_annealing(seed=3)
    anneal(search, state, 0, True)
    for _ in range(200):
        before, current = search.numbers.order.copy(), state.value[CURRENT]
        anneal(search, state, 1, False)
        assert state.value[CURRENT] <= current
        if state.value[LIMIT] == current and value_of(search.numbers.order) == current:
            continue
        assert state.value[CURRENT] < current or before.tolist() == search.numbers.order.tolist()


@pytest.mark.parametrize("pieces", [[1] * 200, [60, 140]])
def test_calls_may_be_cut(pieces: list[int]) -> None:
    found = []
    for trials in ([200], pieces):
        search, state = reversed_numbers(), make_annealing(seed=4)
        warm_up(state, 0.3, 0.01, 32.0, 200)
        anneal(search, state, 0, True)
        for part in trials:
            anneal(search, state, part, False)
        found.append([*search.numbers, *state])
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_what_is_at_hand_is_evaluated_up_to_the_limit() -> None:
    search, state = reversed_numbers(), make_annealing(seed=5)
    state.value[LIMIT] = 31.0
    assert anneal(search, state, 0, True) == inf
    assert state.value[BEST] == inf
    state.value[LIMIT] = 32.0
    assert anneal(search, state, 0, True) == state.value[BEST] == state.value[CURRENT] == 32.0
    assert state.count[TRIALS] == state.count[ACCEPTED] == 0


def test_moves_that_change_nothing_are_not_evaluated_but_cool() -> None:
    search, state = reversed_numbers(), make_annealing(seed=6)
    warm_up(state, 1.0, 0.25, 32.0, 100)
    anneal(search, state, 100, False)
    assert 70 < state.count[EVALUATED] < 100
    assert state.value[WARMTH] == pytest.approx(8.0)
