"""The profile against a naive one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.policies.kernel.instance.arrays import (
    Compiled,
    any_mode,
    compile_intake,
    make_outcome,
    make_profile,
    make_scratch,
)
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.intake import read_queue
from coalloc.policies.kernel.instance.kinds import floored_power
from coalloc.policies.kernel.profiles.decoders import begin
from coalloc.policies.kernel.profiles.profile import book_all
from coalloc.policies.kernel.state import BLOCKS, ROWS, Profile, ProfileState
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid, spans


def amounts(profile: Profile) -> Iterator[tuple[Any, ...]]:
    """Whatever is free from when on, in order of time; rows like the one before are left out."""
    last = None
    for block in profile.block[: profile.size[BLOCKS]]:
        for i in range(profile.filled[block]):
            row = profile.row[block, i]
            numbers = (profile.total[block, i], profile.peak[block, i])
            here = (*profile.free[row], *profile.load[row], *numbers)
            if here != last:
                yield profile.time[block, i], *here
            last = here


def check_bounds(profile: Profile) -> None:
    """Blocks are in order, and their bounds are true."""
    times = []
    for block in profile.block[: profile.size[BLOCKS]]:
        count = profile.filled[block]
        assert count > 0
        total, peak = profile.total[block, :count], profile.peak[block, :count]
        assert list(profile.bounds[block]) == [total.min(), total.max(), peak.min(), peak.max()]
        assert profile.dips[block] == profile.dip[block, :count].sum()
        times += list(profile.time[block, :count])
    assert times == sorted(set(times))
    assert len(times) == profile.size[ROWS]


BOOKINGS = st.lists(
    st.tuples(st.integers(0, 150), st.integers(1, 40), st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=120,
)


def compiled_case(jobs: int) -> Compiled:
    clusters = [cluster("a", 9, 1.0), cluster("b", 9, 2.0, power=0.5)]
    running = [{"id": "r", "nodes": {"a1": 1}, "start": 0.0, "end": 70.0, "link_gbps": {"b": 0.5}}]
    queue = [rigid(n, 6, 1.0, proc_gbps=0.01) for n in range(jobs)]
    return compile_intake(read_queue(case(clusters, queue, running), {}))


@settings(max_examples=60)
@given(bookings=BOOKINGS)
def test_what_is_given_back_is_free_again(bookings: list[tuple[int, int, int, int]]) -> None:
    compiled = compiled_case(len(bookings))
    problem = compiled.problem
    profile, scratch = make_profile(problem, compiled.base), make_scratch(problem)
    out = make_outcome(problem)
    state = ProfileState(problem, profile, scratch, out, any_mode(len(bookings)))
    begin(state, compiled.base)
    before, used = list(amounts(profile)), 0
    for item, (start, length, on_a, on_b) in enumerate(bookings):
        out.start[item], out.end[item] = float(start), float(start + length)
        out.use_first[item], out.use_count[item] = used, 2
        out.use_class[used : used + 2] = [0, 1]
        out.use_procs[used : used + 2] = [on_a, on_b]
        used += 2
        book_all(state, np.array([item]), 1)
        check_bounds(profile)
    for item in range(len(bookings)):
        book_all(state, np.array([item]), -1)
        check_bounds(profile)
    assert list(amounts(profile)) == before


def naive_starts(width: int, jobs: list[tuple[int, float]]) -> dict[str, float]:
    """Earliest start of each job beside the earlier ones, by trying every end."""
    placed: list[tuple[float, float, int]] = []
    out = {}
    for number, (procs, length) in enumerate(jobs):
        for start in sorted({0.0} | {end for _, end, _ in placed}):
            times = {start} | {s for s, _, _ in placed if start < s < start + length}
            if all(procs + sum(n for s, e, n in placed if s <= t < e) <= width for t in times):
                break
        placed.append((start, start + length, procs))
        out[str(number)] = start
    return out


JOBS = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 12).map(float)), min_size=1, max_size=200
)


@settings(max_examples=60)
@given(jobs=JOBS)
def test_insert_finds_the_earliest_start(jobs: list[tuple[int, float]]) -> None:
    queue = [rigid(n, procs, length) for n, (procs, length) in enumerate(jobs)]
    plan = planned("conservative", case([cluster("a", 8)], queue))
    assert {job: start for job, (start, _) in spans(plan).items()} == naive_starts(8, jobs)


def test_a_mode_may_be_fixed() -> None:
    job = {"id": "m", "kind": "moldable", "times": [9.0, 5.0, 4.0, 3.0]}
    planner = Planner(case([cluster("a", 4)], [job]), {})
    planner.fixed_mode[0] = 1  # two processes
    assert planner.decode([0], "insert").makespan == 5.0
    planner.fixed_mode[0] = -1
    assert planner.decode([0], "insert").makespan == 3.0


def test_decoding_again_gives_the_same() -> None:
    queue = [rigid(n, 1 + n % 5, 1.0 + n % 7) for n in range(100)]
    planner = Planner(case([cluster("a", 6)], queue), {})
    for decoder in ("strict", "insert", "event", "easy"):
        one, two = (planner.decode(range(100), decoder) for _ in range(2))
        assert one.rank == two.rank
        assert one.work == two.work
        assert np.array_equal(one.outcome.start, two.outcome.start)


def test_easy_skips_only_blocks_of_which_nothing_fits() -> None:
    """Equal plans of a scan that skips blocks and of one that is given an order, and skips none."""
    rng = np.random.default_rng(7)
    queue = [
        rigid(
            n,
            int(rng.integers(1, 12)),
            float(rng.integers(1, 400)),
            earliest=float(rng.choice([0.0, 3000.0])),
            proc_gbps=float(rng.choice([0.0, 0.1])),
        )
        for n in range(2_500)
    ]
    snapshot = case([cluster("a", 8, 1.0), cluster("b", 8, 1.0, power=0.7)], queue)
    planner = Planner(snapshot, {})
    order = range(len(queue))
    skipping, whole = (planner.decode(order, "easy", by).outcome for by in (None, order))
    assert skipping.start.tolist() == whole.start.tolist()
    assert skipping.end.tolist() == whole.end.tolist()


def test_floored_power_never_rises() -> None:
    assert floored_power(0.73, 0.0) == 0.73
    assert floored_power(0.73, 0.05) == 0.7
    assert floored_power(0.15, 0.05) == 0.15
    assert floored_power(1.0, 0.05) == 1.0
    for power in (0.01, 0.03, 0.049999, 1e-6):
        assert 0.0 < floored_power(power, 0.05) <= power
