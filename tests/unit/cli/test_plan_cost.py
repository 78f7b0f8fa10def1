"""What rules cost: on queues small enough to reckon by hand."""

from __future__ import annotations

import pytest

from coalloc.cli.plan_cost import costs
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.explain.rule_cost import RuleCost

SHORT = RigidJob(id="1", procs=1, base_time=100.0)
LONG = RigidJob(id="2", procs=1, base_time=200.0)
QUEUE = Snapshot(clusters=(Cluster(name="a", nodes=(Node(name="a1"),)),), queue=(SHORT, LONG))


def of(rows: list[RuleCost]) -> dict[str, RuleCost]:
    return {row.rule: row for row in rows}


def test_shares_that_put_the_long_job_first() -> None:
    behind = replace(SHORT, weight=1e-3, priority=-10.0)
    row = of(costs(replace(QUEUE, queue=(behind, LONG)), {"shares": QUEUE}, "auto"))["shares"]
    # 200 + 300 where 100 + 300 could be had
    assert (row.with_rule, row.without, row.cost) == pytest.approx((500.0, 400.0, 100.0))
    assert row.bound is not None
    assert row.bound <= 400.0
    assert row.at_most is not None
    assert row.at_most >= row.cost
    assert (row.jobs, row.held) == (2, 0)


def test_a_limit_holds_a_job_and_helps_the_other() -> None:
    row = of(costs(replace(QUEUE, queue=(LONG,)), {"limits": QUEUE}, "auto"))["limits"]
    assert (row.with_rule, row.without, row.cost) == pytest.approx((200.0, 300.0, -100.0))
    assert (row.jobs, row.held, row.bound) == (1, 1, None)


def test_the_guard_books_a_job_that_has_waited_too_long() -> None:
    late = replace(LONG, submitted=-90_000.0, earliest=-90_000.0)
    short = replace(SHORT, submitted=-80_000.0, earliest=-80_000.0)
    row = of(costs(replace(QUEUE, queue=(late, short)), {}, "auto"))["guard"]
    assert (row.with_rule, row.without, row.cost) == pytest.approx((500.0, 400.0, 100.0))
