"""A real daemon and real executors as processes, on ipc sockets in a temporary folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from pwd import struct_passwd
from typing import Any, Self

from coalloc.adapters.runner.status import PAGE, READY, RUNNER_NAME, decoded
from coalloc.wire.client import NoAnswerError, RequestConnection
from tests.kernels import CACHE
from tests.testbeds.ssh import PYTHON

LIMIT_S = 60.0
COLD = Path(__file__).with_name("cold")
SOURCES = Path(__file__).resolve().parents[2] / "src"
ROUNDS_ALONE = "commit_first_incumbent = false"
"""Setting of rounds with which no job starts between them, along the plan of another policy."""
CONFIG = """\
[daemon]
state_dir = "{root}/state"
runtime_dir = "{root}/run"
log_format = "json"
{daemon}

[solver]
cache_dir = "{cache}"

[rounds]
policy = "{policy}"
min_interval_s = 0.0
{rounds}

[readings]
interval_s = 0.5
max_age_s = 30.0

[start]
{start}

{clusters}
"""
CLUSTER = """\
[[clusters]]
name = "{name}"
link_gbps = 1.0
settings = {{ nodes = {nodes}, slots = {slots} }}
"""


def as_account(account: struct_passwd, home: str = "") -> tuple[str, ...]:
    """Words before a command that run it as this user, with his home or another."""
    packages = os.pathsep.join([str(SOURCES), *(p for p in sys.path if "site-packages" in p)])
    become = (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups")
    return ("setpriv", *become, "env", f"PYTHONPATH={packages}", f"HOME={home or account.pw_dir}")


class Running:
    """The processes of one site; as a context they run, and all of them end with it.

    Parameters
    ----------
    root : Path
        Short: a socket's path holds 107 bytes.
    policy : str
        ``plain`` needs no warm solver.
    warms : bool, optional
        Whether the solver warms; absent: where the policy needs it.
    cache : Path or str
        Where the solver finds compiled kernels; an empty folder keeps it compiling for a minute.
    account : struct_passwd, optional
        Whose processes all of them are; absent: this process's own user's.
    """

    python = sys.executable
    """What runs every process."""

    def __init__(
        self,
        root: Path,
        *,
        clusters: Mapping[str, int] | None = None,
        slots: int = 1,
        policy: str = "plain",
        warms: bool | None = None,
        daemon: str = "",
        rounds: str = "",
        start: str = "",
        cache: Path | str = CACHE,
        account: struct_passwd | None = None,
    ) -> None:
        self.root, self._account = root, account
        self._warms = policy != "plain" if warms is None else warms
        self.cache = Path(cache)
        self.cache.mkdir(parents=True, exist_ok=True)
        self.names = list(clusters or {"alpha": 4, "beta": 4})
        self.work = root / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.config = root / "coallocd.toml"
        self.log = root / "coallocd.log"
        sections = [
            self.section(name, nodes, slots)
            for name, nodes in (clusters or {"alpha": 4, "beta": 4}).items()
        ]
        self.config.write_text(
            CONFIG.format(
                root=root,
                cache=cache,
                policy=policy,
                daemon=daemon,
                rounds=rounds,
                start=start,
                clusters="\n".join(sections),
            )
        )
        self.endpoint = f"ipc://{root}/run/coalloc.sock"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._asker: RequestConnection | None = None
        if account is not None:
            # Another user need not reach the interpreter that runs the tests.
            self.python = PYTHON
            for path in (root, *root.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def section(self, name: str, nodes: int, slots: int) -> str:
        """A cluster in the configuration."""
        return CLUSTER.format(name=name, nodes=nodes, slots=slots)

    def start_daemon(self, *, wait: bool = True) -> None:
        """Start ``coallocd``."""
        self._start("coallocd", "daemon.main", [])
        if wait:
            self.until(self.is_serving)

    def start_executor(self, cluster: str) -> None:
        """Start one cluster's executor."""
        self._start(cluster, "executor.main", ["--cluster", cluster])

    def start(self) -> None:
        """Start everything, and wait until every cluster is read."""
        try:
            self.start_daemon()
            for name in self.names:
                self.start_executor(name)
            self.until(self.is_complete)
        except BaseException:
            self.stop()
            raise

    def before(self, name: str) -> Sequence[str]:
        """What runs a process, if it is not run as it is."""
        if self._account is None:
            return ()
        return as_account(self._account, str(self.work) if self._account.pw_dir == "/" else "")

    def _start(self, name: str, module: str, arguments: Sequence[str]) -> None:
        log = self.log if name == "coallocd" else self.root / f"{name}.log"
        environ = dict(os.environ)
        if name == "coallocd" and not self._warms:
            path = os.pathsep.join(filter(None, (str(COLD), environ.get("PYTHONPATH", ""))))
            environ["PYTHONPATH"] = path
        with open(log, "ab") as output:
            self.processes[name] = subprocess.Popen(
                [
                    *self.before(name),
                    self.python,
                    "-m",
                    f"coalloc.{module}",
                    "--config",
                    str(self.config),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environ,
            )

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to a process and wait for its end; returns its exit code."""
        process = self.processes.pop(name)
        process.send_signal(number)
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def kill_when_ended(self, name: str) -> int:
        """Wait for a process to end by itself; returns its exit code."""
        return self.processes.pop(name).wait(LIMIT_S)

    def stop(self) -> None:
        """End everything, the jobs' processes too."""
        if self._asker is not None:
            self._asker.close()
            self._asker = None
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name in list(self.processes):
            self.kill(name, signal.SIGTERM)
        for status in self.root.glob("state/executors/*/*/status"):
            _kill_runner(status)
            _give_up(status.parent)

    def kill_runner(self) -> None:
        """Kill the runner of the newest part, if there is one."""
        for status in sorted(self.root.glob("state/executors/*/*/status"))[-1:]:
            _kill_runner(status)

    @property
    def asker(self) -> RequestConnection:
        """A connection to the daemon."""
        if self._asker is None:
            self._asker = RequestConnection(self.endpoint, timeout_s=LIMIT_S)
        return self._asker

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """One request and its answer."""
        return self.asker.ask({"type": kind, **fields})

    def submit(self, argv: Sequence[str], procs: int = 1, **fields: Any) -> str:
        """Submit a rigid job; returns its id."""
        answer = self.ask("submit", **self.submission(argv, procs, **fields))
        assert answer["type"] == "done", answer
        return str(answer["job"])

    def submission(
        self, argv: Sequence[str], procs: int = 1, *, token: str = "", **fields: Any
    ) -> dict[str, Any]:
        """The body of a submit."""
        job = {"kind": "rigid", "procs": procs, "base_time": 5.0, **fields.pop("job", {})}
        launch = {
            "argv": list(argv),
            "cwd": str(self.work),
            "env": {"PATH": os.environ["PATH"]},
            **fields.pop("launch", {}),
        }
        return {"token": token or uuid.uuid4().hex, "job": job, "launch": launch, **fields}

    def job(self, job: str) -> dict[str, Any]:
        """What ``show`` says of a job, with the fields of its record beside the others."""
        answer = self.ask("show", job=job)
        assert answer["type"] == "show", answer
        details: dict[str, Any] = answer["job"]
        return {"parts": [], "attempt": 0, "barred": {}, **details.pop("record"), **details}

    def wait(self, job: str) -> dict[str, Any]:
        """Wait for the end of a job."""
        self.until(lambda: self.job(job)["state"] in ENDED)
        return self.job(job)

    def is_serving(self) -> bool:
        """The daemon answers."""
        with self.fresh_asker(1.0) as asker:
            try:
                return bool(asker.ask({"type": "status"})["type"] == "status")
            except NoAnswerError:
                return False

    def is_complete(self) -> bool:
        """Every cluster is connected and read."""
        clusters = self.ask("nodes")["clusters"]
        return all(not cluster["stale"] for cluster in clusters)

    @contextmanager
    def fresh_asker(self, timeout_s: float) -> Iterator[RequestConnection]:
        """A connection of its own."""
        asker = RequestConnection(self.endpoint, timeout_s=timeout_s)
        try:
            yield asker
        finally:
            asker.close()

    def until(self, holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Wait for something to hold, or fail with the logs."""
        end = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > end:
                logs = "".join(
                    f"--- {path.name}\n{path.read_text()[-3000:]}"
                    for path in self.root.glob("*.log")
                )
                raise AssertionError(f"not within {limit_s:g} s\n{logs}")
            time.sleep(0.02)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The daemon's log lines of one kind."""
        out = []
        for text in self.log.read_text().splitlines():
            if text.startswith("{"):
                line = json.loads(text)
                if line.get("event") == event:
                    out.append(line)
        return out


ENDED = {"completed", "failed", "cancelled", "timeout", "lost"}


def _give_up(folder: Path) -> None:
    """Have a runner give its claim up that is not at its barrier yet; it may wait in a queue."""
    with suppress(OSError):
        orders = os.open(folder / "barrier", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(orders, b"abort - the site has stopped\n")
        finally:
            os.close(orders)


def _kill_runner(status: Path) -> None:
    """Kill the runner of a part, if it is still there; it takes the part's processes along."""
    with suppress(OSError):
        record = decoded(status.read_bytes()[READY * PAGE : (READY + 1) * PAGE])
        pid = int(record["pid"]) if record else 0
        if pid and Path(f"/proc/{pid}/comm").read_text().strip() == RUNNER_NAME:
            os.kill(pid, signal.SIGKILL)


@contextmanager
def warm_site(root: Path, limit_s: float, **options: Any) -> Iterator[Running]:
    """A site that runs, once its solver has compiled all it needs."""
    with Running(root, warms=True, **options) as running:
        running.until(lambda: bool(running.lines("solver_warmed")), limit_s)
        yield running
