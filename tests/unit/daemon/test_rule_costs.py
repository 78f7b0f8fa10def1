"""What rules cost in a round: computed after it, and known to be unknown where it cannot be."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from coalloc.cli.plan import rule_lines
from coalloc.core.base.effects import Solve
from coalloc.core.base.events import CoreEvent, CostsWanted
from coalloc.daemon.monitoring.metrics import DaemonMetrics
from coalloc.daemon.solver import planner as module
from coalloc.daemon.solver.answer import encoded, solved, trimmed
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.planner import RuleCosts, plainly
from coalloc.daemon.solver.pool import SolveOutcome
from coalloc.daemon.solver.sent import decode_snapshot
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.registry import lookup
from coalloc.wire.answers import RuleCostsRow

SHORT = RigidJob(id="1", procs=1, base_time=100.0)
LONG = RigidJob(id="2", procs=1, base_time=200.0)
BOTH = Snapshot(clusters=(Cluster(name="a", nodes=(Node(name="a1"),)),), queue=(SHORT, LONG))
ROUND = Solve(
    round=7,
    snapshot=replace(BOTH, queue=(LONG,)),
    policy="auto",
    lifted={"limits": BOTH},
)


class FakePool:
    """Solves here; fails where told to."""

    def __init__(self, *, is_warm: bool = True, fails: str = "") -> None:
        self.is_warm, self.fails = is_warm, fails
        self.asked: list[Request] = []

    async def wait_warm(self, timeout_s: float) -> bool:
        self.is_warm = True
        return True

    async def solve(self, snapshot: bytes, request: Request, *, deadline_s: float) -> SolveOutcome:
        self.asked.append(request)
        if self.fails and len(self.asked) == 1:
            return SolveOutcome(status="killed", plan=None, message=self.fails, elapsed_s=0.0)
        view = decode_snapshot(snapshot)
        asked = Request(policy=request.policy, options=request.options)
        plan = solved(view, lookup(request.policy).solve, asked)
        assert request.node_entries is not None
        body = encoded(trimmed(plan, request.node_entries))
        return SolveOutcome(status="done", plan=body, message="", elapsed_s=0.0)


def kept() -> Plan:
    return solved(ROUND.snapshot, lookup("auto").solve, Request(policy="auto"))


def computed(
    pool: FakePool, plan: Plan | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[RuleCosts, list[RuleCostsRow], list[CoreEvent], list[float]]:
    """Compute once; returns what was found, offered and slept."""
    offered: list[CoreEvent] = []
    found: list[RuleCostsRow] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    costs = RuleCosts(pool, offered.append)  # type: ignore[arg-type]
    costs.on_found = found.append
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        options = {"wait_limit": 5.0}
        asked = Request(policy="auto", options=options, previous=("2",), checked=True)
        asyncio.run(costs.compute(ROUND, plan, asked, 3.0))
    return costs, found, offered, slept


def test_a_limit_and_the_guard_are_costed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = FakePool()
    with capture_logs() as lines:
        costs, (found,), offered, (pause,) = computed(pool, kept(), monkeypatch)
    assert costs.newest is found
    limits = found.rules["limits"]
    assert limits.cost == pytest.approx(-100.0)
    assert (limits.jobs, limits.held) == (1, 1)
    guard = found.rules["guard"]
    assert guard.cost == pytest.approx(0.0)
    assert guard.at_most == pytest.approx(0.0), "the plan without it is proved best"
    assert pause == pytest.approx(found.spent_s * (1 / module.SHARE - 1), rel=0.1, abs=1e-3)
    assert offered == [CostsWanted()]
    with_rule, without_guard = pool.asked
    assert with_rule.options == {"wait_limit": 5.0}
    assert without_guard.options["wait_limit"] is None
    for asked in pool.asked:
        assert (asked.checked, asked.previous) == (True, ("2",))
        assert asked.nice == module.NICE
    (line,) = lines
    assert (line["event"], line["round"]) == ("rule_costs_computed", 7)
    assert line["limits"] == {"cost": -100.0, "at_most": None, "of": 200.0, "held": 1}


def test_a_plan_that_was_not_made_is_not_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = FakePool(fails="was killed at its time limit")
    _, (found,), offered, _ = computed(pool, kept(), monkeypatch)
    assert found.rules["limits"].cost is None
    assert found.rules["limits"].why == "not computed: was killed at its time limit"
    assert found.rules["guard"].cost is not None
    assert offered == [CostsWanted()]
    metrics = DaemonMetrics()
    metrics.costed(found)
    name = "coalloc_rule_cost_weighted_seconds"
    value = metrics.registry.get_sample_value(name, {"rule": "limits"})
    assert value is not None
    assert value != value, "NaN"
    assert metrics.registry.get_sample_value(name, {"rule": "guard"}) == pytest.approx(0.0)
    assert rule_lines(("limits", "shares"), found) == (
        "cost of limits: not computed: was killed at its time limit (round 7)",
        "cost of shares: not computed (round 7)",
        "cost of guard: 0 of 200 (0.0%), at most 0 (round 7)",
    )


def test_a_round_by_another_policy_has_no_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in (None, plainly(ROUND.snapshot)):
        costs, found, offered, (pause,) = computed(FakePool(), plan, monkeypatch)
        assert (costs.newest, found, offered) == (None, [], [CostsWanted()])
        assert pause == module.RETRY_S


def test_a_cold_solver_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found, offered, slept = computed(FakePool(is_warm=False), kept(), monkeypatch)
    assert (found, offered, slept) == ([], [CostsWanted()], [])


def test_lines_of_a_site() -> None:
    assert rule_lines((), None) == ()
    assert rule_lines(("limits",), None) == ("cost of rules: not computed yet",)
