"""The jobs with which a policy fails: found, and set aside, so that the others are planned.

A plan that fails the check names jobs: the policy is asked again without those. A policy that
raises or dies names none: the shortest beginning of the queue, in arrival order, with which
it fails is looked for by halving, and the last job of that is the one. A job that is alone, or the
last one left, is the cause if the policy can plan an empty queue. Either way nothing is set aside
before the same policy has planned all others well. A failure that has nothing to do with a
job, such as a solver that cannot be started, is not blamed on one: every attempt fails then. Nor
is a time limit that came first: no search begins for that.

A job that was set aside is tried again when it, the clusters or the settings change, or when the
daemon starts again. Where nothing else waits, `plain` starts it, and no other policy is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from coalloc.core.base.round_control import Aside, Isolation
from coalloc.core.base.state import RoundState, State
from coalloc.core.jobs.offers import Offers
from coalloc.core.rounds import snapshots
from coalloc.core.rounds.snapshots import waiting_view
from coalloc.model.event_kinds import EventKind
from coalloc.model.values import replace

MOST_ATTEMPTS = 16
"""Of one round, after the one that failed first: enough to halve a queue of 10,000 jobs."""
MOST_S = 30.0
"""No attempt begins later in a round, seconds."""
SET_ASIDE = "set_aside"


def set_aside(state: State, current: RoundState, search: Isolation, now: float) -> None:
    """Leave the causes out of the next rounds, and say so."""
    for job in search.causes:
        if job not in state.waiting:
            continue
        detail = f"left out of planning, since with it {current.policy} fails: {search.why}"
        state.findings.aside[job] = Aside(
            reason=SET_ASIDE, detail=detail, seen=_seen(state, job, now)
        )
        fields = {"policy": current.policy, "why": search.why}
        state.emit(now, EventKind.JOB_SET_ASIDE, job, **fields)
        state.log("job_set_aside", "warning", round=current.number, job=job, **fields)
    if not search.others:
        state.rounds.want(SET_ASIDE)


def still_aside(state: State, now: float) -> set[str]:
    """The jobs to leave out of a round; those of which something has changed are tried again."""
    for job, aside in list(state.findings.aside.items()):
        if job not in state.waiting:
            del state.findings.aside[job]
        elif aside.seen != _seen(state, job, now):
            del state.findings.aside[job]
            state.log("job_tried_again", job=job)
    return set(state.findings.aside)


def _seen(state: State, job: str, now: float) -> Sequence[object]:
    """Facts about a job and the clusters of which a change is worth another try."""
    there = {*state.waiting, *state.placed}
    offers = Offers(state=state, now=now, busy={})
    view = waiting_view(state.jobs[job], state, there, now, offers)
    if view is not None:
        view = replace(view, passed_over=0, submitted=0.0, earliest=0.0)
    clusters = [
        snapshots.cluster_view(name, cluster, state, now)
        for name, cluster in state.clusters.items()
    ]
    platform = tuple(
        replace(cluster, nodes=tuple(replace(node, free_at=0.0) for node in cluster.nodes))
        for cluster in clusters
    )
    return view, platform
