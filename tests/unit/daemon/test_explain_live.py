"""``why`` in the daemon: the answer comes whatever the solver does."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
import pytest

from coalloc.cli.jobs.why import why_lines
from coalloc.daemon.queries import why as explaining
from coalloc.daemon.queries.why import COLD, Explainer
from coalloc.daemon.solver.answer import explained
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.daemon.solver.pool import SolveOutcome, SolverPool
from coalloc.daemon.solver.sent import decode_snapshot
from coalloc.wire.answers import Why
from tests.support.core_site import Site

Status = Literal["done", "killed", "crashed", "error"]


def outcome(status: Status, plan: bytes | None, message: str = "") -> SolveOutcome:
    return SolveOutcome(status=status, plan=plan, message=message, elapsed_s=0.0)


class InProcess(SolverPool):
    """A solver that explains in this process, or fails as it is told to."""

    def __init__(
        self, outcome: SolveOutcome | Exception | None = None, *, warm: bool = True
    ) -> None:
        super().__init__()
        self.outcome, self.warm = outcome, warm
        self.asked: list[dict[str, Any]] = []
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    @property
    def is_warm(self) -> bool:
        return self.warm

    async def explain(
        self, snapshot: bytes, rule: bytes, job: str, *, deadline_s: float, grace_s: float
    ) -> SolveOutcome:
        self.asked.append(msgspec.json.decode(rule))
        self.begun.set()
        await self.gate.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is not None:
            return self.outcome
        problem = decode_snapshot(snapshot)
        request = Request(explain=job, soft_at=float("inf"))
        return outcome("done", explained(problem, rule, request))


@pytest.fixture
def site() -> Site:
    site = Site()
    site.run(site.submit(2))
    site.submit(4)
    return site


def explainer(solver: InProcess) -> Explainer:
    return Explainer(solver, RoundPlanner(solver, lambda event: None))


def ask(site: Site, solver: InProcess, job: str, policy: str = "easy") -> Why:
    made = explainer(solver).why(site.job(job), site.state, policy, site.now)
    return asyncio.run(made)


def test_the_state_of_this_moment_is_explained(site: Site) -> None:
    solver = InProcess()
    site.state.schedule.plan = None
    why = ask(site, solver, "2")
    assert (why.unexplained, solver.asked[0]["policy"]) == ("", "easy")
    assert why.explanation is not None
    assert why.explanation["slots"]["enders"] == ["1"]
    assert any("when job 1 ends" in line for line in why.lines)
    text = why_lines(why, 0.0)
    assert text[0].startswith("job 2 is pending")
    assert any("expected start by the last round" in line for line in text)
    assert not any("no explanation" in line for line in text)


def test_the_last_plans_order_is_kept(site: Site) -> None:
    """Its policy has no rule of its own; what only the plan can know is passed on."""
    solver = InProcess(outcome("done", b"{}"))
    ask(site, solver, "2", "auto")
    assert solver.asked[0]["policy"] == "first-fit"
    assert solver.asked[0]["order"] == []
    assert "reason" not in solver.asked[0]


def test_a_job_that_runs_needs_no_solver(site: Site) -> None:
    solver = InProcess(RuntimeError("must not be asked"))
    why = ask(site, solver, "1")
    assert (why.state, why.lines, why.unexplained) == ("running", (), "")
    assert solver.asked == []


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        pytest.param(lambda: InProcess(warm=False), COLD, id="cold"),
        pytest.param(lambda: InProcess(outcome("killed", None, "x")), "longer than", id="slow"),
        pytest.param(lambda: InProcess(outcome("crashed", None, "it died")), "it died", id="dead"),
        pytest.param(lambda: InProcess(RuntimeError("odd")), "RuntimeError: odd", id="defect"),
        pytest.param(lambda: InProcess(outcome("done", b"{")), "Error", id="garbage"),
    ],
)
def test_without_an_explanation_the_rest_is_answered(site: Site, solver: Any, words: str) -> None:
    why = ask(site, solver(), "2")
    assert words in why.unexplained
    assert (why.lines, why.explanation) == ((), None)
    assert any("asks for 4 processes; free now: a" in fact for fact in why.facts)
    assert f"  no explanation: {why.unexplained}" in why_lines(why, 0.0)


def test_one_explanation_at_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "TURN_S", 0.05)

    async def both() -> tuple[Why, Why]:
        solver = InProcess(outcome("done", b'{"explanation": {}, "lines": ["said"]}'))
        solver.gate.clear()
        why = explainer(solver)
        first = asyncio.create_task(why.why(site.job("2"), site.state, "easy", site.now))
        await solver.begun.wait()
        second = await why.why(site.job("2"), site.state, "easy", site.now)
        assert not first.done()
        solver.gate.set()
        return await first, second

    one, other = asyncio.run(both())
    assert one.lines == ("said",)
    assert "other explanations are being made" in other.unexplained
