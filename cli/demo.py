"""``coalloc demo``: a daemon and two executors on this machine, real jobs, a clean end.

Everything it types can be typed by hand; it shows each command before running it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from coalloc.cli.command import Command, CommandError
from coalloc.cli.compiling import EVERY_S
from coalloc.option_text import add_options
from coalloc.programs import require_server

CONFIG = """\
# Two virtual clusters on this machine, joined by links of 1 Gbit/s.
[daemon]
state_dir = "{root}/state"
runtime_dir = "{root}/run"
log_format = "json"

[rounds]
policy = "auto"
time_limit_s = 2.0

[readings]
interval_s = 1.0

[[clusters]]
name = "alpha"
adapter = "local"
link_gbps = 1.0
settings = {{ nodes = 4, slots = 1 }}

[[clusters]]
name = "beta"
adapter = "local"
link_gbps = 1.0
settings = {{ nodes = 4, slots = 1 }}
"""
HELLO = (
    'echo "rank $COALLOC_RANK of $COALLOC_SIZE: part $COALLOC_PART'
    ' on $COALLOC_CLUSTER, nodes $COALLOC_NODELIST"; sleep 1'
)
SHOWN = {
    "round_finished": (
        "round", "trigger", "policy", "status", "queued", "started", "between",
        "coallocated", "objective", "solve_s", "total_s",
    ),
    "job_started": ("job", "clusters", "skew_ms"),
    "job_ended": ("job", "state", "exit_code"),
}  # fmt: skip
START_LIMIT_S = 30.0
WARM_LIMIT_S = 300.0
STOP_LIMIT_S = 10.0


class DemoError(CommandError):
    """The demonstration cannot go on; the message says why."""


def _demo(args: argparse.Namespace) -> int:
    require_server()
    root = Path(tempfile.mkdtemp(prefix="coalloc-demo-"))
    try:
        with ExitStack() as stack:
            show = Show(root)
            show.start(stack)
            show.run()
        return 0
    finally:
        if args.keep:
            print(f"\nKept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


class Show:
    """The demonstration in one folder, which is ``{root}`` in the configuration."""

    def __init__(
        self, root: Path, configuration: str = CONFIG, clusters: Sequence[str] = ("alpha", "beta")
    ) -> None:
        self.root = root
        self.clusters = tuple(clusters)
        self.config = root / "coallocd.toml"
        self.config.write_text(configuration.format(root=root))
        self.work = root / "work"
        self.work.mkdir()
        self.env = {**os.environ, "COALLOC_CONFIG": str(self.config)}
        self.daemon_log = root / "coallocd.log"
        self._read = 0

    def start(self, stack: ExitStack) -> None:
        """Start the daemon and the executors; `stack` stops them."""
        say(f"One daemon, and an executor for each of the clusters {', '.join(self.clusters)}:")
        stack.enter_context(self._process("coallocd", [], self.daemon_log, "daemon.main"))
        for cluster in self.clusters:
            log = self.root / f"executor-{cluster}.log"
            arguments = ["--cluster", cluster]
            stack.enter_context(self._process("coalloc-executor", arguments, log, "executor.main"))
        count = len(self.clusters)
        self.until("every cluster is read", START_LIMIT_S, "cluster_returned", count)
        self.warm()

    def warm(self) -> None:
        say("The solver compiles its kernels once; later starts take them from a cache.")
        self.until("the solver is warm", WARM_LIMIT_S, "solver_warmed", 1, self.compiled)

    def compiled(self) -> int:
        """Say how far the solver is, once it has begun; how many steps are done."""
        solver = json.loads(self.command("status", "--json", quiet=True))["solver"]
        if solver["steps"] and not solver["is_warm"]:
            print(f"compiling, {solver['done']} of {solver['steps']} steps", flush=True)
        return int(solver["done"])

    def run(self) -> None:
        self.coalloc("nodes")
        shell = ["sh", "-c", HELLO]
        wide = self.submit(
            "-J", "wide", "-n", "6", "--bandwidth", "75Mbps", "-t", "1", "--", *shell
        )
        for number in range(3):
            self.submit("-J", f"small{number}", "-n", "2", "-t", "1", "--", *shell)
        self.submit(
            "-J", "moldable", "--ntasks=1-4", "--times", "1:8,2:5,4:3", "-t", "1", "--", *shell
        )
        self.coalloc("queue")
        for job in self.jobs():
            self.command("wait", job["id"], quiet=True)
        self.coalloc("queue", "--all")
        say("What the daemon's log says of it:")
        self.log_lines()
        say(f"Job {wide} is wider than either cluster; its two parts ran as one:")
        print((self.work / f"coalloc-{wide}.out").read_text(), end="")
        started = next(j for j in self.jobs() if j["id"] == wide)
        if len(started["clusters"]) < 2:
            raise DemoError(f"job {wide} was not split over the clusters")
        skew = started["skew_ms"]
        print(f"\nStart skew between its first processes: {skew:.3f} ms")
        failed = [j["id"] for j in self.jobs() if j["state"] != "completed"]
        if failed:
            raise DemoError(f"jobs that did not complete: {', '.join(failed)}")
        self.log_lines(quiet=True)
        say("All jobs completed; the daemon and its executors are stopped now.")

    def submit(self, *options: str) -> str:
        """Submit a job as a user would; returns its id."""
        shown = " ".join(o if " " not in o else f"'{o[:24]}…'" for o in options)
        print(f"$ coalloc submit {shown}")
        text = self.command("submit", "--parsable", *options, quiet=True).strip()
        print(f"Submitted job {text}")
        return text

    def jobs(self) -> list[dict[str, Any]]:
        body = json.loads(self.command("queue", "--all", "--json", quiet=True))
        rows: list[dict[str, Any]] = body["jobs"]
        return rows

    def coalloc(self, *arguments: str) -> None:
        print(f"\n$ coalloc {' '.join(arguments)}", flush=True)
        self.command(*arguments)
        print(flush=True)

    def command(self, *arguments: str, quiet: bool = False) -> str:
        """Run ``coalloc`` in the work folder."""
        done = subprocess.run(
            [sys.executable, "-m", "coalloc.cli.main", *arguments],
            cwd=self.work,
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0 and arguments[0] != "wait":
            raise DemoError(f"coalloc {arguments[0]} ended with exit code {done.returncode}")
        if not quiet:
            print(done.stdout, end="", flush=True)
        return done.stdout

    @contextmanager
    def _process(
        self, name: str, arguments: Sequence[str], log: Path, module: str
    ) -> Iterator[None]:
        print(f"$ {' '.join([name, *arguments])} &")
        program = [sys.executable, "-m", f"coalloc.{module}", "--config", str(self.config)]
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.env,
                start_new_session=True,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def until(
        self,
        what: str,
        limit_s: float,
        event: str,
        count: int,
        tell: Callable[[], int] | None = None,
    ) -> None:
        """Wait until the daemon's log has shown an event so many times; tell every `EVERY_S`.

        The limit begins anew whenever `tell`, which says how far it is, says more than before.
        """
        end = time.monotonic() + limit_s
        told, done = time.monotonic(), 0
        while sum(line.get("event") == event for line in self._lines(0)) < count:
            if time.monotonic() > end:
                print(self.daemon_log.read_text()[-2000:], file=sys.stderr)
                without = " without a step" if done else ""
                raise DemoError(f"not after {limit_s:g} s{without}: {what}")
            if tell is not None and time.monotonic() > told + EVERY_S:
                before, done = done, tell()
                told = time.monotonic()
                end = told + limit_s if done > before else end
            time.sleep(0.05)

    def log_lines(self, *, quiet: bool = False) -> None:
        """Print the daemon's new log lines that a reader would look for."""
        for line in self._lines(self._read):
            self._read += 1
            keys = SHOWN.get(str(line.get("event")))
            if keys is None or quiet or line.get("queued") == 0:
                continue
            print("  " + " ".join([line["event"], *(f"{k}={line[k]}" for k in keys if k in line)]))

    def _lines(self, skip: int) -> list[dict[str, Any]]:
        out = []
        for text in self.daemon_log.read_text().splitlines()[skip:]:
            try:
                body = json.loads(text)
            except ValueError:
                body = {"event": text}
            out.append(body)
        return out


def say(text: str) -> None:
    """A line of the tour."""
    print(f"\n# {text}", flush=True)


COMMANDS: Mapping[str, Command] = {
    "demo": Command(
        doc="see it work on this machine",
        about="Start a daemon and executors on this machine, submit real jobs, show the rounds,\n"
        "end cleanly. Nothing is left behind.",
        example="coalloc demo",
        add=partial(add_options, text="--keep   keep the folder with logs and output"),
        run=_demo,
        asks=False,
    )
}
