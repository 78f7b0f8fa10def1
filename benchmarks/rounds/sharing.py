"""Processor time that shares and limits add to the making of a round's snapshot.

    python -m benchmarks sharing [--jobs 10000]

Jobs of 500 users in 50 projects wait on 1,000 slots; every project has a share and a limit. Printed
are the best of five of what the daemon's loop does before the solver is asked, with and without.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from tests.support.core_site import Site

from coalloc.core.rounds.snapshots import snapshot
from coalloc.core.sharing.limits import held_back
from coalloc.model.settings import PriorityConfig, ProjectConfig

USERS, PROJECTS = 500, 50
REPEATS = 5


def site(jobs: int, *, is_shared: bool) -> Site:
    """A site with so many waiting jobs that plans nothing."""
    each = USERS // PROJECTS
    projects = {
        f"p{i}": ProjectConfig(
            share=1.0 + i % 5,
            users=tuple(f"u{j}" for j in range(i * each, (i + 1) * each)),
            max_procs=1000,
        )
        for i in range(PROJECTS)
    }
    one = Site(
        {"a": 500, "b": 500},
        solving=False,
        max_jobs_per_user=0,
        priority=PriorityConfig(shares=16.0 if is_shared else 0.0),
        projects=projects if is_shared else {},
    )
    one.state.rounds.paused = True
    for number in range(jobs):
        one.submit(1 + number % 7, user=f"u{number * 7919 % USERS}")
    return one


def best_s(act: Callable[[], object]) -> float:
    """Processor seconds of the quickest of `REPEATS` runs."""
    taken = []
    for _ in range(REPEATS):
        begun = time.process_time()
        act()
        taken.append(time.process_time() - begun)
    return min(taken)


def main() -> None:
    """Print both times, and what they differ by."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args().jobs
    found = []
    for is_shared in (False, True):
        one = site(jobs, is_shared=is_shared)

        def begin(one: Site = one) -> None:
            held = held_back(one.state, one.now)
            snapshot(one.state, one.now, held=False, without=held)

        found.append(best_s(begin) * 1e3)
    plain, shared = found
    print(
        f"{jobs} jobs: {plain:.0f} CPU-ms without, {shared:.0f} with shares and limits, "
        f"{shared - plain:.0f} more"
    )


if __name__ == "__main__":
    main()
