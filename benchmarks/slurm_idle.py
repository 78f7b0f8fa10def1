"""Breakdown of the node-seconds that claims held in Slurm without running their job's processes.

Slurm's own start and end of each claim say what was held, the daemon's record of each part when
it was heard of, when the last part had its nodes, and when the processes ran. Slurm rounds both of
its times down to whole seconds, so a claim counts half a second later at both ends: the sums are
right in the mean, not each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from tests.testbeds.slurm import Cluster

from coalloc.adapters.batch.token import parse_comment

ROUNDED_S = 0.5
"""Mean of what a whole second leaves out."""
CAUSES = ("unheard", "others", "start", "end", "given back")
"""Up to the news of the grant; while other parts waited; from the last grant to the first process;
from the last process to Slurm's end of the job; claims whose attempt did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One claim, as Slurm has it.

    Attributes
    ----------
    began, ended : float
        Wall-clock seconds.
    """

    job: str
    attempt: int
    part: int
    nodes: int
    began: float
    ended: float


def held_in(cluster: Cluster, user: str) -> list[Held]:
    """The claims of a user that held nodes and have ended; Slurm forgets them after MinJobAge."""
    rows = cluster.run("squeue", "-h", "-t", "all", "-u", user, "-o", "%k|%D|%S|%e|%N")
    found = []
    for comment, nodes, began, ended, names in (row.split("|") for row in rows.splitlines()):
        token = parse_comment(comment)
        if token is None or not names:
            continue
        times = [datetime.fromisoformat(text).timestamp() + ROUNDED_S for text in (began, ended)]
        found.append(
            Held(
                job=token.job,
                attempt=token.attempt,
                part=token.part,
                nodes=int(nodes),
                began=times[0],
                ended=times[1],
            )
        )
    return found


def causes_of(claims: Iterable[Held], jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Node-seconds by cause, and those that processes ran as ``used``.

    Parameters
    ----------
    jobs : mapping of id to what ``show`` says of the job
    """
    sums = dict.fromkeys((*CAUSES, "used"), 0.0)
    for claim in claims:
        job = jobs[claim.job]
        parts = {part["index"]: part for part in job["parts"]}
        part = parts.get(claim.part)
        if claim.attempt != job["attempt"] or part is None or part["started"] is None:
            sums["given back"] += claim.nodes * (claim.ended - claim.began)
            continue
        last = max(each["granted"] for each in parts.values())
        marks = (claim.began, part["granted"], last, part["started"], part["ended"], claim.ended)
        names = ("unheard", "others", "start", "used", "end")
        for name, (begin, end) in zip(names, pairwise(marks), strict=True):
            sums[name] += claim.nodes * (end - begin)
    return sums


def row(id: str, job: Mapping[str, Any]) -> str:
    """One job over several clusters: when each part could be granted, was, and ran."""
    first = min(part["asked"] for part in job["parts"])
    words = [f"job {id} attempt {job['attempt']}:"]
    for part in job["parts"]:
        times = (part["asked"], part["granted"], part["started"])
        told = " ".join("-" if t is None else f"{t - first:.1f}" for t in times)
        words.append(f"{part['cluster']} {len(part['nodes'])} nodes {told}")
    return "  ".join(words)
