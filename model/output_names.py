"""Patterns of output files, in the marks of sbatch: ``%j``, ``%A_%a``, ``%x`` and others.

The process itself fills in ``%r``, ``%t`` and ``%N`` (`coalloc.adapters.runner.rank`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

DEFAULT_OUTPUT = "coalloc-%j.out"
MARKS = "jJAaxurtN"
"""Marks of all jobs."""
BATCH_MARKS = {"n": "0", "s": "batch"}
"""Marks of what is started once: the number of its node in the job, and sbatch's word for it."""
_MARK = re.compile(r"%([0-9]*)([A-Za-z%])", re.ASCII)
_WIDEST = 10
"""As in sbatch."""
_MEMBER = re.compile(r"([0-9]+)_([0-9]+)", re.ASCII)


def marks_of(job: str, name: str, user: str) -> dict[str, str]:
    """The marks that are the same for all processes of a job: 12, 12_3 of an array, 12.align.

    ``j`` and ``J`` are the job, ``A`` the array, ``a`` the index in it (0: it is in none), ``x``
    the name, in which a slash becomes a low line, ``u`` the user.
    """
    member = _MEMBER.fullmatch(job)
    array, index = member.groups() if member else (job, "0")
    return {"j": job, "J": job, "A": array, "a": index, "x": name.replace("/", "_"), "u": user}


def rank_marks(rank: int, node: str) -> dict[str, str]:
    """The marks of one process on a node, and the one that stands for a per cent sign."""
    host = node.rpartition("/")[2].partition(".")[0]
    return {"r": str(rank), "t": str(rank), "N": host, "%": "%"}


def strange_marks(pattern: str, *, once: bool) -> list[str]:
    """The marks in a pattern that stay as they are."""
    known = {*MARKS, *(BATCH_MARKS if once else ()), "%"}
    return [found[0] for found in _MARK.finditer(pattern) if found[2] not in known]


def filled(pattern: str, marks: Mapping[str, str]) -> str:
    """The pattern with these marks replaced; all others stay.

    Figures between the sign and the letter are the width of a number, as in ``%3t``.
    """

    def value(found: re.Match[str]) -> str:
        text = marks.get(found[2])
        if text is None:
            return found[0]
        return text.zfill(min(int(found[1]), _WIDEST)) if found[1] and text.isdigit() else text

    return _MARK.sub(value, pattern)


def pattern_of_ranks(pattern: str, job: str, name: str, user: str, *, once: bool = False) -> str:
    """The pattern with all marks of the job replaced: ``%r``, ``%N`` and ``%%`` are left."""
    marks = marks_of(job, name, user) | (BATCH_MARKS if once else {})
    known = {key: text.replace("%", "%%") for key, text in marks.items()}
    left = filled(pattern, {**known, "%": "%%"})
    return re.sub(r"(?<!%)((?:%%)*%[0-9]*)t", r"\1r", left)
