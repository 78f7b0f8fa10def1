"""The OpenAPI document, made from the types of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

import coalloc
from coalloc.dashboard import answers
from coalloc.wire.answers import Event

TEMPLATE = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One path.

    Attributes
    ----------
    query : mapping of parameter to description
    media : str
        Of the answer.
    """

    answer: Any
    summary: str
    query: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"


PAGE = {"limit": "rows in one answer", "offset": "rows to leave out"}
OPERATIONS: Mapping[str, Operation] = {
    "/api/v1/status": Operation(
        answer=answers.SiteStatus, summary="Whether the daemon answers, and how the queue is"
    ),
    "/api/v1/clusters": Operation(answer=answers.Clusters, summary="All clusters in figures"),
    "/api/v1/nodes": Operation(answer=answers.Nodes, summary="All nodes and what is on them"),
    "/api/v1/jobs": Operation(
        answer=answers.Jobs,
        summary="Jobs, the newest first",
        query={
            "q": "beginning of an id, part of a name, a user or a node",
            "state": "a state, or waiting, active or ended",
            "user": "only this user's",
            "cluster": "only those on this cluster",
            "node": "only those that run or ran on this node",
            "reason": "only those that wait for this reason",
            **PAGE,
        },
    ),
    "/api/v1/jobs/{job}": Operation(answer=answers.Job, summary="One job"),
    "/api/v1/jobs/{job}/why": Operation(
        answer=answers.JobWhy, summary="Why a job waits; may take some seconds"
    ),
    "/api/v1/plan": Operation(answer=answers.SitePlan, summary="What runs, and what is planned"),
    "/api/v1/rounds": Operation(answer=answers.Rounds, summary="Rounds, the newest first"),
    "/api/v1/waits": Operation(
        answer=answers.Waits,
        summary="Wait times of jobs that have started",
        query={"by": "cluster, user or project"},
    ),
    "/api/v1/timeline": Operation(
        answer=answers.Timeline,
        summary="Rows of the Gantt chart, in a short form",
        query={
            "since": "only jobs that ended after this revision",
            "limit": "rows in one answer",
            "live": "1: with what runs and is planned",
        },
    ),
    "/api/v1/events": Operation(
        answer=Event,
        summary="Server-sent events: `event` (an Event), and `change` (a Change) when something "
        "is to be fetched anew",
        query={"since": "begin behind this event; Last-Event-ID goes before it"},
        media="text/event-stream",
    ),
}
WHOLE_NUMBERS = frozenset({"limit", "offset", "since", "live"})


@cache
def document() -> dict[str, Any]:
    """The document."""
    types = [operation.answer for operation in OPERATIONS.values()]
    schemas, components = msgspec.json.schema_components(
        [*types, answers.Change, answers.Fault], ref_template=TEMPLATE
    )
    *of_answers, _, fault = schemas
    paths = {
        path: {"get": _operation(path, operation, schema, fault)}
        for (path, operation), schema in zip(OPERATIONS.items(), of_answers, strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "coalloc dashboard",
            "version": coalloc.__version__,
            "description": "Read-only. Times are seconds since 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(path: str, operation: Operation, schema: Any, fault: Any) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "query",
            "description": text,
            "schema": {"type": "integer" if name in WHOLE_NUMBERS else "string"},
        }
        for name, text in operation.query.items()
    ]
    if "{job}" in path:
        job = {"name": "job", "in": "path", "required": True, "schema": {"type": "string"}}
        parameters.append(job)
    failed = {"description": "not answered", "content": {"application/json": {"schema": fault}}}
    return {
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "answered", "content": {operation.media: {"schema": schema}}},
            "default": failed,
        },
    }
