"""Chains of a search: the best plan of all, the same again under a limit of work."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from threading import Thread

import psutil
import pytest

from coalloc.chains import best_of
from coalloc.model.errors import InputError
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import FrontPoint, Objective, Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from coalloc.solving import solve
from coalloc.workers import KILLED

OPTIONS = {"objective": "makespan", "exact_work": 0}


def queue(count: int) -> Snapshot:
    """Rigid jobs of odd widths and lengths, on three unequal clusters."""
    clusters = tuple(
        Cluster(
            name=name,
            nodes=tuple(Node(name=f"{name}{n}", power=power) for n in range(size)),
            link_gbps=1.0,
        )
        for name, size, power in (("a", 7, 1.0), ("b", 5, 0.7), ("c", 3, 0.4))
    )
    jobs = tuple(
        RigidJob(id=str(n), procs=1 + n * 7 % 11, base_time=10.0 + n * 37 % 53, proc_gbps=0.02)
        for n in range(count)
    )
    return Snapshot(clusters=clusters, queue=jobs)


def plan(value: float, bound: float | None = None, deferred: int = 0) -> Plan:
    goal = Objective(name="makespan", value=value, bound=bound, deferred=deferred)
    proof = ({"bound": bound},) if bound else ()
    return Plan(policy="oas", status=Status.FEASIBLE, objective=goal, certificates=proof)


def test_the_best_plan_has_the_best_bound_and_its_proof() -> None:
    found = best_of([plan(11.0, 9.0), plan(10.0, 8.0), plan(10.0, 7.0)])
    assert found.objective == Objective(name="makespan", value=10.0, bound=9.0)
    assert found.certificates == ({"bound": 9.0},)
    assert (found.status, found.stats) == (Status.FEASIBLE, {"chain": 1, "chains": 3})
    assert best_of([plan(11.0, 10.0), plan(10.0)]).status is Status.OPTIMAL
    # A plan that leaves jobs out is no better, and its bound is of other jobs.
    found = best_of([plan(5.0, 5.0, deferred=1), plan(10.0, 8.0)])
    assert (found.objective.value, found.objective.bound) == (10.0, 8.0)
    # The proofs of a front belong together.
    point = FrontPoint(placements=(), cmax=10.0, weighted_completion=40.0)
    found = best_of([replace(plan(10.0, 8.0), front=(point,)), plan(11.0, 9.0)])
    assert (found.objective.bound, found.certificates) == (8.0, ({"bound": 8.0},))


def test_under_a_limit_of_work_it_is_the_best_of_the_seeds() -> None:
    snapshot = queue(24)
    alone = [solve(snapshot, "oas", work=20_000, seed=seed, options=OPTIONS) for seed in (3, 4, 5)]
    together = solve(snapshot, "oas", work=20_000, seed=3, options=OPTIONS, chains=3)
    best = min(alone, key=lambda found: found.objective.value)
    assert len({found.objective.value for found in alone}) > 1
    assert together.placements == best.placements
    assert together.stats["seed"] == best.stats["seed"]
    assert check(snapshot, together).ok


def test_who_asks_stops_all() -> None:
    stop = time.monotonic() + 1.0
    endless = {**OPTIONS, "patience": None}
    found = solve(queue(24), "oas", options=endless, chains=2, stop=lambda: time.monotonic() > stop)
    assert (found.status, found.stats["chains"]) == (Status.TIME_LIMIT, 2)


def test_a_chain_that_is_killed_ends_the_search() -> None:
    def kill() -> None:
        while not (found := _workers()):
            time.sleep(0.01)
        os.kill(found[0], signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    with pytest.raises(InputError, match=KILLED):
        solve(queue(24), "oas", options={**OPTIONS, "patience": None}, chains=2)
    killer.join()
    assert _workers() == []


def _workers() -> list[int]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            if any("spawn_main" in word for word in child.cmdline()):
                found.append(child.pid)
    return found


def test_there_is_at_least_one() -> None:
    with pytest.raises(InputError, match="at least 1"):
        solve(replace(queue(2), queue=()), "oas", chains=0)
