"""The profile against a naive one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
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
            free = profile.free[row] - profile.owed[block]
            load = profile.load[row] + profile.owed_load[block]
            here = (*free, *load, profile.total[block, i] - profile.owes[block])
            if here != last:
                yield profile.time[block, i], *here
            last = here


def check_bounds(profile: Profile) -> None:
    """Blocks are in order, and their bounds true; peaks are too high where something is owed."""
    times = []
    for block in profile.block[: profile.size[BLOCKS]]:
        count, owes = profile.filled[block], profile.owes[block]
        assert count > 0
        total, peak = profile.total[block, :count] - owes, profile.peak[block, :count]
        assert list(profile.bounds[block]) == [total.min(), total.max(), peak.min(), peak.max()]
        free = profile.free[profile.row[block, :count], 2:] - profile.owed[block, 2:]
        assert (free.sum(axis=1) == total).all()
        largest = np.maximum(free.max(axis=1), 0)  # they book more than there is
        assert (largest <= peak).all() if owes else (largest == np.maximum(peak, 0)).all()
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


def book_and_give_back(bookings: list[tuple[int, int, int, int]]) -> None:
    """Book them beside a count by seconds, and give them back."""
    compiled = compiled_case(len(bookings))
    problem = compiled.problem
    profile, scratch = make_profile(problem, compiled.base), make_scratch(problem)
    out = make_outcome(problem)
    state = ProfileState(problem, profile, scratch, out, any_mode(len(bookings)))
    begin(state, compiled.base)
    before, used = list(amounts(profile)), 0
    taken = np.zeros((400, 2), np.int64)  # by second, of each class
    for item, (start, length, on_a, on_b) in enumerate(bookings):
        out.start[item], out.end[item] = float(start), float(start + length)
        out.use_first[item], out.use_count[item] = used, 2
        out.use_class[used : used + 2] = [0, 1]
        out.use_procs[used : used + 2] = [on_a, on_b]
        used += 2
        taken[start : start + length] += [on_a, on_b]
        book_all(state, np.array([item]), 1)
        check_bounds(profile)
    for t, *free in amounts(profile):
        assert free[:2] == [9 - (t < 70.0) - taken[int(t), 0], 9 - taken[int(t), 1]]
    for item in range(len(bookings)):
        book_all(state, np.array([item]), -1)
        check_bounds(profile)
    assert list(amounts(profile)) == before


@settings(max_examples=60)
@given(bookings=BOOKINGS)
def test_what_is_given_back_is_free_again(bookings: list[tuple[int, int, int, int]]) -> None:
    book_and_give_back(bookings)


@pytest.mark.parametrize("seed", range(3))
def test_so_it_is_of_a_long_profile_whose_blocks_are_booked_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = (rng.integers(0, 150, 110), rng.choice([20, 200], 110), *rng.integers(0, 4, (2, 110)))
    book_and_give_back(
        [(int(s), int(t), int(a), int(b)) for s, t, a, b in zip(*columns, strict=True)]
    )


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


Job = tuple[int, float, float]
"""Processes, time, and when it may begin at the earliest, s."""


def naive_easy(width: int, jobs: list[Job], order: list[int], queue: list[int]) -> list[float]:
    """EASY on equal nodes by looking at each job at each event: the start of each job."""
    starts: dict[int, float] = {}
    t, head = 0.0, -1.0

    def free(begin: float, end: float) -> int:
        """Nodes that are free all the time."""
        used = [(starts[n], starts[n] + jobs[n][1], jobs[n][0]) for n in live]
        times = {begin, *(s for s, _, _ in used if begin < s < end)}
        return width - max(sum(p for s, e, p in used if s <= at < e) for at in times)

    while len(starts) < len(jobs):
        live = [n for n, start in starts.items() if start + jobs[n][1] > t]
        due = [n for n in queue if n not in starts and jobs[n][2] <= t]
        for n in due if head <= t else ():
            ends = sorted({t, *(starts[m] + jobs[m][1] for m in live)})
            starts[n] = next(at for at in ends if free(at, at + jobs[n][1]) >= jobs[n][0])
            live.append(n)
            if starts[n] > t:
                head = starts[n]
                break
        due, room = [n for n in order if n not in starts and jobs[n][2] <= t], free(t, t + 1.0)
        for n in due:
            if jobs[n][0] <= room and free(t, t + jobs[n][1]) >= jobs[n][0]:
                starts[n] = t
                live.append(n)
                room -= jobs[n][0]
        ends = [starts[n] + jobs[n][1] for n in live]
        later = [*ends, head, *(jobs[n][2] for n in order if n not in starts)]
        t = min((at for at in later if at > t), default=t)
    return [starts[n] for n in range(len(jobs))]


@pytest.mark.parametrize(
    ("count", "nodes", "widest", "own"),
    [
        (1_300, 16, 11, False),
        (1_300, 16, 11, True),  # with an order of its own for what goes beside the head
        (600, 150, 3, True),  # so many run at once that bookings cover blocks of the profile
    ],
)
def test_easy_skips_only_blocks_of_which_nothing_fits(
    count: int, nodes: int, widest: int, own: bool
) -> None:
    rng = np.random.default_rng(7)
    sizes, times = rng.integers(1, widest + 1, count), rng.integers(1, 400, count)
    begins = rng.choice([0.0, 3000.0], count)
    jobs = [(int(p), float(t), float(b)) for p, t, b in zip(sizes, times, begins, strict=True)]
    rows = [rigid(n, p, t, earliest=b) for n, (p, t, b) in enumerate(jobs)]
    queue = list(range(len(jobs)))
    order = sorted(queue, key=lambda n: jobs[n][1]) if own else queue
    planner = Planner(case([cluster("a", nodes)], rows), {})
    found = planner.decode(order, "easy", queue if own else None).outcome.start
    assert found.tolist() == naive_easy(nodes, jobs, order, queue)


def test_floored_power_never_rises() -> None:
    assert floored_power(0.73, 0.0) == 0.73
    assert floored_power(0.73, 0.05) == 0.7
    assert floored_power(0.15, 0.05) == 0.15
    assert floored_power(1.0, 0.05) == 1.0
    for power in (0.01, 0.03, 0.049999, 1e-6):
        assert 0.0 < floored_power(power, 0.05) <= power
