"""``coalloc why``: what keeps a job from starting, from the daemon or from files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from coalloc.cli import arguments as parse
from coalloc.cli.command import (
    BAD_USAGE,
    Command,
    CommandError,
    answer_body,
    connect,
    print_json,
    print_json_rows,
    until,
)
from coalloc.cli.jobs.array_summary import array_lines, first_waiting, members_instead, members_of
from coalloc.cli.jobs.queue_columns import WAITING
from coalloc.cli.output import WALL_CLOCK_S, reason
from coalloc.client.client import Client
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.option_text import add_options
from coalloc.runtime import texts
from coalloc.runtime.texts import between, clock, instant
from coalloc.wire.answers import Why, WhyAnswer
from coalloc.wire.client import RefusedError
from coalloc.wire.job_rows import QueueRow

SAME_START_S = 60.0
"""Starts are shown to the minute; the last round's is not repeated within so much."""


OPTIONS = """
JOB+ @jobs             as the queue prints them: 12, 12_3, 12_[0-9]
--snapshot FILE        ask this file, not the daemon
--plan FILE            a plan of that snapshot
--policy NAME          without a plan: make one (default: auto)
--time-limit SECONDS   with --snapshot: then no further change is tried (default: no limit)
"""
"""Jobs have any name in a snapshot, so they are read later."""


def _why(args: argparse.Namespace) -> int:
    if args.snapshot is not None:
        return _off_line(args)
    for option in ("plan", "policy", "time_limit"):
        if getattr(args, option) is not None:
            name = option.replace("_", "-")
            raise CommandError(f"why: --{name} needs --snapshot", BAD_USAGE)
    try:
        jobs = [job for word in args.jobs for job in parse.jobs(word)]
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"why: argument JOB: {error}", BAD_USAGE) from error
    bodies = []
    with connect(args) as client:
        for number, (job, members) in enumerate(parse.grouped(jobs)):
            lines, answer = _explained(client, job, members)
            if args.json:
                bodies.append(answer_body(answer))
                continue
            print("\n".join([""] * (number > 0) + lines + why_lines(answer.why, answer.time)))
    if len(bodies) == 1:
        print_json(bodies[0])
    elif bodies:
        print_json_rows("jobs", bodies)
    return 0


def _explained(client: Client, job: str, members: list[str]) -> tuple[list[str], WhyAnswer]:
    """The answer for a job, or for one of an array's members below what is said of all."""
    rows = members_of(client, job, frozenset(members)) if len(members) > 1 else []
    try:
        return ([], client.explained(members[0])) if not rows else _of_array(client, job, rows)
    except RefusedError as error:
        return _of_array(client, job, members_instead(client, job, error))


def _of_array(client: Client, job: str, rows: list[QueueRow]) -> tuple[list[str], WhyAnswer]:
    return [*array_lines(job, rows), ""], client.explained(first_waiting(rows))


def why_lines(why: Why, now: float) -> list[str]:
    """Answer to ``coalloc why``: reasons of a job that waits, or the end of one."""
    word = why.reason
    waits = why.state in WAITING or (why.state == "preparing" and bool(why.reason))
    if waits:
        word = reason(word) or "waits"
    out = [f"job {why.job} is {why.state}" + (f": {word}" if word else "")]
    if why.detail:
        out.append(f"  {why.detail}")
    if waits and not _is_said_below(why):
        by = " by the last round" if why.lines else ""
        out.append(f"  expected start{by}: {instant(why.start_estimate, 'not known')}")
    if waits and (likely := between(why.start_early, why.start_late, now)):
        out.append(f"  by how wrong expected starts were here: {likely}")
    if waits and why.overdue_at is not None:
        late = why.overdue_at <= now
        out.append(
            f"  has waited too long since {clock(why.overdue_at, now)}, and goes first"
            if late
            else f"  goes first from {clock(why.overdue_at, now)} on, if it waits so long"
        )
    # The explanation has the figures on slots; what is free now is said once.
    facts = [fact for fact in why.facts if not (why.lines and fact.startswith("asks for "))]
    out += [f"  {line}" for line in (*why.lines, *facts)]
    if why.unexplained:
        out.append(f"  no explanation: {why.unexplained}")
    return out


def _is_said_below(why: Why) -> bool:
    """Whether the explanation has the same start as the last round."""
    start = (why.explanation or {}).get("start")
    if start is None or why.start_estimate is None:
        return False
    return abs(float(start) - why.start_estimate) < SAME_START_S


def _off_line(args: argparse.Namespace) -> int:
    from coalloc.cli.files import load_snapshot
    from coalloc.policies.explain.explain import explain_plan
    from coalloc.policies.explain.explanation import write_explanation
    from coalloc.policies.explain.words import lines

    if len(args.jobs) > 1:
        raise CommandError("why: --snapshot takes one job", BAD_USAGE)
    (wanted,) = args.jobs
    snapshot = load_snapshot(args.snapshot)
    if all(job.id != wanted for job in snapshot.queue):
        runs = any(job.id == wanted for job in snapshot.running)
        what = "runs already" if runs else "is not in its queue"
        raise CommandError(f"{args.snapshot}: job {wanted} {what}", BAD_USAGE)
    plan = _plan_of(args, snapshot)
    made = explain_plan(snapshot, plan, wanted, until(args.time_limit))
    now = snapshot.time
    shown = (lambda at: clock(at, now)) if now > WALL_CLOCK_S else None
    words = lines(made, snapshot, shown)
    if args.json:
        print_json({"explanation": write_explanation(made), "lines": words})
        return 0
    print("\n".join((f"job {wanted}", *(f"  {line}" for line in words))))
    return 0


def _plan_of(args: argparse.Namespace, snapshot: Snapshot) -> Plan:
    from coalloc import solving
    from coalloc.cli.files import load_plan

    if args.plan is None:
        return solving.solve(snapshot, args.policy or "auto")
    if args.policy is not None:
        raise CommandError("why: --plan or --policy, not both", BAD_USAGE)
    plan = load_plan(args.plan)
    violations = solving.check(snapshot, plan).violations
    if violations:
        raise CommandError(
            f"{args.plan}: is no plan of {args.snapshot}: {violations[0]}", BAD_USAGE
        )
    return plan


COMMANDS: Mapping[str, Command] = {
    "why": Command(
        doc="what keeps a job from starting",
        about="What keeps a job from starting: what binds it, with figures, and a change after "
        "which it would\nrun earlier. Each change was made and planned again, so what is said of "
        "it holds for this moment's\nqueue. With --snapshot no daemon is needed.",
        example="coalloc why 12\n  coalloc why 12 --snapshot now.json --plan plan.json",
        add=partial(add_options, text=OPTIONS, snapshot=Path, plan=Path, time_limit=texts.number),
        run=_why,
        query=True,
    ),
}
