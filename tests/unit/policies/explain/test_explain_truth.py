"""What an explanation says is true: the changed snapshot, planned again, does what was said.

Changes are made here to the JSON of the snapshot, and solved by the policy of the registry: nothing
of the code under test takes part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.explain.explain import explain_plan
from coalloc.policies.explain.explanation import Explanation, write_explanation
from coalloc.policies.explain.rule import start_order
from coalloc.policies.explain.words import lines
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_known, read_options
from coalloc.policies.registry import POLICIES
from tests.support.snapshots import snapshots

POLICY_NAMES = ("fcfs", "sjf", "fpfs", "easy", "conservative", "plain")
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "coallocation": st.sampled_from(["sooner", "needed", "forbidden"]),
        "guard_after": st.sampled_from([0, 5]),
        "power_step": st.sampled_from([0.0, 0.3]),
        "skip": st.booleans(),
    },
)


NEAR = st.just(0.0)
"""What is said is looked for again within 1e-6 s, with 1e9 s as a late end: on a small clock."""


def solved(name: str, snapshot: Snapshot, options: Mapping[str, Any]) -> Plan:
    return POLICIES[name].solve(snapshot, read_known(options, POLICIES[name].options), Budget())


NEVER = 1e9
"""When the node that a change adds for one job is open to the others too, seconds."""


def span(plan: Plan, job: str) -> tuple[float, float] | None:
    mine = [p for p in plan.placements if p.job == job]
    if not mine or any(d.job == job for d in plan.deferred):
        return None
    if any(p.start >= NEVER for p in mine):
        return None
    return min(p.start for p in mine), max(p.end for p in mine)


def changed(
    snapshot: Snapshot, options: dict[str, Any], job: str, changes: Iterable[Mapping[str, Any]]
) -> tuple[Snapshot, dict[str, Any]]:
    """The snapshot and the options after the changes, edited as text would be."""
    body = write_snapshot(snapshot)
    options = dict(options)
    for change in changes:
        edit(body, options, job, change)
    return read_snapshot(body), options


def edit(
    body: dict[str, Any], options: dict[str, Any], job: str, change: Mapping[str, Any]
) -> None:
    mine = next(entry for entry in body["queue"] if entry["id"] == job)
    if not edit_job(mine, body["time"], change) and not edit_site(body, change):
        match change["kind"]:
            case "split":
                options["coallocation"] = "sooner"
                if mine["kind"] == "moldable" and mine.get("proc_gbps") is None:
                    mine["proc_gbps"] = 0.0
            case "slots":
                add_slots(body, mine, change)
            case kind:
                pytest.fail(f"unknown change {kind}")


def edit_job(mine: dict[str, Any], now: float, change: Mapping[str, Any]) -> bool:
    """Change what the job itself asks for; False where that is not the change."""
    names, after = change["names"], change["after"]
    match change["kind"]:
        case "release":
            mine["held"] = False
        case "dependency":
            mine["after"] = []
        case "tasks":
            for one in mine["started"]:
                if one["task"] in names:
                    one["end"] = now
        case "earliest":
            mine["earliest"] = now
        case "procs" if mine["kind"] == "rigid":
            mine["base_time"] *= mine["procs"] / after
            mine["procs"] = int(after)
        case "procs":
            fewer_moldable(mine, int(after))
        case "memory":
            mine["memory_mb_per_proc"] = int(after)
        case "features":
            mine["features"] = [f for f in mine["features"] if f not in names]
        case "clusters":
            mine["clusters"] = [*mine["clusters"], *names]
        case "bandwidth":
            mine["proc_gbps"] = after
        case _:
            return False
    return True


def edit_site(body: dict[str, Any], change: Mapping[str, Any]) -> bool:
    """Change what is around the job; False where that is not the change."""
    names = change["names"]
    clusters = {cluster["name"]: cluster for cluster in body["clusters"]}
    match change["kind"]:
        case "link":
            for name in names:
                clusters[name]["link_gbps"] = None
        case "order":
            for other in body["queue"]:
                if other["id"] in names:
                    other["held"] = True
        case "running":
            body["running"] = [r for r in body["running"] if r["id"] not in names]
        case "reachable":
            for name in names:
                clusters[name]["stale"] = False
        case "nodes":
            for cluster in body["clusters"]:
                for node in cluster["nodes"]:
                    if node["name"] in names:
                        node.update(state="up", free_at=body["time"])
        case "reservation":
            body["reservations"] = [r for r in body["reservations"] if r["id"] not in names]
        case _:
            return False
    return True


def add_slots(body: dict[str, Any], mine: Mapping[str, Any], change: Mapping[str, Any]) -> None:
    """Add a node that only this job may have."""
    node = {
        "name": "own",
        "power": change["power"],
        "slots": int(change["after"]),
        "features": mine.get("features", []),
    }
    cluster = next(c for c in body["clusters"] if c["name"] == change["names"][0])
    cluster["nodes"].append(node)
    own = {"id": "own", "nodes": ["own"], "start": body["time"], "jobs": [mine["id"]]}
    body.setdefault("reservations", []).append({**own, "end": NEVER})


def fewer_moldable(mine: dict[str, Any], count: int) -> None:
    if mine.get("speedup", {}).get("model", "table") == "table":
        table = mine.get("speedup") or {
            "model": "table",
            "procs": list(range(1, len(mine["times"]) + 1)),
            "times": mine.pop("times"),
        }
        kept = [(p, t) for p, t in zip(table["procs"], table["times"], strict=True) if p <= count]
        mine["speedup"] = {**table, "procs": [p for p, _ in kept], "times": [t for _, t in kept]}
        mine.pop("min_procs", None)
        mine.pop("max_procs", None)
        return
    mine["min_procs"] = min(mine["min_procs"], count)
    mine["max_procs"] = count


def assert_true(
    explanation: Explanation, snapshot: Snapshot, name: str, options: dict[str, Any]
) -> None:
    """Solve each change again, and compare with what was said."""
    body = write_explanation(explanation)
    job = explanation.job
    said: list[tuple[Any, float, float, bool]] = []
    for constraint in body["constraints"]:
        if body["several"]:
            assert constraint["start"] is None
            alone = changed(snapshot, options, job, [constraint["change"]])
            found = span(solved(name, *alone), job)
            end = explanation.end
            assert found is None or (end is not None and found[1] >= end - 1e-3), (found, body)
        else:
            change = [constraint["change"]]
            said.append((change, constraint["start"], constraint["end"], True))
    if body["several"]:
        assert len(body["constraints"]) > 1
        together = [c["change"] for c in body["constraints"]]
        found = span(solved(name, *changed(snapshot, options, job, together)), job)
        assert found is not None
        assert explanation.end is None or found[1] < explanation.end
    if what := body["counterfactual"]:
        earlier = not any(c["kind"] == "procs" for c in what["changes"])
        said.append((what["changes"], what["start"], what["end"], earlier))
    for change, start, end, earlier in said:
        after, new = changed(snapshot, options, job, change)
        plan = solved(name, after, new)
        assert check(after, plan).violations == ()
        assert span(plan, job) == pytest.approx((start, end), abs=1e-6), change
        if explanation.end is not None and explanation.start is not None:
            assert end < explanation.end if earlier else start < explanation.start


def assert_explained(name: str, snapshot: Snapshot, options: dict[str, Any]) -> None:
    plan = solved(name, snapshot, options)
    for job in snapshot.queue:
        explanation = explain_plan(snapshot, plan, job.id)
        timing = span(plan, job.id)
        assert (explanation.start, explanation.end) == (timing or (None, None))
        assert explanation.complete
        assert all(line.isprintable() for line in lines(explanation, snapshot))
        assert_true(explanation, snapshot, name, dict(plan.options) or options)


@settings(max_examples=50)
@given(snapshot=snapshots(most=5, clocks=NEAR), name=st.sampled_from(POLICY_NAMES), options=OPTIONS)
def test_what_is_said_holds(name: str, snapshot: Snapshot, options: dict[str, Any]) -> None:
    assert_explained(name, snapshot, options)


@pytest.mark.nightly
@pytest.mark.parametrize("name", POLICY_NAMES)
@settings(max_examples=500)
@given(snapshot=snapshots(clocks=NEAR), options=OPTIONS)
def test_what_is_said_holds_of_many(name: str, snapshot: Snapshot, options: dict[str, Any]) -> None:
    assert_explained(name, snapshot, options)


@settings(max_examples=20)
@given(snapshot=snapshots(most=6, clocks=NEAR))
def test_of_another_policy_the_order_is_kept(snapshot: Snapshot) -> None:
    """A policy without a rule of its own: its order of starts, each job at its earliest fit."""
    options = read_options({}, POLICIES["conservative"].options)
    plan = solved("lpt", snapshot, {"skip": True})
    plan = Plan(
        policy="searched",
        status=plan.status,
        objective=plan.objective,
        placements=plan.placements,
        deferred=plan.deferred,
        options=options,
    )
    order = {job: n for n, job in enumerate(start_order(plan.placements))}
    for job in snapshot.queue:
        explanation = explain_plan(snapshot, plan, job.id)
        what = write_explanation(explanation)["counterfactual"]
        if what is None:
            continue
        after, new = changed(snapshot, options, job.id, what["changes"])
        planner = Planner(after, new)
        items = range(len(planner.items))
        rank = sorted(items, key=lambda n: order.get(planner.items[n].job.id, len(order)))
        again = planner.plan(planner.decode(rank, "insert"), "again")
        assert span(again, job.id) == pytest.approx((what["start"], what["end"]), abs=1e-6)
