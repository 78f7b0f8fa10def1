"""``coalloc solve``, ``check``, ``policies`` and ``snapshot``: files and policies, in process."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import (
    BAD_USAGE,
    DONE,
    FAILED,
    Command,
    CommandError,
    connect,
    note,
    print_json,
    until,
)
from coalloc.cli.compiling import FIRST_S, compiling
from coalloc.cli.files import load_plan, load_snapshot, write_text
from coalloc.cli.output import figure
from coalloc.model.errors import InputError
from coalloc.model.formats.snapshot_json import write_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.option_text import add_options
from coalloc.policies.base import Policy
from coalloc.runtime import texts

PROOF_S = 10.0
"""How long ``check`` seeks better bounds, seconds."""
CERTIFICATE_STEPS = 2_000_000_000
"""What ``check`` spends on a plan's certificates, about a minute."""


SOLVE_OPTIONS = """
SNAPSHOT               file, or - for stdin
--policy NAME =auto    see coalloc policies (default: auto)
--time-limit SECONDS   then the best plan so far
--work N               limit of work, as the policy counts it
--seed N =0            default 0
--chains N =1          searches beside each other, from so many seeds: the best plan of all
--set NAME=VALUE * @options   an option of the policy; may be repeated
-o --output PLAN       default: stdout
"""


def _solve(args: argparse.Namespace) -> int:
    from coalloc import solving
    from coalloc.model.formats.plan_json import write_plan
    from coalloc.policies.options import parse_options, read_options
    from coalloc.policies.registry import lookup
    from coalloc.policies.warming import warm_off_line

    policy = lookup(args.policy)
    options = parse_options(args.options, policy.options)
    snapshot = load_snapshot(args.snapshot)
    for warning in snapshot.warnings:
        note(warning)
    with compiling() as compiled:
        warm_off_line(policy, snapshot, read_options(options, policy.options))
    limits = {"time_limit": args.time_limit, "work": args.work, "seed": args.seed}
    plan = solving.solve(snapshot, args.policy, options=options, chains=args.chains, **limits)
    elapsed = plan.stats["elapsed_s"]
    write_text(json.dumps(write_plan(plan), indent=1) + "\n", args.output)
    if args.output is not None:
        from coalloc.model.pictures.plans import counts, headline

        note(f"{args.output}: {headline(plan)}; {counts(plan)}; {elapsed:.3g} s")
    if "exact_search" in plan.stats:
        note(f"exact search: {plan.stats['exact_search']}")
    if compiled.seconds > FIRST_S:
        note(f"compiled in {compiled.seconds:.0f} s, planned in {elapsed:.3g} s")
    return DONE


def _check(args: argparse.Namespace) -> int:
    from coalloc.policies.checking.check import check

    snapshot, plan = load_snapshot(args.snapshot), load_plan(args.plan)
    result = check(snapshot, plan, cells=CERTIFICATE_STEPS)
    proved = _proved(snapshot, plan) if result.ok and plan.placements else {}
    if args.json:
        print_json(
            {
                "violations": list(result.violations),
                "metrics": dict(result.metrics),
                "unverified": list(result.unverified),
                "proved": proved,
            }
        )
        return DONE if result.ok else FAILED
    for line in result.violations:
        print(line)
    if not result.ok:
        count = len(result.violations)
        note(f"{args.plan}: not allowed: {count} violation{'s' if count > 1 else ''}")
        return FAILED
    size = max(map(len, result.metrics), default=0)
    for name, value in result.metrics.items():
        print(f"{name:<{size}}  {figure(value)}")
    for line in result.unverified:
        print(f"not verified: {line}")
    for name, proof in proved.items():
        gap = "-" if proof["gap"] is None else f"{100.0 * proof['gap']:.2f} %"
        print(f"proved: {name} at least {figure(proof['bound'])} ({proof['by']}), gap {gap}")
    return DONE


def _proved(snapshot: Snapshot, plan: Plan) -> dict[str, dict[str, Any]]:
    """Bound for all plans with the same jobs; the checker itself knows no bounds."""
    from coalloc.policies.checking.proofs import proofs_of

    return {
        proof.name: {
            "value": proof.value,
            "bound": proof.bound.value,
            "gap": proof.gap,
            "by": proof.bound.binding,
            "parts": dict(proof.bound.parts),
        }
        for proof in proofs_of(snapshot, plan, until(PROOF_S))
    }


def _policies(args: argparse.Namespace) -> int:
    from coalloc.policies.registry import FOR_SITES, PUBLISHED, foreign_names, lookup

    if args.name is not None:
        policy = lookup(args.name)
        if args.json:
            print_json({"name": policy.name, "doc": policy.doc, "options": _options(policy)})
            return DONE
        of = f" (of {policy.package})" if policy.package else ""
        print(f"{policy.name}{of}: {policy.doc}")
        for name, about in _options(policy).items():
            print(f"  --set {name}={json.dumps(about['default'])}  {about['doc']}")
        return DONE
    others, faults = _loaded(foreign_names())
    groups = {
        "for a site": list(FOR_SITES),
        "published, to compare with": list(PUBLISHED),
        "of other packages": others,
    }
    if args.json:
        print_json(
            [
                {"name": p.name, "doc": p.doc, "group": group, "options": _options(p)}
                for group, policies in groups.items()
                for p in policies
            ]
        )
    else:
        size = max(len(p.name) for policies in groups.values() for p in policies)
        for group, policies in groups.items():
            if policies:
                print(f"{group}:")
            for policy in policies:
                of = f" ({policy.package})" if policy.package else ""
                print(f"  {policy.name:<{size}}  {policy.doc}{of}")
    for fault in faults:
        note(fault)
    return FAILED if faults else DONE


def _loaded(names: Iterable[str]) -> tuple[list[Policy], list[str]]:
    """The policies of these names, and what is wrong with those that cannot be loaded."""
    from coalloc.policies.registry import lookup

    policies, faults = [], []
    for name in names:
        try:
            policies.append(lookup(name))
        except InputError as error:
            faults.append(str(error))
    return policies, faults


def _options(policy: Policy) -> dict[str, dict[str, Any]]:
    from coalloc.policies.options import options_of

    return {
        name: {"default": option.default, "doc": option.doc, **option.schema}
        for name, option in options_of(policy.options).items()
    }


SNAPSHOT_OPTIONS = """
-o --output FILE   default: stdout
--workload FILE    take the jobs of a log, or a workflow
--platform FILE    and these clusters
--limit N          only the log's first N jobs
"""


def _snapshot(args: argparse.Namespace) -> int:
    if (args.workload is None) != (args.platform is None):
        raise CommandError(
            "snapshot: --workload and --platform belong together (see coalloc snapshot --help)",
            BAD_USAGE,
        )
    if args.workload is None:
        if args.limit is not None:
            raise CommandError("snapshot: --limit needs --workload", BAD_USAGE)
        with connect(args) as client:
            body: Mapping[str, Any] = client.snapshot()
    else:
        made = made_snapshot(args.workload, args.platform, args.limit)
        for warning in made.warnings:
            note(f"{args.workload}: {warning}")
        body = write_snapshot(made)
    write_text(json.dumps(body, indent=1) + "\n", args.output)
    return DONE


def made_snapshot(workload: Path, platform: Path, limit: int | None = None) -> Snapshot:
    """A workflow, or the first jobs of a log when the last is submitted, on idle clusters."""
    from coalloc.adapters.formats.platforms import read_platform
    from coalloc.adapters.formats.sacct_log import read_log
    from coalloc.adapters.formats.swf_jobs import JobRule, make_jobs
    from coalloc.adapters.formats.workflow import is_workflow, read_workflow

    clusters = read_platform(platform).clusters
    if is_workflow(workload):
        if limit is not None:
            raise CommandError("snapshot: --limit is for logs, not for a workflow", BAD_USAGE)
        read = read_workflow(workload)
        return Snapshot(clusters=clusters, queue=(read.job,), warnings=read.warnings)
    made = make_jobs(read_log(workload), JobRule.on(clusters))
    jobs = [logged.job for logged in made.jobs[:limit]]
    return Snapshot(
        time=max((job.submitted for job in jobs), default=0.0),
        clusters=clusters,
        queue=tuple(jobs),
    )


COMMANDS: Mapping[str, Command] = {
    "solve": Command(
        doc="plan a snapshot off line",
        about="Plan a snapshot off line; the plan goes to standard output or to a file. With --work"
        "\ninstead of --time-limit, the same input and seed give the same plan.",
        example="coalloc solve --policy easy --set coallocation=needed snapshot.json -o plan.json",
        add=partial(
            add_options,
            text=SOLVE_OPTIONS,
            **dict.fromkeys(("snapshot", "output"), Path),
            **dict.fromkeys(("work", "seed"), parse.count),
            chains=parse.at_least_one,
            time_limit=texts.number,
        ),
        run=_solve,
        asks=False,
    ),
    "check": Command(
        doc="check a plan independently of every policy",
        about="Check a plan against its snapshot: prints its violations (exit code 1), or what it "
        "is worth\nand what no plan with the same jobs can go below.",
        example="coalloc check snapshot.json plan.json",
        add=partial(add_options, text="SNAPSHOT\nPLAN", snapshot=Path, plan=Path),
        run=_check,
        asks=False,
        query=True,
    ),
    "policies": Command(
        doc="the policies, one line each",
        example="coalloc policies\n  coalloc policies easy",
        add=partial(add_options, text="NAME?   show this one's options"),
        run=_policies,
        asks=False,
        query=True,
    ),
    "snapshot": Command(
        doc="what a round would be given now, as a file",
        about="What a round that began now would be given, as a file: for a ticket, a what-if, a "
        "test.\nWith --workload and --platform, the jobs of a log or a workflow waiting on idle "
        "clusters.",
        example="coalloc snapshot -o now.json\n"
        "  coalloc snapshot --workload log.swf.gz --platform site.toml --limit 50 -o case.json\n"
        "  coalloc snapshot --workload montage.xml --platform site.toml -o case.json",
        add=partial(
            add_options,
            text=SNAPSHOT_OPTIONS,
            **dict.fromkeys(("output", "workload", "platform"), Path),
            limit=parse.count,
        ),
        run=_snapshot,
    ),
}
