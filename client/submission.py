"""From what a user asks for to the body of a submit request."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from coalloc.model.batch_options import NAMES

ENV_KEPT = frozenset({"COALLOC_CONFIG"})
"""Of our own variables, what a job inherits; the others describe the job that submits it."""


class JobOptions(TypedDict, total=False):
    """Options of `Client.submit` besides the command; all may be left out.

    Attributes
    ----------
    procs : int or (int, int)
        Processes; a pair is the range of a moldable job, whose speed-up is fitted from its
        history, or the site's, where none is given. Default 1.
    time_limit, base_time : float
        Kill time, and run time on dedicated full-speed nodes (of a range without speed-up: of
        one process); seconds.
    speedup : mapping
        Of a moldable job, in the snapshot format, such as
        ``{"model": "amdahl", "time": 100.0, "parallel_fraction": 0.95}``.
    times : mapping of process count to seconds
        The same as a table.
    work, chunk_s : float
        Of a divisible job: all its work, and the length of a chunk, seconds on one full-speed
        slot. It has no `procs` and no run time then, and `time_limit` is that of each piece.
    retries : int
        Of a divisible job: how often a piece that has failed is run again. Default 0.
    keep_going : bool
        Of a divisible job: after a failure, run the other chunks.
    sigma : float
        Weight of processing against communication, 0..1.
    proc_gbps : float
        Peak bandwidth of one process, Gbit/s.
    memory_mb_per_proc : int
        MiB.
    weight : float
    clusters, features : sequence of str
        Clusters that may run it; features that every node must have.
    earliest : float
        No start before, seconds since 1970.
    needs : sequence of (kind, job)
        ``afterok``, ``afterany`` or ``afternotok`` and a job's id.
    array : sequence of int
        Indices; one job for each.
    throttle : int
        Of an array: so many of its jobs run at once, at the most; 0: all.
    finish_by : float
        Deadline, seconds since 1970: start it only if it can end by then, and end it once it
        cannot. In `change`, 0 takes it away.
    account, qos, partition, constraint, reservation, licenses, gres : str
        What the clusters' batch systems are told, as sbatch has them; `features` are enough
        where every node is to have all of a list.
    name : str
    hold, hold_infeasible : bool
        Queue it held; queue it held where it can never run, instead of refusing it.
    requeue : bool
        Run it again, from its beginning, where a batch system has preempted it.
    once : bool
        Start the command once, while the job holds the slots of all its processes, as sbatch
        does with a script; the job is kept on one cluster.
    one_cluster : bool
        Of a rigid or moldable job: never split it over several.
    script : str
        Text of a script; the command's first word is its name then.
    env : mapping
        Default: this process's environment.
    cwd : str
        Default: this process's folder.
    stdout, stderr : str
        Patterns of output files: ``%j`` job, ``%r`` or ``%t`` rank, ``%A`` array and ``%a`` index
        in it, ``%x`` name, ``%u`` user; ``%3a`` is of three digits.
    token : str
        A resend with the same token is the same job. Default: a new one.
    """

    procs: int | tuple[int, int]
    time_limit: float | None
    base_time: float | None
    speedup: Mapping[str, Any] | None
    times: Mapping[int, float] | None
    work: float
    chunk_s: float
    retries: int
    keep_going: bool
    sigma: float | None
    proc_gbps: float | None
    memory_mb_per_proc: int
    weight: float
    clusters: Sequence[str]
    features: Sequence[str]
    earliest: float | None
    needs: Sequence[tuple[str, str]]
    array: Sequence[int]
    throttle: int
    finish_by: float
    account: str
    qos: str
    partition: str
    constraint: str
    reservation: str
    licenses: str
    gres: str
    name: str
    hold: bool
    hold_infeasible: bool
    requeue: bool
    once: bool
    one_cluster: bool
    script: str
    env: Mapping[str, str] | None
    cwd: str | None
    stdout: str
    stderr: str
    token: str | None


_JOB_FIELDS = (
    *("time_limit", "base_time", "sigma", "proc_gbps", "weight", "earliest"),
    *("memory_mb_per_proc", "clusters", "features", "one_cluster"),
)
_LAUNCH_FIELDS = ("script", "stdout", "stderr")
_REQUEST_FIELDS = (
    *("name", "hold", "hold_infeasible", "retries", "keep_going", "requeue"),
    *("once", "throttle", "finish_by"),
)
_BOUNDS = ("throttle", "finish_by")
"""Of those, what may be changed, beside the name."""
_KNOWN = frozenset(JobOptions.__annotations__)


def submission(argv: Sequence[str], **options: Unpack[JobOptions]) -> dict[str, Any]:
    """The body of a submit request.

    Parameters
    ----------
    argv : sequence of str
        Command and arguments; the name and arguments of a script.
    **options
        See `JobOptions`.

    Raises
    ------
    TypeError
        For an unknown option, and a text in place of a sequence.
    ValueError
        For an empty command, a job with both speed-up and times, and a divisible one without
        chunks or with processes.
    """
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    unknown = given.keys() - _KNOWN
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}; there are {', '.join(sorted(_KNOWN))}")
    for key, value in (("argv", argv), *given.items()):
        if isinstance(value, str) and key in {"argv", "clusters", "features", "needs", "array"}:
            raise TypeError(f"{key}: a sequence is wanted, not a text")
    if not argv:
        raise ValueError("argv: is empty")
    if given.get("once") and "work" not in given:
        # a daemon that does not know `once` refuses this, and does not start it many times
        given["one_cluster"] = True
    return {
        **request_of("submit", given, _shape(given), argv),
        "array": list(given.get("array", ())),
    }


def change(job: str, **options: Unpack[JobOptions]) -> dict[str, Any]:
    """The body of a request that changes a waiting job.

    Parameters
    ----------
    **options
        See `JobOptions`; an infinite `time_limit` is none, and empty `clusters` are all.

    Raises
    ------
    TypeError
        For an option that cannot be changed.
    """
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    known = {"procs", "name", "needs", *_BOUNDS, *_JOB_FIELDS, *NAMES} - {"one_cluster"}
    unknown = given.keys() - known
    if unknown:
        raise TypeError(f"{min(unknown)!r} cannot be changed; only {', '.join(sorted(known))}")
    fields = _chosen(given, _JOB_FIELDS)
    if fields.get("time_limit") == math.inf:
        fields["time_limit"] = None
    if not given.get("clusters", True):
        fields["clusters"] = None
    procs = given.get("procs")
    if isinstance(procs, tuple):
        fields |= {"min_procs": procs[0], "max_procs": procs[1]}
    elif procs is not None:
        fields["procs"] = procs
    body = {"type": "update", "job": job, "fields": fields, **_chosen(given, ("name", *_BOUNDS))}
    body["batch"] = _chosen(given, NAMES)
    if "needs" in given:
        body["needs"] = [list(pair) for pair in given["needs"]]
    return body


def request_of(
    kind: str, given: Mapping[str, Any], job: Mapping[str, Any], argv: Sequence[str]
) -> dict[str, Any]:
    """Common fields of the requests of all submissions.

    Parameters
    ----------
    given : mapping
        The options that were given.
    job : mapping
        Fields of the job that no option says.
    """
    return {
        "type": kind,
        "token": given.get("token") or uuid.uuid4().hex,
        "job": {**job, **_chosen(given, _JOB_FIELDS)},
        "launch": {
            "argv": list(argv),
            "env": portable(given.get("env", os.environ)),
            "cwd": os.path.abspath(given.get("cwd", "")),
            **_chosen(given, _LAUNCH_FIELDS),
        },
        "needs": [list(pair) for pair in given.get("needs", ())],
        "batch": _chosen(given, NAMES),
        **_chosen(given, _REQUEST_FIELDS),
    }


def _chosen(given: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: given[key] for key in keys if key in given}


def _shape(given: Mapping[str, Any]) -> dict[str, Any]:
    """Kind, processes and speed-up, or work and chunks."""
    if "work" in given or "chunk_s" in given:
        return _divisible(given)
    procs, speedup, times = given.get("procs"), given.get("speedup"), given.get("times")
    if speedup is None and times is None:
        if isinstance(procs, tuple):
            # the daemon knows what its history or its site says of this command
            return {"kind": "moldable", "min_procs": procs[0], "max_procs": procs[1]}
        return {"kind": "rigid", "procs": 1 if procs is None else procs}
    if speedup is not None and times is not None:
        raise ValueError("speedup, times: only one of them")
    if times is not None:
        counts = sorted(times)
        speedup = {"model": "table", "procs": counts, "times": [times[n] for n in counts]}
    job: dict[str, Any] = {"kind": "moldable", "speedup": dict(speedup or {})}
    if procs is not None:
        low, high = procs if isinstance(procs, tuple) else (procs, procs)
        job |= {"min_procs": low, "max_procs": high}
    return job


def _divisible(given: Mapping[str, Any]) -> dict[str, Any]:
    for key in ("work", "chunk_s"):
        if key not in given:
            raise ValueError(f"{key}: is missing; a divisible job has both work and chunk_s")
    for key in ("procs", "base_time", "speedup", "times"):
        if key in given:
            raise ValueError(f"{key}, work: only one of them")
    return {"kind": "divisible", "work": given["work"], "chunk_s": given["chunk_s"]}


def portable(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that can be sent and mean the same to the job.

    Left out: text that is not Unicode, and what describes the job we are in ourselves.
    """
    return {
        name: value
        for name, value in env.items()
        if (name in ENV_KEPT or not name.startswith("COALLOC_"))
        and _is_text(name)
        and _is_text(value)
    }


def _is_text(text: str) -> bool:
    # what is not UTF-8 in the environment arrives as lone surrogates
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)
