"""The mark by which our jobs are known in a batch system: their name, and a comment.

The job's name is ``coalloc-CLAIM``, the comment ``coalloc:JOB.ATTEMPT.PART:CLAIM``. CLAIM is
made once for each part and stands in its folder before anything is submitted, so whoever finds
the folder finds the job by its name, whether or not the submission was ever answered. A comment
that is the bare word ``coalloc`` asks for a hand-over, and marks no job of ours.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from msgspec import Struct

PREFIX = "coalloc:"
NAME_PREFIX = "coalloc-"
CLAIM_DIGITS = 32
LONGEST_NUMBER = 9
"""Digits of an attempt or a part."""


class Token(Struct, frozen=True, kw_only=True):
    """Names the part that a job was made for."""

    job: str
    attempt: int
    part: int
    claim: str

    @property
    def comment(self) -> str:
        """The comment, where there is room for one."""
        return f"{PREFIX}{quote(self.job, safe='')}.{self.attempt}.{self.part}:{self.claim}"

    @property
    def name(self) -> str:
        return f"{NAME_PREFIX}{self.claim}"


def parse_comment(comment: str) -> Token | None:
    """The token in a job's comment; None where it is not of ours."""
    if not comment.startswith(PREFIX):
        return None
    key, colon, claim = comment.removeprefix(PREFIX).partition(":")
    pieces = key.rsplit(".", 2)
    if not colon or not claim or len(pieces) != 3:
        return None
    if not all(piece.isdecimal() and len(piece) <= LONGEST_NUMBER for piece in pieces[1:]):
        return None
    return Token(job=unquote(pieces[0]), attempt=int(pieces[1]), part=int(pieces[2]), claim=claim)


def claim_in_name(name: str) -> str:
    """The claim in a job's name; empty where it is not of ours."""
    claim = name.removeprefix(NAME_PREFIX)
    is_ours = len(claim) == CLAIM_DIGITS and all(c in "0123456789abcdef" for c in claim)
    return claim if is_ours and claim != name else ""
