"""A real daemon under attack on all its sockets, and a client beside it that behaves well."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import psutil

from coalloc.wire.client import RequestConnection
from tests.fuzz.blind import resident_mb
from tests.support.loads import percentile
from tests.support.multi_user import ADA, BOB, MultiUser

SHARES = {"clients": 0.6, "executors": 0.25, "watchers": 0.06, "enrolment": 0.03, "raw": 0.06}
ACCESS = "requests_per_s = 0.0\nroot_jobs = false"
DAEMON = "max_jobs_per_user = 500\nkeep_events = 20000"
"""No limit of requests: every input is to be read, not dropped."""
PAUSE_S = 0.02
BAD_EVENTS = ("event_failed", "request_failed", "Traceback", "Unhandled", "never retrieved")
LIMIT_S = 4 * 3600.0
GOOD_P99_S = 0.25
FLAT_MB = 64.0
"""What the daemon may keep of the last nine tenths of an attack. A large frame leaves the pieces
of its memory to the allocator, which returns them when it likes."""


@dataclass(slots=True)
class Outcome:
    """What an attack has done.

    Attributes
    ----------
    sent : mapping of socket to inputs
    waits : mapping of request to list of float
        Seconds that the well-behaved client waited for its answers.
    resident : list of (float, float)
        Share of the inputs sent, and the daemon's memory in MB then.
    orders : int
        That wait in the end for an executor which never carries one out.
    broken : list of str
        Lines of the log that no input may cause.
    """

    sent: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    orders: int = 0
    waits: dict[str, list[float]] = field(default_factory=dict)
    resident: list[tuple[float, float]] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    is_alive: bool = False
    seconds: float = 0.0
    cpu_s: float = 0.0

    @property
    def growth_mb(self) -> float:
        """From a tenth of the inputs to the end."""
        early = [mb for share, mb in self.resident if share <= 0.1]
        return self.resident[-1][1] - (early or [self.resident[0][1]])[-1]

    def faults_found(self, patience: float = 1.0) -> list[str]:
        """What was promised and not kept.

        Parameters
        ----------
        patience : float
            How many times slower than promised answers may be, where others use the machine too.
        """
        out = list(self.broken)
        if not self.is_alive:
            out.append("the daemon does not serve any more")
        if self.growth_mb > FLAT_MB:
            out.append(f"the daemon has grown by {self.growth_mb:.0f} MB, at most {FLAT_MB:g}")
        for kind, waits in self.waits.items():
            late = percentile(waits, 0.99) if waits else inf
            if late > patience * GOOD_P99_S:
                out.append(f"{kind}: p99 {late:.3f} s, at most {patience * GOOD_P99_S:g} s")
        return out

    def lines(self) -> list[str]:
        """The outcome in words."""
        total = sum(self.sent.values())
        out = [
            f"{total} inputs in {self.seconds:.0f} s ({total / max(self.seconds, 0.1):.0f}/s): "
            + ", ".join(f"{kind} {count}" for kind, count in self.sent.items()),
            "answers: " + ", ".join(f"{kind} {n}" for kind, n in sorted(self.answers.items())),
            "faults counted: " + ", ".join(f"{k} {n}" for k, n in sorted(self.faults.items())),
            f"daemon: {'serves' if self.is_alive else 'is gone'}, {self.cpu_s:.0f} CPU-s, "
            + "memory "
            + ", ".join(f"{mb:.0f} MB at {share:.0%}" for share, mb in thinned(self.resident))
            + f"; descriptors at most {max(self.descriptors, default=0)}"
            + f"; {self.orders} orders wait",
        ]
        for kind, waits in self.waits.items():
            shown = (percentile(waits, 0.5), percentile(waits, 0.99), max(waits))
            p50, p99, worst = (f"{1e3 * value:.1f}" for value in shown)
            out.append(f"{kind}: {len(waits)} asked, p50 {p50}, p99 {p99}, worst {worst} ms")
        return out


def thinned(rows: list[tuple[float, float]], most: int = 12) -> list[tuple[float, float]]:
    """The first, the last, and some between."""
    step = max(1, len(rows) // most)
    return [*rows[:-1:step], rows[-1]] if rows else []


class GoodClient(threading.Thread):
    """Submits, asks and cancels, one after the other, with pauses."""

    def __init__(self, site: MultiUser, security: Any) -> None:
        super().__init__(daemon=True)
        self.site, self.security = site, security
        self.waits: dict[str, list[float]] = {"submit": [], "queue": [], "status": []}
        self.refused: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        asker = RequestConnection(self.site.endpoint, timeout_s=60.0, security=self.security)
        try:
            while not self.enough.is_set():
                body = self.site.submission(["true"], hold=True)
                done = self._timed(asker, "submit", body)
                self._timed(asker, "queue", {})
                self._timed(asker, "status", {})
                if done.get("type") == "done":
                    asker.ask({"type": "cancel", "job": done["job"]})
                else:
                    self.refused.append(str(done))
                self.enough.wait(PAUSE_S)
        finally:
            asker.close()

    def _timed(
        self, asker: RequestConnection, kind: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        began = time.perf_counter()
        answer = asker.ask({"type": kind, **body})
        self.waits[kind].append(time.perf_counter() - began)
        return answer


def attacked(root: Path, inputs: int, seed: int, *, tell: bool = False) -> Outcome:
    """Start a daemon in multi-user mode, attack it, and stop it."""
    site = MultiUser(root, clusters={"alpha": 4, "beta": 4}, access=ACCESS, daemon=DAEMON)
    outcome = Outcome()
    try:
        site.start_daemon(wait=False)
        site.until(site.is_listening)
        site.server = str(site.admin("list")["server"])
        site.operator = site.key(ADA, role="operator")
        file = root / "attack.json"
        spec = {"site": _addresses(site), "shares": SHARES, "inputs": inputs, "seed": seed}
        file.write_text(json.dumps(spec), encoding="utf-8")
        good = GoodClient(site, site.key(ADA))
        good.start()
        _watch(site, file, inputs, outcome, tell)
        good.enough.set()
        good.join(60.0)
        outcome.waits = good.waits
        outcome.broken += good.refused[:5]
        if good.is_alive():
            outcome.broken.append("the well-behaved client has no answer")
        status = site.ask("status")
        outcome.faults, outcome.orders = status["faults"], sum(status["orders_waiting"].values())
        outcome.is_alive = site.processes["coallocd"].poll() is None
    finally:
        site.stop()
    text = site.log.read_text(encoding="utf-8", errors="replace")
    outcome.broken += [
        line[:2000] for line in text.splitlines() if any(bad in line for bad in BAD_EVENTS)
    ][:20]
    return outcome


def _addresses(site: MultiUser) -> dict[str, Any]:
    callings = {
        "user": site.key(BOB),
        "operator": site.key(BOB, role="operator"),
        "executor": site.key(BOB, role="executor", clusters=("alpha",)),
    }
    return {
        "clients": site.endpoint,
        "executors": site.executors,
        "watchers": site.publications,
        "enrolment": str(site.enrolment),
        "server": site.server,
        **{who: (calling.pair.public, calling.pair.secret) for who, calling in callings.items()},
    }


def _watch(site: MultiUser, file: Path, inputs: int, outcome: Outcome, tell: bool) -> None:
    """Read what the attacker says of its progress, and look at the daemon each time."""
    pid = site.processes["coallocd"].pid
    daemon = psutil.Process(pid)
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.attack", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            assert attacker.stdout is not None
            for line in attacker.stdout:
                said = json.loads(line)
                outcome.sent = said["sent"]
                outcome.answers = said.get("answers", outcome.answers)
                share = sum(outcome.sent.values()) / inputs
                outcome.resident.append((share, resident_mb(pid)))
                outcome.descriptors.append(daemon.num_fds())
                outcome.cpu_s = sum(daemon.cpu_times()[:2])
                if tell:
                    print(f"{share:.1%} {outcome.resident[-1][1]:.0f} MB", file=sys.stderr)
                if time.monotonic() - began > LIMIT_S:
                    raise AssertionError(f"not done within {LIMIT_S:g} s")
        except psutil.NoSuchProcess:
            outcome.broken.append("the daemon is gone")
        finally:
            if attacker.poll() is None and outcome.broken:
                attacker.kill()
        code = attacker.wait(60.0)
    outcome.seconds = time.monotonic() - began
    if code:
        outcome.broken.append(f"the attacker ended with {code}")
