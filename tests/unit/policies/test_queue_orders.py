"""The formulas of the queue's orders, and who goes first after the limit on waiting."""

import math
from typing import Any, get_args

import numpy as np
import pytest

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.orders.options import EASY_ORDERS, Order
from coalloc.policies.orders.queue_orders import AGEING, KEYS, Traits, order_jobs
from coalloc.policies.registry import lookup

HOUR = 3600.0
TWO = Traits(
    procs=np.array([4.0, 9.0]),
    seconds=np.array([100.0, 10_000.0]),
    submitted=np.array([1000.0, 0.0]),
    waited=np.array([50.0, 20_000.0]),
)


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [
        ("f1", 2 * 4 + 870 * 3, 4 * 9),
        ("f2", 10 * 4 + 25_600 * 3, 100 * 9),
        ("f3", 100 * 4 + 6_860_000 * 3, 10_000 * 9),
        ("f4", 100 * 2 + 530_000 * 3, 10_000 * 3),
        ("wfp3", -(0.5**3) * 4, -(2**3) * 9),
        ("unicef", -50 / (2 * 100), -20_000 / (math.log2(9) * 10_000)),
        ("smallest-area", 400, 90_000),
    ],
)
def test_published_formulas(order: str, first: float, second: float) -> None:
    assert KEYS[order](TWO).tolist() == pytest.approx([first, second])


def test_every_form_of_easy_has_a_formula() -> None:
    assert set(get_args(Order)) == set(KEYS)
    assert set(AGEING) < set(get_args(Order))


@pytest.mark.parametrize("order", sorted(KEYS))
def test_equal_jobs_keep_arrival_order(order: str) -> None:
    same = np.full(5, 7.0)
    jobs = Traits(procs=same, seconds=same, submitted=same, waited=same)
    late = np.array([False, False, True, False, True])
    assert order_jobs(order, jobs).tolist() == [0, 1, 2, 3, 4]
    assert order_jobs(order, jobs, late).tolist() == [2, 4, 0, 1, 3]


def starts(queue: list[dict[str, Any]], now: float, policy: str, **given: Any) -> list[str]:
    """Jobs by start, one after the other on one slot."""
    snapshot = read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "time": now,
            "clusters": [{"name": "a", "nodes": [{"name": "a1"}]}],
            "queue": [{"kind": "rigid", "procs": 1, **job} for job in queue],
        }
    )
    row = lookup(policy)
    plan = row.solve(snapshot, read_options(given, row.options), Budget())
    return [p.job for p in sorted(plan.placements, key=lambda p: p.start)]


QUEUE = [
    {"id": "long", "base_time": 9 * HOUR, "submitted": 0.0},
    {"id": "begun", "base_time": 8 * HOUR, "submitted": 0.0, "earliest": 20 * HOUR},
    {"id": "middle", "base_time": 5 * HOUR, "submitted": 10 * HOUR},
    {"id": "short", "base_time": 1 * HOUR, "submitted": 23 * HOUR},
]


@pytest.mark.parametrize("policy", ["easy-spf", "easy-saf"])
def test_who_has_waited_a_day_goes_first(policy: str) -> None:
    """A job that had to wait for its begin time has not waited for us until then."""
    by_time = ["short", "middle", "begun", "long"]
    assert starts(QUEUE, 23.9 * HOUR, policy) == by_time
    assert starts(QUEUE, 24 * HOUR, policy) == ["long", *by_time[:-1]]
    assert starts(QUEUE, 24 * HOUR, policy, wait_limit=None) == by_time
    after = ["long", "middle", "short", "begun"]
    assert starts(QUEUE, 34 * HOUR, policy) == after
    assert starts(QUEUE, 24 * HOUR, policy, wait_limit=0) == ["long", "begun", "middle", "short"]


@pytest.mark.parametrize("policy", sorted(EASY_ORDERS))
def test_no_form_of_easy_is_kept_from_its_neighbours(policy: str) -> None:
    """Every form becomes another one by its options."""
    other = {"queue_order": "arrival", "backfill_order": "arrival"}
    assert starts(QUEUE, 24 * HOUR, policy, **other) == ["long", "begun", "middle", "short"]
    assert starts(QUEUE, 23 * HOUR, policy, queue_order="most", backfill_order="shortest")[0] == (
        "long"
    )
