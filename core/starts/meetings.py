"""Meetings: the parts of a job over several clusters are granted their nodes together.

Where others wait, every part is in its cluster's queue from the first moment, and put off: it keeps
its place there, and gets nothing before it is *opened*. A job *gathers* once each of its parts is
the next in its queue, or has waited twice as long as claims there do. Jobs gather in the order of
arrival, and several at once only where all their parts fit into their clusters together: none
holds what another one waits for. Of a job that gathers, the part that takes longest to be granted
is opened first, and each other one when it takes about as long as that one still does.

A queue in which age counts from the begin gets its part at once: there it would lose its place.

Notes
-----
A part that lacks m slots, where b are busy, is expected to have them after
``sum(r / (b - k) for k in range(m))``, where r is how long the local jobs there ran of late: limits
say little of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State, arrival
from coalloc.core.starts.waits import expected_wait, width_of
from coalloc.model.platform import NodeState
from coalloc.model.sites.parts import PART_ENDED

PUT_OFF_S = 30 * 86_400.0
"""A part that is put off may not be granted for so long, seconds, unless it is opened."""
PATIENCE = 2.0
"""A part counts as the next in its queue after this many times what claims wait there."""
LONGEST = 24.0
"""And at the latest after this many times `max_wait_s`: what was learnt may be wrong by hours."""
UNKNOWN_WAIT_S = 1800.0
"""What claims are taken to wait where nothing is known of it, seconds."""
SOONER = 0.5
"""A part is opened this much of a run time before it would come together with the others: it takes
a reading and an order."""


def is_put_off(state: State, name: str) -> bool:
    """Whether parts are put off in a cluster: not where they would lose their places."""
    reading = state.clusters[name].reading
    return reading is None or reading.keeps_places


def due(state: State, now: float) -> Iterator[tuple[JobRecord, list[PartRecord]]]:
    """The jobs of which parts are to be opened now, with those parts."""
    meeting = [
        record
        for record in state.placed_records()
        if record.is_meeting and any(part.granted is None for part in record.parts)
    ]
    room = Counter({name: _up(state, name) for name in state.clusters}) if meeting else Counter()
    for record in sorted(meeting, key=lambda record: arrival(record.id)):
        begun = any(part.granted is not None or not part.is_put_off for part in record.parts)
        fits = all(room[part.cluster] >= _slots(part) for part in record.parts)
        if begun or (fits and all(_has_place(state, part, now) for part in record.parts)):
            room.subtract({part.cluster: _slots(part) for part in record.parts})
            if parts := _to_open(state, record, now):
                yield record, parts


def _has_place(state: State, part: PartRecord, now: float) -> bool:
    """Whether a part would be the next to be granted, were it opened."""
    if part.granted is not None or part.is_next:
        return True
    wait = expected_wait(state, part.cluster, part.ahead, width=width_of(state, part))
    patience_s = min(PATIENCE * (wait or UNKNOWN_WAIT_S), LONGEST * state.settings.start.max_wait_s)
    return part.is_waiting and now - part.sent > patience_s


def _to_open(state: State, record: JobRecord, now: float) -> list[PartRecord]:
    """The parts of a job that gathers which are to be opened now."""
    put_off = [part for part in record.parts if part.is_put_off]
    behind = [part for part in record.parts if not _has_place(state, part, now)]
    if behind:
        return []  # Nothing is known of when they come.
    lacks = {part.index: gathering_s(state, part) for part in record.parts}
    opened = [part for part in record.parts if part not in put_off]
    last = max((lacks[part.index] for part in opened or put_off), default=0.0)
    run_s = max(state.clusters[part.cluster].run_s for part in record.parts)
    return [part for part in put_off if lacks[part.index] >= last - SOONER * run_s]


def gathering_s(state: State, part: PartRecord) -> float:
    """Time until the next part in a queue is granted, as far as is known, seconds."""
    if part.granted is not None:
        return 0.0
    cluster = state.clusters[part.cluster]
    busy = _busy(state, part.cluster)
    missing = min(busy, busy + _slots(part) - _up(state, part.cluster))
    return sum(cluster.run_s / (busy - k) for k in range(missing))


def _slots(part: PartRecord) -> int:
    return sum(part.held.values())


def _up(state: State, name: str) -> int:
    """Slots of a cluster's nodes that take work."""
    up = (node for node in state.clusters[name].nodes if node.state is NodeState.UP)
    return sum(node.slots for node in up)


def _busy(state: State, name: str) -> int:
    """Slots that something has, of others and of ours."""
    others = sum(sum(job.nodes.values()) for job in state.clusters[name].running)
    return others + sum(
        _slots(part)
        for record in state.placed_records()
        for part in record.parts
        if part.cluster == name and part.granted is not None and part.state not in PART_ENDED
    )
