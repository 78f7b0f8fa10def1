"""The best place of one item over all starts, and taking it."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.loads import data_ready, least_time, soonest
from coalloc.policies.kernel.profiles.fit import Fit, Run, window
from coalloc.policies.kernel.profiles.profile import apply_owed, book, locate
from coalloc.policies.kernel.state import (
    BLOCKS,
    MEMORY,
    REMEMBERED,
    STAMP,
    TOL,
    USES,
    Problem,
    Profile,
    ProfileState,
    Scratch,
)


@helper()
def clear(
    profile: Profile, place: int, i: int, start: float, total: int, peak: int, length: float
) -> tuple[int, int, float]:
    """First start from `start` on with enough of both numbers in every row; place -1 if none."""
    blocks = profile.size[BLOCKS]
    at, j = place, i
    end = start + length
    while True:
        block = profile.block[at]
        bounds = profile.bounds
        if bounds[block, 2] >= peak > 0:
            apply_owed(profile, block)
        if j > 0 or bounds[block, 0] < total or bounds[block, 2] < peak:
            apply_owed(profile, block)
            while j < profile.filled[block]:
                if profile.time[block, j] >= end and (at > place or j > i):
                    return place, i, start
                if profile.total[block, j] < total or profile.peak[block, j] < peak:
                    # go on behind the run of rows that offer too little
                    while True:
                        j += 1
                        if j >= profile.filled[block]:
                            at += 1
                            j = 0
                            while at < blocks:
                                block = profile.block[at]
                                if bounds[block, 1] >= total and bounds[block, 3] >= peak:
                                    apply_owed(profile, block)
                                    if bounds[block, 3] >= peak:
                                        break
                                at += 1
                            if at >= blocks:
                                return -1, 0, start
                        if profile.total[block, j] >= total and profile.peak[block, j] >= peak:
                            break
                    place, i = at, j
                    start = profile.time[block, j]
                    end = start + length
                j += 1
        at += 1
        j = 0
        if at >= blocks or profile.time[profile.block[at], 0] >= end:
            return place, i, start


class Place(NamedTuple):
    """Place for an item; its classes are in scratch.best_*."""

    end: float  # s, inf if nowhere
    start: float  # s
    mode: int
    classes: int  # how many
    first: float  # s, the first start that was possible at all


NOWHERE = Place(inf, inf, 0, 0, inf)


class Best(NamedTuple):
    """The best place so far, and what decides between equal ends."""

    place: Place
    procs: int
    clusters: int
    cost: float  # power of all its nodes


@helper()
def run_of(problem: Problem, item: int, mode: int, only: int) -> Run:
    """One allotment of an item, on the cluster `only` or, if that is -1, on any."""
    procs, whole = problem.mode_procs[mode], not problem.item_splits[item]
    scaled, fixed = problem.mode_scaled[mode], problem.mode_fixed[mode]
    if only >= 0:
        fixed += problem.mode_comm[mode] * problem.inverse_intra[only]
    limit = problem.item_limit[item]
    return Run(item, problem.item_group[item], procs, scaled, fixed, limit, whole, only)


@helper()
def wins(fit: Fit, procs: int, best: Best) -> bool:
    """Whether a fit is better than the best so far, which ends no earlier."""
    if fit.end < best.place.end - TOL or procs < best.procs:
        return True
    cheaper = fit.cost < best.cost * (1.0 - 1e-12)
    fewer = fit.clusters < best.clusters or (fit.clusters == best.clusters and cheaper)
    return procs == best.procs and fewer


@helper()
def seek_run(
    state: ProfileState, run: Run, mode: int, top: float, start: float, now: bool, best: Best
) -> Best:
    """Try the starts of one allotment from `start` on, or only that one if `now`.

    `top` is its time on the strongest nodes, s, without communication.
    """
    profile, scratch = state.profile, state.scratch
    peak = run.procs if run.whole else 0
    place, i = locate(profile, start)
    while start + top <= best.place.end + TOL:
        if not now:
            place, i, start = clear(profile, place, i, start, run.procs, peak, top)
            if place < 0 or start + top > best.place.end + TOL:
                break
        fit = window(state, run, start, place, i, best.place.end + TOL)
        if fit.end < inf:
            first = start if best.place.end == inf else best.place.first
            if wins(fit, run.procs, best):
                for u in range(fit.classes):
                    scratch.best_class[u] = scratch.pick_class[u]
                    scratch.best_procs[u] = scratch.pick_procs[u]
                found = Place(fit.end, start, mode, fit.classes, first)
                best = Best(found, run.procs, fit.clusters, fit.cost)
        if now:
            break
        if fit.retry > -inf:
            place, i = locate(profile, fit.retry)
        i += 1
        if i >= profile.filled[profile.block[place]]:
            place += 1
            i = 0
            if place >= profile.size[BLOCKS]:
                break
        start = profile.time[profile.block[place], i]
    return best


@helper()
def seek(state: ProfileState, item: int, lower: float, now: bool) -> Place:
    """Find the earliest end from `lower` on, or if `now` at `lower` only.

    Of equal ends the one with the fewest processes, then clusters, then the weakest nodes; a job
    that one of several equal clusters holds goes where the least room is left.
    """
    problem, out, fixed_mode = state.problem, state.out, state.fixed_mode
    best = Best(NOWHERE, 0, 0, 0.0)
    group = problem.item_group[item]
    if problem.group_size[group] == 0:
        return NOWHERE
    strongest = problem.class_power[problem.group_class[group, 0]]
    first, last = problem.mode_first[item], problem.mode_first[item + 1] - 1
    if fixed_mode[item] >= 0:
        first += fixed_mode[item]
        last = first
    only, clusters, wide = -1, 0, problem.item_wide[item] >= 0
    if problem.item_apart[item] >= 0 and not wide:
        only, clusters = 0, problem.link_gbps.size
    while only < clusters:
        earliest = lower
        if wide:
            earliest = max(lower, soonest(problem, out, item))
        if only >= 0:
            earliest = max(lower, data_ready(problem, out, item, only))
        for mode in range(last, first - 1, -1):
            if now and earliest > lower:
                break
            run = run_of(problem, item, mode, only)
            top = least_time(problem, item, mode, strongest)
            best = seek_run(state, run, mode, top, earliest, now, best)
        only += 1
    return best.place


@helper()
def recall(problem: Problem, scratch: Scratch, item: int) -> float:
    """Start before which there is no room for an item, as `remember` knows; and write its row."""
    group, mode = problem.item_group[item], problem.mode_first[item]
    size = problem.group_size[group]
    count = scratch.counters[REMEMBERED]
    memory, mine = scratch.memory, scratch.memory[count % MEMORY]
    if size == 0 or problem.mode_first[item + 1] - mode > 1 or problem.item_apart[item] >= 0:
        return -inf
    weakest = problem.class_power[problem.group_class[group, size - 1]]
    whole = 0.0 if problem.item_splits[item] else 1.0
    procs = float(problem.mode_procs[mode])
    short = least_time(problem, item, mode, problem.class_power[problem.group_class[group, 0]])
    long = least_time(problem, item, mode, weakest)
    best = -inf
    for x in range(min(count, MEMORY)):
        if (
            memory[x, 5] > best
            and memory[x, 2] <= procs
            and memory[x, 3] <= short
            and memory[x, 4] <= long
            and memory[x, 0] == group
            and memory[x, 1] <= whole
        ):
            best = memory[x, 5]
    # Between these powers what is limited is above the straight line: what is kept of it is not.
    long = problem.mode_scaled[mode] / weakest + problem.mode_fixed[mode]
    mine[0], mine[1], mine[2], mine[3], mine[4] = group, whole, procs, short, long
    mine[5] = -inf
    return best


@helper()
def remember(problem: Problem, scratch: Scratch, item: int, first: float) -> None:
    """Keep the first start of an item that could begin at once and loads no link."""
    mode = problem.mode_first[item]
    if problem.mode_first[item + 1] - mode > 1 or problem.item_apart[item] >= 0:
        return
    if problem.item_splits[item] and problem.item_gbps[item] > 0.0:
        return
    count = scratch.counters[REMEMBERED]
    scratch.memory[count % MEMORY, 5] = first
    scratch.counters[REMEMBERED] += 1


@helper()
def hold(state: ProfileState, item: int, place: Place) -> None:
    """Book what `seek` found, in the job's own part of the pool."""
    scratch, out = state.scratch, state.out
    out.start[item] = place.start
    out.end[item] = place.end
    first, length = out.use_first[item], place.classes
    out.use_count[item] = length
    for u in range(length):
        out.use_class[first + u] = scratch.best_class[u]
        out.use_procs[first + u] = scratch.best_procs[u]
    scratch.counters[STAMP] += 1
    book(state, item, 1)


@helper()
def commit(state: ProfileState, item: int, place: Place) -> None:
    """Book what `seek` found, at the end of the pool, and tell the children."""
    problem, scratch, out = state.problem, state.scratch, state.out
    out.mode[item] = place.mode - problem.mode_first[item]
    out.use_first[item] = scratch.counters[USES]
    scratch.counters[USES] += place.classes
    hold(state, item, place)
    for x in range(problem.child_first[item], problem.child_first[item + 1]):
        child = problem.child[x]
        out.missing[child] -= 1
        if out.missing[child] == 0:
            if problem.item_apart[child] >= 0:
                ready = soonest(problem, out, child)
            else:
                ready = problem.item_release[child]
                for y in range(problem.parent_first[child], problem.parent_first[child + 1]):
                    ready = max(ready, out.end[problem.parent[y]])
            out.ready[child] = ready
