"""What a part goes through is the same on every batch system, each of them real."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.model.sites.parts import PartState
from tests.support.launch_bed import Signpost, wait_dead
from tests.testbeds import gridengine, oar, slurm
from tests.testbeds.gridengine_launches import GridEngineLaunches, shared_cell
from tests.testbeds.oar_launches import OarLaunches, shared_oar
from tests.testbeds.slurm_launches import SlurmLaunches, shared_bed

Launches = GridEngineLaunches | OarLaunches | SlurmLaunches
SYSTEMS: dict[str, Callable[[Path], Launches]] = {
    "gridengine": lambda root: GridEngineLaunches(root, shared_cell()),
    "oar": lambda root: OarLaunches(root, shared_oar()),
    "slurm": lambda root: SlurmLaunches(root, shared_bed()["c"]),
    "slurm-salloc": lambda root: SlurmLaunches(root, shared_bed()["c"], start="salloc"),
    "slurm-sbatch": lambda root: SlurmLaunches(root, shared_bed()["c"], start="sbatch"),
}
MISSING = {"gridengine": gridengine.missing, "oar": oar.missing, "slurm": slurm.missing}
ONCE = ("gridengine", "oar", "slurm")
"""For what does not depend on how Slurm is asked."""
EVERY_WAY = ("gridengine", "oar", "slurm-salloc", "slurm-sbatch")


def on(names: tuple[str, ...]) -> list[Any]:
    """Batch systems as parameters, each with its mark, skipped where it is not installed."""
    rows = []
    for name in names:
        system = name.partition("-")[0]
        absent = MISSING[system]()
        skip = pytest.mark.skipif(bool(absent), reason=f"{system} is not usable: {absent}")
        rows.append(pytest.param(name, marks=[getattr(pytest.mark, system), skip]))
    return rows


def opened(name: str, root: Path) -> Iterator[Launches]:
    running = SYSTEMS[name](root)
    yield running
    running.close()
    running.wait_idle()
    assert running.jobs() == []


@pytest.fixture(params=on(EVERY_WAY))
def launch(request: pytest.FixtureRequest, root: Path) -> Iterator[Launches]:
    yield from opened(request.param, root)


@pytest.fixture(params=on(ONCE))
def quick(request: pytest.FixtureRequest, root: Path) -> Iterator[Launches]:
    yield from opened(request.param, root)


@pytest.fixture
def sign(root: Path) -> Iterator[Signpost]:
    signpost = Signpost(root / "signpost")
    os.mkfifo(f"{signpost.path}.go", 0o666)
    yield signpost
    signpost.close()


def gated(sign: Signpost, code: int) -> str:
    """A job that says that it is up, and ends with this code when it is let go."""
    return f"echo up > {sign.path}; read x < {sign.path}.go; exit {code}"


def let_go(sign: Signpost) -> None:
    Path(f"{sign.path}.go").write_text("on\n")


def test_script_with_arguments(launch: Launches) -> None:
    spec = launch.spec("job.sh", "one", "two words", script='#!/bin/sh\necho "$2 $1"\n')
    assert launch.run(spec).exit_code == 0
    assert launch.output() == "two words one\n"


def test_what_is_taken_is_refused(quick: Launches) -> None:
    first = quick.shell("sleep 600", nodes=quick.all_nodes)
    assert quick.claim(first).state is PartState.READY
    before = quick.jobs()
    second = quick.claim(quick.shell("true", job="2"))
    assert second.state is PartState.REFUSED
    assert second.reason == "nodes_taken", second
    assert quick.jobs() == before, "what was refused leaves nothing"
    quick.launcher.abort(first.key, "enough")
    assert quick.ended(first.key).reason == "aborted"
    assert quick.is_idle()


def test_abort_signals_then_kills(launch: Launches, sign: Signpost) -> None:
    spec = launch.shell(
        f"trap '' TERM; echo up > {sign.path}; while :; do sleep 600; done", grace_s=0.2
    )
    launch.start(spec)
    sign.line()
    launch.launcher.abort(spec.key)
    report = launch.ended(spec.key)
    assert report.state is PartState.FINISHED
    assert report.reason == "aborted"
    assert report.codes == (-signal.SIGKILL,)
    assert launch.is_idle(), "the claim is given back when the end is known"


def test_time_limit(quick: Launches) -> None:
    report = quick.run(quick.shell("sleep 600", time_limit=0.5))
    assert report.state is PartState.FINISHED
    assert report.reason == "time_limit"
    assert report.exit_code == 128 + signal.SIGTERM


def test_lease_that_is_not_renewed(launch: Launches) -> None:
    spec = launch.shell("true", lease_s=launch.short_lease_s)
    assert launch.claim(spec).state is PartState.READY
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert report.reason == "expired"
    assert launch.is_idle()


def test_claim_that_an_administrator_cancels(launch: Launches) -> None:
    spec = launch.shell("touch began")
    launch.claim(spec)
    launch.cancel_there()
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED, report
    launch.launcher.go(spec.key)
    assert not (launch.cwd / "began").exists()


def test_job_that_an_administrator_cancels(launch: Launches, sign: Signpost) -> None:
    """Its end is not a refusal, and none of its processes stays."""
    spec = launch.shell(f"echo $$ > {sign.path}; exec sleep 600")
    launch.start(spec)
    pid = int(sign.line())
    launch.cancel_there()
    report = launch.ended(spec.key)
    assert report.state in {PartState.FINISHED, PartState.LOST}, report
    assert report.reason in {"vanished", "cancelled_there"}, report
    wait_dead(pid)


def test_restarted_executor_adopts(launch: Launches, sign: Signpost) -> None:
    waiting = launch.shell("exit 4", job="w")
    running = launch.shell(gated(sign, 5), job="r", nodes=launch.another_node)
    launch.claim(waiting)
    launch.start(running)
    sign.line()
    launch.restart()
    states = {report.key: report.state for report in launch.launcher.adopt()}
    assert states == {waiting.key: PartState.READY, running.key: PartState.RUNNING}
    launch.launcher.go(waiting.key)
    assert launch.ended(waiting.key).exit_code == 4
    let_go(sign)
    assert launch.ended(running.key).exit_code == 5


def test_killed_runner_is_replaced(launch: Launches, sign: Signpost) -> None:
    """What ran goes on, and its exit code is not lost."""
    spec = launch.shell(gated(sign, 6))
    before = launch.start(spec)
    sign.line()
    pid = launch.runner_pid(spec.key)
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)
    assert launch.report(spec.key).state is PartState.RUNNING
    let_go(sign)
    report = launch.ended(spec.key)
    assert report.state is PartState.FINISHED
    assert report.exit_code == 6
    assert report.started == before.started


def test_runner_that_is_killed_before_the_start(launch: Launches) -> None:
    spec = launch.shell("touch began")
    launch.claim(spec)
    pid = launch.runner_pid(spec.key)
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)
    launch.launcher.go(spec.key)
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert report.reason == "runner_died"
    assert not (launch.cwd / "began").exists()


def test_batch_system_restarts_in_between(launch: Launches, sign: Signpost) -> None:
    """While it is away, what runs goes on, and what is asked of it is unknown."""
    spec = launch.shell(gated(sign, 7))
    launch.start(spec)
    sign.line()
    launch.stop_service()
    try:
        assert launch.report(spec.key).state is PartState.RUNNING
        with pytest.raises(AdapterError):
            launch.launcher.claim(launch.shell("true", job="2", nodes=(("n9", 1),)))
    finally:
        launch.start_service()
    assert launch.report(spec.key).state is PartState.RUNNING
    let_go(sign)
    assert launch.ended(spec.key).exit_code == 7


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run another user's jobs")
def test_another_users_job(launch: Launches) -> None:
    user = launch.another_user
    spec = launch.shell(
        "id -un; id -un >> theirs; ls -lL $COALLOC_HOSTFILE | cut -c1-10",
        uid=user.pw_uid,
    )
    report = launch.claim(spec)
    assert report.state is PartState.READY, report
    assert launch.owners() == [user.pw_name]
    launch.launcher.go(spec.key)
    assert launch.ended(spec.key).exit_code == 0
    assert launch.output() == f"{user.pw_name}\n-rw-------\n"
    assert (launch.cwd / "theirs").stat().st_uid == user.pw_uid
