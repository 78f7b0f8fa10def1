"""The solver's processes: whatever a policy does, the daemon gets an answer in time."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from coalloc.daemon.solver import pool as solver_module
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.pool import SolveOutcome, SolverPool
from coalloc.daemon.solver.sent import encode_snapshot
from coalloc.model.formats.plan_json import read_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Status
from coalloc.policies.checking.check import check

POLICIES = Path(__file__).with_name("solver_policies.py")
SNAPSHOT = {
    "format": "coalloc-snapshot/1",
    "clusters": [{"name": "a", "nodes": [{"name": "a[1-2]"}]}],
    "queue": [{"id": "1", "kind": "rigid", "procs": 1, "base_time": 10.0}],
}
TEXT = encode_snapshot(read_snapshot(SNAPSHOT))
WAIT_S = 60.0
SOFT_S = 3.0
"""Long enough for a first incumbent on a loaded machine."""


def run(test: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await test

    asyncio.run(limited())


@asynccontextmanager
async def pool(**settings: Any) -> AsyncIterator[SolverPool]:
    processes = SolverPool(arguments=[f"--policies={POLICIES}"], **settings)
    await processes.start()
    try:
        assert await processes.wait_warm(WAIT_S)
        yield processes
    finally:
        await processes.stop()


async def solve(
    processes: SolverPool, policy: str, deadline_s: float = WAIT_S, **options: Any
) -> SolveOutcome:
    request = Request(policy=policy, options=options)
    return await processes.solve(TEXT, request, deadline_s=deadline_s)


def status(outcome: SolveOutcome) -> Status:
    assert outcome.plan is not None
    return read_plan(json.loads(outcome.plan)).status


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells, such as another process's end."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_plans_come_back() -> None:
    async def test() -> None:
        async with pool() as processes:
            request = Request(policy="good", options={"x": 1}, work=100, seed=7)
            outcome = await processes.solve(TEXT, request, deadline_s=WAIT_S)
            assert (outcome.status, outcome.message) == ("done", "")
            assert outcome.plan is not None
            plan = read_plan(json.loads(outcome.plan))
            assert plan.stats == {"jobs": 1, "options": {"x": 1}, "seed": 7, "work": 100}
            assert 0.0 < outcome.elapsed_s < WAIT_S

    run(test())


def test_many_at_once() -> None:
    async def test() -> None:
        async with pool(spares=2) as processes:
            outcomes = await asyncio.gather(*(solve(processes, "good") for _ in range(20)))
            assert [outcome.status for outcome in outcomes] == ["done"] * 20

    run(test())


def test_incumbents_stream_and_the_soft_limit_ends_the_search() -> None:
    async def test() -> None:
        async with pool() as processes:
            values: list[float] = []
            first = asyncio.Event()

            def found(plan: bytes) -> None:
                values.append(json.loads(plan)["objective"]["value"])
                first.set()

            solving = asyncio.create_task(
                processes.solve(
                    TEXT, Request(policy="improving"), deadline_s=SOFT_S, on_incumbent=found
                )
            )
            async with asyncio.timeout(WAIT_S):
                await first.wait()
            assert not solving.done()
            outcome = await solving
            # one that a better one follows at once may be left out
            assert (values[0], values[-1]) == (30.0, 10.0)
            assert outcome.status == "done"
            assert status(outcome) is Status.TIME_LIMIT
            assert outcome.elapsed_s >= 0.75 * SOFT_S  # in time to send a plan

    run(test())


def test_the_hard_limit_kills_the_whole_group(tmp_path: Path) -> None:
    async def test() -> None:
        pid_file, child_file = tmp_path / "pid", tmp_path / "child"
        async with pool() as processes:
            outcome = await solve(
                processes, "deaf", 1.0, pid_file=str(pid_file), child_file=str(child_file)
            )
            assert outcome.status == "killed"
            assert outcome.message == "the solver process was killed at its time limit"
            # what was found stands, yet not as an optimum
            assert status(outcome) is Status.TIME_LIMIT
            assert outcome.elapsed_s >= 1.0
            for file in (pid_file, child_file):
                pid = int(file.read_text())
                await until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
            assert (await solve(processes, "good")).status == "done"

    run(test())


def test_a_cancelled_solve_kills_its_process(tmp_path: Path) -> None:
    async def test() -> None:
        pid_file = tmp_path / "pid"
        async with pool() as processes:
            child_file = str(tmp_path / "child")
            solving = asyncio.create_task(
                solve(processes, "deaf", pid_file=str(pid_file), child_file=child_file)
            )
            await until(pid_file.exists)
            solving.cancel()
            await asyncio.gather(solving, return_exceptions=True)
            pid = int(pid_file.read_text())
            await until(lambda: not is_alive(pid))

    run(test())


@pytest.mark.parametrize(
    ("policy", "ending", "message"),
    [
        ("crash", "crashed", "the solver process died of signal 11"),
        ("leave", "crashed", "the solver process died with exit code 3"),
        ("garbage", "crashed", "the solver process sent garbage: no frame begins with b'Hello'"),
        ("broken", "error", "ValueError: this instance is too hard"),
        ("quits", "error", "SystemExit: I give up"),
        ("missing", "error", "InputError: policy: there is no policy 'missing'"),
    ],
)
def test_misbehaviour_is_told(policy: str, ending: str, message: str) -> None:
    async def test() -> None:
        async with pool() as processes:
            outcome = await solve(processes, policy)
            assert outcome.status == ending
            assert outcome.message.startswith(message)
            assert "\n" not in outcome.message
            assert outcome.plan is None
            assert (await solve(processes, "good")).status == "done"

    run(test())


def test_an_incumbent_outlives_a_crash() -> None:
    async def test() -> None:
        async with pool() as processes:
            outcome = await solve(processes, "crash", incumbent=True)
            assert outcome.status == "crashed"
            assert status(outcome) is Status.TIME_LIMIT

    run(test())


def test_prints_do_no_harm() -> None:
    async def test() -> None:
        async with pool() as processes:
            assert (await solve(processes, "chatter")).status == "done"

    run(test())


def test_numbers_of_numpy_and_nan_are_written() -> None:
    async def test() -> None:
        async with pool() as processes:
            outcome = await solve(processes, "odd_numbers")
            assert outcome.plan is not None
            stats = json.loads(outcome.plan)["stats"]
            assert stats == {"count": 7, "share": 0.5, "nothing": None}

    run(test())


def test_memory_is_limited() -> None:
    async def test() -> None:
        async with pool(memory_mb=8192) as processes:
            outcome = await solve(processes, "greedy")
            assert (outcome.status, outcome.message) == ("error", "MemoryError:")
            assert (await solve(processes, "good")).status == "done"

    run(test())


def test_bad_snapshots_are_told() -> None:
    async def test() -> None:
        async with pool() as processes:
            for text, message in (
                (b"{", "DecodeError"),
                (b'{"format": "x"}', "ValidationError: Object missing required field"),
                (b"", "DecodeError"),
            ):
                outcome = await processes.solve(text, Request(policy="good"), deadline_s=WAIT_S)
                assert outcome.status == "error"
                assert message in outcome.message

    run(test())


def test_many_incumbents_do_not_hold_up_the_search() -> None:
    async def test() -> None:
        async with pool() as processes:
            values: list[float] = []
            outcome = await processes.solve(
                TEXT,
                Request(policy="eager"),
                deadline_s=1.0,
                on_incumbent=lambda text: values.append(json.loads(text)["objective"]["value"]),
            )
            assert outcome.plan is not None
            found = json.loads(outcome.plan)["stats"]["found"]
            assert values[0] == 1e6 - 1  # the first at once
            assert 1 < len(values) < found
            assert values == sorted(values, reverse=True)

    run(test())


def test_only_plans_that_pass_the_check_come_back() -> None:
    async def test() -> None:
        async with pool() as processes:
            for to_the_end in (False, True):
                values: list[bytes] = []
                request = Request(policy="cheat", options={"to the end": to_the_end}, checked=True)
                outcome = await processes.solve(
                    TEXT, request, deadline_s=WAIT_S, on_incumbent=values.append
                )
                for text in values:
                    plan = read_plan(json.loads(text))
                    assert not check(read_snapshot(SNAPSHOT), plan).violations
                if to_the_end:
                    assert outcome.status == "error"
                    assert "its plan fails the check: " in outcome.message
                    assert outcome.jobs
                    assert all(f"job {job}" in outcome.message for job in outcome.jobs)
                    assert outcome.plan is None
                else:
                    assert outcome.status == "done"

    run(test())


def test_large_plans_are_trimmed_where_they_start_late() -> None:
    async def test() -> None:
        jobs = [{"id": str(n), "kind": "rigid", "procs": 2, "base_time": 10.0} for n in range(1, 6)]
        text = encode_snapshot(read_snapshot(SNAPSHOT | {"queue": jobs}))
        async with pool() as processes:
            for entries, expected in ((10, 5), (5, 2), (0, 0)):
                request = Request(policy="spread", checked=True, node_entries=entries)
                outcome = await processes.solve(text, request, deadline_s=WAIT_S)
                assert outcome.plan is not None, outcome.message
                plan = read_plan(json.loads(outcome.plan))
                assert [p.job for p in plan.placements] == ["1", "2", "3", "4", "5"]
                # the last of the queue start first
                named = [p.job for p in plan.placements if p.nodes]
                assert named == ["1", "2", "3", "4", "5"][5 - expected :]
                assert plan.stats.get("placements_without_nodes", 0) == 5 - expected

    run(test())


def test_without_a_template_the_answer_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        processes = SolverPool(python="/nowhere/python")
        await processes.start()
        outcome = await solve(processes, "good")
        assert outcome.status == "crashed"
        assert "no solver process" in outcome.message
        assert not await processes.wait_warm(0.01)
        await processes.stop()

    run(test())


def test_a_template_that_compiles_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        told, program = tmp_path / "pid", tmp_path / "python"
        program.write_text(
            f"#!/bin/sh\necho $$ > {told}.new; mv {told}.new {told}; exec sleep 600\n"
        )
        program.chmod(0o755)
        processes = SolverPool(python=str(program))
        await processes.start()
        await until(told.exists)
        await processes.stop()
        assert not is_alive(int(told.read_text()))

    monkeypatch.setattr(solver_module, "STOP_S", 1e9)
    run(test())


def test_a_killed_template_is_started_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with pool() as processes:
            pid_file = tmp_path / "pid"
            child_file = str(tmp_path / "child")
            solving = asyncio.create_task(
                solve(processes, "deaf", pid_file=str(pid_file), child_file=child_file)
            )
            await until(pid_file.exists)
            pid = int(pid_file.read_text())
            template = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(template, 9)
            outcome = await solving
            assert outcome.status == "crashed"
            await until(lambda: not is_alive(pid))  # nobody is left behind
            assert await processes.wait_warm(WAIT_S)
            assert (await solve(processes, "good")).status == "done"

    run(test())


def test_a_template_that_keeps_dying_is_not_started_in_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        monkeypatch.setattr(solver_module, "RESTART_FIRST_S", 0.1)
        starts = 0
        begin = asyncio.create_subprocess_exec

        async def counted(*arguments: Any, **settings: Any) -> asyncio.subprocess.Process:
            nonlocal starts
            starts += 1
            return await begin(*arguments, **settings)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)
        processes = SolverPool(python="/bin/false")
        began = time.monotonic()
        await processes.start()
        await until(lambda: starts == 4)
        assert time.monotonic() - began >= 0.1 + 0.2 + 0.4
        await processes.stop()

    run(test())


def test_a_stop_leaves_nobody_behind(tmp_path: Path) -> None:
    async def test() -> None:
        pid_file = tmp_path / "pid"
        async with pool() as processes:
            child_file = str(tmp_path / "child")
            solving = asyncio.create_task(
                solve(processes, "deaf", pid_file=str(pid_file), child_file=child_file)
            )
            await until(pid_file.exists)
        assert (await solving).status == "crashed"
        for file in (pid_file, tmp_path / "child"):
            pid = int(file.read_text())
            await until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]

    run(test())
