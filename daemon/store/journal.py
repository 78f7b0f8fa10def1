"""Effects of the core as writes to the store, and the core's memory from the store."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from coalloc.core.after_restore import MARK
from coalloc.core.coordinator import Remembered
from coalloc.core.effects import (
    Drop,
    Effect,
    Record,
    Reply,
    SaveHistory,
    SaveJob,
    SaveLaunch,
    SaveMeta,
    SaveNotes,
    SavePlan,
    SaveToken,
    Send,
)
from coalloc.core.executor_identity import MARK as EXECUTOR
from coalloc.core.messages import Order
from coalloc.core.native_jobs import NOBODY
from coalloc.core.requests import Done
from coalloc.daemon.store.records_json import (
    read_object,
    read_record,
    write_launch,
    write_object,
    write_record,
)
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.writes import (
    AppendEvent,
    DropOutbox,
    PutHistory,
    PutJob,
    PutLaunch,
    PutMeta,
    PutOutbox,
    PutPlan,
    PutToken,
    Write,
)
from coalloc.model.jobs import DivisibleJob, WorkflowJob
from coalloc.wire.codec import decode_order, encode_order


def writes_of(effects: Iterable[Effect], now: float) -> list[Write]:
    """The persistent ones among the effects, in order; of each job only its last record."""
    writes: list[Write] = []
    jobs: dict[str, int] = {}
    for effect in effects:
        match effect:
            case SaveJob(record=record):
                if record.id in jobs:
                    writes[jobs[record.id]] = _put_job(effect)
                else:
                    jobs[record.id] = len(writes)
                    writes.append(_put_job(effect))
            case SaveLaunch(job=job, launch=launch):
                writes.append(PutLaunch(job=job, body=write_launch(launch)))
            case SaveToken(user=user, token=token, job=job):
                writes.append(PutToken(user=user, token=token, job=job))
            case SaveMeta(key=key, value=value):
                writes.append(PutMeta(key=key, value=value))
            case SaveNotes(policy=policy, notes=notes):
                writes.append(PutMeta(key=f"notes.{policy}", value=write_object(notes)))
            case SaveHistory(key=key, values=values, ratios=ratios, runs=runs):
                body = write_object({"base_times": values, "ratios": ratios, "runs": runs})
                writes.append(PutHistory(key=key, body=body))
            case SavePlan(round=number, body=body):
                writes.append(PutPlan(round=number, time=now, body=write_object(body)))
            case Send(cluster=cluster, seq=seq, order=order):
                writes.append(
                    PutOutbox(cluster=cluster, seq=seq, body=encode_order(order).decode())
                )
            case Drop(cluster=cluster, through_seq=seq):
                writes.append(DropOutbox(cluster=cluster, through_seq=seq))
            case Record(seq=seq, time=time, kind=kind, job=job, fields=fields):
                body_text = write_object(fields)
                writes.append(AppendEvent(seq=seq, time=time, kind=kind, job=job, body=body_text))
            case _:
                pass
    return writes


def without_submits(effects: Iterable[Effect]) -> tuple[list[Effect], list[str], list[Hashable]]:
    """Take the new jobs out of effects that could not be written.

    Returns
    -------
    kept : list of Effect
        What happened to other jobs, to be written later.
    lost : list of str
        The new jobs; nobody has been told of them.
    origins : list of hashable
        Who must be told that they were not queued.
    """
    effects = list(effects)
    new = {effect.job for effect in effects if isinstance(effect, SaveLaunch)}
    kept: list[Effect] = []
    lost: dict[str, None] = {}
    origins: list[Hashable] = []
    for effect in effects:
        match effect:
            case SaveLaunch() | SaveToken():
                pass
            case SaveJob(record=record) if record.id.partition("_")[0] in new:
                lost[record.id] = None
            case Record(job=job) if job.partition("_")[0] in new:
                pass
            case Reply(origin=origin, answer=Done(body=body)) if body.get("job") in new:
                origins.append(origin)
            case _:
                kept.append(effect)
    return kept, list(lost), origins


def _put_job(effect: SaveJob) -> PutJob:
    record = effect.record
    return PutJob(
        id=record.id,
        state=str(record.state),
        user=record.user,
        body=write_record(record),
        ended=record.ended if record.is_ended else None,
        flow=record.flow,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a start finds in the store: the core's memory, and the orders not yet carried out."""

    remembered: Remembered
    outbox: dict[str, dict[int, Order]]


def recall(store: Store, keep_ended: int) -> Memory:
    """Read the store; begins a new epoch, which is on disk on return."""
    # A full queue is a hundred thousand records that stay: looking for garbage among them at
    # every few hundred new ones costs a seventh of the start.
    gc.disable()
    try:
        return _recall(store, keep_ended)
    finally:
        gc.freeze()
        gc.enable()


def _recall(store: Store, keep_ended: int) -> Memory:
    # What a client's token has made is looked up when it is sent again.
    loaded = store.load(tokens_of=NOBODY)
    jobs = [read_record(row.body) for row in loaded.jobs]
    living = [job.id for job in jobs if isinstance(job.job, WorkflowJob | DivisibleJob)]
    ended = [*reversed(store.finished(keep_ended))]
    ended += [row for flow in living for row in store.tasks(flow) if row.ended is not None]
    # Some of these are among the newest that ended.
    jobs += [read_record(row.body) for row in {row.id: row for row in ended}.values()]
    meta = loaded.meta
    outbox = {
        cluster: {seq: decode_order(read_object(body)) for seq, body in orders.items()}
        for cluster, orders in loaded.outbox.items()
    }
    epoch = int(meta.get("epoch", "0")) + 1
    name = meta.get("store") or uuid.uuid4().hex
    store.commit([PutMeta(key="epoch", value=str(epoch)), PutMeta(key="store", value=name)])
    history = {key: read_object(body) for key, body in loaded.history.items()}
    remembered = Remembered(
        jobs=jobs,
        tokens=loaded.tokens,
        seqs={key[4:]: int(value) for key, value in meta.items() if key.startswith("seq.")},
        unacked={cluster: min(orders) for cluster, orders in outbox.items() if orders},
        history={key: tuple(body["base_times"]) for key, body in history.items()},
        # Older stores have none.
        ratios={key: tuple(body["ratios"]) for key, body in history.items() if "ratios" in body},
        runs={
            key: tuple((int(size), float(time)) for size, time in body["runs"])
            for key, body in history.items()
            if "runs" in body
        },
        notes={
            key[6:]: read_object(value) for key, value in meta.items() if key.startswith("notes.")
        },
        drained=drained_of(meta.get("drained", "")),
        paused=bool(meta.get("paused")),
        unsure=frozenset(
            key.removeprefix(MARK) for key, value in meta.items() if key.startswith(MARK) and value
        ),
        identities={
            key.removeprefix(EXECUTOR): value
            for key, value in meta.items()
            if key.startswith(EXECUTOR)
        },
        epoch=epoch,
        store=name,
        last_job=int(meta.get("last_job", "0")),
        last_event=loaded.last_event,
        last_round=0 if loaded.plan is None else loaded.plan.round,
    )
    return Memory(remembered=remembered, outbox=outbox)


def drained_of(text: str) -> dict[str, str]:
    """Drained clusters and nodes with the reasons; older stores hold the names alone."""
    rows = (line.partition("\t") for line in text.split("\n") if line)
    return {name: reason for name, _, reason in rows}
