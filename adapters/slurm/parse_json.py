"""Parsers of Slurm's JSON: ``--json`` of its commands and slurmrestd, 21.08 to 25.05.

Notes
-----
What changed between releases, and how it is read here:

======================  ===========================================================
field                   shapes
======================  ===========================================================
numbers                 ``16`` (until 23.02); ``{"set", "infinite", "number"}``
                        after; 4294967294 and 4294967295 for *not set* and *infinite*
job_state, state        ``"RUNNING"``; ``["RUNNING"]`` since 23.11
flags of a node         ``state_flags`` beside ``state`` until 22.05; in ``state`` since
features                ``"a,b"``; ``["a", "b"]`` since 24.05
free memory             ``free_memory`` until 22.05; ``free_mem`` since
jobs of sacct           ``state.current``, ``time.start``, ``allocation_nodes``
times                   0 where there is none
======================  ===========================================================

``cpu_load`` is in hundredths, a time limit in minutes. A pending array is one object; it becomes
an entry for each task, as ``squeue -r`` shows it.

References
----------
https://slurm.schedmd.com/rest_api.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from coalloc.adapters.slurm.parse_text import read_nodes
from coalloc.adapters.slurm.records import (
    NodeEntry,
    ParseError,
    QueueEntry,
    ReservationEntry,
    job_state,
    state_words,
)
from coalloc.model.errors import InputError
from coalloc.model.nodeset import expand

NOT_SET = frozenset({4294967294, 4294967295, 18446744073709551614, 18446744073709551615, -2})
MANY_TASKS = 100_000


def parse_nodes_json(text: str) -> tuple[NodeEntry, ...]:
    """The nodes of ``/nodes``, ``scontrol show nodes --json`` or, until 22.05, ``sinfo --json``.

    Raises
    ------
    ParseError
        Also where the answer has errors: it is not known to be complete.
    """
    return tuple(_node(item, where) for item, where in _items(text, "nodes"))


def _node(item: Mapping[str, Any], where: str) -> NodeEntry:
    total = _count(item, "cpus", where)
    usable = _number(item.get("effective_cpus"), f"{where}.effective_cpus")
    taken = _count(item, "alloc_cpus", where, 0)
    load = _number(item.get("cpu_load"), f"{where}.cpu_load")
    free = item.get("free_mem", item.get("free_memory"))
    words = _texts(item.get("state"), f"{where}.state")
    flags = _texts(item.get("state_flags"), f"{where}.state_flags")
    memory = _number(item.get("real_memory"), f"{where}.real_memory")
    spare = _number(free, f"{where}.free_mem")
    return NodeEntry(
        name=_name(item, where),
        states=state_words("+".join([*words, *flags])),
        cpus=max(1, min(int(usable), total) if usable and usable >= taken else total),
        cpus_taken=taken,
        cpu_load=None if load is None else load / 100.0,
        memory_mb=None if memory is None else int(memory),
        free_mb=None if spare is None else int(spare),
        features=_texts(item.get("active_features"), f"{where}.active_features"),
        weight=_count(item, "weight", where, 1),
        partitions=_texts(item.get("partitions"), f"{where}.partitions"),
        address=_text(item.get("address")),
        reason=_text(item.get("reason")),
        extra=_text(item.get("extra")),
    )


def parse_jobs_json(text: str) -> tuple[QueueEntry, ...]:
    """The jobs of ``/jobs``, ``squeue --json`` or ``sacct --json``; ended ones are among them.

    Raises
    ------
    ParseError
    """
    return tuple(
        entry for item, where in _items(text, "jobs") for entry in _job_entries(item, where)
    )


def _job_entries(item: Mapping[str, Any], where: str) -> Iterator[QueueEntry]:
    number = _count(item, "job_id", where)
    times = _object(item.get("time"))
    state = item.get("job_state", _object(item.get("state")).get("current"))
    words = _texts(state, f"{where}.job_state")
    limit = _number(item.get("time_limit", times.get("limit")), f"{where}.time_limit")
    waiting = any(job_state(word) == "PENDING" for word in words)
    nodes = _text(item.get("nodes"))
    comment = item.get("comment")
    shared = _texts(item.get("shared"), f"{where}.shared")
    required = _object(item.get("required"))
    for identity in _ids(item, number, where):
        yield QueueEntry(
            id=identity,
            number=str(number),
            state=job_state(words[0]) if words else "UNKNOWN",
            reason=_text(item.get("state_reason")),
            partition=_text(item.get("partition")),
            user=_text(item.get("user_name", item.get("user"))),
            uid=_count(item, "user_id", where, -1),
            gid=_count(item, "group_id", where, -1),
            name=_text(item.get("name")),
            comment=_text(_object(comment).get("job") if isinstance(comment, dict) else comment),
            cpus=_count(item, "cpus", where, _count(required, "CPUs", where, 1)),
            node_count=_count(
                item, "node_count", where, _count(item, "allocation_nodes", where, 1)
            ),
            nodes=() if waiting else read_nodes(nodes, f"{where}.nodes"),
            expected_nodes=read_nodes(_text(item.get("scheduled_nodes")), f"{where}.nodes"),
            start=_time(item.get("start_time", times.get("start")), f"{where}.start_time"),
            end=_time(item.get("end_time", times.get("end")), f"{where}.end_time"),
            submitted=_time(item.get("submit_time", times.get("submission")), where),
            time_limit=None if limit is None else limit * 60.0,
            features=_text(item.get("features")),
            exclusive=any(word.lower() in {"none", "exclusive"} for word in shared),
            reservation=_text(item.get("resv_name")),
            required_nodes=_text(item.get("required_nodes")),
            dependency=_text(item.get("dependency")),
        )


def _ids(item: Mapping[str, Any], number: int, where: str) -> list[str]:
    """The job's id, or those of the tasks of an array that it stands for."""
    array = _count(item, "array_job_id", where, 0)
    if not array:
        return [str(number)]
    task = _number(item.get("array_task_id"), f"{where}.array_task_id")
    tasks = _text(item.get("array_task_string")).partition("%")[0]
    if not tasks:
        return [str(number) if task is None else f"{array}_{int(task)}"]
    try:
        found = expand(f"t[{tasks.replace(':', '/')}]")
    except InputError:
        return [f"{array}_[{tasks}]"]  # Slurm cuts long lists short, with an ellipsis
    return [f"{array}_{int(name[1:])}" for name in found[:MANY_TASKS]]


def parse_reservations_json(text: str) -> tuple[ReservationEntry, ...]:
    """The reservations of ``/reservations``; those without nodes are left out.

    Raises
    ------
    ParseError
    """
    found = []
    for item, where in _items(text, "reservations"):
        nodes = read_nodes(_text(item.get("node_list")), f"{where}.node_list")
        start = _time(item.get("start_time"), f"{where}.start_time")
        end = _time(item.get("end_time"), f"{where}.end_time")
        if start is None or end is None:
            raise ParseError(where, "no start_time or end_time")
        if nodes:
            found.append(
                ReservationEntry(
                    name=_name(item, where),
                    nodes=nodes,
                    start=start,
                    end=end,
                    users=_texts(item.get("users"), f"{where}.users"),
                    flags=_texts(item.get("flags"), f"{where}.flags"),
                )
            )
    return tuple(found)


def _items(text: str, key: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(text[:80], f"not JSON: {error}") from None
    if not isinstance(answer, dict):
        raise ParseError(text[:80], "not an object")
    errors = answer.get("errors")
    if isinstance(errors, list) and errors:
        raise ParseError(json.dumps(errors[0])[:160], "an error")
    items = answer.get(key)
    if not isinstance(items, list):
        raise ParseError(text[:80], f"no list of {key}")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise ParseError(f"{key}[{index}]", "not an object")
        yield item, f"{key}[{index}]"


def _number(value: Any, where: str) -> float | None:
    if isinstance(value, dict):
        if value.get("infinite") or value.get("set") is False:
            return None
        value = value.get("number")
    if value is None or value == "" or (isinstance(value, int) and value in NOT_SET):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParseError(where, f"{str(value)[:40]!r} is not a number")
    if not abs(value) < 1e18 or not isfinite(value):
        raise ParseError(where, "a number without sense")
    return float(value)


def _count(item: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = _number(item.get(key), f"{where}.{key}")
    if value is not None:
        return int(value)
    if default is None:
        raise ParseError(where, f"no {key}")
    return default


def _time(value: Any, where: str) -> float | None:
    return _number(value, where) or None


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(word for word in value.replace(",", " ").split() if word)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ParseError(where, f"{str(value)[:40]!r} is not a list of words")
    return tuple(word for word in value if word)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value != "(null)" else ""


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(item: Mapping[str, Any], where: str) -> str:
    name = _text(item.get("name"))
    if not name:
        raise ParseError(where, "no name")
    return name
