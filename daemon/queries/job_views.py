"""Answers to questions: queue, jobs, nodes, plan; read-only, from the core's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from coalloc.core import snapshots
from coalloc.core.occupation import occupation
from coalloc.core.pieces import Pool
from coalloc.core.records import JobRecord, JobState
from coalloc.core.state import State, arrival, procs_of
from coalloc.daemon.queries import workflow_views
from coalloc.daemon.store.records_json import record_object
from coalloc.model.job_json import write_job
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.nodeset import fold_in_order
from coalloc.model.plan import Reason
from coalloc.model.reading import ClusterReading
from coalloc.runtime.texts import instant

NODES_NAMED = 32


def queue_page(
    state: State, *, everything: bool, user: str, now: float, after: str, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Active jobs in arrival order, ended ones too where `everything` is asked for.

    Parameters
    ----------
    after : str
        Only jobs behind this one; empty: from the first on.
    limit : int
        At most so many rows.

    Returns
    -------
    rows : list
    more : bool
        There are others behind them.
    """
    rows: list[dict[str, Any]] = []
    for record in _behind(state, after):
        if (record.is_ended and not everything) or (user and record.user != user):
            continue
        if record.flow:
            continue  # The whole stands for it.
        if len(rows) >= limit:
            return rows, True
        rows.append(job_row(record, state, now))
    return rows, False


def _behind(state: State, after: str) -> Iterator[JobRecord]:
    """Jobs as they arrived, which is how the table of jobs grows, behind one of them."""
    records = iter(state.jobs.values())
    if after in state.jobs:
        for record in records:
            if record.id == after:
                break
        return records
    if not after:
        return records
    # it has been forgotten meanwhile
    key = arrival(after)
    return (record for record in records if arrival(record.id) > key)


def job_row(record: JobRecord, state: State, now: float) -> dict[str, Any]:
    """One line of the queue; a waiting job always has a reason, and a start where one is known."""
    start, reason, detail = expectation(record, state, now)
    nodes = {node: n for part in record.parts for node, n in part.nodes.items()}
    clusters = [part.cluster for part in record.parts]
    if record.id in state.flows:
        nodes, clusters = workflow_views.occupied(state.flows[record.id], state)
    job = record.job
    return {
        "id": record.id,
        "name": record.name,
        "user": record.user,
        "state": str(record.state),
        "procs": sum(nodes.values()) or procs_of(record),
        "max_procs": job.max_procs if isinstance(job, MoldableJob) else None,
        "submitted": record.submitted,
        "started": record.started,
        "ended": record.ended,
        "time_limit": job.time_limit,
        "start_estimate": start,
        "reason": reason,
        "detail": detail,
        "nodes": nodes,
        "clusters": clusters,
        "exit_code": record.exit_code,
        "skew_ms": None if record.skew_s is None else round(record.skew_s * 1e3, 3),
        "origin": record.origin,
        "foreign": record.foreign,
        "task": record.task,
        "progress": workflow_views.progress(record, state),
    }


def expectation(record: JobRecord, state: State, now: float) -> tuple[float | None, str, str]:
    """When a waiting job is expected to start, why it waits, and the same in words."""
    if record.is_placed and record.cancelled_by:
        return None, "cancelling", f"being ended: cancelled by {record.cancelled_by}"
    if record.id in state.flows and not record.is_waiting:
        return workflow_views.expectation(record, state)
    if not record.is_waiting:
        return None, record.reason, record.detail
    if record.task and record.flow in state.jobs:
        return workflow_views.task_expectation(record, state.jobs[record.flow], state)
    if record.state is JobState.HELD:
        return None, record.reason or "held", record.detail or "held until released"
    unmet = needs_text(record, state)
    outlook = state.outlook.get(record.id)
    start = None if outlook is None else outlook.start
    if record.id in state.aside:
        aside = state.aside[record.id]
        return None, aside.reason, aside.detail
    if unmet:
        return start, "dependency", f"waits for {unmet}"
    if record.not_before > now:
        return max(record.not_before, start or 0.0), "backing_off", record.detail
    if record.job.earliest > now:
        what = f"may not start before {instant(record.job.earliest)}"
        return max(record.job.earliest, start or 0.0), str(Reason.BEGIN_TIME), what
    if state.rounds.paused:
        return None, "rounds_paused", "an operator has paused the rounds"
    if outlook is None:
        if not any(c.connected for c in state.clusters.values()):
            return None, "unreachable", "no executor is connected"
        return None, "next_round", "not planned yet; the next round decides"
    if start is not None:
        return start, "planned", f"planned to start on {_folded(outlook.nodes)}"
    return None, outlook.reason, outlook.detail


def _folded(names: Collection[str]) -> str:
    """The nodes as a set; of many the first ones, since a page of the queue has 2,000 of these."""
    if len(names) <= NODES_NAMED:
        return fold_in_order(names)
    first = fold_in_order(islice(names, NODES_NAMED - 1))
    return f"{first} and {len(names) - NODES_NAMED + 1} more"


def _drained(names: Collection[str], reasons: Mapping[str, str]) -> str:
    """Clusters and nodes, those with the same reason as one set."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(reasons.get(name, ""), []).append(name)
    return ", ".join(
        _folded(same) + (f" ({reason})" if reason else "") for reason, same in alike.items()
    )


def needs_text(record: JobRecord, state: State) -> str:
    """What a waiting job waits for, each array with how many of its members are left."""
    left: dict[tuple[str, str], list[str]] = {}
    members: Counter[tuple[str, str]] = Counter()
    for kind, job in record.needs:
        key = kind, job.partition("_")[0]
        members[key] += 1
        if job in state.jobs and not state.jobs[job].is_ended:
            left.setdefault(key, []).append(job)
    return ", ".join(
        f"{kind}:{names[0]}"
        if members[kind, number] == 1
        else f"{kind}:{number} ({len(names)} of {members[kind, number]} left)"
        for (kind, number), names in left.items()
    )


def job_details(record: JobRecord, state: State, now: float) -> dict[str, Any]:
    """Everything known of a job but what it executes."""
    row = job_row(record, state, now)
    full = record_object(record)
    full["job"] = write_job(record.job)
    return {**full, **row, "sources": dict(record.sources)}


def _share_row(reading: ClusterReading | None) -> dict[str, Any] | None:
    return None if reading is None or reading.share is None else asdict(reading.share)


def node_rows(state: State, now: float) -> list[dict[str, Any]]:
    """Clusters with their nodes, free slots, power, load and link use."""
    view = occupation(state, now)
    snapshot_max_age = state.settings.reading_max_age_s
    rows = []
    for name, cluster in state.clusters.items():
        shown = snapshots.cluster_view(name, cluster, state, now)
        raw = {} if cluster.reading is None else {n.name: n for n in cluster.reading.nodes}
        capacity = cluster.settings.link_gbps
        used = 0.0
        for record in state.placed_records():
            used += record.link_gbps.get(name, 0.0)
        rows.append(
            {
                "cluster": name,
                "stale": cluster.is_stale(now, snapshot_max_age),
                "connected": cluster.connected,
                "drained": cluster.drained,
                "drain_reason": state.drained.get(name, "") if cluster.drained else "",
                "error": cluster.error or ("" if cluster.configured else "no longer configured"),
                "age_s": None if cluster.reading is None else now - cluster.read_at,
                "link_gbps": None if capacity == float("inf") else capacity,
                "link_used_gbps": used,
                "waiting_there": 0 if cluster.reading is None else cluster.reading.waiting,
                "way": "" if cluster.reading is None else cluster.reading.way,
                "share": _share_row(cluster.reading),
                "nodes": [
                    {
                        "name": node.name,
                        "state": str(node.state),
                        "slots": node.slots,
                        "free": max(0, view.free.get(node.name, 0)),
                        "power": node.power,
                        "raw_power": raw[node.name].power,
                        "load": raw[node.name].load,
                        "load_age_s": raw[node.name].load_age_s + max(0.0, now - cluster.read_at),
                        "reason": state.drained.get(node.name)
                        or raw[node.name].reason
                        or snapshots.weakness(cluster, raw[node.name]),
                        "features": list(node.features),
                        "memory_mb": node.memory_mb,
                    }
                    for node in shown.nodes
                ],
            }
        )
    return rows


def why(record: JobRecord, state: State, now: float) -> dict[str, Any]:
    """What keeps a job from starting, with the figures behind it."""
    start, reason, detail = expectation(record, state, now)
    facts: list[str] = []
    pool = state.flows.get(record.id)
    if isinstance(pool, Pool):
        facts.append(
            f"{pool.left(now)} of {pool.total} chunks are to be placed, on slots that the other "
            f"jobs leave idle; free now: {_free(state, now)}"
        )
    elif record.is_waiting:
        view = occupation(state, now)
        facts.append(f"asks for {procs_of(record)} processes; free now: {_free(state, now)}")
        job = record.job
        if isinstance(job, RigidJob | MoldableJob) and job.proc_gbps:
            facts.append(
                f"{job.proc_gbps:g} Gbit/s per process; links left: "
                + ", ".join(f"{name} {left:g}" for name, left in view.link_free.items())
            )
        ahead = sum(
            1
            for other in state.waiting
            if arrival(other) < arrival(record.id) and other != record.id
        )
        passed = state.passed_over.get(record.id, 0)
        facts.append(f"{ahead} waiting jobs arrived before it; passed over {passed} times")
    stale = [
        n for n, c in state.clusters.items() if c.is_stale(now, state.settings.reading_max_age_s)
    ]
    if stale and record.is_waiting:
        facts.append(f"not counted, because unreachable: {', '.join(stale)}")
    drained = [name for name, c in state.clusters.items() if c.drained]
    for cluster in state.clusters.values():
        drained += [] if cluster.drained else sorted(cluster.drained_nodes)
    if drained and record.is_waiting:
        facts.append(f"not counted, because drained: {_drained(drained, state.drained)}")
    return {
        "job": record.id,
        "state": str(record.state),
        "reason": reason,
        "detail": detail,
        "start_estimate": start,
        "facts": facts,
        "lines": [],
        "explanation": None,
        "unexplained": "",
    }


def _free(state: State, now: float) -> str:
    """Free slots of each cluster."""
    view = occupation(state, now)
    free = dict.fromkeys(state.clusters, 0)
    for node, count in view.free.items():
        free[view.cluster_of[node]] += max(0, count)
    return ", ".join(f"{name} {count}" for name, count in free.items())


def running_rows(state: State, now: float) -> list[dict[str, Any]]:
    """What occupies nodes now: our jobs, tasks and pieces, and the batch systems' own jobs."""
    rows: list[dict[str, Any]] = []
    snapshot = snapshots.snapshot(state, now)
    for running in snapshot.running:
        record = state.jobs.get(running.id)
        rows.append(
            {
                "job": record.flow if record is not None and record.flow else running.id,
                "task": (record.task or None) if record is not None else None,
                "start": running.start,
                "end": running.busy_until(now, snapshot.overrun_s),
                "nodes": dict(running.nodes),
            }
        )
    return rows


def plan_view(state: State) -> Mapping[str, Any]:
    """The newest plan as it was written."""
    from coalloc.model.plan_json import write_plan

    if state.plan is None:
        return {}
    return {"round": state.last_round, "time": state.plan_time, "plan": write_plan(state.plan)}
