"""From what a user asks for to the body of a submit request."""

from __future__ import annotations

import math
import os
import re
import shlex
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from msgspec import to_builtins

from coalloc.core.base.requests import Submit
from coalloc.model.errors import InputError
from coalloc.model.formats.gres import read_gres
from coalloc.model.formats.indices import Indices
from coalloc.model.jobs import RigidJob, WorkflowJob
from coalloc.model.output_names import DEFAULT_OUTPUT
from coalloc.model.shape import Shape
from coalloc.model.sites.batch_options import NAMES
from coalloc.model.sites.parts import Launch

LONG_ARRAY = 1000
ENV_KEPT = frozenset({"COALLOC_CONFIG"})
"""Of our own variables, what a job inherits; the others describe the job that submits it."""


class SubmissionOptions(TypedDict, total=False):
    """Options of all submissions; all may be left out.

    Those that are fields of a job, of `SubmitOptions` or of `Launch` mean what these say.
    """

    name: str
    time_limit: float | None
    """Of each task or piece where there are several; infinite: none."""
    weight: float
    earliest: float | None
    clusters: Sequence[str]
    features: Sequence[str]
    needs: Sequence[tuple[str, str]]
    finish_by: float
    retries: int
    keep_going: bool
    shape: Shape | Mapping[str, Any]
    """What it asks of its nodes, as in the snapshot format: ``{"cpus_per_proc": 4}``."""
    gres: str | Mapping[str, int]
    """The shape's ``per_node``, as sbatch has it: ``gpu:a100:2``."""
    account: str
    """This and the next five: what the clusters' batch systems are told, as sbatch has them."""
    qos: str
    partition: str
    constraint: str
    """Where `features` are not enough, because not every node is to have all of a list."""
    reservation: str
    licenses: str
    passed: Sequence[str]
    """Options for the batch system of a job of `once` or `one_cluster`, as ``--exclude=n1``."""
    hold: bool
    hold_infeasible: bool
    env: Mapping[str, str] | None
    """Default: this process's environment."""
    cwd: str | None
    """Default: this process's folder."""
    stdout: str
    stderr: str
    mail_type: Sequence[str]
    mail_user: str
    token: str | None
    """A resend with the same token is the same job. Default: a new one."""


class JobOptions(SubmissionOptions, total=False):
    """Options of `Client.submit` besides the command; all may be left out."""

    procs: int | tuple[int, int]
    """A pair is the range of a moldable job, whose speed-up is fitted from its history, or the
    site's, where none is given. Default 1."""
    base_time: float | None
    """Of a range without speed-up: of one process."""
    speedup: Mapping[str, Any] | None
    """Of a moldable job, in the snapshot format, such as
    ``{"model": "amdahl", "time": 100.0, "parallel_fraction": 0.95}``."""
    times: Mapping[int, float] | None
    """The same as a table: seconds by processes."""
    work: float
    """With `chunk_s`: a divisible job, which has no `procs` and no run time."""
    chunk_s: float
    sigma: float | None
    proc_gbps: float | None
    memory_mb_per_proc: int
    array: Collection[int]
    throttle: int
    requeue: bool
    once: bool
    stream: str
    one_cluster: bool
    stage_in: Sequence[tuple[str, str]]
    """From paths here to paths in the job's folder on each cluster, as rsync has them."""
    stage_out: Sequence[tuple[str, str]]
    """From paths there to paths here; what it prints to files there comes to `cwd`."""
    script: str
    """Text of a script; the command's first word is its name then. Bytes that are not UTF-8 are
    surrogates, as ``errors="surrogateescape"`` reads them."""


_KNOWN = frozenset(JobOptions.__annotations__)
_JOB_FIELDS = tuple(name for name in RigidJob.__struct_fields__ if name in _KNOWN - {"procs"})
_LAUNCH_FIELDS = tuple(name for name in Launch.__struct_fields__ if name in _KNOWN - {"env", "cwd"})
_SEQUENCES = frozenset(("argv", "clusters", "features", "needs", "array", "passed", "mail_type"))
_COPIES = frozenset(("stage_in", "stage_out"))
_BOUNDS = ("throttle", "finish_by")
"""Options of a request that may be changed, beside the name."""
_REQUEST_FIELDS = tuple(
    name for name in Submit.__struct_fields__ if name in _KNOWN - {"token", "needs", "array"}
)


def submission(argv: Sequence[str], **options: Unpack[JobOptions]) -> dict[str, Any]:
    """The body of a submit request for a command, or for a script's name and its arguments.

    `TypeError`: an option is unknown, or a text stands in place of a sequence. `ValueError`: the
    command is empty, there are both speed-up and times, or a divisible job has no chunks, or
    processes.
    """
    given = known_options(options, JobOptions)
    for key, value in (("argv", argv), *given.items()):
        if isinstance(value, str) and key in _SEQUENCES | _COPIES:
            raise TypeError(f"{key}: a sequence is wanted, not a text")
    if not argv:
        raise ValueError("argv: is empty")
    if given.get("once") and "work" not in given:
        # a daemon that does not know `once` refuses this, and does not start it many times
        given["one_cluster"] = True
    if given.keys() & _COPIES:
        given |= _copies(given)
    array = given.get("array", ())
    return {
        **request_of("submit", given, _shape(given), argv),
        "array": list(array) if len(array) <= LONG_ARRAY else str(Indices.of(array)),
    }


def _copies(given: Mapping[str, Any]) -> dict[str, Any]:
    """Pairs with whole paths on this side, and those of the files to which the job prints."""
    here, back = os.getcwd(), []
    for pattern in {given.get("stdout") or DEFAULT_OUTPUT, given.get("stderr", "")} - {""}:
        # A pattern, so that it may be missing.
        if not os.path.isabs(pattern):
            to = os.path.join(here, given.get("cwd", ""), os.path.dirname(pattern), "")
            back.append((f"{re.sub('%(?!j)[0-9]*[A-Za-z]', '*', pattern)}*", to))
    back += [(there, os.path.join(here, to)) for there, to in given.get("stage_out", ())]
    into = [(os.path.join(here, source), to) for source, to in given.get("stage_in", ())]
    return {"stage_in": into, "stage_out": back}


def change(job: str, **options: Unpack[JobOptions]) -> dict[str, Any]:
    """The body of a request that changes a waiting job; `TypeError` for what cannot be changed.

    Empty `clusters` are all, and 0 takes `finish_by` away.
    """
    given = _shaped({k: v for k, v in options.items() if v is not None})
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
    """Common fields of all submissions: options `given`, and fields of the job that none says."""
    return {
        "type": kind,
        "token": given.get("token") or uuid.uuid4().hex,
        "job": {**job, **_chosen(given, _JOB_FIELDS)},
        "launch": {
            "argv": list(argv),
            "env": portable(given.get("env", os.environ)),
            "cwd": os.path.abspath(given.get("cwd", "")),
            **_chosen(given, _LAUNCH_FIELDS),
            **_script(given.get("script", "")),
        },
        "needs": [list(pair) for pair in given.get("needs", ())],
        "batch": _chosen(given, NAMES),
        **_chosen(given, _REQUEST_FIELDS),
    }


def _script(text: str) -> dict[str, Any]:
    """A script's text as it is sent: where it is not UTF-8, a letter for each byte."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "surrogateescape")
        return {"script": raw.decode("latin-1"), "script_bytes": True}
    return {}


def known_options(options: Mapping[str, Any], cls: type[SubmissionOptions]) -> dict[str, Any]:
    """The options that were given; `TypeError` for an unknown one."""
    given = {name: value for name, value in options.items() if value is not None}
    unknown = given.keys() - cls.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(cls.__annotations__))
        raise TypeError(f"unknown option {min(unknown)!r}; there are {known}")
    if given.get("time_limit") == math.inf:
        del given["time_limit"]
    return _shaped(given)


def _shaped(given: dict[str, Any]) -> dict[str, Any]:
    """The options with generic resources as a part of the shape."""
    if "shape" not in given and "gres" not in given:
        return given
    shape = to_builtins(given.get("shape", {}))
    if (gres := given.pop("gres", None)) is not None:
        shape["per_node"] = read_gres(gres) if isinstance(gres, str) else dict(gres)
    return {**given, "shape": shape}


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


class WorkflowOptions(SubmissionOptions, total=False):
    """Options of `Client.submit_workflow` besides the file; all may be left out.

    The batch options, the output and the time limit are those of each task.
    """

    template: str | Sequence[str]
    """The command of every task, in place of those of the file, with ``{task}``, ``{name}``,
    ``{id}`` and ``{procs}``. A text is split into words as a shell would; no shell runs."""


_SET_BY_DAEMON = ("id", "submitted", "earliest", "passed_over", "held", "after", "started")


def workflow_submission(
    job: WorkflowJob, commands: Mapping[str, Sequence[str]], **options: Unpack[WorkflowOptions]
) -> dict[str, Any]:
    """The body of a submit_workflow request; `TypeError` for an unknown option.

    `InputError`: a task has no command, and there is no template.
    """
    from coalloc.model.formats.job_json import write_job

    given = known_options(options, WorkflowOptions)
    argv = _words_of(given.get("template", ()))
    if not argv:
        missing = next((task.id for task in job.tasks if not commands.get(task.id)), None)
        if missing is not None:
            raise InputError(
                f"task {missing}", "has no command in the file; a command template can stand for it"
            )
    fields = {k: v for k, v in write_job(job).items() if k not in _SET_BY_DAEMON}
    if "shape" in given:
        given["shape"] = {**fields.get("shape", {}), **given["shape"]}
    return {
        **request_of("submit_workflow", given, fields, argv),
        "commands": {} if argv else {task: list(words) for task, words in commands.items()},
    }


def _words_of(template: str | Sequence[str]) -> list[str]:
    """The words of a command template; `InputError`: its quotes do not match."""
    if not isinstance(template, str):
        return list(template)
    try:
        return shlex.split(template)
    except ValueError as error:
        raise InputError("command template", str(error).lower()) from error
