"""Job records as JSON texts for the store, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coalloc.core.base.records import JobRecord, JobState, Launch, PartRecord
from coalloc.core.base.start_intervals import Promise, StartError
from coalloc.model.batch_options import PLAIN, BatchOptions
from coalloc.model.job_json import restore_job, write_job

_STATES: dict[str, JobState] = {str(state): state for state in JobState}
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_DEFAULTS: dict[str, Any] = {
    "sources": {},
    "needs": (),
    "parts": (),
    "rendezvous": "",
    "link_gbps": {},
    "array_index": None,
    "attempt": 0,
    "refusals": 0,
    "not_before": 0.0,
    "planned": 0.0,
    "round": 0,
    "policy": "",
    "deadline": None,
    "cancelled_by": "",
    "cancel_reason": "",
    "started": None,
    "ended": None,
    "exit_code": None,
    "skew_s": None,
    "reason": "",
    "detail": "",
    "origin": "",
    "foreign": "",
    "flow": "",
    "task": "",
    "retries": 0,
    "keep_going": False,
    "requeue": False,
    "once": False,
    "failures": 0,
    "chunk_first": 0,
    "chunks": 0,
    "queued": False,
    "arranged": False,
    "idle_node_s": 0.0,
    "late": (),
    "behind": "",
    "leaving": "",
    "moves": 0,
    "barred": {},
    "priority": 0.0,
    "throttle": 0,
    "finish_by": None,
}
_ALWAYS = ("id", "name", "user", "uid", "gid", "command", "submitted", "state")


def account_object(record: JobRecord, proc_s: float) -> dict[str, Any]:
    """JSON of an ended job's account, beside its columns; times in seconds since 1970."""
    clusters: dict[str, int] = {}
    for part in record.parts:
        clusters[part.cluster] = clusters.get(part.cluster, 0) + sum(part.nodes.values())
    job = record.job
    cpu_s = [part.cpu_s for part in record.parts]
    max_rss_mb = [part.max_rss_mb for part in record.parts if part.max_rss_mb is not None]
    return {
        "name": record.name,
        "submitted": record.submitted,
        "eligible": max(record.submitted, job.earliest),
        "started": record.started,
        "procs": sum(clusters.values()) or getattr(job, "procs", 1),
        "requested_s": job.time_limit or record.planned or getattr(job, "base_time", None),
        "proc_s": proc_s,
        "clusters": clusters,
        "exit_code": record.exit_code,
        "command": record.command,
        "detail": record.detail,
        "cpu_s": sum(s for s in cpu_s if s is not None) if cpu_s and None not in cpu_s else None,
        "max_rss_mb": max(max_rss_mb, default=None),
    }


def record_object(record: JobRecord) -> dict[str, Any]:
    """The record as plain values; what equals its default is left out."""
    out: dict[str, Any] = {key: getattr(record, key) for key in _ALWAYS}
    for key, default in _DEFAULTS.items():
        value = getattr(record, key)
        if value != default:
            out[key] = value
    if record.batch != PLAIN:
        out["batch"] = dict(record.batch.given())
    out["job"] = write_job(record.job)
    return out


def write_record(record: JobRecord) -> str:
    """The record as a JSON text."""
    return _encoder.encode(record_object(record)).decode()


def read_record(text: str) -> JobRecord:
    """The record a text was written from."""
    body: dict[str, Any] = _decoder.decode(text)
    body["job"] = restore_job(body["job"])
    body["state"] = _STATES[body["state"]]
    if "needs" in body:
        body["needs"] = tuple((kind, job) for kind, job in body["needs"])
    if "late" in body:
        body["late"] = tuple(body["late"])
    if "batch" in body:
        body["batch"] = msgspec.convert(body["batch"], BatchOptions)
    if "parts" in body:
        body["parts"] = msgspec.convert(body["parts"], tuple[PartRecord, ...])
    return JobRecord(**body)


def write_launch(launch: Launch) -> str:
    """A job's command, as a JSON text."""
    return _encoder.encode(launch).decode()


def read_launch(text: str) -> Launch:
    """The launch a text was written from."""
    return msgspec.json.decode(text, type=Launch)


def write_object(body: Mapping[str, Any]) -> str:
    """Plain values as a JSON text."""
    return _encoder.encode(body).decode()


def write_tuple(values: tuple[Any, ...]) -> str:
    """Plain values in their order, as a JSON text."""
    return _encoder.encode(values).decode()


def read_promises(text: str) -> tuple[Promise, ...]:
    """The promises a text was written from."""
    return tuple(Promise._make(row) for row in _decoder.decode(text))


def read_start_error(text: str) -> StartError:
    """The error a text was written from."""
    return StartError._make(_decoder.decode(text))


def read_object(text: str) -> Any:
    """Plain values from a JSON text."""
    return _decoder.decode(text)
