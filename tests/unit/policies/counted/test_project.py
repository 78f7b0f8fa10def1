"""The search for what shares one node and licences, against enumeration."""

from itertools import permutations
from random import Random

from coalloc.model.plan import Status
from coalloc.policies.checking.proofs import proofs_of
from coalloc.simulation.reproduce.psplib import Project
from coalloc.simulation.reproduce.solving import solve


def drawn(random: Random, tasks: int) -> Project:
    """A project with a first and a last task of no length."""
    last = tasks + 1
    later: list[list[int]] = [list(range(1, last)), *([] for _ in range(last))]
    for n in range(1, last):
        later[n] = [s for s in range(n + 1, last) if random.random() < 0.3] or [last]
    middle = [[random.randint(0, 3) for _ in range(2)] for _ in range(tasks)]
    return Project(
        group="drawn",
        name="drawn",
        durations=(0, *(random.randint(1, 6) for _ in range(tasks)), 0),
        requests=((0, 0), *(tuple(row) for row in middle), (0, 0)),
        successors=tuple(map(tuple, later)),
        capacities=(4, 4),
    )


def shortest(project: Project) -> int:
    """The least makespan: of the serial schedules of all orders, on a table of hours."""
    tasks = range(1, len(project.durations) - 1)
    parents = {n: [p for p in tasks if n in project.successors[p]] for n in tasks}
    best = sum(project.durations)
    for order in permutations(tasks):
        end: dict[int, int] = {}
        used = [[0, 0] for _ in range(sum(project.durations))]
        for n in order:
            if any(p not in end for p in parents[n]):
                break
            length, asked = project.durations[n], project.requests[n]
            t = max((end[p] for p in parents[n]), default=0)
            while any(
                u + a > 4 for row in used[t : t + length] for u, a in zip(row, asked, strict=True)
            ):
                t += 1
            for row in used[t : t + length]:
                row[:] = [u + a for u, a in zip(row, asked, strict=True)]
            end[n] = t + length
        else:
            best = min(best, max(end.values()))
    return best


def test_a_search_finds_the_shortest_and_bounds_are_below_it() -> None:
    proved = 0
    for seed in range(12):
        project = drawn(Random(seed), 6)
        snapshot, best = project.snapshot(), shortest(project)
        found = solve(snapshot, "workflow", work=40_000)
        assert found.makespan == best, seed
        bounds = {proof.name: proof.bound.value for proof in proofs_of(snapshot, found.plan)}
        assert bounds["makespan"] <= best * (1.0 + 1e-9), seed
        proved += found.plan.status is Status.OPTIMAL
        again = solve(snapshot, "workflow", work=40_000)
        assert again.plan == found.plan, seed
    assert proved == 12
