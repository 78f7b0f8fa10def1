"""Job records as JSON texts for the store, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coalloc.core.base.records import JobRecord
from coalloc.core.base.start_intervals import Promise, StartError
from coalloc.model.sites.parts import Launch

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder()
_decode_record = msgspec.json.Decoder(JobRecord).decode
_launches = msgspec.json.Decoder(Launch)
_promises = msgspec.json.Decoder(tuple[Promise, ...])
_start_errors = msgspec.json.Decoder(StartError)


def account_object(record: JobRecord, proc_s: float) -> dict[str, Any]:
    """JSON of an ended job's account, beside its columns; times in seconds since 1970."""
    clusters: dict[str, int] = {}
    nodes: dict[str, int] = {}
    for part in record.parts:
        nodes |= part.nodes
        clusters[part.cluster] = clusters.get(part.cluster, 0) + sum(part.nodes.values())
    job = record.job
    cpu_s = [part.cpu_s for part in record.parts]
    max_rss_mb = [part.max_rss_mb for part in record.parts if part.max_rss_mb is not None]
    return {
        "name": record.name,
        "submitted": record.submitted,
        "eligible": record.eligible,
        "started": record.started,
        "procs": sum(clusters.values()) or getattr(job, "procs", 1),
        "requested_s": job.time_limit or record.planned or getattr(job, "base_time", None),
        "proc_s": proc_s,
        "clusters": clusters,
        "nodes": nodes,
        "exit_code": record.exit_code,
        "command": record.command,
        "detail": record.detail,
        "cpu_s": sum(s for s in cpu_s if s is not None) if cpu_s and None not in cpu_s else None,
        "max_rss_mb": max(max_rss_mb, default=None),
    }


def write_record(record: JobRecord) -> str:
    """The record as a JSON text; what is as by default is left out."""
    return _encode(record).decode()


def read_record(text: str) -> JobRecord:
    """The record a text was written from."""
    return _decode_record(text)


def write_launch(launch: Launch) -> str:
    """A job's command, as a JSON text."""
    return _encode(launch).decode()


def read_launch(text: str) -> Launch:
    """The launch a text was written from."""
    return _launches.decode(text)


def write_object(body: Mapping[str, Any] | tuple[Any, ...]) -> str:
    """Plain values as a JSON text."""
    return _encode(body).decode()


def read_promises(text: str) -> tuple[Promise, ...]:
    """The promises a text was written from."""
    return _promises.decode(text)


def read_start_error(text: str) -> StartError:
    """The error a text was written from."""
    return _start_errors.decode(text)


def read_object(text: str) -> Any:
    """Plain values from a JSON text."""
    return _decoder.decode(text)
