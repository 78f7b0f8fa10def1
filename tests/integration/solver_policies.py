"""Policies that misbehave, for the tests of the solver's processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget, OnIncumbent


def plan(status: Status = Status.HEURISTIC, value: float = 10.0, **stats: Any) -> Plan:
    objective = Objective(name="makespan", value=value)
    placement = Placement(job="1", start=0.0, end=value, nodes={"a1": 1})
    return Plan(
        policy="test", status=status, objective=objective, placements=(placement,), stats=stats
    )


def tell(options: Mapping[str, Any]) -> None:
    """Write our process number where the test looks for it."""
    path = Path(options["pid_file"])
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").replace(path)


def good(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    return plan(jobs=len(problem.queue), options=dict(options), seed=budget.seed, work=budget.work)


def improving(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    """Three incumbents, then search until told to stop."""
    assert found is not None
    for value in (30.0, 20.0, 10.0):
        found(plan(value=value))
    while not budget.stop():
        time.sleep(0.001)
    return plan(Status.TIME_LIMIT, 9.0)


def eager(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    """Hundreds of incumbents, big enough that sending each would take most of the time."""
    assert found is not None
    count = 0
    while not budget.stop():
        count += 1
        found(plan(value=1e6 - count, padding="x" * 100_000))
    return plan(found=count)


def cheat(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    """A wrong incumbent, then a right one, then a plan that is right only if asked to be."""
    assert found is not None
    wrong = replace(plan(), placements=())
    found(wrong)
    found(plan(value=10.0))
    return wrong if options["to the end"] else plan()


def spread(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    """One placement a job, one after the other, in the reverse order of the queue."""
    jobs = list(reversed(problem.queue))
    placements = tuple(
        Placement(job=job.id, start=10.0 * i, end=10.0 * i + 10.0, nodes={"a1": 1, "a2": 1})
        for i, job in enumerate(jobs)
    )
    return replace(plan(value=10.0 * len(jobs)), placements=placements[::-1])


def deaf(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    """An optimal incumbent, then never an end, in spite of every signal that can be caught."""
    assert found is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(options["child_file"]).write_text(str(child.pid))
    tell(options)
    found(plan(Status.OPTIMAL))
    while True:
        time.sleep(60)


def crash(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    if options.get("incumbent") and found:
        found(plan())
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def leave(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    os._exit(3)


def chatter(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    """Print like a solver from the nineties, on every stream there is."""
    print("Welcome to the solver\n" * 1000, flush=True)
    os.write(1, b"\0\xff" * 100_000)
    os.write(2, b"no newline " * 20_000)
    return plan()


def garbage(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    """Write into every open descriptor, the stream to the daemon included."""
    for descriptor in range(3, 50):
        try:
            os.write(descriptor, b"Hello, this is no frame\n")
        except OSError:
            continue
    time.sleep(600)
    raise AssertionError


def broken(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    raise ValueError("this instance\nis too hard")


def greedy(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    return plan(bytes=len(bytearray(16 << 30)))


def quits(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    sys.exit("I give up")


def odd_numbers(
    problem: Snapshot, options: Mapping[str, Any], budget: Budget, found: OnIncumbent | None
) -> Plan:
    import numpy as np

    return plan(count=np.int64(7), share=np.float64(0.5), nothing=float("nan"))


SOLVERS = {
    function.__name__: function
    for function in (
        *(good, improving, deaf, crash, leave, chatter),
        *(garbage, broken, greedy, quits, odd_numbers),
        *(eager, cheat, spread),
    )
}
