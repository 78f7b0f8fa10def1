"""Readings of clusters, as the daemon takes them in."""

from __future__ import annotations

from itertools import chain

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.messages import Read
from coalloc.core.base.power import updated
from coalloc.core.base.state import State
from coalloc.core.clusters import native_jobs
from coalloc.core.jobs.avoided_nodes import forget_changed
from coalloc.core.jobs.twins import as_twin, reader_of, twins_of
from coalloc.core.starts import meetings, negotiation
from coalloc.core.starts.requeue import try_those_behind
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading

CLOCKS_COMPARED = 10
"""Messages by which clocks are compared: one that was late makes a clock look behind."""
OLD_READINGS_S = 15.0
"""For this long after a reading, older ones of another run of the executor are dropped; then it
was restarted with its clock set back."""


def taken_in(
    state: State, cluster: ClusterState, read: Read, now: float, read_by: str = ""
) -> None:
    """Use what an executor has read of its cluster, or note why it could not.

    `read_by`: the twin whose executor has read it, not its own.
    """
    if read.sent:
        cluster.clock_leads_s = (*cluster.clock_leads_s, read.sent - now)[-CLOCKS_COMPARED:]
    if read.reading is None:
        if not cluster.error:
            state.log("reading_failed", level="warning", cluster=read.cluster, why=read.error)
        cluster.error = read.error
        if not cluster.has_failed:
            cluster.has_failed = True
            closed(state, read.cluster)
        return
    if _is_late(cluster, read, now):
        return
    if clash := _clash(state, read.cluster, read.reading):
        if cluster.error != clash:
            state.log("reading_refused", level="error", cluster=read.cluster, why=clash)
        cluster.error = clash
        return
    was_stale = cluster.is_stale(now, state.settings.readings.max_age_s)
    before, reading = cluster.reading, read.reading
    if before is not None:
        _learn_runs(cluster, before, reading, now)
    _use(state, cluster, read, reading, now)
    cluster.read_by = read_by
    if before is not None:
        # Jobs that are not ours have started or ended, or fewer wait.
        was, is_now = {job.id for job in before.running}, {job.id for job in reading.running}
        has_moved = reading.waiting < before.waiting or was != is_now
        if has_moved or reading.waiting == 0:
            try_those_behind(state, read.cluster, now, has_moved=has_moved)
    is_crowded = reading.queues and reading.waiting > 0
    if is_crowded and state.pending.jobs and not (before and before.waiting):
        state.rounds.want("queue_moved")
    is_of_now = read.epoch in {0, state.epoch}
    native_jobs.taken_in(state, cluster, reading, now, is_of_now=is_of_now)
    if words := {w: n for w, n in reading.unknown.items() if w not in cluster.unknown}:
        cluster.unknown |= frozenset(words)  # each is logged once
        state.log("unknown_words_read", level="warning", cluster=reading.cluster, words=words)
    for notice in reading.notices:
        if before is None or notice not in before.notices:
            state.log("cluster_noticed", level="warning", cluster=read.cluster, what=notice)
    _say_way_in(state, before, reading)
    if was_stale and cluster.connected:
        slots = sum(node.slots for node in reading.nodes)
        state.log("cluster_returned", cluster=read.cluster, nodes=len(reading.nodes), slots=slots)
        state.rounds.happened("cluster_returned")
    elif before is not None and _usable(reading) - _usable(before):
        state.rounds.happened("cluster_returned")
    elif before is not None and len(before.running) > len(reading.running):
        state.rounds.happened("job_finished")
    for twin in twins_of(state, read.cluster) if not read_by else ():
        if reader_of(state, twin, now) == read.cluster and (own := state.clusters[twin].reading):
            told = Read(cluster=twin, reading=as_twin(state, reading, own), epoch=read.epoch)
            taken_in(state, state.clusters[twin], told, now, read_by=read.cluster)
    for record, parts in list(meetings.due(state, now)):
        negotiation.hasten(state, record, parts, now)


def _learn_runs(
    cluster: ClusterState, before: ClusterReading, after: ClusterReading, now: float
) -> None:
    """Learn how long local jobs run from those that are gone; of any one job, a tenth."""
    there = {work.id for work in after.running}
    for work in before.running:
        if not work.ours and work.id not in there:
            ran = max(0.0, now - work.start)
            cluster.run_s += (ran - cluster.run_s) * (0.1 if cluster.run_s else 1.0)


def closed(state: State, name: str) -> None:
    """Plan anew where the plan has next a job on a cluster that takes none now."""
    order = state.schedule.order
    if order is not None and order.on_cluster(state.node_cluster(), name):
        state.rounds.want("cluster_lost")


def _use(
    state: State, cluster: ClusterState, read: Read, reading: ClusterReading, now: float
) -> None:
    """Make a reading the one that counts, and forget what followed from other nodes and rules."""
    before = cluster.reading
    if before is None or before.nodes != reading.nodes:
        state.suitable.clear()
        cluster.openings.clear()
    if before is None or before.rules != reading.rules:
        state.suitable.clear()
        cluster.verdicts.clear()
        if before is not None:
            state.rounds.happened("cluster_returned")
    forget_changed(cluster, reading, now)
    cluster.reading, cluster.read_at = reading, now
    cluster.error, cluster.has_failed = "", False
    cluster.reading_at, cluster.reading_run = read.at, read.run
    if reading.waiting or any(not work.ours for work in reading.running):
        cluster.others_at = now
    power = state.settings.power
    cluster.powers = {
        node.name: updated(
            cluster.powers.get(node.name),
            node.power,
            step=power.step,
            hysteresis=power.hysteresis,
            smoothing=power.smoothing,
        )
        for node in reading.nodes
    }
    cluster.drained_nodes = {n.name for n in reading.nodes if n.name in state.maintenance.drained}


def _say_way_in(state: State, before: ClusterReading | None, now: ClusterReading) -> None:
    """Log how parts get in beside local jobs, and that they do not for a while, when it changes."""
    if now.way and (before is None or before.way != now.way):
        state.log("way_in_chosen", cluster=now.cluster, starts=now.way)
    paused = before.share.paused if before is not None and before.share is not None else ""
    why = now.share.paused if now.share is not None else ""
    if why and not paused:
        state.log("claims_paused", level="warning", cluster=now.cluster, why=why)
    elif paused and not why:
        state.log("claims_resumed", cluster=now.cluster)


def _is_late(cluster: ClusterState, read: Read, now: float) -> bool:
    """Older than the reading in use, or that one a second time."""
    if not 0.0 < read.at <= cluster.reading_at:
        return False
    same_clock = read.run != "" and read.run == cluster.reading_run
    return same_clock or now - cluster.read_at <= OLD_READINGS_S


def _clash(state: State, name: str, reading: ClusterReading) -> str:
    """Reason why a reading cannot be used beside those of the other clusters; empty if it can."""
    mine = {node.name for node in reading.nodes}
    held = (work.nodes for work in reading.running)
    kept = (each.nodes for each in reading.reservations)
    if alien := state.clusters[name].alien(chain(mine, *held, *kept)):
        return f"node {alien} is not named {name}/NODE (settings.qualified)"
    for other, cluster in state.clusters.items():
        if other != name and cluster.reading is not None:
            both = next((n.name for n in cluster.reading.nodes if n.name in mine), None)
            if both is not None:
                return f"node {both} is a node of {other} too; names must differ"
    return ""


def _usable(reading: ClusterReading) -> set[str]:
    return {node.name for node in reading.nodes if node.state is NodeState.UP}
