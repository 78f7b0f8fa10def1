"""Replay a workload on a platform under one policy; see `streaming` and `general`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Literal

import numpy as np

from coalloc.adapters.formats.platforms import Platform
from coalloc.core.base.effects import Solve
from coalloc.model.errors import InputError
from coalloc.model.plan import Plan, Reason
from coalloc.model.values import replace
from coalloc.policies.array_types import entries, firsts
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.simulation.flow_runs import runs_of
from coalloc.simulation.general import NO_SHARES, GeneralResult, Solver, replay_general
from coalloc.simulation.streaming import StreamResult, can_stream, replay_streaming
from coalloc.simulation.trace import Outcome, Trace
from coalloc.simulation.workload import Floats, Ints, SlotMap, Workload, map_slots

Path = Literal["auto", "stream", "general"]


def replay(
    workload: Workload,
    platform: Platform,
    policy: str,
    options: Mapping[str, Any] | None = None,
    *,
    path: Path = "auto",
    work: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
    sharing: Mapping[str, Any] = NO_SHARES,
    by_weight: bool = False,
) -> Trace:
    """Replay a workload under a policy of the registry; ``stats`` holds the seconds it took.

    The path is ``stream``, ``general``, or ``auto``: the first one where it can follow the policy.
    On the general path, `work` and `seed` are of every call of the policy; with shares or limits of
    users, it is always taken; so it is where the queue goes by weight in place of arrival. Progress
    is the number of jobs that have ended or were refused.

    Raises `InputError` if there is no such policy or option, or the chosen path cannot follow them.
    """
    complete = read_options(options or {}, lookup(policy).options)
    slot_map = map_slots(platform)
    streamed = (
        can_stream(policy, complete)
        and workload.is_rigid
        and not workload.needs_counting
        and not sharing
        and not by_weight
    )
    if path == "stream" and not streamed:
        what = "jobs that need more than slots" if workload.needs_counting else "these options"
        if not workload.is_rigid:
            flows = any(logged.flow is not None for logged in workload.jobs)
            what = "workflows" if flows else "moldable jobs"
        raise InputError("--path", f"{policy} with {what} needs the general path")
    began = time.perf_counter()
    if streamed and path != "general":
        found = replay_streaming(workload, slot_map, policy, complete, on_progress)
        return _from_stream(workload, slot_map, policy, found, time.perf_counter() - began)
    budget = Budget(work=work, seed=seed, live=True, bounds=False)
    solve = _solver(policy, complete, budget, by_weight)
    result = replay_general(workload, slot_map, solve, on_progress, policy, sharing)
    return _from_general(workload, slot_map, policy, result, time.perf_counter() - began)


def _solver(policy: str, options: Mapping[str, Any], budget: Budget, by_weight: bool) -> Solver:
    """The policy as the general path calls it, with what the core asks of each round."""

    def solve(asked: Solve) -> Plan:
        snapshot = asked.snapshot
        if by_weight:
            queue = sorted(snapshot.queue, key=lambda job: -job.weight)
            snapshot = replace(snapshot, queue=tuple(queue))
        told = replace(budget, notes=asked.notes, history=asked.history)
        return lookup(policy).solve(snapshot, options, told)

    return solve


def _from_stream(
    workload: Workload, slot_map: SlotMap, policy: str, found: StreamResult, elapsed_s: float
) -> Trace:
    from coalloc.policies.kernel.profiles.stream_state import DEEPEST, INSTANTS

    count, log, out = len(workload.jobs), found.log, found.out
    start, end = np.full(count, np.nan), np.full(count, np.nan)
    start[found.index], end[found.index] = log.start, log.end
    killed = np.array([logged.killed for logged in workload.jobs], np.bool_)
    outcome = np.where(killed, Outcome.KILLED, Outcome.COMPLETED).astype(np.int8)
    outcome[np.isnan(start)] = Outcome.WAITING
    waiting = np.flatnonzero(outcome == Outcome.WAITING).tolist()
    reasons = dict.fromkeys(waiting, "no instant had room for it")
    for i, (reason, detail) in found.reasons.items():
        # The other reason is that nodes are down: the job waits for ever.
        if reason is Reason.INFEASIBLE:
            outcome[i] = Outcome.REFUSED
        reasons[i] = detail
    use_first, use_count = np.zeros(count, np.int64), np.zeros(count, np.int64)
    use_first[found.index] = out.use_first
    use_count[found.index] = np.where(np.isnan(log.start), 0, out.use_count)
    nodes = slot_map.node_first
    classes = [
        np.concatenate([np.arange(nodes[n], nodes[n + 1]) for n in members])
        for members in found.class_nodes
    ]
    return Trace(
        workload=workload,
        slot_map=slot_map,
        policy=policy,
        path="stream",
        start=start,
        end=end,
        outcome=outcome,
        **_slots(start, end, use_first, use_count, out.use_class, out.use_procs, classes),
        reasons=reasons,
        stats={
            "elapsed_s": elapsed_s,
            "instants": int(log.counts[INSTANTS]),
            "longest_queue": int(log.counts[DEEPEST]),
        },
    )


def _from_general(
    workload: Workload, slot_map: SlotMap, policy: str, result: GeneralResult, elapsed_s: float
) -> Trace:
    outcome = np.array(result.outcome, np.int8)
    ran = outcome <= Outcome.KILLED
    start = np.where(ran, np.array(result.start), np.nan)
    end = np.where(ran, np.array(result.end), np.nan)
    number = {name: n for n, name in enumerate(slot_map.node_names)}
    counts = np.array([len(nodes) for nodes in result.nodes], np.int64)
    use_node = np.array([number[n] for nodes in result.nodes for n in nodes], np.int64)
    use_slots = np.array([c for nodes in result.nodes for c in nodes.values()], np.int64)
    nodes = [
        np.arange(slot_map.node_first[n], slot_map.node_first[n + 1]) for n in range(len(number))
    ]
    return Trace(
        workload=runs_of(workload),
        slot_map=slot_map,
        policy=policy,
        path="general",
        start=start,
        end=end,
        outcome=outcome,
        **_slots(start, end, np.cumsum(counts) - counts, counts, use_node, use_slots, nodes),
        reasons=result.reasons,
        stats={"elapsed_s": elapsed_s, "rounds": result.rounds},
        start_errors=result.start_errors,
    )


def _slots(
    start: Floats,
    end: Floats,
    use_first: Ints,
    use_count: Ints,
    use_class: Ints,
    use_slots: Ints,
    classes: list[Ints],
) -> dict[str, Any]:
    """Number the slots of every job, the lowest that are free: ranges, as `Trace` has them."""
    from coalloc.policies.kernel.instance.node_choice import Bookings, NodeUses, Uses, lay

    jobs, ran = len(start), np.flatnonzero(~np.isnan(start))
    order = ran[np.argsort(start[ran], kind="stable")]
    until = np.where(np.isnan(end), inf, end)
    slots = np.concatenate([*classes, np.zeros(0, np.int64)]).astype(np.int64)
    sizes = use_slots[entries(use_first[order], use_count[order])]
    asks = np.stack((use_first, use_count), axis=1)
    span, room = np.zeros((jobs, 2), np.int64), int(sizes.sum())
    number, units, procs = (np.zeros(room, np.int64) for _ in range(3))
    lay(
        order,
        Uses(asks, use_class, use_slots, np.ones_like(use_slots)),
        Bookings(start, until, np.zeros((0, 2), np.int64), np.argsort(until, kind="stable")),
        firsts([len(mine) for mine in classes]),
        np.ones_like(slots),
        np.zeros(2, np.int64),
        np.zeros(4, np.int64),
        NodeUses(span, number, units, procs),
    )
    given = span[order, 1] - span[order, 0]
    asked = np.bincount(np.repeat(np.arange(order.size), use_count[order]), sizes, order.size)
    if (given < asked).any():
        job = order[given < asked][0]
        raise AssertionError(f"more slots in use than exist when job number {job} starts")
    taken = slots[number]
    begins = np.diff(taken, prepend=-2) != 1
    begins[np.cumsum(sizes) - sizes] = True  # no range crosses a class
    whose = np.repeat(order, given)[begins]
    by_job = np.argsort(whose, kind="stable")
    ends = np.append(begins[1:], True)[: taken.size]
    low, high = taken[begins], taken[ends] + 1
    return {
        "first": firsts(np.bincount(whose, minlength=jobs)),
        "low": low[by_job],
        "high": high[by_job],
    }
