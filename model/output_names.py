"""Patterns of output files, in the marks of sbatch: ``%j``, ``%A_%a``, ``%x`` and others."""

from __future__ import annotations

import re
from collections.abc import Mapping

DEFAULT_OUTPUT = "coalloc-%j.out"
_MARK = re.compile(r"%([0-9]?)([A-Za-z%])", re.ASCII)
_MEMBER = re.compile(r"([0-9]+)_([0-9]+)", re.ASCII)


def marks_of(job: str, name: str, user: str) -> dict[str, str]:
    """The marks that are the same for all processes of a job.

    Parameters
    ----------
    job : str
        Its number: 12, of an array's member 12_3, of a workflow's task 12.align.

    Returns
    -------
    dict of str to str
        ``j`` the job, ``A`` the array, ``a`` the index in it (0: it is in none), ``x`` the name,
        in which a slash becomes a low line, ``u`` the user.
    """
    member = _MEMBER.fullmatch(job)
    array, index = member.groups() if member else (job, "0")
    return {"j": job, "A": array, "a": index, "x": name.replace("/", "_"), "u": user}


def rank_marks(rank: int) -> dict[str, str]:
    """The marks of one process, and the one that stands for a per cent sign."""
    return {"r": str(rank), "t": str(rank), "%": "%"}


def filled(pattern: str, marks: Mapping[str, str]) -> str:
    """The pattern with these marks replaced; all others stay.

    A figure between the sign and the letter is the width of a number, as in ``%3t``.
    """

    def value(found: re.Match[str]) -> str:
        text = marks.get(found[2])
        if text is None:
            return found[0]
        return text.zfill(int(found[1])) if found[1] and text.isdigit() else text

    return _MARK.sub(value, pattern)


def pattern_of_ranks(pattern: str, job: str, name: str, user: str) -> str:
    """The pattern with all marks of the job replaced: ``%r`` and ``%%`` are left."""
    known = {key: text.replace("%", "%%") for key, text in marks_of(job, name, user).items()}
    left = filled(pattern, {**known, "%": "%%"})
    return re.sub(r"(?<!%)((?:%%)*%[0-9]?)t", r"\1r", left)
