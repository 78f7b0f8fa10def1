"""``coalloc status``: the daemon in a few lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from coalloc.cli.command import Command, answer_json, connect
from coalloc.cli.output import block, figure
from coalloc.runtime.texts import instant, length
from coalloc.wire.answers import LastRound, ServiceStatus

LATE_S = 60.0
"""A reading that is older is named, seconds."""
RESTORED_FROM = 1_000_000_000
"""No count of starts gets there: a restored store counts on from the clock's seconds."""
LITTLE_BYTES = 1 << 30
"""A disk with less room is named as such."""


def _status(args: argparse.Namespace) -> int:
    with connect(args) as client:
        answer = client.status()
        endpoint = client.endpoint
    if args.json:
        answer_json(answer)
        return 0
    print("\n".join(status_lines(answer, endpoint)))
    return 0


def status_lines(status: ServiceStatus, endpoint: str) -> list[str]:
    """The state of the daemon, for people."""
    version = f" {status.version}" if status.version else ""
    return [f"coallocd{version} at {endpoint}", *block(_rows(status))]


def _rows(status: ServiceStatus) -> Iterator[tuple[str, str]]:
    if status.began is not None:
        up = length(status.time - status.began)
        yield "up", f"{up} since {instant(status.began)}, start {status.epoch} on its store"
    else:
        yield "up", f"start {status.epoch} on its store"
    if status.epoch >= RESTORED_FROM:
        yield (
            "restored",
            (
                f"{instant(status.epoch)}, from a backup: starts are counted on from that second,"
                " jobs and events 10,000 higher"
            ),
        )
    yield "jobs", f"{status.waiting} waiting, {status.placed} placed"
    paused = ", paused by an operator" if status.paused else ""
    yield "rounds", f"{status.rounds}" + (f", by {status.policy}" if status.policy else "") + paused
    if status.last_round is not None:
        yield "last round", _round(status.last_round, status.time)
    yield "solver", _solver(status)
    yield "clusters", _clusters(status)
    orders = {name: count for name, count in status.orders_waiting.items() if count}
    yield "orders", ", ".join(f"{count} for {name}" for name, count in orders.items())
    yield "store", _store(status)
    yield "faults", ", ".join(f"{count} {name}" for name, count in status.faults.items())
    yield "notices", "; ".join(status.notices)


def _round(last: LastRound, now: float) -> str:
    out = f"{length(now - last.time)} ago, {last.policy}, {last.status}"
    out += "" if last.elapsed_s is None else f" in {last.elapsed_s:.3g} s"
    out += f": {last.objective} {figure(last.value)}"
    return out + ("" if last.bound is None else f", bound {figure(last.bound)}")


def _solver(status: ServiceStatus) -> str:
    solver = status.solver
    if solver.is_warm:
        return "warm"
    steps = f", {solver.done} of {solver.steps} steps" if solver.steps else ""
    return f"warming{steps}; plans by `plain` meanwhile"


def _clusters(status: ServiceStatus) -> str:
    """Those that are connected, with the age of a reading that is late, and those that are not."""
    there = []
    for name, connected in status.clusters.items():
        age_s = status.read_age_s.get(name, 0.0)
        late = f" (read {length(age_s)} ago)" if age_s > LATE_S else ""
        if connected:
            there.append(f"{name}{late}")
    gone = [name for name, connected in status.clusters.items() if not connected]
    return (", ".join(there) or "none") + (f"; not connected: {', '.join(gone)}" if gone else "")


def _store(status: ServiceStatus) -> str:
    out = "takes writes" if status.writable else "CANNOT WRITE: submits are refused"
    free = status.disk_free_bytes
    if free is None:
        return out
    little = "ONLY " if free < LITTLE_BYTES else ""
    return f"{out}, {little}{free / (1 << 30):.1f} GiB free on its disk"


COMMANDS: Mapping[str, Command] = {
    "status": Command(
        doc="how the daemon is",
        about="The state of the daemon: version, rounds, solver, clusters, store, disk.",
        example="coalloc status",
        run=_status,
        query=True,
    )
}
