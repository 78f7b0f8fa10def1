"""Results that are kept for the same objects, and made anew for others."""

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.platform import Node, NodeState
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.latest import keep_latest
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.contract.test_policies import MIXED

made: list[tuple[object, ...]] = []


@keep_latest
def pairs(*given: object) -> tuple[object, ...]:
    made.append(given)
    return given


def test_equal_objects_are_not_the_same() -> None:
    made.clear()
    one, other = [1], [1]
    assert pairs(one) is pairs(one)
    pairs(other)
    pairs(one, other)
    pairs(one)
    assert made == [([1],), ([1],), ([1], [1]), ([1],)]


def test_plans_do_not_depend_on_the_ones_before() -> None:
    """Kinds are cut up for one queue and whole for another, on the same nodes."""
    policy = lookup("easy")
    options = read_options({}, policy.options)
    full = replace(read_snapshot(MIXED), reservations=())
    small = replace(full, queue=tuple(j for j in full.queue if j.id in ("wide", "gpu", "chatty")))
    alone = [policy.solve(problem, options, Budget()) for problem in (full, small)]
    for problem, plan in ((small, alone[1]), (full, alone[0]), (full, alone[0])):
        assert policy.solve(problem, options, Budget()) == plan
    down = tuple(
        replace(c, nodes=tuple(replace(n, state=NodeState.DOWN) for n in c.nodes))
        for c in full.clusters
    )
    nothing = policy.solve(replace(full, clusters=down), options, Budget())
    assert not nothing.placements
    stale = tuple(replace(c, stale=True) for c in full.clusters)
    assert not policy.solve(replace(full, clusters=stale), options, Budget()).placements
    assert policy.solve(full, options, Budget()) == alone[0]


def test_nodes_that_are_free_later_keep_their_time() -> None:
    nodes = (Node(name="n1", free_at=500.0), Node(name="n2"))
    problem = read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "clusters": [{"name": "a", "nodes": [{"name": "n[1-2]"}]}],
            "queue": [{"id": "1", "kind": "rigid", "procs": 2, "base_time": 5.0}],
        }
    )
    late = replace(problem, clusters=(replace(problem.clusters[0], nodes=nodes),))
    policy = lookup("easy")
    starts = [
        policy.solve(one, read_options({}, policy.options), Budget()).placements[0].start
        for one in (problem, late, problem)
    ]
    assert starts == [0.0, 500.0, 0.0]
