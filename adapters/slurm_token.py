"""The mark by which our jobs are known in Slurm: their comment, and their name.

``--comment`` is ``coalloc:JOB.ATTEMPT.PART:CLAIM``, the job's name ``coalloc-CLAIM``. CLAIM is
made once for each part and stands in its folder before anything is submitted, so whoever finds
the folder finds the job by its name, whether or not the submission was ever answered. A comment
that is the bare word ``coalloc`` asks for a hand-over, and marks no job of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

PREFIX = "coalloc:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Names the part that a Slurm job was made for."""

    job: str
    attempt: int
    part: int
    claim: str

    @property
    def comment(self) -> str:
        """The text of ``--comment``."""
        return f"{PREFIX}{quote(self.job, safe='')}.{self.attempt}.{self.part}:{self.claim}"

    @property
    def name(self) -> str:
        """The text of ``--job-name``."""
        return f"coalloc-{self.claim}"


def parse_comment(comment: str) -> Token | None:
    """The token in a job's comment; None where it is not of ours."""
    if not comment.startswith(PREFIX):
        return None
    key, colon, claim = comment.removeprefix(PREFIX).partition(":")
    pieces = key.rsplit(".", 2)
    if not colon or not claim or len(pieces) != 3:
        return None
    if not (pieces[1].isdecimal() and pieces[2].isdecimal()):
        return None
    return Token(job=unquote(pieces[0]), attempt=int(pieces[1]), part=int(pieces[2]), claim=claim)
