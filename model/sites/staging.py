"""Data of a job in a folder of its own on a cluster: what is wanted, and how far that is."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from coalloc.model.errors import InputError

Copies = tuple[tuple[str, str], ...]
"""From where, and to where, as rsync has paths: a trailing slash means what is in the folder."""
Phase = Literal["in", "out", "gone"]


class Stage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wish for a job's data on one cluster, or the same with how far it is."""

    job: str
    phase: Phase
    """``in``: they are to be there; ``out``: back, and its folder removed; ``gone``: removed."""
    user: str = ""
    """The job's."""
    copies: Copies = ()
    """From where to where; there it is below the job's folder."""
    state: Literal["", "done", "failed"] = ""
    """``failed``: it is not tried again; a cluster out of reach is no failure."""
    folder: str = ""
    """The job's folder there."""
    detail: str = ""
    """How far it is, or why it failed."""


def check_copies(field: str, copies: Copies, inside: int) -> None:
    """Refuse paths that lead out of the job's folder, or are not whole on this side."""
    for pair in copies:
        if pair[inside].startswith("/") or ".." in pair[inside].split("/"):
            raise InputError(field, f"{pair[inside]!r} is not below the job's folder")
        if not pair[1 - inside].startswith("/") or "\0" in "".join(pair):
            raise InputError(field, f"{pair[1 - inside]!r} is no absolute path")
