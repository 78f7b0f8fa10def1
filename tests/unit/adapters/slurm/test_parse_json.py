"""What Slurm's JSON may hold besides what was recorded: each field's shapes, and its faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coalloc.adapters.slurm.parse_json import (
    parse_jobs_json,
    parse_nodes_json,
    parse_reservations_json,
)
from coalloc.adapters.slurm.records import NodeEntry, ParseError, QueueEntry, ReservationEntry

NODE = {"name": "n1", "cpus": 16, "state": ["IDLE"]}
JOB = {"job_id": 7, "job_state": "RUNNING", "nodes": "n[1-2]"}
KEPT = {"name": "r", "node_list": "n[1-2]", "start_time": 100, "end_time": 200}


def node(**fields: Any) -> NodeEntry:
    (entry,) = parse_nodes_json(json.dumps({"nodes": [NODE | fields]}))
    return entry


def jobs(**fields: Any) -> tuple[QueueEntry, ...]:
    return parse_jobs_json(json.dumps({"jobs": [JOB | fields]}))


def job(**fields: Any) -> QueueEntry:
    (entry,) = jobs(**fields)
    return entry


def reservations(**fields: Any) -> tuple[ReservationEntry, ...]:
    return parse_reservations_json(json.dumps({"reservations": [KEPT | fields]}))


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not an object"),
        ('{"errors": [{"error": "Unable to contact slurm controller"}]}', "an error"),
        ('{"errors": [], "nodes": {}}', "no list of nodes"),
        ('{"errors": "none"}', "no list of nodes"),
        ('{"nodes": [3]}', "not an object"),
        ('{"nodes": [{"cpus": 3}]}', "no name"),
        ('{"nodes": [{"name": "(null)", "cpus": 3}]}', "no name"),
        ('{"nodes": [{"name": "n1"}]}', "no cpus"),
        ('{"nodes": [{"name": "n1", "cpus": 4294967294}]}', "no cpus"),
        ('{"nodes": [{"name": "n1", "cpus": true}]}', "'True' is not a number"),
        ('{"nodes": [{"name": "n1", "cpus": "four"}]}', "'four' is not a number"),
        ('{"nodes": [{"name": "n1", "cpus": 1e18}]}', "a number without sense"),
        ('{"nodes": [{"name": "n1", "cpus": NaN}]}', "a number without sense"),
        ('{"nodes": [{"name": "n1", "cpus": 1, "state": [1]}]}', "is not a list of words"),
        ('{"nodes": [{"name": "n1", "cpus": 1, "state": {}}]}', "is not a list of words"),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: str, what: str) -> None:
    with pytest.raises(ParseError, match=what):
        parse_nodes_json(answer)


def test_an_error_is_told_with_what_slurm_says_of_it() -> None:
    with pytest.raises(ParseError, match="Unable to contact"):
        parse_jobs_json('{"errors": [{"error": "Unable to contact slurm controller"}], "jobs": []}')


@pytest.mark.parametrize(
    ("value", "cpu_load"),
    [
        (150, 1.5),
        ({"set": True, "infinite": False, "number": 150}, 1.5),
        ({"set": False, "infinite": False, "number": 150}, None),
        ({"set": True, "infinite": True, "number": 150}, None),
        ({"number": 150}, 1.5),
        ({}, None),
        ("", None),
        (None, None),
        (4294967295, None),
        (-2, None),
    ],
)
def test_numbers_have_many_shapes(value: Any, cpu_load: float | None) -> None:
    assert node(cpu_load=value).cpu_load == cpu_load


@pytest.mark.parametrize(
    ("fields", "cpus"),
    [
        ({}, 16),
        ({"effective_cpus": 12}, 12),
        ({"effective_cpus": 0}, 16),
        ({"effective_cpus": 40}, 16),
        # a smaller count than is allocated cannot be right
        ({"effective_cpus": 4, "alloc_cpus": 6}, 16),
        ({"effective_cpus": 6, "alloc_cpus": 6}, 6),
        ({"cpus": 0}, 1),
    ],
)
def test_processors_of_a_node(fields: dict[str, int], cpus: int) -> None:
    assert node(**fields).cpus == cpus


def test_fields_of_a_node_that_changed_their_names() -> None:
    old = node(
        state="idle",
        state_flags=["DRAIN"],
        free_memory=100,
        active_features="a,b",
        partitions=["x", ""],
    )
    new = node(state=["IDLE", "DRAIN"], free_mem={"set": True, "number": 100}, partitions=["x"])
    assert set(old.states) == set(new.states) == {"IDLE", "DRAIN"}
    assert (old.free_mb, new.free_mb) == (100, 100)
    assert (old.features, new.features) == (("a", "b"), ())
    assert old.partitions == new.partitions == ("x",)
    assert (old.weight, old.reason, old.memory_mb) == (1, "", None)


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({}, ["7"]),
        ({"array_job_id": 0, "array_task_string": ""}, ["7"]),
        ({"array_job_id": 5, "array_task_id": {"set": True, "number": 3}}, ["5_3"]),
        ({"array_job_id": 5, "array_task_id": {"set": False, "number": 0}}, ["7"]),
        ({"array_job_id": 5, "array_task_string": "0-2%1"}, ["5_0", "5_1", "5_2"]),
        ({"array_job_id": 5, "array_task_string": "0-6:3"}, ["5_0", "5_3", "5_6"]),
        # Slurm cuts long lists short
        ({"array_job_id": 5, "array_task_string": "1,3,7,..."}, ["5_[1,3,7,...]"]),
    ],
)
def test_a_job_stands_for_the_tasks_of_its_array(fields: dict[str, Any], ids: list[str]) -> None:
    assert [entry.id for entry in jobs(**fields)] == ids


def test_a_pending_job_holds_no_nodes_yet_may_expect_some() -> None:
    waiting = job(job_state=["PENDING"], scheduled_nodes="n3")
    assert (waiting.nodes, waiting.expected_nodes) == ((), ("n3",))
    assert job(scheduled_nodes="").nodes == ("n1", "n2")


def test_a_job_of_the_accounts_and_one_of_the_queue_read_alike() -> None:
    queued = job(
        time_limit={"set": True, "number": 10},
        start_time=100,
        end_time={"set": True, "number": 0},
        submit_time=90,
        cpus=4,
        node_count=2,
        user_name="ann",
        comment="ours",
    )
    told = {
        "job_id": 7,
        "state": {"current": ["RUNNING"]},
        "time": {"limit": 10, "start": 100, "end": 0, "submission": 90},
        "required": {"CPUs": 4},
        "allocation_nodes": 2,
        "user": "ann",
        "comment": {"job": "ours"},
    }
    (accounted,) = parse_jobs_json(json.dumps({"jobs": [told]}))
    for entry in (queued, accounted):
        assert (entry.time_limit, entry.start, entry.end, entry.submitted) == (600.0, 100, None, 90)
        assert (entry.cpus, entry.node_count, entry.user, entry.comment) == (4, 2, "ann", "ours")
        assert entry.state == "RUNNING"


def test_a_job_that_says_little_has_what_is_least() -> None:
    (bare,) = parse_jobs_json('{"jobs": [{"job_id": 7}]}')
    assert (bare.state, bare.cpus, bare.node_count, bare.uid) == ("UNKNOWN", 1, 1, -1)
    assert (bare.time_limit, bare.start, bare.exclusive) == (None, None, False)
    assert job(shared=["none"]).exclusive
    assert not job(shared=["user"]).exclusive


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"start_time": 0}, "no start_time or end_time"),
        ({"end_time": {"set": False, "number": 5}}, "no start_time or end_time"),
        ({"name": ""}, "no name"),
        ({"node_list": "n[1-"}, "reservations"),
        ({"flags": 3}, "is not a list of words"),
    ],
)
def test_a_reservation_that_cannot_be_read_is_told(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(ParseError, match=what):
        reservations(**fields)


def test_reservations_without_nodes_keep_nothing() -> None:
    assert reservations(node_list="") == ()
    assert reservations(node_list="(null)", name="") == ()
    (kept,) = reservations(users="ann,bob", flags=["MAINT"])
    assert (kept.nodes, kept.start, kept.end) == (("n1", "n2"), 100.0, 200.0)
    assert (kept.users, kept.flags) == (("ann", "bob"), ("MAINT",))
