"""Extremes that the formats admit, together, at wall-clock time and far from it."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from coalloc.model import ranges
from coalloc.model.errors import InputError
from coalloc.model.formats.job_json import read_job
from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.jobs import DivisibleJob
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check, jobs_named
from coalloc.policies.divisible.filling import Gaps
from coalloc.policies.halving import largest_refuted
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES

TODAY = 1795300000.123
SHORT, LONG = ranges.SPAN.low, ranges.SPAN.high
SIMPLE = ("fcfs", "spt", "lpt", "easy", "conservative", "auto", "oas-balanced", "list-saf", "plain")
MOLDABLE = ("gang", "demt", "two-shelf", "bicriteria-batch", "list-shelf")
FLOW = ("m-heft", "mca-heft", "hcpa", "workflow")


def node(name: str, slots: int = 1, power: float = 1.0) -> dict[str, Any]:
    return {"name": name, "slots": slots, "power": power}


def rigid(name: str, procs: int, base_time: float, **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "rigid", "procs": procs, "base_time": base_time, **more}


def flow(name: str, *works: float, **more: Any) -> dict[str, Any]:
    tasks = [{"id": f"t{n}", "work": work, "max_procs": 4} for n, work in enumerate(works)]
    edges = [{"from": f"t{n}", "to": f"t{n + 1}"} for n in range(len(works) - 1)]
    return {"id": name, "kind": "workflow", "tasks": tasks, "edges": edges, **more}


def snapshot_of(
    nodes: list[dict[str, Any]], queue: list[dict[str, Any]], time: float = TODAY, **more: Any
) -> Snapshot:
    clusters = [{"name": "a", "nodes": nodes}]
    head = {"format": "coalloc-snapshot/1", "time": time, "clusters": clusters, "queue": queue}
    return read_snapshot(json.loads(json.dumps({**head, **more})))


WEAK = ranges.POWER.low
FOUND: dict[str, tuple[tuple[str, ...], Snapshot]] = {
    # Nothing told the second job from no job at all where the first one ends.
    "short after long": (
        SIMPLE,
        snapshot_of(
            [node(f"n{i}", 4, WEAK) for i in range(4)],
            [rigid("1", 12, LONG), rigid("2", 9, SHORT), rigid("3", 8, 100.0)],
        ),
    ),
    "zero work after the longest": (
        (*SIMPLE, *FLOW),
        snapshot_of(
            [node("n1", 2, WEAK), node("n2", 2, 1.0)],
            [flow("1", ranges.WORK.high, 0.0, SHORT), flow("2", 0.0, 1.0), rigid("3", 4, 33.3)],
        ),
    ),
    "moldable beside an earlier and a later age": (
        (*SIMPLE, *MOLDABLE),
        snapshot_of(
            [node("n1", 8)],
            [
                {"id": "1", "kind": "moldable", "times": [LONG, LONG / 2, SHORT]},
                {"id": "2", "kind": "moldable", "times": [LONG] * 4, "weight": ranges.WEIGHT.high},
                {"id": "3", "kind": "moldable", "times": [SHORT] * 8, "weight": ranges.WEIGHT.low},
                rigid("4", 8, LONG, sigma=ranges.SHARE.low),
                rigid("5", 3, 0.1),
            ],
            time=ranges.INSTANT.high,
        ),
    ),
    # Chunks that are shorter than the distance of neighbouring times after the long job.
    "chunks after a long job": (
        (*SIMPLE, *MOLDABLE),
        snapshot_of(
            [node("n1"), node("n2", 4, WEAK)],
            [
                rigid("1", 4, LONG),
                {
                    "id": "2",
                    "kind": "divisible",
                    "work": 3 * SHORT,
                    "chunk_s": SHORT,
                    "after": ["1"],
                },
                {"id": "3", "kind": "divisible", "work": 7.5, "chunk_s": 1.0, "after": ["1"]},
            ],
        ),
    ),
}


@pytest.mark.parametrize(
    ("case", "name"), [(case, name) for case, (names, _) in FOUND.items() for name in names]
)
def test_extremes_together_are_planned_as_the_checker_wants(case: str, name: str) -> None:
    snapshot = FOUND[case][1]
    policy = POLICIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = policy.solve(snapshot, read_options({}, policy.options), Budget(work=50))
    again = read_plan(json.loads(json.dumps(write_plan(plan), default=lambda value: value.item())))
    assert check(snapshot, again).violations == ()


REFUSED = [
    ({"base_time": 1e12}, "job.base_time: 1e+12 is outside 1e-06..1e+09"),
    ({"base_time": 1e-9}, "job.base_time: 1e-09 is outside 1e-06..1e+09"),
    ({"time_limit": 1e-300}, "job.time_limit: 1e-300 is outside 1e-06..1e+09"),
    ({"weight": 1e-300}, "job.weight: 1e-300 is neither 0 nor in 1e-06..1e+09"),
    ({"sigma": 1e-300}, "job.sigma: 1e-300 is neither 0 nor in 1e-12..1"),
    ({"proc_gbps": 1e12}, "job.proc_gbps: 1e+12 is outside 0..1e+09"),
    ({"earliest": 1e12}, "job.earliest: 1e+12 is outside -1e+10..1e+10"),
    ({"memory_mb_per_proc": 10**13}, "job.memory_mb_per_proc: 10000000000000 is outside 0..1e+12"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_an_amount_outside_its_range_is_refused_with_the_range(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        read_job({**rigid("1", 1, 1.0), **fields}, "job", TODAY)
    assert str(error.value) == message


def test_halving_ends_between_neighbours_and_where_everything_is_refuted() -> None:
    tiny = 5e-324
    assert largest_refuted(tiny, 1e-7, lambda guess: guess < 1e-9) < 1e-9
    assert largest_refuted(1.0, 0.0, lambda guess: guess < 1.5) < 1.5
    assert largest_refuted(1.0, 1e-7, lambda guess: True) > 1e300


def test_chunks_shorter_than_neighbouring_times_are_all_dealt() -> None:
    job = DivisibleJob(id="1", work=3e-6, chunk_s=1e-6, earliest=1e15)
    snapshot = snapshot_of([node("n1", 3)], [])
    from coalloc.policies.divisible.idle import Idle

    idle = Idle(snapshot)
    gaps = Gaps(idle, idle.gaps(job, 1e15), job)
    counts = gaps.chosen(1000)
    assert counts is not None
    assert int(counts.sum()) == 1000


def test_the_jobs_that_violations_name_are_found() -> None:
    snapshot = snapshot_of([node("n1", 3)], [rigid(name, 1, 1.0) for name in ("1", "2", "17_3")])
    lines = ("job 17_3: has no node", "node n1: 4 processes on 3 slots at 5 s (job 1, job 9)")
    assert jobs_named(snapshot, lines) == ("1", "17_3")
