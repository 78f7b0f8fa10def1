"""A launcher or disk that fails at one effect costs none of the others."""

from __future__ import annotations

import errno
import io
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from coalloc.adapters.base import Adapter, AdapterError
from coalloc.core.base.messages import (
    Abort,
    Forget,
    Hello,
    Numbered,
    Order,
    Prepare,
    Report,
    Start,
    Started,
    Statement,
    Welcome,
)
from coalloc.core.executor.effects import ExecutorTicked, MessageReceived
from coalloc.core.executor.machine import START_WITHIN_S
from coalloc.executor.service import ExecutorService
from coalloc.model.sites.parts import Launch, PartKey, PartReport, PartSpec, PartState
from coalloc.model.sites.reading import ClusterReading
from coalloc.model.values import replace
from coalloc.runtime import logs

ERRORS = (
    RuntimeError("broken"),
    OSError(errno.EMFILE, "Too many open files"),
    RecursionError("too deep"),
    KeyError("bad"),
    AdapterError("no answer"),
)


def unheard(*_: object) -> dict[str, object]:
    raise structlog.DropEvent


class NoReader:
    def read(self) -> ClusterReading:
        raise AdapterError("not asked here")


class Fragile:
    """A launcher that fails at the part of one job, in one of its calls.

    Attributes
    ----------
    fails : str
        The call.
    """

    def __init__(self, error: Exception, fails: str = "") -> None:
        self.error, self.fails = error, fails
        self.states: dict[PartKey, PartState] = {}
        self.renewed = 0

    def _may_fail(self, call: str, key: PartKey) -> None:
        if self.fails == call and key.job == "bad":
            raise self.error

    def claim(self, part: PartSpec) -> None:
        self._may_fail("claim", part.key)
        self.states[part.key] = PartState.READY

    def arrange(self, key: PartKey, nodes: Mapping[str, int], rendezvous: str) -> None:
        self._may_fail("arrange", key)

    def hasten(self, key: PartKey) -> None:
        self._may_fail("hasten", key)

    def limit(self, key: PartKey, limit_s: float) -> None:
        self._may_fail("limit", key)

    def go(self, key: PartKey, at: float = 0.0) -> None:
        self._may_fail("go", key)
        if self.states.get(key) is PartState.READY:
            self.states[key] = PartState.RUNNING

    def abort(self, key: PartKey, reason: str = "") -> None:
        self._may_fail("abort", key)
        if key in self.states:
            self.states[key] = PartState.REFUSED

    def renew(self) -> None:
        self.renewed += 1
        if self.fails == "renew":
            raise self.error

    def poll(self) -> tuple[PartReport, ...]:
        if self.fails == "poll":
            raise self.error
        return tuple(
            PartReport(job=key.job, attempt=key.attempt, part=key.part, state=state)
            for key, state in self.states.items()
        )

    def adopt(self) -> tuple[PartReport, ...]:
        return self.poll()

    def forget(self, key: PartKey) -> None:
        self._may_fail("forget", key)
        self.states.pop(key, None)

    def fileno(self) -> None:
        return None

    def close(self) -> None:
        return None


class Bench:
    """The executor's shell between a fragile launcher and a daemon that is only heard."""

    def __init__(self, folder: Path, launcher: Fragile, log: Any = None) -> None:
        self.launcher = launcher
        self.now = 100.0
        self.seq = 0
        self.executor = ExecutorService(
            "a",
            Adapter(reader=NoReader(), launcher=launcher),
            f"ipc://{folder}/x",
            folder,
            log or structlog.wrap_logger(None, [unheard]),
            interval_s=1.0,
            timeout_s=1.0,
            clock=lambda: self.now,
        )
        self.said: list[Statement] = []
        self.executor._hands._send = self.said.append
        self.hear(Welcome(store="s", epoch=5, base_seq=1, lease_s=60.0))

    def close(self) -> None:
        self.executor._port.close()
        self.executor._context.term()

    def hear(self, *messages: Numbered | Welcome) -> None:
        """Messages that arrive in one turn."""
        self.executor._turn(MessageReceived(message=message) for message in messages)

    def order(self, *orders: Order) -> None:
        numbered = []
        for order in orders:
            self.seq += 1
            numbered.append(Numbered(epoch=5, seq=self.seq, order=order))
        self.hear(*numbered)

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.executor._look()
        self.executor._turn([ExecutorTicked()])

    def heard_of(self, job: str) -> PartReport:
        """The last that was said of a job."""
        parts = [p for s in self.said if isinstance(s, Report) for p in s.parts if p.job == job]
        return parts[-1]

    @property
    def acknowledged(self) -> int:
        """The last order that was."""
        return [s for s in self.said if isinstance(s, Report | Hello)][-1].last_seq


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, Fragile(ERRORS[0]))
    yield bench
    bench.close()


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Put back what `logs.configure` changes for the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    logging.raiseExceptions = True
    structlog.reset_defaults()


def prepare(job: str) -> Prepare:
    return Prepare(
        job=job, attempt=1, part=0, nodes={"a1": 1}, all_nodes={"a1": 1}, first_rank=0,
        size=1, uid=-1, gid=-1, lease_s=60.0,
    )  # fmt: skip


def both(order: type[Start] | type[Abort] | type[Forget]) -> tuple[Order, Order]:
    """To the job that its launcher fails at, and in the same turn to another."""
    return order(job="bad", attempt=1), order(job="good", attempt=1)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["claim", "go", "abort", "forget", "poll", "renew"])
def test_one_failure_costs_nothing_else(bench: Bench, call: str, error: Exception) -> None:
    launcher = bench.launcher
    launcher.error, launcher.fails = error, call
    good, bad = PartKey(job="good", attempt=1, part=0), PartKey(job="bad", attempt=1, part=0)
    bench.order(prepare("bad"), prepare("good"))
    assert launcher.states[good] is PartState.READY
    bench.tick()
    bench.order(*both(Start))
    assert launcher.states[good] is PartState.RUNNING
    bench.tick()
    bench.order(*both(Abort))
    assert launcher.states[good] is PartState.REFUSED
    if call == "poll":
        launcher.fails = ""
    bench.tick()
    bench.order(*both(Forget))
    assert good not in launcher.states
    assert bench.acknowledged == bench.seq
    # What has failed is done as soon as it can be.
    launcher.fails = ""
    for _ in range(3):
        bench.tick()
    bench.order(Forget(job="bad", attempt=1))
    assert bad not in launcher.states


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_claim_that_fails_is_refused_in_words(bench: Bench, error: Exception) -> None:
    bench.launcher.error, bench.launcher.fails = error, "claim"
    bench.order(prepare("bad"))
    report = bench.heard_of("bad")
    assert (report.state, report.reason) == (PartState.REFUSED, "executor_failed")
    words = error.strerror or "" if isinstance(error, OSError) else str(error)
    assert words in report.detail


SECRET = "hunter2-of-ada"


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_environment_is_logged_whatever_fails(
    tmp_path: Path, form: logs.Format, restored_logs: None
) -> None:
    stream = io.StringIO()
    logs.configure("debug", form, stream)
    for error in ERRORS:
        for call in ("claim", "go", "abort", "forget", "poll", "renew"):
            bench = Bench(tmp_path, Fragile(error), log=logs.get_logger())
            bench.launcher.fails = call
            launch = Launch(argv=("true",), env={"DB_PASSWORD": SECRET}, cwd="/")
            bench.order(replace(prepare("bad"), launch=launch))
            bench.tick()
            bench.order(Start(job="bad", attempt=1))
            bench.order(Abort(job="bad", attempt=1))
            bench.tick()
            bench.order(Forget(job="bad", attempt=1))
            bench.close()
    for error in ERRORS:
        assert type(error).__name__ in stream.getvalue() or isinstance(
            error, AdapterError | OSError
        )
    assert "effect_failed" in stream.getvalue()
    assert SECRET not in stream.getvalue()


def owe(bench: Bench, call: str, order: Start | Abort) -> None:
    """Order what fails of a part that is ready."""
    bench.order(prepare("bad"))
    bench.tick()
    bench.launcher.fails = call
    bench.order(order)


def test_a_start_that_failed_is_tried_again(bench: Bench) -> None:
    owe(bench, "go", Start(job="bad", attempt=1))
    bench.tick(START_WITHIN_S / 2)
    bench.launcher.fails = ""
    bench.tick()
    bench.tick()
    assert bench.heard_of("bad").state is PartState.RUNNING


def test_a_part_that_cannot_be_started_is_ended(bench: Bench) -> None:
    """Its job may have parts elsewhere, which run: they wait for this one."""
    owe(bench, "go", Start(job="bad", attempt=1))
    bench.tick(START_WITHIN_S + 1.0)
    bench.tick()
    assert bench.heard_of("bad").state is PartState.REFUSED


def test_a_start_that_is_owed_survives_a_restart(bench: Bench, tmp_path: Path) -> None:
    owe(bench, "go", Start(job="bad", attempt=1))
    assert bench.acknowledged == 2
    bench.launcher.fails = ""
    again = Bench(tmp_path, bench.launcher)
    again.tick()
    again.tick()
    assert again.heard_of("bad").state is PartState.RUNNING
    again.close()


def test_an_end_that_is_owed_survives_a_restart(bench: Bench, tmp_path: Path) -> None:
    owe(bench, "abort", Abort(job="bad", attempt=1))
    bench.launcher.fails = ""
    again = Bench(tmp_path, bench.launcher)
    again.tick()
    again.tick()
    assert again.heard_of("bad").state is PartState.REFUSED
    again.close()


def test_a_start_that_a_former_daemon_is_owed_becomes_an_end(bench: Bench) -> None:
    owe(bench, "go", Start(job="bad", attempt=1))
    bench.launcher.fails = ""
    bench.hear(Welcome(store="s", epoch=6, base_seq=1, lease_s=60.0))
    bench.tick()
    assert bench.heard_of("bad").state is PartState.REFUSED


def fill(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(progress: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/state/progress.tmp")

    monkeypatch.setattr(bench.executor._hands._progress, "write", full)


def test_nothing_is_acknowledged_that_is_not_on_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.order(prepare("1"))
    fill(bench, monkeypatch)
    bench.order(prepare("good"), Start(job="1", attempt=1))
    bench.tick()
    assert bench.acknowledged == 1
    assert bench.heard_of("1").state is PartState.RUNNING, "how parts are is said nevertheless"
    monkeypatch.undo()
    bench.tick(2.0)
    assert bench.acknowledged == 3


def test_a_refusal_is_said_though_the_disk_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bench, monkeypatch)
    bench.launcher.fails = "claim"
    bench.launcher.error = OSError(errno.ENOSPC, "No space left on device", "/state")
    bench.order(prepare("bad"))
    assert bench.heard_of("bad").detail == "/state: No space left on device"


def test_no_part_is_removed_whose_orders_are_not_on_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are sent again after a crash: without its part they would run a job a second time."""
    fill(bench, monkeypatch)
    bench.order(prepare("1"))
    bench.order(Abort(job="1", attempt=1))
    bench.tick()
    bench.order(Forget(job="1", attempt=1))
    for _ in range(3):
        bench.tick()
    assert bench.launcher.states
    monkeypatch.undo()
    for _ in range(3):
        bench.tick()
    assert not bench.launcher.states


def test_what_has_run_is_remembered_before_its_part_is_removed(bench: Bench) -> None:
    bench.order(prepare("17"), Start(job="17", attempt=1), prepare("18"))
    bench.tick()
    bench.launcher.states[PartKey(job="17", attempt=1, part=0)] = PartState.FINISHED
    bench.launcher.states[PartKey(job="18", attempt=1, part=0)] = PartState.REFUSED
    bench.tick()
    bench.order(Forget(job="17", attempt=1), Forget(job="18", attempt=1))
    assert not bench.launcher.states
    bench.hear(Welcome(store="s", epoch=9, base_seq=50, lease_s=60.0, recall=True))
    (told,) = [each for each in bench.said if isinstance(each, Started)]
    assert (told.starts, told.is_last) == ((("17", 1, "finished"),), True)


def test_no_part_is_removed_while_it_cannot_be_remembered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.order(prepare("17"), Start(job="17", attempt=1))
    key = PartKey(job="17", attempt=1, part=0)
    bench.launcher.states[key] = PartState.FINISHED
    bench.tick()
    with monkeypatch.context() as full:

        def no_space(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(bench.executor._hands._started, "add", no_space)
        bench.order(Forget(job="17", attempt=1))
        assert key in bench.launcher.states
        bench.hear(Welcome(store="s", epoch=9, base_seq=50, lease_s=60.0, recall=True))
    (told,) = [each for each in bench.said if isinstance(each, Started)]
    assert told.starts == (("17", 1, "finished"),), "it is no part any more, and yet told"
    bench.tick()
    assert key not in bench.launcher.states
