"""Turns behind the clusters' own jobs: who goes first, and how long claims wait in the queues.

Each wait of a claim of ours is kept with its width and what was before it. A claim is expected to
wait as those about as wide did; where there are too few, as all did, in proportion to their width.

On a share of a cluster we go before local jobs that wait. A job that needs more, or particular
nodes, waits in the batch system's queue instead.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from statistics import median

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.effects import SaveMeta
from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import ClaimWait, narrowest
from coalloc.core.jobs.eligibility import owner_of
from coalloc.core.jobs.suitable_nodes import Takes, room_of, sizes_of, suitable
from coalloc.model.jobs import stays_whole
from coalloc.model.shape import Shape
from coalloc.model.sites.parts import PART_ENDED

Claims = Counter[tuple[str, str]]
"""How many wait, by cluster and user."""
REMEMBERED_WAITS = 24
"""Of each cluster: the newest."""
ENOUGH_WAITS = 2
"""Waits of claims of about the same width count alone where there are so many."""
SHARED_S = 3600.0
"""A cluster is not ours alone for so long after jobs of others were seen there, seconds."""
WAITS_KEY = "waits."
"""Begins the store's keys of them, before the cluster's name."""


def is_crowded(state: State, cluster: str) -> bool:
    """Whether jobs that are not ours wait in this cluster's queue."""
    reading = state.clusters[cluster].reading
    return reading is not None and reading.waiting > 0


def is_shared(state: State, cluster: str, now: float) -> bool:
    """Whether jobs that are not ours wait or run in a cluster, or did lately."""
    return now - state.clusters[cluster].others_at <= SHARED_S


def has_share(state: State, cluster: str) -> bool:
    """Whether we go first on a share of this cluster."""
    reading = state.clusters[cluster].reading
    return reading is not None and reading.share is not None


def fits_share(state: State, record: JobRecord) -> bool:
    """Whether a job has room in the shares, and in clusters that have none."""
    takes, shape = suitable(state, record.job, owner_of(record)), record.job.shape
    if takes is None or record.foreign:
        return True
    if record.batch.reservation:
        return False
    rooms = [_room(state, name, nodes, shape) for name, nodes in takes.items()]
    room = max(rooms, default=0) if stays_whole(record.job) else sum(rooms)
    return narrowest(record.job) <= room


def _room(state: State, cluster: str, takes: Takes, shape: Shape) -> int:
    reading = state.clusters[cluster].reading
    if reading is None or reading.share is None:
        return room_of(takes, shape)
    # Which nodes are kept is not known beforehand: all of them have to suit.
    sizes = sizes_of(takes) if takes.total() == len(reading.nodes) else []
    return sum(sizes[: reading.share.nodes][-(shape.max_nodes or len(sizes)) :])


def waiting_claims(state: State) -> Claims:
    """Claims that wait, by cluster and user, to be counted on."""
    return Counter(state.queued)


def has_room(state: State, claims: Claims, cluster: str, user: str, now: float) -> bool:
    """Whether another claim of a user may wait in a cluster's queue."""
    is_full = state.clusters[cluster].full.get(user, now) > now
    return claims[cluster, user] < state.settings.start.max_waiting and not is_full


def jobs_ahead(state: State, cluster: str) -> int:
    """Jobs in a cluster's queue, of others and ours."""
    reading = state.clusters[cluster].reading
    ours = sum(count for (name, _), count in state.queued.items() if name == cluster)
    return ours + (0 if reading is None else reading.waiting)


def expected_wait(state: State, cluster: str, ahead: int, *, width: float | None = None) -> float:
    """Expected wait of a claim behind so many jobs, as far as the last ones tell, seconds.

    Where none of ours has waited yet, as long as the local jobs did that run now. `width` is of the
    nodes that it asks for; None: any.
    """
    own = [wait for wait in state.learning.waits.get(cluster, ()) if not wait.was_put_off]
    if own:
        each = [wait._replace(seconds=wait.seconds / (1 + wait.ahead)) for wait in own]
        return _median(each, width) * (1 + ahead)
    reading = state.clusters[cluster].reading
    if reading is None or not reading.waiting:
        return 0.0
    return _median([ClaimWait(seconds=each, width=nodes) for each, nodes in reading.waited], width)


def _median(waits: list[ClaimWait], width: float | None) -> float:
    """Median wait of claims about as wide, where there are enough of them; 0 where there is none.

    Else of all, in proportion to their width: a wide one waits until that many nodes are free.
    """
    if width is not None:
        alike = [wait for wait in waits if width <= 2.0 * wait.width <= 4.0 * width]
        if len(alike) < ENOUGH_WAITS:
            in_proportion = (w.seconds * width / max(w.width, 1e-3) for w in waits)
            return median(in_proportion) if waits else 0.0
        waits = alike
    return median(wait.seconds for wait in waits) if waits else 0.0


def remember(state: State, part: PartRecord, waited_s: float) -> None:
    """Keep how long a claim has waited, for the next negotiations, also of a later daemon."""
    wait = ClaimWait(
        seconds=waited_s,
        ahead=part.ahead,
        was_put_off=part.was_put_off,
        width=width_of(state, part),
    )
    waits = (*state.learning.waits.get(part.cluster, ()), wait)[-REMEMBERED_WAITS:]
    state.learning.waits[part.cluster] = waits
    state.out.append(SaveMeta(key=f"{WAITS_KEY}{part.cluster}", value=json.dumps(waits)))


def kept_waits(text: str) -> tuple[ClaimWait, ...]:
    """The waits of one cluster, as the store has them."""
    return tuple(ClaimWait(*fields) for fields in json.loads(text))


def width_of(state: State, part: PartRecord) -> float:
    """Nodes that a part asks for."""
    return nodes_held(state.clusters[part.cluster], part.held)


def nodes_held(cluster: ClusterState, nodes: Mapping[str, int]) -> float:
    """Nodes of so many slots each, those of which only some are held in parts."""
    slots = {node.name: node.slots for node in cluster.nodes}
    return sum(min(1.0, count / max(1, slots.get(name, 1))) for name, count in nodes.items())


def due(state: State, record: JobRecord) -> float | None:
    """Time by which the first of the siblings that may hold nodes has to be ready, seconds."""
    limit = state.settings.start.prepare_timeout_s
    return min((_since(part) + limit for part in record.parts if _may_hold(part)), default=None)


def overdue(state: State, record: JobRecord, now: float) -> list[PartRecord]:
    """The siblings that should have been ready by now."""
    limit = state.settings.start.prepare_timeout_s
    return [part for part in record.parts if _may_hold(part) and _since(part) + limit <= now]


def _may_hold(part: PartRecord) -> bool:
    return not part.is_waiting and part.state not in PART_ENDED


def _since(part: PartRecord) -> float:
    return part.asked if part.granted is None else part.granted
