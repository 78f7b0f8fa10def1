"""Room for a job in the shares of clusters on which we go before local jobs that wait.

A job that needs more, or particular nodes, waits in the batch system's queue instead.
"""

from __future__ import annotations

from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.eligibility import owner_of
from coalloc.core.jobs.suitable_nodes import Takes, room_of, sizes_of, suitable
from coalloc.model.jobs import stays_whole
from coalloc.model.shape import Shape


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
