"""Workflows in replays: jobs of a log made workflows, carried out task by task, and measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.cli import main
from coalloc.model.errors import InputError
from coalloc.model.jobs import Edge, RigidJob, Task, WorkflowJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.values import replace
from coalloc.simulation.flow_runs import critical_path, wholes
from coalloc.simulation.kinds import LEAST_S, Mix, make_workflows
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce import plots
from coalloc.simulation.study.command import ONLINE
from coalloc.simulation.study.declared import read_study
from coalloc.simulation.study.measures import figures
from coalloc.simulation.study.pieces import Piece, stage
from coalloc.simulation.study.rows import read_rows
from coalloc.simulation.trace import Outcome, Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload

KTH = "data/swf/KTH-SP2-1996-2.1-cln.swf.gz"
STUDY = read_study(ONLINE)
DAX = "data/workflows/dax/Montage_25.xml"


def platform(*sizes: int, **fields: float) -> Platform:
    clusters = tuple(
        Cluster(
            name=name,
            nodes=tuple(Node(name=f"{name}{n}") for n in range(1, size + 1)),
            **fields,  # type: ignore[arg-type]
        )
        for name, size in zip("abc", sizes, strict=False)
    )
    return Platform(name="p", clusters=clusters)


def logged(number: int, submit: float, procs: int, seconds: float, **fields: Any) -> LoggedJob:
    job = RigidJob(
        id=str(number), submitted=submit, earliest=submit, procs=procs, base_time=seconds
    )
    given = {"run_s": seconds, "killed": False, "number": number, "line": number, **fields}
    return LoggedJob(job=job, **given)


def as_flow(one: LoggedJob, tasks: list[Task], edges: tuple[Edge, ...] = ()) -> LoggedJob:
    flow = WorkflowJob(
        id=one.job.id,
        submitted=one.job.submitted,
        earliest=one.job.earliest,
        tasks=tuple(tasks),
        edges=edges,
    )
    return replace(one, flow=flow)


def task(name: str, work: float, low: int = 1, high: int | None = None, pf: float = 0.0) -> Task:
    return Task(id=name, work=work, min_procs=low, max_procs=high or low, parallel_fraction=pf)


def replayed(jobs: list[LoggedJob], site: Platform, policy: str = "easy", **given: Any) -> Trace:
    trace = replay(Workload(name="w", jobs=tuple(jobs)), site, policy, given)
    assert verify(trace) == []
    return trace


CHAIN = (Edge(parent="x", child="y"), Edge(parent="y", child="z"))


def test_tasks_run_behind_each_other_and_the_whole_is_one_job() -> None:
    one = as_flow(
        logged(1, 0.0, 2, 60.0), [task("x", 10.0), task("y", 20.0, 2), task("z", 5)], CHAIN
    )
    trace = replayed([one, logged(2, 1.0, 1, 100.0)], platform(2))
    assert trace.start.tolist() == [0.0, 101.0, 121.0, 1.0]
    assert trace.end.tolist() == [10.0, 121.0, 126.0, 101.0]
    found = wholes(trace)
    assert found.is_flow.tolist() == [True, False]
    assert found.end.tolist() == [126.0, 101.0]
    assert found.length.tolist() == [35.0, 100.0]
    row = figures(trace)
    assert (row["jobs"], row["refused"]) == (2, 0)
    assert row["response_flows"] == 126.0
    assert row["wait_flows"] == pytest.approx(126.0 - 35.0)
    assert row["slowdown_flows"] == pytest.approx(126.0 / 35.0)
    assert (row["wait_others"], row["slowdown_others"]) == (0.0, 1.0)
    assert row["wait_mean"] == pytest.approx((126.0 - 35.0) / 2)


def test_tasks_take_the_same_share_of_their_estimates_as_the_job() -> None:
    one = as_flow(logged(1, 0.0, 1, 100.0, run_s=25.0), [task("x", 40.0), task("y", 60.0)])
    trace = replayed([one], platform(1))
    assert sorted(trace.end - trace.start) == [10.0, 15.0]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_workflow_of_one_task_is_as_its_job(policy: str) -> None:
    rng = np.random.default_rng(3)
    plain, flows, submit = [], [], 0.0
    for number in range(1, 41):
        submit += float(rng.integers(0, 9))
        procs, seconds = int(rng.integers(1, 6)), float(rng.integers(5, 60))
        plain.append(logged(number, submit, procs, seconds))
        flows.append(as_flow(plain[-1], [task("only", seconds, procs)]))
    trace = replayed(flows, platform(6), policy)
    assert trace.path == "general"
    assert trace.start.tolist() == replayed(plain, platform(6), policy).start.tolist()


def test_data_are_waited_for_between_clusters() -> None:
    edges = (Edge(parent="x", child="y", gb=1.0),)
    tasks = [task("x", 10.0, 2), task("y", 20.0, 3)]
    one = as_flow(logged(1, 0.0, 3, 60.0), tasks, edges)
    busy = logged(2, 0.0, 3, 10.0)
    trace = replayed([busy, one], platform(3, 2, link_gbps=1.0))
    assert trace.start.tolist() == [0.0, 0.0, 18.0]


def test_the_checker_finds_a_task_that_starts_too_early() -> None:
    one = as_flow(logged(1, 0.0, 2, 60.0), [task("x", 10.0), task("y", 20.0), task("z", 5)], CHAIN)
    trace = replayed([one], platform(2))
    start, end = trace.start.copy(), trace.end.copy()
    start[2], end[2] = start[2] - 3.0, end[2] - 3.0
    faults = verify(dataclasses.replace(trace, start=start, end=end))
    assert faults[0] == "job 1 task z: starts at 27 s, task y allows 30 s"


def test_a_workflow_that_can_never_run_is_refused_as_a_whole() -> None:
    one = as_flow(logged(1, 0.0, 2, 60.0), [task("x", 10.0), task("y", 20.0, 9)])
    trace = replayed([one, logged(2, 0.0, 1, 5.0)], platform(2))
    assert trace.outcome.tolist() == [Outcome.REFUSED, Outcome.REFUSED, Outcome.COMPLETED]
    row = figures(trace)
    assert (row["jobs"], row["refused"], row["wait_flows"]) == (1, 1, None)


@pytest.mark.parametrize("policy", ["easy", "auto"])
def test_malleable_tasks_take_as_long_as_on_their_allotment(policy: str) -> None:
    tasks = [task("x", 100.0, 1, 4, 0.9), task("y", 60.0, 1, 4, 0.5)]
    one = as_flow(logged(1, 0.0, 4, 100.0, run_s=50.0), tasks, (Edge(parent="x", child="y"),))
    trace = replayed([one, logged(2, 0.0, 1, 30.0)], platform(4), policy)
    for row, (work, fraction) in enumerate([(100.0, 0.9), (60.0, 0.5)]):
        seconds = 0.5 * work * (1.0 - fraction + fraction / trace.procs[row])
        assert trace.end[row] - trace.start[row] == pytest.approx(seconds)


def test_the_stream_has_no_workflows() -> None:
    one = as_flow(logged(1, 0.0, 1, 60.0), [task("x", 10.0)])
    with pytest.raises(InputError, match="easy with workflows needs the general path"):
        replay(Workload(name="w", jobs=(one,)), platform(1), "easy", path="stream")


def test_made_workflows_keep_the_work_and_the_width(shared_file: Callable[[str], Path]) -> None:
    folder, rng = shared_file(DAX).parent, np.random.default_rng(1)
    jobs = tuple(
        logged(n, float(n), int(rng.integers(1, 65)), float(rng.integers(300, 9000)))
        for n in range(200)
    )
    workload = Workload(name="w", jobs=jobs)
    made = make_workflows(workload, Mix(flows=0.4, arrays=0.3), folder, 5)
    flows = [one for one in made.jobs if one.flow is not None]
    assert len(flows) == made.adjusted["made workflows"] > 40
    assert made.adjusted["made arrays"] > 30
    assert all(one.run_s >= LEAST_S for one in flows)
    for one in flows:
        assert one.flow is not None
        area = sum(each.work * each.min_procs for each in one.flow.tasks)
        assert area == pytest.approx(one.job.procs * one.job.base_time, rel=0.02)
        assert max(each.max_procs for each in one.flow.tasks) <= one.job.procs
    assert sum(one.job.procs * one.run_s for one in made.jobs) == pytest.approx(
        sum(one.job.procs * one.run_s for one in jobs)
    )
    # A job's shape does not depend on the share, nor on other jobs.
    more = make_workflows(workload, Mix(flows=1.0), folder, 5)
    by_id = {one.job.id: one.flow for one in more.jobs}
    assert all(by_id[one.job.id] == one.flow for one in flows)
    with pytest.raises(InputError, match="is absent"):
        make_workflows(workload, Mix(flows=1.0), folder / "none", 5)


def test_malleable_tasks_take_as_long_on_the_widths_of_rigid_ones(
    shared_file: Callable[[str], Path],
) -> None:
    workload = Workload(name="w", jobs=tuple(logged(n, 0.0, 24, 4000.0) for n in range(9)))
    folder = shared_file(DAX).parent
    rigid, free = (
        make_workflows(workload, Mix(flows=1.0, malleable=some), folder) for some in (False, True)
    )
    for one, other in zip(rigid.jobs, free.jobs, strict=True):
        assert one.flow is not None
        assert other.flow is not None
        for a, b in zip(one.flow.tasks, other.flow.tasks, strict=True):
            assert (b.min_procs, b.max_procs) == (1, 24)
            fraction = b.parallel_fraction
            assert b.work * (1.0 - fraction + fraction / a.min_procs) == pytest.approx(a.work)


def test_the_longest_path_is_that_of_the_run_times() -> None:
    flow = WorkflowJob(id="f", tasks=(task("x", 1), task("y", 1), task("z", 1)), edges=CHAIN[:1])
    assert critical_path(flow, [3.0, 4.0, 6.0]) == 7.0


@pytest.mark.parametrize("name", ["workflows-10", "workflows-30", "workflows-malleable", "mixture"])
def test_scenarios_have_workflows(shared_file: Callable[[str], Path], name: str) -> None:
    piece, scenario = Piece(log=STUDY.logs["KTH-SP2"], number=2, size=1500), STUDY.scenarios[name]
    workload, _ = stage(piece, scenario, shared_file(KTH).parent, 300, shapes=STUDY.shapes)
    long = sum(one.run_s >= LEAST_S for one in workload.jobs)
    made = sum(one.flow is not None for one in workload.jobs)
    assert 0.3 * scenario.mix.flows * long < made < 1.7 * scenario.mix.flows * long
    assert len({one.job.id for one in workload.jobs}) == len(workload.jobs)


def test_the_report_compares_workflows_and_others(
    shared_file: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plots, "render", lambda *_: {})  # pictures take longer than replays
    folder = shared_file(KTH).parent
    command = ["reproduce", "online", "--data", str(folder), "-o", str(tmp_path), "--quiet"]
    command += ["--logs", "KTH-SP2", "--pieces", "1", "--jobs", "15", "--half", "choose"]
    command += ["--scenarios", "workflows", "--policies", "easy,easy-saf", "--processes", "1"]
    assert main.main(command) == 0
    assert "report" in capsys.readouterr().out
    rows = list(read_rows(tmp_path / "online.rows.jsonl").values())
    assert {row["scenario"] for row in rows} == {
        *("workflows-10", "workflows-30", "workflows-malleable", "mixture")
    }
    page = (tmp_path / "online.md").read_text()
    part = page.partition("### mixture, by `easy`")[2]
    assert "| response of workflows | their wait | response of others | their wait |" in part
    assert "| `mixture` by `easy` | `easy-saf` |" in page
