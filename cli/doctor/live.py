"""Findings that a running daemon tells: its own health, its clusters, versions and clocks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import coalloc
from coalloc.cli.doctor.files import disk_finding
from coalloc.cli.doctor.findings import Finding, ok, problem, unknown, warning
from coalloc.client.client import Client, NoAnswerError, RefusedError
from coalloc.runtime.texts import length
from coalloc.wire.answers import ServiceStatus
from coalloc.wire.node_rows import ClusterRow

ONE = "the daemon's own: they are on one machine"
APART_S, FAR_APART_S = 1.0, 30.0
"""Clocks that differ by more blur start times; by more than the second, leases and deadlines."""


def daemon_findings(
    client: Client, *, sees_disk: bool, one_machine: bool = False, readers: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """Ask the daemon; the first finding says whether it answers.

    `sees_disk`: the store's disk is one of this machine, and was looked at. `one_machine`: all
    executors run on the daemon's machine, whose clock is theirs. `readers`: ``readings.readers``.
    """
    try:
        sent = time.time()
        status, nodes = client.status(), client.nodes()
        now = (sent + time.time()) / 2.0
    except (NoAnswerError, RefusedError) as error:
        yield no_daemon(error)
        return
    up = "?" if status.began is None else length(status.time - status.began)
    yield ok("daemon", f"answers at {client.endpoint}, up {up}")
    yield version_finding("daemon", status.version, coalloc.__version__)
    yield clock_finding("clock of the daemon", status.time - now, "this machine's")
    yield from health_findings(status, sees_disk=sees_disk)
    for name in {*readers}.difference(row.cluster for row in nodes):
        todo = "coalloc nodes has their names; its owner's coalloc connect adds one"
        yield problem("readings.readers", f"there is no cluster {name}", todo)
    for row in nodes:
        yield cluster_finding(row, status)
        if row.connected:
            yield version_finding(f"executor {row.cluster}", row.version, status.version)
            yield ok(f"clock of {row.cluster}", ONE) if one_machine else _executor_clock(row)


def no_daemon(error: Exception) -> Finding:
    """The daemon gave no answer."""
    todo = "start coallocd, or read its log (journalctl -u coallocd)"
    return problem("daemon", str(error).removesuffix("; is coallocd running?"), todo)


def version_finding(name: str, there: str, here: str) -> Finding:
    """Compare the version of a program with that of the one it talks to."""
    about = f"version of the {name}"
    if there == here:
        return ok(about, there)
    what = f"{there or 'too old to say'}, and not {here}"
    return warning(about, what, "install the same everywhere, and restart it")


def clock_finding(about: str, ahead_s: float, than: str) -> Finding:
    """Judge the difference of two clocks."""
    far = abs(ahead_s)
    text = f"{far:.1f} s {'before' if ahead_s > 0 else 'behind'} {than}"
    if far <= APART_S:
        return ok(about, f"within {APART_S:g} s of {than}")
    todo = "have both keep time by NTP (chronyc tracking)"
    return problem(about, text, todo) if far > FAR_APART_S else warning(about, text, todo)


def _executor_clock(row: ClusterRow) -> Finding:
    about = f"clock of {row.cluster}"
    if row.clock_ahead_s is None or not math.isfinite(row.clock_ahead_s):
        return unknown(about, "its executor does not say it")
    return clock_finding(about, row.clock_ahead_s, "the daemon's")


def health_findings(status: ServiceStatus, *, sees_disk: bool) -> Iterator[Finding]:
    """Store, solver and rounds, as the daemon itself sees them."""
    if status.writable:
        yield ok("store", "takes writes")
    else:
        yield problem("store", "cannot be written: submits are refused", "make room on its disk")
    if status.disk_free_bytes is not None and not sees_disk:
        yield disk_finding("disk of the store", "the store", status.disk_free_bytes, None)
    solver = status.solver
    if solver.is_warm:
        yield ok("solver", "warm")
    else:
        steps = f", {solver.done} of {solver.steps} steps" if solver.steps else ""
        yield warning("solver", f"compiles its code{steps}", "wait; coallocd --warm does it ahead")
    if status.paused:
        yield warning("rounds", "paused by an operator", "coalloc resume rounds")
    else:
        yield ok("rounds", f"{status.rounds}, by {status.policy}")


def cluster_finding(row: ClusterRow, status: ServiceStatus) -> Finding:
    """Judge a cluster by its executor, its reading and what waits for it."""
    about, name = f"cluster {row.cluster}", row.cluster
    if not row.connected:
        why = row.error or "its executor is not connected"
        todo = f"start it, or read its log: coalloc-executor --cluster {name}"
        return problem(about, why, todo)
    if row.stale:
        seen = f"last read {length(row.age_s)} ago" if row.age_s is not None else "never read"
        why = f"{seen}: {row.error}" if row.error else seen
        return problem(about, why, "see whether its batch system answers on the executor's machine")
    if row.error:
        return warning(about, row.error, "see the log of its executor")
    waiting = status.orders_waiting.get(name, 0)
    if waiting:
        return warning(
            about, f"{waiting} orders not carried out yet", "see the log of its executor"
        )
    if row.notices:
        return warning(about, "; ".join(row.notices), "see to it in its batch system")
    slots = sum(node.slots for node in row.nodes)
    if not any(node.state == "up" for node in row.nodes):
        return warning(about, f"none of its {len(row.nodes)} nodes is up", "coalloc nodes says why")
    if row.drained:
        return warning(about, f"drained: {row.drain_reason}", f"coalloc resume {name}")
    asked = "" if row.rpcs_per_min is None else f", {row.rpcs_per_min:.0f} requests a minute"
    whose = f" by {row.read_by}" if row.read_by else ""
    read = f"read {length(row.age_s or 0.0)} ago{whose}{asked}"
    return ok(about, f"nodes: {len(row.nodes)}, slots: {slots}, {read}")
