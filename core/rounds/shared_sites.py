"""Plans in which several owners' clusters that are one machine get none of its nodes twice.

A policy plans each cluster by its own reading. On twins (`core.jobs.twins`) a plan has a node for
one owner at a time: of placements that meet, that which starts first stays, or whose job is first
in the queue. The next round plans the others beside what has started.
"""

from __future__ import annotations

from collections import defaultdict

from coalloc.core.base.state import State
from coalloc.core.jobs.twins import twins_of
from coalloc.model.plan import Deferred, Placement, Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace

LATER = "its nodes go to a job of another user of the same machine first"


def once(state: State, snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without placements on nodes that a twin's placement has at the time."""
    home: dict[str, tuple[str, str]] = {}
    for cluster in snapshot.clusters:
        reading = state.clusters[cluster.name].reading if cluster.name in state.clusters else None
        if reading is not None and twins_of(state, cluster.name):
            for node in cluster.nodes:
                home[node.name] = f"{reading.site}/{node.name.rpartition('/')[2]}", cluster.name
    place = {job.id: index for index, job in enumerate(snapshot.queue)}
    kept: dict[str, list[tuple[str, Placement]]] = defaultdict(list)
    dropped = []
    order = sorted(plan.placements, key=lambda p: (p.start, place.get(p.job, 0)))
    for one in order if home else ():
        mine = [home[name] for name in one.nodes if name in home]
        if any(
            owner != other and one.start < then.end and then.start < one.end
            for there, owner in mine
            for other, then in kept[there]
        ):
            dropped.append(one)
        else:
            for there, owner in mine:
                kept[there].append((owner, one))
    later = (
        Deferred(job=one.job, task=one.task, reason=Reason.INSUFFICIENT, detail=LATER)
        for one in dropped
    )
    stay = tuple(one for one in plan.placements if one not in dropped)
    return replace(plan, placements=stay, deferred=(*plan.deferred, *later)) if dropped else plan
