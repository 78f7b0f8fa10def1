"""The core's memory, read from the store at a start."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from coalloc.core.base.effects import SaveMeta
from coalloc.core.base.messages import Order
from coalloc.core.base.projects import ProjectUser, Usage
from coalloc.core.base.records import JobRecord
from coalloc.core.base.start_intervals import Calibration
from coalloc.core.base.state import NOBODY
from coalloc.core.base.state_tables import LastNumbers, Learning, Maintenance, Presence, Sharing
from coalloc.core.clusters.presence import MARK as EXECUTOR
from coalloc.core.commands.reservations import META as RESERVED
from coalloc.core.commands.reservations import read_reserved
from coalloc.core.coordinator import StoredState
from coalloc.core.jobs.after_restore import MARK, RESTORED, TOLD
from coalloc.core.sharing.accounting import MOST_DAYS
from coalloc.core.starts.waits import WAITS_KEY, kept_waits
from coalloc.daemon.store import tables
from coalloc.daemon.store.errors import unusable
from coalloc.daemon.store.records_json import (
    read_object,
    read_promises,
    read_record,
    read_start_error,
)
from coalloc.daemon.store.sqlite import Store
from coalloc.model.jobs import DivisibleJob, WorkflowJob
from coalloc.wire.codec import decode_order


class RecalledStore(Struct, frozen=True, kw_only=True):
    """The store's content at a start: the core's memory, and the orders not yet carried out."""

    remembered: StoredState
    outbox: dict[str, dict[int, Order]]


def recall(store: Store, keep_ended: int) -> RecalledStore:
    """Read the store; begins a new epoch, which is on disk on return. Raises `StoreError`."""
    # A full queue is a hundred thousand records that stay: looking for garbage among them at
    # every few hundred new ones costs a seventh of the start.
    gc.disable()
    try:
        return _recall(store, keep_ended)
    except (msgspec.MsgspecError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        # rows that are whole, and hold what no coalloc of this version writes
        what = f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"
        raise unusable(store.path, what) from error
    finally:
        gc.freeze()
        gc.enable()


def _recall(store: Store, keep_ended: int) -> RecalledStore:
    jobs = _jobs(store, keep_ended)
    meta = {row.key: row.value for row in store.rows(tables.META)}
    outbox: dict[str, dict[int, Order]] = {}
    for order in store.rows(tables.OUTBOX, "ORDER BY cluster, seq"):
        outbox.setdefault(order.cluster, {})[order.seq] = decode_order(read_object(order.body))
    # What a client's token has made is looked up when it is sent again.
    living = "WHERE job IN (SELECT id FROM jobs WHERE ended IS NULL) AND user = ?"
    tokens = store.rows(tables.TOKENS, living, NOBODY)
    newest, plan = store.rows(tables.EVENTS, "ORDER BY seq DESC LIMIT 1"), store.plan()
    days: dict[ProjectUser, dict[int, float]] = {}
    late = "WHERE day > (SELECT max(day) FROM usage_days) - ?"
    for used in store.rows(tables.USAGE_DAYS, late, MOST_DAYS):
        by_day = days.setdefault((used.project, used.user), {})
        by_day[used.day] = by_day.get(used.day, 0.0) + used.proc_s
    epoch = int(meta.get("epoch", "0")) + 1
    name = meta.get("store") or uuid.uuid4().hex
    store.commit([SaveMeta(key="epoch", value=str(epoch)), SaveMeta(key="store", value=name)])
    remembered = StoredState(
        jobs=jobs,
        tokens={(token.user, token.token): token.job for token in tokens},
        seqs={key: int(value) for key, value in _under("seq.", meta).items()},
        unacked={cluster: min(orders) for cluster, orders in outbox.items() if orders},
        paused=bool(meta.get("paused")),
        epoch=epoch,
        store=name,
        clock_set_s=float(meta.get("clock_set_s", "0")),
        last=LastNumbers(
            job=int(meta.get("last_job", "0")),
            event=newest[0].seq if newest else 0,
            round=0 if plan is None else plan.round,
        ),
        maintenance=Maintenance(
            drained=drained_of(meta.get("drained", "")),
            reserved=read_reserved(meta.get(RESERVED, "")),
        ),
        presence=Presence(
            unreconciled={key for key, value in _under(MARK, meta).items() if value},
            restored=meta.get(RESTORED, ""),
            told=_under(TOLD, meta),
            identities=_under(EXECUTOR, meta),
        ),
        learning=_learning(store, meta),
        sharing=Sharing(
            usage={(u.project, u.user): Usage(u.proc_s, u.at) for u in store.rows(tables.USAGE)},
            days=days,
        ),
    )
    return RecalledStore(remembered=remembered, outbox=outbox)


def _learning(store: Store, meta: Mapping[str, str]) -> Learning:
    history = {key: read_object(body) for key, body in store.rows(tables.HISTORY)}
    errors = store.rows(tables.START_ERRORS, "ORDER BY number")
    return Learning(
        history={key: tuple(body["base_times"]) for key, body in history.items()},
        ratios={key: tuple(body["ratios"]) for key, body in history.items()},
        runs={
            key: tuple((int(size), float(time)) for size, time in body["runs"])
            for key, body in history.items()
        },
        waits={key: kept_waits(text) for key, text in _under(WAITS_KEY, meta).items()},
        promises={job: read_promises(body) for job, body in store.rows(tables.PROMISES)},
        calibration=Calibration.of(read_start_error(error.body) for error in errors),
        notes={key: read_object(value) for key, value in _under("notes.", meta).items()},
    )


def _jobs(store: Store, keep_ended: int) -> list[JobRecord]:
    """The jobs that have not ended, then those that ended last, and the tasks of what goes on."""
    jobs = [read_record(row.body) for row in store.active_jobs()]
    living = [job.id for job in jobs if isinstance(job.job, WorkflowJob | DivisibleJob)]
    ended = [*reversed(store.finished(keep_ended))]
    ended += [row for flow in living for row in store.tasks(flow) if row.ended is not None]
    # Some of these are among the newest that ended.
    return jobs + [read_record(row.body) for row in {row.id: row for row in ended}.values()]


def _under(prefix: str, meta: Mapping[str, str]) -> dict[str, str]:
    """The entries whose keys begin so, by the rest of the key."""
    return {key.removeprefix(prefix): v for key, v in meta.items() if key.startswith(prefix)}


def drained_of(text: str) -> dict[str, str]:
    """Drained clusters and nodes with the reasons."""
    rows = (line.partition("\t") for line in text.split("\n") if line)
    return {name: reason for name, _, reason in rows}
