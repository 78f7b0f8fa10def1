"""Workflows in the store: their tasks, what these run, and stores from before there were any."""

from __future__ import annotations

from pathlib import Path

import pytest

from coalloc.core.base.effects import SaveJob, SaveLaunch
from coalloc.core.base.messages import Prepare
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.jobs.workflows import first_record
from coalloc.daemon.outbox import Launches
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.model.jobs import Edge, Task, WorkflowJob
from coalloc.model.sites.parts import Launch
from coalloc.runtime import logs
from tests.support.stored import event, saved_launch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "coalloc.db"


def flow(state: JobState = JobState.RUNNING, ended: float | None = None) -> JobRecord:
    job = WorkflowJob(
        id="7",
        tasks=(Task(id="a", work=1.0), Task(id="b", work=1.0)),
        edges=(Edge(parent="a", child="b"),),
    )
    return JobRecord(id="7", job=job, name="w", user="ann", state=state, ended=ended, retries=2)


def saved(record: JobRecord) -> SaveJob:
    return SaveJob(record=record)


def task(number: int, ended: float | None = None) -> JobRecord:
    first = first_record(flow(), "ab"[number - 1], number)
    if ended is None:
        return first
    return JobRecord(
        id=first.id,
        job=first.job,
        name=first.name,
        user="ann",
        flow="7",
        task=first.task,
        state=JobState.COMPLETED,
        ended=ended,
    )


def test_a_start_knows_what_has_run_of_a_workflow_that_lives(path: Path) -> None:
    store = Store(path)
    store.commit([saved(flow()), saved(task(1, ended=5.0))])
    remembered = recall(store, keep_ended=0).remembered
    records = {record.id: record for record in remembered.jobs}
    assert records["7.1"].state is JobState.COMPLETED
    assert (records["7.1"].flow, records["7.1"].task) == ("7", "a")
    assert records["7"].retries == 2
    store.close()


def test_what_has_run_of_a_workflow_that_lives_is_not_pruned(path: Path) -> None:
    store = Store(path)
    store.commit([saved(flow()), saved(task(1, ended=5.0)), event(1, time=100.0)])
    store.prune(keep_events=1)
    assert [row.id for row in store.tasks("7")] == ["7.1"]
    store.commit([saved(flow(JobState.COMPLETED, ended=6.0))])
    store.prune(keep_events=1)
    assert store.tasks("7") == []
    assert store.job("7") is None
    store.close()


def test_with_a_workflow_goes_what_its_tasks_run(path: Path) -> None:
    store = Store(path)
    launches = [saved_launch(name) for name in ("7", "7.1", "7.2", "70", "70.1")]
    store.commit([saved(flow(JobState.COMPLETED, ended=6.0)), *launches, event(1, time=100.0)])
    store.prune(keep_events=1)
    assert [name for name in ("7", "7.1", "7.2", "70", "70.1") if store.launch(name)] == [
        "70",
        "70.1",
    ]
    store.close()


def order(task_name: str, number: int) -> Prepare:
    return Prepare(
        job=f"7.{number}",
        attempt=1,
        part=0,
        nodes={"n": 3},
        all_nodes={"n": 3},
        first_rank=0,
        size=3,
        uid=1,
        gid=1,
        lease_s=1.0,
        name=f"w.{task_name}",
        task=task_name,
    )


def test_a_task_runs_its_own_command_in_what_its_workflow_has_in_common(path: Path) -> None:
    store = Store(path)
    shared = Launch(argv=(), env={"A": "1"}, cwd="/data", stdout="out")
    own = Launch(argv=("./a", "{task}"), cwd="")
    store.commit(
        [
            SaveLaunch(job="7", launch=shared),
            SaveLaunch(job="7.1", launch=own),
        ]
    )
    launches = Launches(store, logs.get_logger())
    # What a file says is taken as it stands.
    expected = Launch(argv=("./a", "{task}"), env={"A": "1"}, cwd="/data", stdout="out")
    assert launches.of_task(order("a", 1)) == expected
    assert launches.of_task(order("b", 2)) is None
    store.close()


def test_a_template_is_filled_in_word_by_word(path: Path) -> None:
    store = Store(path)
    template = Launch(argv=("run", "{task}", "-n{procs}", "{name}/{id}", "{other} {{task}}"))
    store.commit([SaveLaunch(job="7", launch=template)])
    launch = Launches(store, logs.get_logger()).of_task(order("a b; rm {procs}", 1))
    assert launch is not None
    assert launch.argv == (
        "run",
        "a b; rm {procs}",
        "-n3",
        "w/7.1",
        "{other} {a b; rm {procs}}",
    )
    store.close()
