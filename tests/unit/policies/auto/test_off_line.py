"""`auto` off line, on queues with weights: never worse than on line, nor than orders by weight."""

from __future__ import annotations

from random import Random

import pytest

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.oas.orders import BY_WEIGHT
from coalloc.policies.oas.seeds import by_rule
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.support.planned import planned


def weighted_queue(seed: int, jobs: int) -> Snapshot:
    """Rigid jobs of 1 to 7 processes on two clusters; one in five weighs 20, one in five 5."""
    draw = Random(seed)
    queue = tuple(
        RigidJob(
            id=str(n),
            procs=draw.randint(1, 7),
            base_time=float(draw.randint(20, 400)),
            weight=draw.choice([1.0, 1.0, 1.0, 5.0, 20.0]),
        )
        for n in range(jobs)
    )
    nodes = (("a", 4, 1.0), ("b", 2, 0.8))
    clusters = tuple(
        Cluster(
            name=name,
            link_gbps=1.0,
            nodes=tuple(Node(name=f"{name}{n}", slots=4, power=power) for n in range(count)),
        )
        for name, count, power in nodes
    )
    return Snapshot(clusters=clusters, queue=queue)


# From 20 to 1,000 jobs, rising by a fifth or more; two of them are quick.
SIZES = (20, 24, 29, 35, 42, 50, 60, 72, 86, 100, 120, 145, 175, 210, 255, 310, 400, 550, 750, 1000)


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=() if n in (0, 9) else pytest.mark.slow) for n in range(len(SIZES))],
)
def test_it_is_never_worse_than_on_line_or_smiths_order(seed: int) -> None:
    snapshot = weighted_queue(seed, SIZES[seed])
    off, live = (
        planned("auto", snapshot, Budget(live=live)).objective.value for live in (False, True)
    )
    planner = Planner(snapshot, read_options({}, lookup("auto").options))
    for rule, decoder in BY_WEIGHT:
        smith = planner.decode(by_rule(planner, range(SIZES[seed]), rule), decoder)
        assert off <= smith.weighted_completion * (1.0 + 1e-9)
    assert off <= live * (1.0 + 1e-9)
