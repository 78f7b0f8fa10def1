"""Random small logs on random platforms: both paths agree, and the checker accepts them."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.simulation.metrics import measure
from coalloc.simulation.replay import replay
from coalloc.simulation.streaming import LASTING
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload

STRICT = ("fcfs", "sjf", "bjf", "spt", "lpt")
ORDERED = ("easy-spf", "easy-saf", "easy-f1", "easy-f2", "easy-f3", "easy-f4")
POLICIES = (*STRICT, "fpfs", "easy", *ORDERED, "conservative")
CLUSTERS = ("a", "b", "c")


@st.composite
def platforms(draw: st.DrawFn) -> Platform:
    clusters = []
    for name in CLUSTERS[: draw(st.integers(1, 3))]:
        nodes = tuple(
            Node(
                name=f"{name}{i}",
                power=draw(st.sampled_from([1.0, 0.75, 0.5])),
                slots=draw(st.sampled_from([1, 1, 2])),
                state=draw(st.sampled_from([NodeState.UP] * 9 + [NodeState.DOWN])),
            )
            for i in range(draw(st.integers(1, 4)))
        )
        link = draw(st.sampled_from([math.inf, 1.0, 0.3]))
        clusters.append(Cluster(name=name, nodes=nodes, link_gbps=link))
    return Platform(name="random", clusters=tuple(clusters))


@st.composite
def workloads(draw: st.DrawFn, clusters: tuple[str, ...]) -> Workload:
    jobs, submit = [], 0.0
    for number in range(1, draw(st.integers(1, 14)) + 1):
        # Whole seconds, several jobs in one, so that instants coincide.
        submit += draw(st.integers(0, 3))
        estimate = float(draw(st.integers(1, 12)))
        run = draw(st.sampled_from([estimate, estimate, max(1.0, estimate // 2)]))
        some = st.one_of(st.none(), st.none(), st.sampled_from(clusters).map(lambda c: (c,)))
        job = RigidJob(
            id=str(number),
            submitted=submit,
            earliest=submit,
            procs=draw(st.integers(1, 7)),
            base_time=estimate,
            sigma=draw(st.sampled_from([1.0, 0.5, 0.0])),
            proc_gbps=draw(st.sampled_from([0.0, 0.1, 0.4])),
            clusters=draw(some),
        )
        jobs.append(LoggedJob(job=job, run_s=run, killed=False, number=number, line=number))
    return Workload(name="random", jobs=tuple(jobs))


@given(st.data())
@settings(max_examples=60)
def test_streaming_starts_what_the_core_starts(data: st.DataObject) -> None:
    platform = data.draw(platforms())
    workload = data.draw(workloads(tuple(cluster.name for cluster in platform.clusters)))
    policy = data.draw(st.sampled_from(POLICIES))
    options: dict[str, object] = {}
    if policy in STRICT:
        options["skip"] = data.draw(st.booleans())
    if policy in ORDERED:
        options["wait_limit"] = data.draw(st.sampled_from([None, 0.0, 3.0, 10.0]))
        orders = st.sampled_from(LASTING)
        for name in ("queue_order", "backfill_order"):
            options[name] = data.draw(orders)
    options["coallocation"] = data.draw(st.sampled_from(["sooner", "needed", "forbidden"]))
    streamed = replay(workload, platform, policy, options, path="stream")
    general = replay(workload, platform, policy, options, path="general")
    assert streamed.path == "stream"
    assert general.path == "general"
    assert np.array_equal(streamed.ran, general.ran)
    np.testing.assert_allclose(streamed.start, general.start, rtol=0, atol=1e-6)
    np.testing.assert_allclose(streamed.end, general.end, rtol=0, atol=1e-6)
    for trace in (streamed, general):
        assert verify(trace) == []
        assert len(trace.reasons) == int((~trace.ran).sum())
    assert np.array_equal(streamed.outcome, general.outcome)


@given(st.data())
@settings(max_examples=30)
def test_figures_are_in_their_ranges(data: st.DataObject) -> None:
    platform = data.draw(platforms())
    workload = data.draw(workloads(tuple(cluster.name for cluster in platform.clusters)))
    metrics = measure(replay(workload, platform, "easy"))
    assert metrics.completed + metrics.refused + metrics.waiting == metrics.jobs
    assert 0.0 <= metrics.compaction <= 1.0 + 1e-9
    assert 0.0 <= metrics.utilisation <= 1.0 + 1e-9
    assert 0.0 <= metrics.coallocated_share <= 1.0
    assert metrics.peak_link_use <= 1.0 + 1e-9
    if metrics.completed:
        assert metrics.mean_bounded_slowdown >= 1.0
