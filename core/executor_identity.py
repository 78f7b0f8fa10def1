"""Executors that are not the one before: one that has lost its state, and a second one.

An executor's state has an identity, made with its folder and said in every *hello*. Unreachable is
not ended, and unknown is not failed; but an executor that speaks for a cluster with a state of
another identity, while the former is silent, is evidence: what it does not know of, nobody follows
any more, and nobody will ever say how it ended. Those parts are lost.

While the former may still be there, the other one is not welcomed: no orders go to it, and nothing
is concluded from what it says. The shell turns it away as long as the former is connected
(`coalloc.wire.server`); here the same holds for a while after a silence or a restart.
"""

from __future__ import annotations

from coalloc.core.after_restore import missing_parts, repeat_starts
from coalloc.core.effects import Drop, SaveMeta
from coalloc.core.messages import Hello
from coalloc.core.state import ClusterState, State
from coalloc.model.parts import PartReport

TAKEOVER_S = 15.0
"""For so long after the former was heard last, or after a start, another one waits, seconds."""
MARK = "executor."
"""Before a cluster's name: the key under which the store has its executor's identity."""
DETAIL = "its executor has lost its state, and does not know it any more"


def is_admitted(state: State, cluster: ClusterState, hello: Hello, now: float) -> bool:
    """Whether this executor may speak for its cluster now; else it says hello again."""
    known = cluster.identity
    if hello.identity in {"", known} or not known or hello.cluster in state.unsure:
        return True
    if cluster.heard_at is None:
        cluster.heard_at = now
    # a clock that was set back must not keep it out for longer
    waits = cluster.connected or 0.0 <= now - cluster.heard_at < TAKEOVER_S
    if waits and cluster.rival != hello.identity:
        cluster.rival = hello.identity
        state.note("second_executor_waits", level="warning", cluster=hello.cluster)
    return not waits


def taken_over(state: State, cluster: ClusterState, hello: Hello) -> tuple[PartReport, ...]:
    """Remember who speaks for a cluster; returns the parts that were lost with a former state.

    What the former was told and has not confirmed is forgotten: it may have carried it out, and
    the other one must not do so again. What that knows and was told to start is told again.
    """
    known = cluster.identity
    if hello.identity in {"", known}:
        return ()
    cluster.identity, cluster.rival = hello.identity, ""
    state.out.append(SaveMeta(key=f"{MARK}{hello.cluster}", value=hello.identity))
    if not known or hello.cluster in state.unsure:
        return ()
    forget_orders(state, hello.cluster)
    lost = missing_parts(state, hello, DETAIL)
    jobs = ",".join(dict.fromkeys(part.job for part in lost))
    state.note("executor_state_lost", level="warning", cluster=hello.cluster, jobs=jobs)
    repeat_starts(state, hello.cluster)
    return lost


def forget_orders(state: State, name: str) -> None:
    """Take every order that a cluster was sent for carried out."""
    cluster = state.clusters[name]
    if cluster.acked_seq < cluster.next_seq - 1:
        cluster.acked_seq = cluster.next_seq - 1
        state.out.append(Drop(cluster=name, through_seq=cluster.acked_seq))
    cluster.asked.clear()
