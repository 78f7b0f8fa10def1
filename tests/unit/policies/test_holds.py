"""The one reading of what running work holds, and that all planners go by it."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.model.snapshot import Running
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.explain.room import Room
from coalloc.policies.holds import holds, reserved
from coalloc.policies.registry import POLICIES
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, rigid, spans

NODE = [{"name": "a", "nodes": [{"name": "n", "slots": 3, "memory_mb": 100}]}]
TWO_SLOTS: list[dict[str, Any]] = [{"id": "r", "nodes": {"n": 2}, "start": 0.0, "end": 60.0}]
ONE_SLOT_TWICE = [{"id": r, "nodes": {"n": 1}, "start": 0.0, "end": 60.0} for r in ("r", "s")]


@pytest.mark.parametrize("running", [TWO_SLOTS, ONE_SLOT_TWICE])  # 66 MiB, and 33 twice
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_starts_what_fits_beside_running_work(
    name: str, running: list[dict[str, Any]]
) -> None:
    snapshot = case(NODE, [rigid("j", 1, 10.0, memory_mb_per_proc=34)], running)
    plan = planned(name, snapshot, Budget(work=500))
    assert spans(plan)["j"] == (0.0, 10.0)


@pytest.mark.parametrize("memory_mb", [12, 13])  # less than a slot's share, and more
@pytest.mark.parametrize("name", ["easy", "plain", "mbpc", "cbs", "oas"])
def test_what_rounding_leaves_is_memory_and_no_slot(name: str, memory_mb: int) -> None:
    """Six slots of 12.5 MiB each hold 72 MiB; two slots are left, and 28 MiB."""
    node = {"name": "n", "slots": 8, "memory_mb": 100}
    running = [{"id": f"r{k}", "nodes": {"n": 1}, "start": 0.0, "end": 60.0} for k in range(6)]
    queue = [rigid(k, 1, 10.0, memory_mb_per_proc=memory_mb) for k in range(4)]
    plan = planned(name, case([{"name": "a", "nodes": [node]}], queue, running))
    assert [start for start, _ in spans(plan).values()].count(0.0) == 2


def test_divisible_jobs_and_explanations_read_the_same() -> None:
    chunks = {"id": "d", "kind": "divisible", "work": 20.0, "chunk_s": 10.0}
    snapshot = case(NODE, [{**chunks, "memory_mb_per_proc": 34}], TWO_SLOTS)
    plan = planned("easy", snapshot)
    assert min(p.start for p in plan.placements) == 0.0
    room = Room(snapshot, snapshot.queue[0], (), 100.0)
    assert room.free(["n"], 0.0) == 1


def test_what_has_ended_or_lies_elsewhere_holds_nothing() -> None:
    running: list[dict[str, Any]] = [
        {"id": "ended", "nodes": {"n": 1}, "start": 0.0, "end": 5.0, "link_gbps": {"a": 0.5}},
        {"id": "runs", "nodes": {"n": 1, "gone": 2}, "start": 0.0, "end": 70.0},
        {"id": "loads", "nodes": {}, "start": 0.0, "end": 70.0, "link_gbps": {"a": 0.25, "x": 1.0}},
    ]
    known = tuple(Running(**fields) for fields in running)
    held = holds(replace(case(NODE, [], time=50.0, overrun_s=0.0), running=known))
    assert [(h.who, h.node, h.slots, h.memory_mb, h.end) for h in held.nodes] == [
        ("runs", "n", 1, 33, 70.0)
    ]
    assert [(h.who, h.cluster, h.gbps) for h in held.links] == [("loads", "a", 0.25)]


def test_reservations_are_numbered_by_node() -> None:
    kept = [
        {"id": "v", "nodes": ["n"], "start": 1.0, "end": 2.0},
        {"id": "w", "nodes": ["n"], "start": 3.0, "end": 4.0},
    ]
    assert reserved(case(NODE, [], reservations=kept).reservations) == {"n": (0, 1)}
