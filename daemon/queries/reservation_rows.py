"""Reserved nodes: by operators, and by the clusters' own batch systems."""

from __future__ import annotations

from coalloc.core.base.state import State
from coalloc.model.ranges import EVENT
from coalloc.model.values import fields_of
from coalloc.wire.node_rows import ReservationRow


def reservation_rows(state: State) -> tuple[ReservationRow, ...]:
    """Reservations in the order of their starts."""
    rows = [
        ReservationRow(**{**fields_of(kept, ReservationRow), "end": _end(kept.end)})
        for kept in state.maintenance.reserved.values()
    ]
    rows += [
        ReservationRow(
            name=kept.id, nodes=kept.nodes, start=kept.start, end=_end(kept.end), by=name
        )
        for name, cluster in state.clusters.items()
        if cluster.reading is not None
        for kept in cluster.reading.reservations
    ]
    return tuple(sorted(rows, key=lambda row: (row.start, row.name)))


def _end(end: float) -> float | None:
    return None if end >= EVENT.high else end
