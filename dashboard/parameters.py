"""Parameters of the REST interface; requests are read by these types, and documented from them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

MOST_ROWS = 5_000
"""Rows of a time line in one answer."""


class Nothing(Struct, frozen=True, kw_only=True):
    """No parameters."""


class JobAsked(Struct, frozen=True, kw_only=True):
    """One job."""

    job: Annotated[str, Meta(pattern=r"^[0-9A-Za-z_.-]{1,200}$", description="its id")]


class JobsAsked(Struct, frozen=True, kw_only=True):
    """Some of the jobs."""

    q: Annotated[str, Meta(description="beginning of an id, part of a name, a user or a node")] = ""
    state: Annotated[str, Meta(description="a state, or waiting, active or ended")] = ""
    user: Annotated[str, Meta(description="only this user's")] = ""
    cluster: Annotated[str, Meta(description="only those on this cluster")] = ""
    node: Annotated[str, Meta(description="only those that run or ran on this node")] = ""
    reason: Annotated[str, Meta(description="only those that wait for this reason")] = ""
    limit: Annotated[int, Meta(ge=0, le=1_000, description="rows in one answer")] = 100
    offset: Annotated[int, Meta(ge=0, lt=1 << 31, description="rows to leave out")] = 0


class WaitsAsked(Struct, frozen=True, kw_only=True):
    """Groups of jobs."""

    by: Annotated[Literal["cluster", "user", "project"], Meta(description="of what")] = "cluster"


class TimelineAsked(Struct, frozen=True, kw_only=True):
    """A piece of the Gantt chart."""

    since: Annotated[int, Meta(ge=0, le=1 << 53, description="only jobs behind this revision")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="rows in one answer")] = MOST_ROWS
    live: Annotated[int, Meta(ge=0, le=1, description="1: with what runs and is planned")] = 0
