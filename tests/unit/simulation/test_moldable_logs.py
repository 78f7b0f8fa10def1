"""Jobs of a log made moldable: the rule, its seeds, and replays of them."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import (
    FAMILIES,
    moldable_stream,
    requested,
    shortest_times,
)

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.errors import InputError
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup
from coalloc.simulation.kinds import make_moldable, read_shape
from coalloc.simulation.metrics import measure
from coalloc.simulation.replay import replay
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload


def workload(count: int = 40, *, early: bool = False) -> Workload:
    """Jobs of 1 to 8 processes; with `early`, every second ends before its estimate."""
    logged = []
    for n in range(count):
        job = RigidJob(
            id=str(n + 1),
            submitted=10.0 * n,
            earliest=10.0 * n,
            procs=1 + n % 8,
            base_time=30.0 + n,
            sigma=0.8,
        )
        run = job.base_time * (0.5 if early and n % 2 else 1.0)
        logged.append(LoggedJob(job=job, run_s=run, killed=False, number=n + 1, line=n + 1))
    return Workload(name="log", jobs=tuple(logged))


def platform(nodes: int = 12) -> Platform:
    names = tuple(Node(name=f"n{n}") for n in range(nodes))
    return Platform(name="one", clusters=(Cluster(name="alpha", nodes=names),))


@pytest.mark.parametrize("spec", ["amdahl:0.9", "amdahl:0.5,1", "downey:4,0.5", "downey"])
def test_a_job_takes_as_long_as_in_the_log_on_as_many_processes(spec: str) -> None:
    made = make_moldable(workload(), read_shape(spec), 12)
    for logged in made.jobs:
        assert logged.moldable is not None
        assert logged.moldable.speedup.time(logged.job.procs) == pytest.approx(logged.job.base_time)
        assert (logged.moldable.min_procs, logged.moldable.max_procs) == (1, 12)
        assert logged.moldable.sigma == 0.8
    assert made.adjusted["made moldable"] == 40
    assert not made.is_rigid


def test_drawn_numbers_lie_where_the_rule_says() -> None:
    for logged in make_moldable(workload(200), read_shape("amdahl:0.5,0.7"), 12).jobs:
        assert logged.moldable is not None
        assert isinstance(logged.moldable.speedup, AmdahlSpeedup)
        assert 0.5 <= logged.moldable.speedup.parallel_fraction <= 0.7
    drawn = []
    for logged in make_moldable(workload(200), read_shape("downey"), 12).jobs:
        assert logged.moldable is not None
        assert isinstance(logged.moldable.speedup, DowneySpeedup)
        drawn.append(logged.moldable.speedup.variance)
        assert abs(log2(logged.moldable.speedup.parallelism / logged.job.procs)) <= 1.0 + 1e-9
    assert min(drawn) < 0.2
    assert max(drawn) > 1.8
    assert max(drawn) <= 2.0


def test_a_seed_repeats_and_a_share_changes_nobody_elses_numbers() -> None:
    whole = make_moldable(workload(), read_shape("downey"), 12, seed=5)
    assert whole == make_moldable(workload(), read_shape("downey"), 12, seed=5)
    assert whole != make_moldable(workload(), read_shape("downey"), 12, seed=6)
    half = make_moldable(workload(), read_shape("downey", 0.5), 12, seed=5)
    made = [n for n, logged in enumerate(half.jobs) if logged.moldable is not None]
    assert 8 < len(made) < 32
    assert all(half.jobs[n] == whole.jobs[n] for n in made)
    assert make_moldable(workload(), read_shape("downey", 0.0), 12).is_rigid


@pytest.mark.parametrize(
    ("spec", "share", "error"),
    [
        ("gauss:1", 1.0, "--moldable: 'gauss' is not one of amdahl, downey"),
        ("amdahl", 1.0, "--moldable: 'amdahl' is not amdahl:F or amdahl:LOW,HIGH within 0..1"),
        ("amdahl:1.5", 1.0, "--moldable: 'amdahl:1.5' is not amdahl:F"),
        ("amdahl:nan", 1.0, "--moldable: 'amdahl:nan' is not amdahl:F"),
        ("amdahl:0.9,0.5", 1.0, "--moldable: 0.9 is above 0.5"),
        ("downey:4", 1.0, "--moldable: 'downey:4' is not downey:A,SIGMA"),
        ("downey:0.5,1", 1.0, "--moldable: 'downey:0.5,1' is not downey:A,SIGMA"),
        ("downey:x,1", 1.0, "--moldable: 'x,1' is not a list of numbers"),
        ("downey", 2.0, "--moldable-share: 2 is outside 0..1"),
    ],
)
def test_what_is_no_rule_is_refused(spec: str, share: float, error: str) -> None:
    with pytest.raises(InputError) as caught:
        read_shape(spec, share)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize("policy", ["bicriteria", "bicriteria-batch", "easy"])
def test_mixed_queues_are_replayed_and_possible(policy: str) -> None:
    made = make_moldable(workload(early=True), read_shape("downey", 0.6), 12, seed=1)
    trace = replay(made, platform(), policy)
    assert verify(trace) == []
    assert trace.ran.all()
    assert trace.path == "general"
    for n, logged in enumerate(made.jobs):
        estimate = logged.real_time(int(trace.procs[n]))
        assert trace.end[n] - trace.start[n] == pytest.approx(estimate)
        if logged.moldable is None:
            assert trace.procs[n] == logged.job.procs
    assert any(trace.procs[n] != logged.job.procs for n, logged in enumerate(made.jobs))
    busy = float(((trace.end - trace.start) * trace.procs).sum())
    figures = measure(trace)
    assert figures.compaction == pytest.approx(busy / (12 * figures.makespan_s))


def test_a_job_that_ends_early_does_on_any_number_of_processes() -> None:
    made = make_moldable(workload(early=True), read_shape("amdahl:0.9"), 12)
    early = made.jobs[1]
    assert early.moldable is not None
    for procs in (1, 2, 12):
        estimate = early.moldable.speedup.time(procs)
        assert early.real_time(procs) == pytest.approx(0.5 * estimate)


def test_moldable_jobs_are_not_streamed() -> None:
    made = make_moldable(workload(4), read_shape("downey"), 12)
    with pytest.raises(InputError, match="easy with moldable jobs needs the general path"):
        replay(made, platform(), "easy", path="stream")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stream_offers_the_load_it_was_asked_for(family: str) -> None:
    drawn, where = moldable_stream(family, 400, 50, 0.6, 3)
    work = sum(logged.job.base_time for logged in drawn.jobs)
    assert work / (50 * drawn.submit[-1]) == pytest.approx(0.6, rel=0.2)
    assert sum(cluster.slots for cluster in where.clusters) == 50
    assert (np.diff(drawn.submit) > 0.0).all()


def test_requests_are_as_wide_as_their_efficiency_allows() -> None:
    drawn, _ = moldable_stream("highly", 30, 50, 0.6, 3)
    widths = {e: requested(drawn, e).procs for e in (0.3, 0.5, 0.8, 2.0)}
    assert (widths[0.3] >= widths[0.5]).all()
    assert (widths[0.5] >= widths[0.8]).all()
    assert (widths[0.8] > 1).any()
    assert (widths[2.0] == 1).all()
    for logged, rigid in zip(drawn.jobs, requested(drawn, 0.5).jobs, strict=True):
        assert logged.moldable is not None
        alone = logged.moldable.speedup.time(1)
        assert alone / (rigid.job.procs * rigid.job.base_time) >= 0.5 - 1e-9
    assert (shortest_times(drawn) <= requested(drawn, 0.3).run + 1e-12).all()


def test_a_load_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a load of 0 is not above 0"):
        moldable_stream("cirne", 3, 8, 0.0, 1)
