"""From Slurm's answers to a reading, case by case."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from coalloc.adapters.slurm.native.handover import handed_jobs, simple_features, to_hold
from coalloc.adapters.slurm.native.part import (
    LAYOUT,
    NativePart,
    account_facts,
    exit_code,
    job_facts,
    judge,
    layout_of,
)
from coalloc.adapters.slurm.parsers.records import (
    NodeRecord,
    ParseError,
    QueueEntry,
    ReservationEntry,
)
from coalloc.adapters.slurm.parsers.text import parse_fields
from coalloc.adapters.slurm.reading import (
    ENDLESS_S,
    Answers,
    chosen_nodes,
    expected_nodes,
    kept_nodes,
    local_waiting,
    local_waits,
    running_jobs,
    states_of,
    suspended_parts,
    unknown_jobs,
)
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.sites.parts import PartState
from coalloc.model.values import replace

NOW = 1_000_000.0
NODES = tuple(NodeRecord(name=f"n{i}", cpus=8, states=("IDLE",)) for i in range(1, 5))
JOB = QueueEntry(
    id="5",
    state="RUNNING",
    nodes=("n1", "n2"),
    node_count=2,
    cpus=10,
    start=NOW - 100.0,
    end=NOW + 500.0,
)
WAITING = QueueEntry(id="6", state="PENDING", partition="ours", submitted=NOW - 5.0, user="eve")


def settings(**given: Any) -> SlurmSettings:
    return SlurmSettings(cluster="a", **given)


def taken(*jobs: QueueEntry, nodes: tuple[NodeRecord, ...] = NODES, **given: Any) -> dict[str, Any]:
    answers = Answers(now=NOW, nodes=nodes, queue=jobs)
    found = running_jobs(settings(**given), answers, nodes)
    assert not any(job.ours for job in found)
    return {job.id: (dict(job.nodes), job.end) for job in found}


def test_whole_nodes_and_cpus() -> None:
    end = NOW + 500.0
    assert taken(JOB) == {"a:5": ({"n1": 1, "n2": 1}, end)}
    assert taken(JOB, slots="cpus") == {"a:5": ({"n1": 5, "n2": 5}, end)}
    odd = replace(JOB, cpus=9)
    assert taken(odd, slots="cpus") == {"a:5": ({"n1": 5, "n2": 4}, end)}
    assert taken(JOB, qualified=True) == {"a:5": ({"a/n1": 1, "a/n2": 1}, end)}


def test_a_node_belongs_to_the_job_that_leaves_it_last() -> None:
    longer = replace(JOB, id="7", nodes=("n2", "n3"), end=NOW + 900.0)
    assert taken(JOB, longer) == {
        "a:5": ({"n1": 1}, NOW + 500.0),
        "a:7": ({"n2": 1, "n3": 1}, NOW + 900.0),
    }


def test_what_slurm_allocated_beyond_the_queue_is_taken_too() -> None:
    nodes = (replace(NODES[0], cpus_taken=8), replace(NODES[1], cpus_taken=3), *NODES[2:])
    found = taken(JOB, nodes=nodes, slots="cpus")
    assert found["a:5"][0] == {"n1": 7, "n2": 3}, "ten, as unevenly as Slurm has laid them out"
    assert found["a:rest:n1"] == ({"n1": 1}, NOW)
    assert "a:rest:n2" not in found


def test_never_more_on_a_node_than_it_has() -> None:
    crowd = [replace(JOB, id=str(i), nodes=("n1",), cpus=6, end=NOW + i) for i in range(20, 24)]
    counts = [nodes["n1"] for nodes, _ in taken(*crowd, slots="cpus").values()]
    assert sum(counts) == 8


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"end": None, "time_limit": 300.0}, NOW + 200.0),
        ({"end": None, "time_limit": None}, NOW - 100.0 + ENDLESS_S),
        ({"state": "COMPLETING"}, NOW),
        ({"state": "SUSPENDED"}, NOW + 500.0),
        # Over its limit, and not let go of yet: its end lies in the past.
        ({"end": NOW - 50.0}, NOW - 50.0),
        # A state of a release to come: it has nodes, so it is taken to run.
        ({"state": "UNKNOWN"}, NOW + 500.0),
    ],
)
def test_until_when(changes: dict[str, Any], end: float) -> None:
    assert taken(replace(JOB, **changes))["a:5"][1] == end


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "REVOKED", "PENDING"])
def test_what_holds_no_nodes(state: str) -> None:
    assert taken(replace(JOB, state=state)) == {}


def test_ours_by_token_and_by_claim() -> None:
    mine = replace(JOB, comment="coalloc:12.1.0:c1")
    answers = Answers(now=NOW, nodes=NODES, queue=(mine,))
    assert running_jobs(settings(), answers, NODES) == ()
    assert running_jobs(settings(), replace(answers, claims={"c1"}), NODES) == ()
    # The token of somebody else's coalloc: its nodes are taken all the same.
    assert len(running_jobs(settings(), replace(answers, claims={"c2"}), NODES)) == 1
    handed = Answers(now=NOW, nodes=NODES, queue=(JOB,), claimed={"5"})
    assert running_jobs(settings(), handed, NODES) == ()


def test_unknown_words_are_counted() -> None:
    strange = replace(NODES[0], states=("IDLE", "HUMMING"))
    _, unknown = states_of([strange, strange, *NODES])
    assert unknown == {"node state HUMMING": 2}
    assert unknown_jobs([JOB, replace(JOB, state="UNKNOWN")]) == {"job state": 1}


def test_reservations_that_are_over_or_ours_keep_nothing() -> None:
    kept = ReservationEntry(name="r", nodes=("n1", "x9"), start=NOW, end=NOW + 60.0)
    answers = Answers(now=NOW, nodes=NODES, queue=(), reservations=(kept,))
    (found,) = kept_nodes(settings(qualified=True), answers, NODES)
    assert (found.id, found.nodes) == ("a:r", ("a/n1",))
    assert kept_nodes(settings(reservation="r"), answers, NODES) == ()
    over = replace(answers, now=NOW + 60.0)
    assert kept_nodes(settings(), over, NODES) == ()


def test_pending_jobs_keep_nodes_where_the_site_wants_it() -> None:
    job = replace(WAITING, start=NOW - 3.0, expected_nodes=("n1",), time_limit=60.0)
    answers = Answers(now=NOW, nodes=NODES, queue=(job,))
    assert expected_nodes(settings(), answers, NODES) == ()
    (found,) = expected_nodes(settings(pending="respect"), answers, NODES)
    assert (found.start, found.end) == (NOW, NOW + 60.0)
    handed = settings(pending="respect", handover_partition="ours")
    assert expected_nodes(handed, answers, NODES) == ()


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, ""),
        ({"reason": "PartitionDown"}, ""),
        ({"reason": "JobHeldAdmin"}, ""),
        ({"reason": "JobHeldUser"}, "JobHeldUser"),
        ({"reason": "JobArrayTaskLimit"}, "JobArrayTaskLimit"),
        ({"reason": "None", "dependency": "afterok:5(unfulfilled)"}, "Dependency"),
        ({"reason": "None", "start": NOW + 60.0}, "BeginTime"),
        ({"features": "ib&gpu"}, ""),
        ({"features": "ib|gpu"}, "constraint ib|gpu is not a list of features"),
        ({"required_nodes": "n3"}, "asks for nodes n3"),
    ],
)
def test_why_a_handed_job_waits(changes: dict[str, Any], waits: str) -> None:
    answers = Answers(now=NOW, nodes=NODES, queue=(replace(WAITING, **changes),))
    (job,) = handed_jobs(settings(handover_partition="ours"), answers)
    assert job.waits == waits


def test_what_is_asked_of_a_handed_job() -> None:
    job = replace(WAITING, cpus=32, node_count=4, features="ib,gpu", time_limit=60.0)
    answers = Answers(now=NOW, nodes=NODES, queue=(job, JOB))
    (whole,) = handed_jobs(settings(handover_partition="ours"), answers)
    (cpus,) = handed_jobs(settings(handover_partition="ours", slots="cpus"), answers)
    assert (whole.procs, cpus.procs, whole.features) == (4, 32, ("ib", "gpu"))
    assert handed_jobs(settings(), answers) == ()


def test_exclusive_job_takes_whole_nodes() -> None:
    job = replace(WAITING, cpus=2, node_count=2, exclusive=True)
    answers = Answers(now=NOW, nodes=NODES, queue=(job,))
    (found,) = handed_jobs(settings(handover_partition="ours", slots="cpus"), answers)
    assert found.procs == 16


def test_components_of_a_heterogeneous_job_stay_where_they_are() -> None:
    parts = tuple(replace(WAITING, id=f"92+{n}") for n in range(2))
    answers = Answers(now=NOW, nodes=NODES, queue=parts)
    found = handed_jobs(settings(handover_partition="ours"), answers)
    assert [job.waits for job in found] == ["heterogeneous job"] * 2
    assert to_hold(settings(handover_partition="ours"), parts) == []


@pytest.mark.parametrize(
    ("fields", "layout"),
    [
        ("NumNodes=3 NtasksPerN:B:S:C=0:0:*:* MinCPUsNode=1 OverSubscribe=OK Contiguous=0", ()),
        (
            "NumNodes=2-2 NtasksPerN:B:S:C=1:0:*:* MinCPUsNode=4 OverSubscribe=NO Contiguous=1",
            LAYOUT,
        ),
    ],
)
def test_layout_that_a_user_has_asked_for(fields: str, layout: Collection[str]) -> None:
    assert layout_of(parse_fields(f"JobId=5 {fields}")) == set(layout)


def test_only_what_slurm_would_start_is_held() -> None:
    given = settings(handover_partition="ours", handover_comment="order")
    assert to_hold(given, [WAITING]) == ["6"]
    for reason in ("PartitionDown", "JobHeldUser", "JobHeldAdmin", "Dependency", "None"):
        assert to_hold(given, [replace(WAITING, reason=reason)]) == []
    assert to_hold(given, [replace(WAITING, partition="main", comment="order")]) == ["6"]
    assert to_hold(given, [replace(WAITING, partition="main")]) == []
    assert to_hold(given, [replace(WAITING, comment="coalloc:1.1.0:c1")]) == []


def test_local_jobs_tell_how_long_they_waited() -> None:
    ours = replace(JOB, id="8", comment="coalloc:1.1.0:c1")
    jobs = [replace(JOB, id=f"{n}", submitted=NOW - 100.0, start=NOW - 10.0 * n) for n in (4, 3)]
    answers = Answers(now=NOW, nodes=NODES, queue=(*jobs, ours, WAITING))
    assert local_waits(answers) == ((60.0, 2), (70.0, 2))


def test_suspended_part_is_told() -> None:
    ours = replace(JOB, state="SUSPENDED", comment="coalloc:17.1.0:c1")
    answers = Answers(now=NOW, nodes=NODES, queue=(ours, replace(JOB, state="SUSPENDED")))
    (told,) = suspended_parts(answers)
    assert told == "a part of job 17 is suspended in Slurm, where it is job 5"


def test_waiting_jobs_are_counted() -> None:
    queue = (JOB, WAITING, replace(WAITING, id="8", comment="coalloc:1.1.0:c1"))
    answers = Answers(now=NOW, nodes=NODES, queue=queue)
    assert len(local_waiting(settings(), answers)) == 1
    assert len(local_waiting(settings(handover_partition="ours"), answers)) == 0


def test_constraints_that_are_lists() -> None:
    assert simple_features("") == ()
    assert simple_features("ib&x86_64") == ("ib", "x86_64")
    assert simple_features("[a|b]") is None
    assert simple_features("ib*4") is None


def ended(state: str, code: str, nodes: str = "n1", stopping: str = "") -> NativePart:
    part = NativePart(job="1", attempt=1, part=0, foreign="5", nodes=["n1"], stopping=stopping)
    facts = job_facts(
        {
            "JobState": state,
            "ExitCode": code,
            "Partition": "main",
            "NumNodes": "1",
            "NodeList": nodes,
            "StartTime": "2026-11-20T13:26:55",
            "EndTime": "2026-11-20T13:27:55",
        }
    )
    assert judge(part, facts)
    return part


@pytest.mark.parametrize(
    ("state", "code", "part_state", "reason", "codes"),
    [
        ("COMPLETED", "0:0", PartState.FINISHED, "exited", [0]),
        ("FAILED", "3:0", PartState.FINISHED, "exited", [3]),
        ("FAILED", "0:9", PartState.FINISHED, "signalled", [-9]),
        ("TIMEOUT", "0:15", PartState.FINISHED, "time_limit", [-15]),
        ("TIMEOUT", "0:0", PartState.FINISHED, "time_limit", [-15]),
        ("CANCELLED", "0:15", PartState.FINISHED, "cancelled_there", [-15]),
        ("OUT_OF_MEMORY", "0:0", PartState.FINISHED, "out_of_memory", [-9]),
        ("PREEMPTED", "0:0", PartState.FINISHED, "cancelled_there", [-15]),
        ("NODE_FAIL", "0:0", PartState.LOST, "node_failed", [-15]),
    ],
)
def test_how_a_handed_job_ended(
    state: str, code: str, part_state: PartState, reason: str, codes: list[int]
) -> None:
    part = ended(state, code)
    assert (part.state, part.reason, part.codes) == (part_state, reason, codes)
    assert part.ended == (part.started or 0.0) + 60.0


def test_one_that_never_ran_was_refused() -> None:
    part = ended("CANCELLED", "0:0", nodes="(null)")
    assert (part.state, part.reason, part.started) == (PartState.REFUSED, "cancelled_there", None)
    assert ended("CANCELLED", "0:15", stopping="by ann").reason == "aborted"


def test_an_unknown_state_is_no_end() -> None:
    part = NativePart(job="1", attempt=1, part=0, foreign="5", nodes=["n1"])
    facts = job_facts(
        {"JobState": "HUMMING", "ExitCode": "0:0", "Partition": "main", "NumNodes": "1"}
    )
    assert not judge(part, facts)
    assert not part.is_final


def test_lines_of_the_accounts() -> None:
    facts = account_facts("CANCELLED by 1000|0:15|2026-11-20T13:26:55|2026-11-20T13:27:55|n[1-2]")
    assert (facts.state, facts.code, facts.has_run) == ("CANCELLED", -15, True)
    for line in ("", "a|b", "COMPLETED|x|||"):
        with pytest.raises(ParseError):
            account_facts(line)
    with pytest.raises(ParseError, match="'-1:0' is not an exit code"):
        exit_code("-1:0", "")


def test_nodes_of_least_weight_come_first() -> None:
    nodes = [NodeRecord(name=f"n{n}", weight=weight) for n, weight in enumerate((50, 1, 5, 1))]
    assert [node.name for node in chosen_nodes(settings(), nodes)] == ["n1", "n3", "n2", "n0"]
