"""Solving PuLP models: how a search ends."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pulp
import pytest

from coalloc.policies.mip.runner import End, SolverLimits, SolverOutcome, run, whole_row


def cover(columns: int, rows: int) -> Any:
    """A set-covering program; from some 200 columns on it takes minutes."""
    rng = random.Random(1)
    model = pulp.LpProblem("cover", pulp.LpMinimize)
    xs = [pulp.LpVariable(f"x{n}", 0, 1, pulp.LpInteger) for n in range(columns)]
    model.setObjective(pulp.LpAffineExpression([(x, rng.randint(10, 99)) for x in xs]))
    for _ in range(rows):
        model += pulp.LpAffineExpression([(x, rng.randint(1, 50)) for x in xs]) >= 400
    return model


def test_optimum_has_a_bound() -> None:
    found = run(cover(40, 10), SolverLimits())
    assert found.end is End.OPTIMAL
    assert found.values is not None
    value = sum(found.values[v.name] * c for v, c in cover(40, 10).objective.items())
    assert found.bound == pytest.approx(value, rel=1e-9)


def test_stopped_with_a_solution_is_not_optimal() -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    found = run(cover(300, 80), SolverLimits(stop=stop))
    assert found.end is End.STOPPED
    if found.values is not None:
        assert all(abs(x - round(x)) < 1e-4 for x in found.values.values())


def test_limit_of_nodes_repeats() -> None:
    limits = SolverLimits(nodes=20)
    one, two = run(cover(60, 20), limits), run(cover(60, 20), limits)
    assert one == two
    assert one.end in (End.SPENT, End.OPTIMAL)


def test_infeasible_is_told() -> None:
    model = cover(10, 3)
    model += pulp.lpSum(model.variables()) <= 1
    assert run(model, SolverLimits()) == SolverOutcome(
        end=End.INFEASIBLE, values=None, bound=None, nodes=0
    )


def test_the_first_solution_is_enough() -> None:
    found = run(cover(60, 20), SolverLimits(first=True))
    assert found.end is End.SPENT
    assert found.values is not None


def test_stopped_before_it_begins() -> None:
    found = run(cover(10, 3), SolverLimits(stop=lambda: True))
    assert (found.end, found.values, found.bound) == (End.STOPPED, None, None)


def test_a_limit_of_nodes_is_no_clock() -> None:
    found = run(cover(300, 80), SolverLimits(nodes=1))
    assert (found.end, found.nodes) == (End.SPENT, 1)
    assert run(cover(10, 3), SolverLimits(nodes=4).less(5)).end is End.SPENT


def test_whole_rows_keep_what_is_exactly_full() -> None:
    loads = [Fraction("3/40") * n * (18 - n) / 17 for n in (2, 4, 9)]
    row, right = whole_row(loads, loads[0] + loads[1])
    assert row[0] + row[1] == right
    row, right = whole_row(loads, loads[0] + loads[1] - Fraction(1, 10**6))
    assert row[0] + row[1] > right
    odd = [Fraction(1, 3), Fraction(repr(0.1234567890123456))]
    row, right = whole_row(odd, sum(odd, Fraction(0)))
    assert sum(row) <= right  # rounded, yet nothing allowed is forbidden
