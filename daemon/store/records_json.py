"""Job records as JSON texts for the store, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from coalloc.core.base.records import JobRecord
from coalloc.core.base.start_intervals import Promise, StartError
from coalloc.model.sites.parts import Launch

_encode = msgspec.json.Encoder().encode


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


def write_object(value: Any) -> str:
    """A record, a launch or plain values as a JSON text; what is as by default is left out."""
    return _encode(value).decode()


read_object = msgspec.json.Decoder().decode
read_record = msgspec.json.Decoder(JobRecord).decode
read_launch = msgspec.json.Decoder(Launch).decode
read_promises = msgspec.json.Decoder(tuple[Promise, ...]).decode
read_start_error = msgspec.json.Decoder(StartError).decode
