"""Order among our own claims in a cluster's queue, in the batch system's terms.

They are sent in the plan's order, and a batch system gives those of equal priority their turn in
that. One that weighs less, by its user, its shares or an operator, is sent with a *nice* value: so
many points behind the heaviest of ours that waits there for each halving of the weight.
"""

from __future__ import annotations

from math import log2

from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import RoundState, State, arrival
from coalloc.core.sharing import priority

NICE = 100
"""Points of Slurm's priority for a job of half the weight."""
MOST_NICE = 10_000


def nice(state: State, record: JobRecord, cluster: str, now: float) -> int:
    """Points by which a job is behind our heaviest in a cluster's queue."""
    current = state.round
    if current is None:
        return 0
    if not current.weights:
        _weigh(state, current, record, now)
    own = current.weights.get(record.flow or record.id, 0.0)
    best = current.heaviest[cluster] = max(own, current.heaviest.get(cluster, 0.0))
    return min(round(NICE * log2(best / own)), MOST_NICE) if own > 0.0 else MOST_NICE


def _weigh(state: State, current: RoundState, first: JobRecord, now: float) -> None:
    """Note the weights of all that waits, and the greatest in each queue."""
    queued = [record for record in state.placed_records() if record.is_in_queues]
    records = {record.id: record for record in (first, *queued, *state.waiting_records())}
    in_order = sorted(records.values(), key=lambda record: arrival(record.id))
    if priority.is_on(state):
        made = priority.factors(state, in_order, now)
        current.weights = {record.id: found.weight for record, found in made}
    else:
        current.weights = {record.id: record.job.weight for record in in_order}
    for record in queued:
        for name in record.clusters:
            best = current.heaviest.get(name, 0.0)
            current.heaviest[name] = max(best, current.weights[record.id])
