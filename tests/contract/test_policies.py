"""What every row of the registry owes, whatever it computes."""

import copy
import functools
import re
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest

from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import parse_options, read_options
from coalloc.policies.registry import FOR_SITES, POLICIES, PUBLISHED, lookup
from tests.support.strip_packing import perfect_instances, read_instance

RIGID = {"kind": "rigid", "procs": 2, "base_time": 10.0}
CLUSTERS: list[dict[str, Any]] = [
    {
        "name": "alpha",
        "link_gbps": 1.0,
        "nodes": [
            {"name": "a[1-4]", "slots": 2, "memory_mb": 100},
            {"name": "a5", "features": ["gpu"], "power": 0.75},
            {"name": "a6", "state": "down"},
        ],
    },
    {
        "name": "beta",
        "link_gbps": 0.5,
        "intra_gbps": 10.0,
        "nodes": [{"name": "b[1-6]", "power": 0.5}, {"name": "b7", "free_at": 40.0}],
    },
]
MIXED = {
    "format": "coalloc-snapshot/1",
    "time": 5.0,
    "clusters": CLUSTERS,
    "queue": [
        {"id": "wide", **RIGID, "procs": 12, "proc_gbps": 0.01, "sigma": 0.7},
        {"id": "chatty", **RIGID, "procs": 12, "proc_gbps": 1.0},
        {"id": "never", **RIGID, "procs": 99},
        {"id": "gpu", **RIGID, "procs": 1, "features": ["gpu"]},
        {"id": "gpus", **RIGID, "features": ["gpu"]},
        {"id": "large", **RIGID, "memory_mb_per_proc": 60},
        {"id": "held", **RIGID, "held": True},
        {"id": "waits", **RIGID, "after": ["held"]},
        {"id": "second", **RIGID, "after": ["wide", "running", "ended"]},
        {"id": "later", **RIGID, "earliest": 33.0, "weight": 3.0},
        {"id": "bends", "kind": "moldable", "times": [30.0, 16.0, 12.0], "proc_gbps": 0.1},
        {"id": "passed", **RIGID, "procs": 8, "passed_over": 50},
        {
            "id": "flow",
            "kind": "workflow",
            "after": ["gpu"],
            "tasks": [
                {"id": "t1", "work": 20.0, "parallel_fraction": 0.9, "max_procs": 4, "comm_gb": 1},
                {"id": "t2", "work": 5.0},
                {"id": "t3", "work": 0.0},
            ],
            "edges": [{"from": "t1", "to": "t2", "gb": 1.5}, {"from": "t1", "to": "t3"}],
        },
        {
            "id": "half",
            "kind": "workflow",
            "tasks": [{"id": "t2", "work": 6.0, "max_procs": 2}, {"id": "t3", "work": 4.0}],
            "edges": [{"from": "t1", "to": "t2", "gb": 0.5}, {"from": "t2", "to": "t3", "gb": 1}],
            "started": [{"task": "t1", "clusters": ["beta"], "end": 9.0}],
        },
        {"id": "chunks", "kind": "divisible", "work": 100.0, "chunk_s": 10.0},
    ],
    "running": [{"id": "running", "nodes": {"a1": 1, "b1": 1}, "start": 0.0, "end": 20.0}],
    "reservations": [
        {"id": "r", "nodes": ["a[2-3]"], "start": 12.0, "end": 60.0, "jobs": ["passed"]}
    ],
}
# They plan starts now only, and defer what does not fit beside it.
NOW_ONLY = {"mbpc", "mbpc-published", "pas", "cbs", "jpn"}
EARLY: dict[str, Any] = {
    "format": "coalloc-snapshot/1",
    "time": 100.0,
    "clusters": [
        {"name": "alpha", "link_gbps": 1.0, "nodes": [{"name": "a[1-5]"}]},
        {"name": "beta", "link_gbps": 1.0, "nodes": [{"name": "b[1-4]"}]},
    ],
    "queue": [
        {"id": "begins", **RIGID, "procs": 8, "earliest": 3700.0, "passed_over": 50},
        {"id": "follows", **RIGID, "procs": 8, "after": ["runs"], "weight": 9.0},
        {"id": "held", **RIGID, "procs": 8, "held": True},
        {"id": "behind", **RIGID, "procs": 8, "after": ["held"]},
        {"id": "first", **RIGID, "procs": 4, "base_time": 7200.0},
        {"id": "child", **RIGID, "procs": 8, "after": ["first"], "passed_over": 50},
        {"id": "second", **RIGID, "procs": 3},
    ],
    "running": [{"id": "runs", "nodes": {"b4": 1}, "start": 0.0, "end": 1000.0}],
}
PAIR = [
    {"name": "alpha", "link_gbps": 0.5, "nodes": [{"name": "a[1-4]", "power": 0.25}]},
    {"name": "beta", "link_gbps": 0.5, "intra_gbps": 10.0, "nodes": [{"name": "b[1-4]"}]},
]
# Jobs that run into their limits on the weak nodes, on all nodes, and as the limit stands in.
LIMITS: dict[str, Any] = {
    "format": "coalloc-snapshot/1",
    "clusters": PAIR,
    "queue": [
        {"id": "weak", **RIGID, "procs": 4, "base_time": 600.0, "time_limit": 900.0},
        {"id": "given", "kind": "rigid", "procs": 4, "time_limit": 300.0, "clusters": ["alpha"]},
        {"id": "all", **RIGID, "procs": 6, "base_time": 500.0, "time_limit": 50.0, "sigma": 0.5},
        {"id": "bends", "kind": "moldable", "times": [300.0, 160.0, 120.0], "time_limit": 150.0},
        {"id": "behind", **RIGID, "procs": 8},
        {
            "id": "flow",
            "kind": "workflow",
            "time_limit": 70.0,
            "tasks": [
                {"id": "t", "work": 400.0, "parallel_fraction": 0.9, "max_procs": 6, "comm_gb": 1},
                {"id": "u", "work": 90.0},
            ],
            "edges": [{"from": "t", "to": "u", "gb": 0.5}],
        },
        {"id": "cut", "kind": "divisible", "work": 900.0, "chunk_s": 20.0, "time_limit": 50.0},
    ],
}
# Tasks that no cluster holds, on links of which running work and a job take their shares.
SPREAD: dict[str, Any] = {
    "format": "coalloc-snapshot/1",
    "clusters": PAIR,
    "queue": [
        {
            "id": "flow",
            "kind": "workflow",
            "tasks": [
                {"id": "first", "work": 60.0, "parallel_fraction": 1.0, "min_procs": 6},
                {"id": "talks", "work": 60.0, "min_procs": 5, "max_procs": 8, "comm_gb": 1.0},
                {"id": "too", "work": 60.0, "min_procs": 6, "comm_gb": 2.0},
                {"id": "last", "work": 60.0, "max_procs": 8, "parallel_fraction": 1.0},
            ],
            "edges": [{"from": "first", "to": "too", "gb": 0.5}, {"from": "talks", "to": "last"}],
        },
        {"id": "job", **RIGID, "procs": 6, "base_time": 30.0, "proc_gbps": 0.1},
    ],
    "running": [
        {"id": "r", "nodes": {"a1": 1, "b1": 1}, "start": 0.0, "end": 40.0}
        | {"link_gbps": {"alpha": 0.1, "beta": 0.1}}
    ],
}
EMPTY = {"format": "coalloc-snapshot/1", "clusters": [], "queue": []}
NO_NODES = {"format": "coalloc-snapshot/1", "clusters": [{"name": "a", "nodes": []}]}
SNAPSHOTS = {
    "mixed": MIXED,  # something of everything
    "limits": LIMITS,
    "spread": SPREAD,
    "empty": EMPTY,  # no cluster at all
    "idle": {**EMPTY, "clusters": CLUSTERS},  # nothing to do
    "nowhere": {**NO_NODES, "queue": [{"id": "1", **RIGID}]},  # a cluster without nodes
    "stale": {  # nothing is usable, and nothing is infeasible
        **EMPTY,
        "clusters": [{**CLUSTERS[0], "stale": True}],
        "queue": [{"id": "1", **RIGID}],
    },
}


WORK = 50_000
"""What a search may do here; the simple policies end by themselves."""


def solve(name: str, snapshot: Snapshot, work: int = WORK, **given: Any) -> Plan:
    policy = lookup(name)
    return policy.solve(snapshot, read_options(given, policy.options), Budget(seed=7, work=work))


@functools.cache
def first_plan(name: str, case: str) -> Plan:
    """The plan that two tests look at."""
    return solve(name, read_snapshot(SNAPSHOTS[case]))


@pytest.mark.parametrize("case", SNAPSHOTS)
@pytest.mark.parametrize("name", POLICIES)
def test_answers_every_job_once(name: str, case: str) -> None:
    snapshot, plan = read_snapshot(SNAPSHOTS[case]), first_plan(name, case)
    asked = [
        (job.id, task)
        for job in snapshot.queue
        for task in ([t.id for t in job.tasks] if isinstance(job, WorkflowJob) else [None])
    ]
    pieces = {(p.job, p.task) for p in plan.placements if p.chunks is not None}
    answered = [(p.job, p.task) for p in plan.placements if p.chunks is None]
    answered += [*pieces, *((d.job, d.task) for d in plan.deferred)]
    assert sorted(answered, key=str) == sorted(asked, key=str)


@pytest.mark.parametrize("case", SNAPSHOTS)
@pytest.mark.parametrize("name", POLICIES)
def test_is_feasible_repeatable_and_pure(name: str, case: str) -> None:
    snapshot, plan = read_snapshot(SNAPSHOTS[case]), first_plan(name, case)
    before = copy.deepcopy(snapshot)
    assert check(snapshot, plan).violations == ()
    assert solve(name, snapshot) == plan
    assert snapshot == before
    assert plan.policy == name
    assert {"work", "seed"} <= set(plan.stats)
    assert read_plan(write_plan(plan)) == plan


@pytest.mark.parametrize("name", POLICIES)
def test_no_run_is_planned_beyond_its_time_limit(name: str) -> None:
    limits = {job["id"]: job.get("time_limit", inf) for job in LIMITS["queue"]}
    plan = first_plan(name, "limits")
    assert [p for p in plan.placements if p.end - p.start > limits[p.job] * (1.0 + 1e-9)] == []
    assert name in NOW_ONLY or not plan.deferred


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in NOW_ONLY])
def test_tasks_that_no_cluster_holds_are_spread_as_links_allow(name: str) -> None:
    snapshot, policy = read_snapshot(SPREAD), lookup(name)
    options = read_options({}, policy.options)
    plan = policy.solve(snapshot, options, Budget(work=WORK, live=True))
    assert not plan.deferred
    assert plan.options.get("workflow_links", "booked") == "booked"  # what a daemon starts
    assert check(snapshot, plan).violations == ()
    assert not first_plan(name, "spread").deferred


@pytest.mark.parametrize("name", POLICIES)
def test_each_incumbent_is_a_plan(name: str) -> None:
    problem = read_snapshot(MIXED)
    policy, seen = lookup(name), list[Plan]()
    options = read_options({}, policy.options)
    last = policy.solve(problem, options, Budget(work=WORK), seen.append)
    for plan in seen:
        assert check(problem, plan).violations == ()
        assert plan.objective.deferred == last.objective.deferred
    values = [plan.objective.value for plan in [*seen, last]]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("name", POLICIES)
def test_jobs_that_may_not_start_yet_keep_no_others_waiting(name: str) -> None:
    eligible = [job for job in EARLY["queue"] if job["id"] in ("first", "second")]
    full = solve(name, read_snapshot(EARLY))
    alone = solve(name, read_snapshot({**EARLY, "queue": eligible}))
    starts = {p.job for p in alone.placements if p.start == EARLY["time"]}
    assert starts == ({"second"} if name == "gang" else {"first", "second"})
    begun = {p.job for p in full.placements if p.start == EARLY["time"]}
    # Off line, completions of what waits for the first job may want it on the faster nodes later.
    assert begun == ({"second"} if name in ("auto", "bicriteria") else starts)
    deferred = {entry.job: (str(entry.reason), entry.detail) for entry in full.deferred}
    assert deferred["held"][0] == "held"
    assert deferred["behind"][0] == "dependency"
    if name in NOW_ONLY:
        assert deferred["begins"][0] == "begin_time"
        assert "may not start for 3600 s" in deferred["begins"][1]
        assert "waits for job first" in deferred["child"][1]
        assert deferred["follows"][0] == deferred["child"][0] == "dependency"


@pytest.mark.parametrize("eligible", ["jobs", "workflow"])
@pytest.mark.parametrize("name", POLICIES)
def test_on_line_what_may_not_start_yet_is_in_no_order(name: str, eligible: str) -> None:
    """Jobs and workflows with a begin time, behind others, or held; heavy, and passed over."""
    policy, heavy = lookup(name), {"weight": 1e6, "passed_over": 50, "submitted": -1e6}
    tasks = {
        "kind": "workflow",
        "tasks": [{"id": f"t{n}", "work": 60.0, "min_procs": 8, "max_procs": 8} for n in (1, 2)],
        "edges": [{"from": "t1", "to": "t2"}],
    }
    queue = [job for job in EARLY["queue"] if job["id"] in ("first", "second")]
    if eligible == "workflow":
        queue[1] = {**tasks, "id": "second", "tasks": [{"id": "t1", "work": 60.0}], "edges": []}
    kept_back = [
        {"id": f"{kind} {why}", **what, **heavy, **fields}
        for kind, what in (("job", {**RIGID, "procs": 8}), ("flow", tasks))
        for why, fields in (
            ("begins", {"earliest": 3700.0}),
            ("follows", {"after": ["runs"]}),
            ("child", {"after": ["first"]}),
            ("held", {"held": True}),
        )
    ]
    begun = []
    for jobs in (queue, [*kept_back[:4], *queue, *kept_back[4:]]):
        snapshot = read_snapshot({**EARLY, "queue": jobs})
        budget = Budget(seed=7, work=WORK, live=True)
        plan = policy.solve(snapshot, read_options({}, policy.options), budget)
        assert check(snapshot, plan).violations == ()
        begun.append({p.job for p in plan.placements if p.start == EARLY["time"]})
    assert begun[1] == begun[0]
    assert begun[0] <= {"first", "second"}


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_can_ever_run(name: str) -> None:
    snapshot = read_snapshot(
        {**EMPTY, "clusters": CLUSTERS, "queue": [{"id": "never", **RIGID, "procs": 99}]}
    )
    plan = solve(name, snapshot)
    assert plan.status is Status.INFEASIBLE
    assert plan.deferred[0].detail == "needs 99 processes; 17 slots exist"


# Of 10, 500 and 49 jobs; the slow suite has all, one of 3,152 jobs among them.
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", POLICIES)
def test_perfect_strip_packings(name: str, every: int, shared: Path) -> None:
    instances = perfect_instances(shared / "data" / "strip_packing")
    assert len(instances) > 10
    for path, height in instances[::every]:
        snapshot = read_instance(path)
        plan = solve(name, snapshot, work=WORK // 10)
        assert check(snapshot, plan).violations == (), path
        if name not in NOW_ONLY and (name != "plain" or not plan.deferred):  # it looks ahead so far
            assert plan.objective.value >= height * (1 - 1e-9)
            assert not plan.deferred


def test_options_are_read_with_exact_errors() -> None:
    table = lookup("fcfs").options
    assert parse_options(["skip=true", "coallocation=needed", "power_step=.5"], table) == {
        "skip": True,
        "coallocation": "needed",
        "power_step": 0.5,
    }
    assert read_options({"skip": True}, table)["guard_after"] is None
    defaults = read_options({}, lookup("auto").options)
    assert (defaults["guard_after"], defaults["wait_limit"]) == (0, 86400.0)
    for text, error in (
        ("skip", "--set: 'skip' is not of the form name=value"),
        ("skip=3", "--set skip: 3 is not true or false"),
        ("coallocation=often", "--set coallocation: 'often' is not one of sooner, needed"),
        ("power_step=2", "--set power_step: 2 is outside 0..1"),
        ("speed=9", "--set speed: unknown option; this policy has coallocate_moldable, "),
    ):
        with pytest.raises(InputError) as caught:
            parse_options([text], table)
        assert str(caught.value).startswith(error)


def test_unknown_policy_lists_the_names() -> None:
    with pytest.raises(InputError, match="there is no policy 'fcsf'; there are auto, fcfs, sjf"):
        lookup("fcsf")


def test_registry_and_plain_need_neither_numba_nor_numpy() -> None:
    code = (
        "import sys\n"
        "from coalloc.model.snapshot import Snapshot\n"
        "from coalloc.policies.base import Budget\n"
        "from coalloc.policies.registry import POLICIES, lookup\n"
        "assert len(POLICIES) >= 10\n"
        "lookup('plain').solve(Snapshot(), {}, Budget())\n"
        "print([name for name in ('numba', 'numpy') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_the_guide_has_the_published_ones_apart() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/policies/README.md").read_text()
    site, _, published = page.partition("## Published, to compare with")
    published = published.partition("## `auto`")[0]
    rows = {
        part: {
            name
            for line in text.splitlines()
            if line.startswith("| `")
            for name in re.findall(r"`([a-z0-9-]+)`", line.split("|")[1])
        }
        for part, text in (("site", site.partition("## For a site")[2]), ("published", published))
    }
    assert rows["published"] == {policy.name for policy in PUBLISHED}
    assert rows["site"] == {policy.name for policy in FOR_SITES}
