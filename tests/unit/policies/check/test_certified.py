"""What prices prove, and which makespans are refuted: against plain sums over all starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from coalloc.model.jobs import RigidJob
from coalloc.model.plan import FrontPoint, Objective, Placement, Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.certificates import Proved, certified, ratio, refutes
from coalloc.policies.checking.check import check
from tests.seeds import seeds

Row = tuple[list[int], list[float], float, float]
FINE = 2


def arrays(rows: Sequence[Row]) -> list[Any]:
    return [(np.array(k), np.array(p), w, r) for k, p, w, r in rows]


def levels(starts: Sequence[float], capacity: Sequence[int], at: float) -> int:
    return next(c for s, c in reversed(list(zip(starts, capacity, strict=True))) if s <= at)


def price(grid: Sequence[float], prices: Sequence[float], at: float) -> float:
    pieces = zip(grid, grid[1:], prices, strict=False)
    return next((y for a, b, y in pieces if a <= at < b), 0.0)


def summed(
    rows: Sequence[Row],
    steps: tuple[list[float], list[int]],
    grid: list[float],
    prices: list[float],
    cap: float,
) -> float:
    """The Lagrangian by its definition; all is whole, so that halves of a second show it all."""
    end = int(max([grid[-1], *[r for *_, r in rows]]) + max(max(p) for _, p, _, _ in rows)) + 1
    ticks = [n / FINE for n in range(end * FINE)]
    paid = [price(grid, prices, t) / FINE for t in ticks]
    bound = -sum(levels(*steps, t) * cost for t, cost in zip(ticks, paid, strict=True))
    for procs, times, weight, release in rows:
        costs = [
            weight * (s + p) + k * sum(paid[int(s * FINE) : int((s + p) * FINE)])
            for k, p in zip(procs, times, strict=True)
            for s in ticks
            if s >= release and s + p <= cap
        ]
        bound += min(costs, default=inf)
    return bound


def case(seed: int) -> tuple[list[Row], tuple[list[float], list[int]], random.Random]:
    rng = random.Random(seed)
    rows: list[Row] = []
    for _ in range(rng.randint(1, 5)):
        procs = sorted(rng.sample(range(1, 6), rng.randint(1, 3)))
        times = sorted((float(t) for t in rng.sample(range(1, 10), len(procs))), reverse=True)
        rows.append((procs, times, float(rng.randint(0, 3)), float(rng.choice([0, 0, 2, 5]))))
    later = sorted(rng.sample(range(1, 12), rng.randint(0, 2)))
    starts = [0.0, *map(float, later)]
    return rows, (starts, [rng.randint(0, 5) for _ in starts]), rng


@pytest.mark.parametrize("seed", seeds(40))
def test_the_value_of_prices_is_their_lagrangian(seed: int) -> None:
    rows, steps, rng = case(seed)
    grid = [0.0, *sorted(float(t) for t in rng.sample(range(1, 14), rng.randint(1, 4)))]
    prices = [float(rng.choice([0, 1, 3])) for _ in grid[1:]]
    for cap in (inf, 20.0, 9.0):
        found = certified(arrays(rows), steps, grid, prices, cap)
        assert found == pytest.approx(summed(rows, steps, grid, prices, cap))


def test_prices_by_hand() -> None:
    job: Row = ([1, 2], [4.0, 3.0], 2.0, 3.0)
    # nothing is paid: it starts at its release, on two
    assert certified(arrays([job]), ([0.0], [2]), [0.0, 8.0], [0.0]) == 12.0
    # 2 * 6 + 2 * 3 for its processors, less 2 * 8 for all; later is dearer
    assert certified(arrays([job]), ([0.0], [2]), [0.0, 8.0], [1.0]) == 2.0
    # half of the processors leave at 4
    assert certified(arrays([job]), ([0.0, 4.0], [2, 1]), [0.0, 8.0], [1.0]) == 6.0
    # a price of no time at all costs nothing
    assert certified(arrays([job]), ([0.0], [2]), [0.0, 8.0, 8.0], [0.0, 5.0]) == 12.0
    # nothing ends by 5
    assert certified(arrays([job]), ([0.0], [2]), [0.0, 8.0], [0.0], 5.0) == inf


@pytest.mark.parametrize(
    ("grid", "prices"),
    [([0.0, 8.0], [-1.0]), ([0.0, 8.0], [nan]), ([1.0, 8.0], [1.0]), ([0.0, 8.0, 7.0], [1.0, 1.0])],
)
def test_prices_that_are_none_prove_nothing(grid: list[float], prices: list[float]) -> None:
    assert certified(arrays([([1], [4.0], 1.0, 0.0)]), ([0.0], [2]), grid, prices) == -inf


def too_early(rows: Sequence[Row], steps: tuple[list[float], list[int]], guess: float) -> bool:
    """The rule of `refutes` in plain words."""
    work, shared, savings = 0.0, 0, []
    for procs, times, _, release in rows:
        fit = [(k, p) for k, p in zip(procs, times, strict=True) if p <= guess - release]
        if not fit:
            return True
        least = min(k * p for k, p in fit)
        fewest = min(k for k, _ in fit)
        short = [k * p for k, p in fit if p <= guess / 2]
        if not short:
            shared += fewest
            work += least
        else:
            work += min(short)
            savings += [((min(short) - least) / fewest, fewest)] if min(short) > least else []
    left = levels(*steps, guess / 2) - shared
    if left < 0:
        return True
    for each, size in sorted(savings, reverse=True):
        taken = min(size, left)
        work -= each * taken
        left -= taken
    ends = [*steps[0][1:], inf]
    spans = zip(steps[0], ends, steps[1], strict=True)
    area = sum(c * (min(b, guess) - a) for a, b, c in spans if a < guess)
    return work > area * (1 + 1e-9)


@pytest.mark.parametrize("seed", seeds(60))
def test_what_is_refuted(seed: int) -> None:
    rows, steps, _ = case(seed)
    pair = np.array(steps[0]), np.array(steps[1], dtype=np.int64)
    for half in range(1, 60):
        guess = half / 2
        assert refutes(arrays(rows), pair, guess) == too_early(rows, steps, guess)


def test_refuted_by_hand() -> None:
    one, two = (np.array([0.0]), np.array([1])), (np.array([0.0]), np.array([2]))
    assert refutes(arrays([([1], [10.0], 1.0, 0.0)]), one, 9.9)
    assert not refutes(arrays([([1], [10.0], 1.0, 0.0)]), one, 10.0)
    assert refutes(arrays([([1], [10.0], 1.0, 5.0)]), one, 14.9)
    assert not refutes(arrays([([1], [10.0], 1.0, 5.0)]), one, 15.0)
    # three that run at half time on two processors
    three = arrays([([1], [10.0], 1.0, 0.0)] * 3)
    assert refutes(three, two, 19.9)
    assert not refutes(three, two, 20.0)
    # two of (1: 10 s, 2: 6 s): by 12 s each may save 2 s of work on a processor of its own
    both = arrays([([1, 2], [10.0, 6.0], 1.0, 0.0)] * 2)
    assert refutes(both, one, 12.0)
    assert not refutes(both, two, 12.0)
    assert refutes(both, two, 9.9)


@pytest.mark.parametrize(
    ("value", "bound", "expected"),
    [
        (6.0, 4.0, 1.5),
        (6.0, inf, 0.0),
        (6.0, 0.0, inf),
        (0.0, 0.0, 1.0),
        (-1.0, 0.0, 1.0),
        (1.0, -1.0, inf),
        (1.0, 0.5, 2.0),
    ],
)
def test_ratio(value: float, bound: float, expected: float) -> None:
    assert ratio(value, bound) == expected


def point(cmax: float, total: float, **fields: Any) -> FrontPoint:
    base = FrontPoint(
        cmax=cmax,
        weighted_completion=total,
        cmax_bound=None,
        weighted_completion_bound=None,
        pareto_gap=None,
        placements=(),
    )
    return replace(base, **fields)


def test_what_is_proved_of_a_point() -> None:
    proved = Proved(makespan=8.0, completion=[(inf, 100.0), (10.0, 150.0), (9.0, 180.0)])
    assert proved.completion_by(inf) == 100.0
    assert proved.completion_by(11.0) == 100.0
    assert proved.completion_by(10.0) == 150.0
    assert proved.completion_by(9.5) == 150.0
    assert proved.completion_by(9.0 * (1.0 + 5e-10)) == 180.0
    # ends at 12: 12 / 8 by the makespan; max(12 / 10, 165 / 150) by the cap of 10
    assert proved.gap(point(12.0, 165.0)) == pytest.approx(0.2)
    assert proved.gap(point(8.0, 900.0)) == 0.0
    assert proved.gap(point(40.0, 130.0)) == pytest.approx(0.3)
    assert Proved(makespan=8.0, completion=[(inf, 0.0)]).gap(point(12.0, 5.0)) == 0.5


def taken_for_granted(*items: dict[str, Any], **changes: Any) -> Any:
    """What is told where not one step may be spent."""
    clusters = (Cluster(name="k", nodes=(Node(name="n", slots=2),)),)
    snapshot = Snapshot(clusters=clusters, queue=(RigidJob(id="r", procs=1, base_time=10.0),))
    placements = (Placement(job="r", start=0.0, end=10.0, nodes={"n": 1}),)
    one = point(10.0, 10.0, placements=placements, pareto_gap=0.0, cmax_bound=10.0)
    one = replace(one, **({"weighted_completion_bound": 10.0} | changes))
    plan = Plan(
        policy="by hand",
        status=Status.HEURISTIC,
        objective=Objective(name="weighted_completion", value=10.0),
        placements=placements,
        front=(one,),
        chosen=0,
        pareto_gap=one.pareto_gap,
        certificates=items,
    )
    return check(snapshot, plan, cells=0)


PRICES = {"kind": "prices", "value": 10.0, "cap": None, "grid": [0.0, 5.0], "prices": [0.0]}


def test_where_nothing_can_be_verified_claims_must_agree() -> None:
    found = taken_for_granted(PRICES)
    assert found.violations == ()
    assert found.unverified == ("bounds and certificates: the jobs have 1 counts of processes",)
    (line,) = taken_for_granted().violations
    assert line.startswith("front[0].weighted_completion_bound: 10 is more than what is proved, 0")
    (line,) = taken_for_granted(PRICES | {"value": 9.0}).violations
    assert line.endswith("10 is more than what is proved, 9")
    # a price of no time at all is one
    twice = PRICES | {"grid": [0.0, 5.0, 5.0], "prices": [0.0, 1.0]}
    assert taken_for_granted(twice).ok
    # a cap that ends before the point does proves nothing of it
    assert not taken_for_granted(PRICES | {"cap": 9.0}).ok
    assert taken_for_granted(PRICES | {"cap": 10.0}).ok


def test_where_nothing_can_be_verified_nothing_is_made_up() -> None:
    nothing: dict[str, Any] = {"cmax_bound": None, "weighted_completion_bound": None}
    found = taken_for_granted(**nothing, pareto_gap=9.0)
    assert found.violations == ("front[0].pareto_gap: 9 is less than what is proved, inf",)
    assert taken_for_granted(**nothing, pareto_gap=None).ok
    assert taken_for_granted(cmax_bound=8.0, weighted_completion_bound=None, pareto_gap=0.25).ok


def test_where_nothing_can_be_verified_each_fault_is_named() -> None:
    found = taken_for_granted(PRICES, {"kind": "faith"}, PRICES | {"grid": []})
    assert found.violations == (
        "certificates[1].kind: 'faith' cannot be verified",
        "certificates[2].grid: has 0 edges for 1 prices",
    )


def test_a_front_of_nothing_is_as_good_as_can_be() -> None:
    nothing = Plan(
        policy="by hand",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        front=(point(0.0, 0.0, pareto_gap=0.0),),
        chosen=0,
        pareto_gap=0.0,
    )
    assert check(Snapshot(), nothing).violations == ()
