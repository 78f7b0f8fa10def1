"""Single jobs, whose times the cost model gives exactly; and that the replay can say no."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coalloc.model.cost import link_loads, run_time
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from tests.simgrid.plans import Replayed, replay
from tests.simgrid.program import MEASURED_TCP, ReplayError, run


def plan_of(*placements: Placement) -> Plan:
    return Plan(
        policy="by hand",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=placements,
    )


def single(rng: random.Random) -> tuple[Snapshot, Plan, float]:
    """A job on nodes taken at random, and its run time by equations (1)-(4)."""
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=rng.choice([0.05, 0.1, 0.3, 1.0, float("inf")]),
            nodes=tuple(
                Node(name=f"c{k}n{n}", power=rng.choice([1.0, 0.8, 0.45]), slots=2)
                for n in range(4)
            ),
        )
        for k in range(3)
    )
    job = RigidJob(
        id="one",
        procs=rng.randint(1, 12),
        base_time=rng.uniform(10.0, 1e5),
        sigma=rng.choice([0.0, 0.3, 0.7, 1.0]),
        proc_gbps=rng.choice([0.0, 0.02, 0.075, 0.4]),
    )
    nodes: dict[str, int] = {}
    inside: dict[str, int] = {}
    slots = [(c, node) for c in clusters for node in c.nodes for _ in range(node.slots)]
    taken = rng.sample(slots, job.procs)
    for cluster, node in taken:
        nodes[node.name] = nodes.get(node.name, 0) + 1
        inside[cluster.name] = inside.get(cluster.name, 0) + 1
    capacity = {cluster.name: cluster.link_gbps for cluster in clusters}
    loads = link_loads(job.proc_gbps, inside)
    sc = max([1.0, *(load / capacity[name] for name, load in loads.items())])
    te = run_time(job.base_time, job.sigma, min(node.power for _, node in taken), sc)
    snapshot = Snapshot(time=70.0, clusters=clusters, queue=(job,))
    return (
        snapshot,
        plan_of(Placement(job="one", start=75.0, end=75.0 + te, nodes=nodes, sc=sc)),
        te,
    )


@pytest.mark.parametrize("share", ["rate", "flow"])
@pytest.mark.parametrize("traffic", ["phases", "steady"])
def test_a_job_alone_takes_what_the_cost_model_says(
    program: Path, share: str, traffic: str
) -> None:
    rng = random.Random(f"single-{share}-{traffic}")
    saturated = 0
    for _ in range(25):
        snapshot, plan, te = single(rng)
        (job,) = replay(program, snapshot, plan, rounds=3, share=share, traffic=traffic)
        assert job.began == pytest.approx(75.0, abs=1e-9)
        assert job.seconds == pytest.approx(te, rel=1e-5, abs=1e-4)
        saturated += job.planned.sc > 1.0
    assert saturated >= 3


def pair(link_gbps: float) -> tuple[Snapshot, Plan]:
    """Two jobs over the same two links at once, of 0.1 and 0.3 Gbit/s a process."""
    nodes = ("a", "b")
    clusters = tuple(
        Cluster(
            name=name, link_gbps=link_gbps, nodes=(Node(name=f"{name}1"), Node(name=f"{name}2"))
        )
        for name in nodes
    )
    queue = tuple(
        RigidJob(id=f"j{n}", procs=2, base_time=100.0, sigma=0.5, proc_gbps=0.1 * (2 * n - 1))
        for n in (1, 2)
    )
    placements = [
        Placement(job=f"j{n}", start=0.0, end=100.0, nodes={f"a{n}": 1, f"b{n}": 1}) for n in (1, 2)
    ]
    return Snapshot(clusters=clusters, queue=queue), plan_of(*placements)


def seconds(jobs: tuple[Replayed, ...]) -> list[float]:
    return [job.seconds for job in jobs]


def test_flows_share_a_link_by_their_rates_or_equally(program: Path) -> None:
    """0.4 on 0.388 Gbit/s: SC = 1.03 for both; equally shared, the smaller flow keeps its rate.

    Then the larger has .288 of its .3 for 50 s, and its rate for the 2 s that are left.
    """
    snapshot, plan = pair(0.388)
    by_rate = replay(program, snapshot, plan, rounds=1)
    assert seconds(by_rate) == pytest.approx([50.0 + 50.0 * 0.4 / 0.388] * 2, rel=1e-5)
    equally = replay(program, snapshot, plan, rounds=1, share="flow")
    assert seconds(equally) == pytest.approx([100.0, 102.0], rel=1e-5)


@pytest.mark.parametrize("share", ["rate", "flow"])
def test_a_flow_keeps_to_its_rate_on_a_free_link(program: Path, share: str) -> None:
    platform = ["cluster a 1e8", "cluster b inf", "node m a 1 1", "node n b 1 1"]
    task = ["task t 0 2 0 0", "rank t m", "rank t n", "flow t 0 1 1e7 1e6"]
    began, ended = run(program, platform + task, share=share)["t"]
    assert (began, ended) == pytest.approx((0.0, 20.0), rel=1e-5)


def test_a_link_planned_beyond_its_capacity_shows(program: Path) -> None:
    for gbps, late in ((0.4, False), (0.38, True)):
        snapshot, plan = pair(gbps)
        jobs = replay(program, snapshot, plan)
        assert any(job.ended > job.planned.end * 1.01 for job in jobs) is late


def test_traffic_of_running_jobs_takes_its_share(program: Path) -> None:
    """0.1 + 0.1 on 0.1 Gbit/s while the running job lasts: half the speed up to second 40."""
    snapshot, plan = pair(0.1)
    running = Running(id="r", nodes={}, start=-5.0, end=40.0, link_gbps={"a": 0.1})
    job = RigidJob(id="j1", procs=2, base_time=100.0, sigma=0.0, proc_gbps=0.1)
    snapshot = Snapshot(clusters=snapshot.clusters, queue=(job,), running=(running,), overrun_s=0.0)
    jobs = replay(program, snapshot, plan_of(plan.placements[0]), rounds=1)
    assert seconds(jobs) == pytest.approx([120.0], rel=1e-5)


def test_a_job_waits_for_its_nodes_and_for_the_jobs_before_it(program: Path) -> None:
    nodes = (Node(name="n1", power=0.5), Node(name="n2"))
    queue = (
        RigidJob(id="first", procs=1, base_time=100.0),
        RigidJob(id="second", procs=1, base_time=10.0),
        RigidJob(id="third", procs=1, base_time=1.0, after=("second",)),
    )
    plan = plan_of(
        Placement(job="first", start=0.0, end=100.0, nodes={"n1": 1}),
        Placement(job="second", start=100.0, end=120.0, nodes={"n1": 1}),
        Placement(job="third", start=120.0, end=121.0, nodes={"n2": 1}),
    )
    snapshot = Snapshot(clusters=(Cluster(name="c", nodes=nodes),), queue=queue)
    jobs = replay(program, snapshot, plan)
    assert [job.began for job in jobs] == pytest.approx([0.0, 200.0, 220.0], rel=1e-6)
    assert [job.ended for job in jobs] == pytest.approx([200.0, 220.0, 221.0], rel=1e-6)


def test_payload_is_less_than_capacity_in_the_model_of_tcp(program: Path) -> None:
    """On a link that is exactly full, overhead of 3 % and acknowledgements show."""
    snapshot, plan = pair(0.4)
    jobs = replay(program, snapshot, plan, share="flow", network=MEASURED_TCP)
    assert all(99.9 < job.seconds < 110.0 for job in jobs)
    assert max(seconds(jobs)) > 101.0


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ("task t 0 1 x 0", "line 3: not a number: x"),
        ("node m nowhere 1 1", "line 3: unknown name nowhere"),
        ("flow t 0 1 1 1", "line 3: unknown name t"),
        ("walk", "line 3: unknown record walk"),
    ],
)
def test_input_that_makes_no_sense_is_refused(program: Path, record: str, fault: str) -> None:
    with pytest.raises(ReplayError, match=fault):
        run(program, ["cluster c 1e6", "node n c 1 1", record])
