"""Executors' presence: which one speaks for each cluster, and what it has carried out.

An executor is connected from the *hello* that admits it until it says goodbye or the shell has not
heard of it for too long. Only the connection that said this hello is believed; others are asked to
say hello themselves.

An executor's state has an identity, made with its folder and said in every *hello*. Unreachable is
not ended, and unknown is not failed; but an executor that speaks for a cluster with a state of
another identity, while the former is silent, is evidence: what it does not know of, nobody follows
any more, and nobody will ever say how it ended. Those parts are lost.

While the former may still be there, the other one is not welcomed: no orders go to it, and nothing
is concluded from what it says. It is turned away as long as the former is connected, and waits for
a while after a silence or a restart.
"""

from __future__ import annotations

from collections.abc import Hashable

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.effects import (
    AskHello,
    DropOrders,
    ResendOrders,
    SaveMeta,
    SendWelcome,
    TurnAway,
)
from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Goodbye, Hello, Read, Report, Staged, Started, Statement
from coalloc.core.base.state import State
from coalloc.core.clusters import readings
from coalloc.core.jobs import after_restore
from coalloc.core.starts import requeue as requeueing
from coalloc.core.starts import rivals, siblings, staging
from coalloc.core.starts import two_phase as starting
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.parts import PartReport

TAKEOVER_S = 15.0
"""For so long after the former was heard last, or after a start, another one waits, seconds."""
MARK = "executor."
"""Before a cluster's name: the key under which the store has its executor's identity."""
DETAIL = "its executor has lost its state, and does not know it any more"
GATHERING_S = 5.0
"""After a start, rounds wait no longer than this for clusters that were here before, seconds."""
SECOND = "another executor, with a state of its own, speaks for this cluster"
STALLED_S = 3.0
"""An executor that says for this long that it is at the same order is sent the newest again."""
UNKNOWN_CLUSTERS_NAMED = 100


def stated(state: State, event: StatementReceived, now: float) -> None:
    """Take in a statement, if it comes from the executor that speaks for its cluster."""
    statement, name = event.statement, event.statement.cluster
    cluster = state.clusters.get(name)
    if cluster is None:
        unknown = state.presence.unknown
        if name not in unknown and len(unknown) < UNKNOWN_CLUSTERS_NAMED:
            unknown.add(name)
            state.log("unknown_cluster_spoke", level="warning", cluster=name)
        return
    if isinstance(statement, Hello):
        _greeted(state, cluster, statement, event.peer, now)
    else:
        if not cluster.connected or event.peer != cluster.peer:
            # It has not noticed that this is a new daemon, that it was given up as silent, or that
            # its connection is another one.
            state.out.append(AskHello(cluster=name, peer=event.peer))
        if cluster.connected and event.peer != cluster.peer:
            return
        _informed(state, cluster, statement, now)
    if cluster.connected and event.peer == cluster.peer:
        cluster.heard_at = now


def is_gathering(state: State, now: float) -> bool:
    """Test if clusters that were here before the daemon started have yet to be heard of.

    Whoever connects first would get all the jobs.
    """
    return now < state.presence.gathers_until and any(
        cluster.configured and cluster.identity and not cluster.drained and cluster.reading is None
        for cluster in state.clusters.values()
    )


def _informed(state: State, cluster: ClusterState, statement: Statement, now: float) -> None:
    match statement:
        case Report():
            if cluster.connected:  # Else it may be another executor's, with numbers of its own.
                _acked(state, cluster, statement.cluster, statement.last_seq)
            _behind(state, cluster, statement, now)
            for report in statement.parts:
                starting.reported(state, statement.cluster, report, now)
            requeueing.settle_packs(state, now)
            staging.begin(state, statement.cluster)
            if cluster.connected and statement.last_seq >= cluster.acked_seq:
                after_restore.release_claims(state, statement)
        case Read():
            readings.taken_in(state, cluster, statement, now)
            for record, where in rivals.yielding(state, now):
                why = "gives way to a job of another service, which waits for its nodes"
                requeueing.give_back(state, record, now, where, requeueing.GAVE_WAY, why)
        case Started():
            after_restore.recalled(state, statement, now)
        case Staged():
            cluster.stages = {each.job: each for each in statement.stages}
            for each in statement.stages:
                staging.taken_in(state, statement.cluster, each, now)
        case Goodbye():
            lost(state, statement.cluster, now, "executor stopped")


def _greeted(state: State, cluster: ClusterState, hello: Hello, peer: Hashable, now: float) -> None:
    if not _is_admitted(state, cluster, hello, now):
        if cluster.connected:
            state.out.append(TurnAway(cluster=hello.cluster, peer=peer, why=SECOND))
        return
    missing = taken_over(state, cluster, hello, now)
    if not cluster.connected:
        state.log("executor_connected", cluster=hello.cluster, parts=len(hello.parts))
        state.emit(now, EventKind.EXECUTOR_CONNECTED, cluster=hello.cluster)
    was_stale = cluster.is_stale(now, state.settings.readings.max_age_s)
    cluster.connected, cluster.peer = True, peer
    cluster.version, cluster.abilities = hello.version, frozenset(hello.abilities)
    if was_stale and not cluster.is_stale(now, state.settings.readings.max_age_s):
        # It was read while its executor was not known to be there; no other reading tells.
        state.rounds.happened("cluster_returned")
    if hello.store == state.store:
        if hello.last_seq >= cluster.next_seq:
            starting.skip_numbers(state, hello.cluster, hello.last_seq)
        _acked(state, cluster, hello.cluster, hello.last_seq)
    is_restored = hello.cluster in state.presence.unreconciled
    if is_restored:
        missing = after_restore.reconcile(state, hello)
    base = cluster.acked_seq + 1
    state.out.append(SendWelcome(cluster=hello.cluster, base_seq=base))
    state.out.append(ResendOrders(cluster=hello.cluster, from_seq=base))
    for report in (*missing, *hello.parts):
        starting.reported(state, hello.cluster, report, now)
    if is_restored:
        after_restore.end_stopped(state, now)
    requeueing.settle_packs(state, now)


def lost(state: State, name: str, now: float, why: str) -> None:
    """The executor of a cluster is not there any more."""
    cluster = state.clusters.get(name)
    if cluster is None or not cluster.connected:
        return
    cluster.connected, cluster.peer = False, None
    cluster.error = why
    readings.closed(state, name)
    state.tell(now, EventKind.EXECUTOR_DISCONNECTED, level="warning", cluster=name, why=why)


def _acked(state: State, cluster: ClusterState, name: str, last_seq: int) -> None:
    if cluster.acked_seq < last_seq < cluster.next_seq:
        cluster.acked_seq = last_seq
        cluster.asked = {key: seq for key, seq in cluster.asked.items() if seq > last_seq}
        state.out.append(DropOrders(cluster=name, through_seq=last_seq))


def _behind(state: State, cluster: ClusterState, report: Report, now: float) -> None:
    """An executor that stays behind is slow, or did not get its orders: the newest tells which."""
    if report.last_seq >= cluster.next_seq - 1 or not cluster.connected:
        cluster.behind_since = None
    elif cluster.behind_since is None or cluster.behind_since[0] != report.last_seq:
        cluster.behind_since = (report.last_seq, now)
    elif now - cluster.behind_since[1] >= STALLED_S:
        cluster.behind_since = (report.last_seq, now)
        state.out.append(ResendOrders(cluster=report.cluster))


def _is_admitted(state: State, cluster: ClusterState, hello: Hello, now: float) -> bool:
    """Whether this executor may speak for its cluster now; else it says hello again."""
    known = cluster.identity
    if hello.identity == known or not known or hello.cluster in state.presence.unreconciled:
        return True
    if cluster.heard_at is None:
        cluster.heard_at = now
    # a clock that was set back must not keep it out for longer
    waits = cluster.connected or 0.0 <= now - cluster.heard_at < TAKEOVER_S
    if waits and cluster.rival != hello.identity:
        cluster.rival = hello.identity
        state.log("second_executor_waits", level="warning", cluster=hello.cluster)
    return not waits


def taken_over(
    state: State, cluster: ClusterState, hello: Hello, now: float
) -> tuple[PartReport, ...]:
    """Remember who speaks for a cluster; returns the parts that were lost with a former state.

    What the former was told and has not confirmed is forgotten: it may have carried it out, and
    the other one must not do so again. What that knows and was told to start is told again.
    """
    known = cluster.identity
    if hello.identity == known:
        return ()
    cluster.identity, cluster.rival = hello.identity, ""
    state.out.append(SaveMeta(key=f"{MARK}{hello.cluster}", value=hello.identity))
    if not known or hello.cluster in state.presence.unreconciled:
        return ()
    forget_orders(state, hello.cluster)
    for record in list(state.placed_records()):
        siblings.gone(state, hello.cluster, record.id, record.attempt, now)
    lost = after_restore.missing_parts(state, hello, DETAIL)
    jobs = ",".join(dict.fromkeys(part.job for part in lost))
    state.log("executor_state_lost", level="warning", cluster=hello.cluster, jobs=jobs)
    after_restore.repeat_starts(state, hello.cluster)
    return lost


def forget_orders(state: State, name: str) -> None:
    """Take every order that a cluster was sent for carried out."""
    cluster = state.clusters[name]
    _acked(state, cluster, name, cluster.next_seq - 1)
    cluster.asked.clear()
