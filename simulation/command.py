"""``coalloc simulate``: replay job logs on a platform under several policies."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coalloc.adapters.formats.platforms import Platform, read_platform
from coalloc.adapters.formats.swf_jobs import JobRule, read_bandwidth, read_sigma
from coalloc.model.errors import InputError
from coalloc.option_text import add_options
from coalloc.policies.options import parse_options
from coalloc.policies.registry import lookup
from coalloc.simulation.gantt import can_draw_jobs, draw_gantt
from coalloc.simulation.kinds import make_moldable, read_shape
from coalloc.simulation.metrics import Metrics, measure
from coalloc.simulation.paired import paired, paired_table, pieces, write_pairs
from coalloc.simulation.progress import progress_bar
from coalloc.simulation.replay import replay
from coalloc.simulation.report.page import check_report
from coalloc.simulation.report.replays import compare_page
from coalloc.simulation.reports import (
    refusals,
    side_by_side,
    start_table,
    summarise,
    write_jobs,
    write_json,
)
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload, read_workload

DONE, FAILED = 0, 1
Replayed = Callable[[Workload, str, int], Trace]
"""Replays a workload under a policy with a seed."""


OPTIONS = """
--workload FILE ! *     job log: SWF, .xswf, or what `sacct -P` printed (docs/accounting.md), packed
                        or not (gz, bz2, xz); given again, logs are merged
--platform FILE !       clusters: TOML, JSON or SimGrid XML
--policy P[,P...] =easy   policies to compare, see `coalloc policies` (default: easy)
-o --output DIR         write jobs, summaries and pictures
--report FILE           write one HTML page that compares the policies: figures, waits, slowdown by
                        width, utilisation, estimates, Gantt charts
--limit N               replay only the first N jobs
--sigma S =1            weight of processing, 0..1 (default: 1)
--bandwidth B =0        of one process: Gbit/s, or with Mbps or Gbps after it (default: 0)
--moldable SPEC         make jobs moldable that are rigid in the log: amdahl:F, amdahl:LOW,HIGH
                        (drawn for each job), downey:A,SIGMA, or downey (drawn)
--moldable-share S =1   share of the jobs that --moldable makes so, 0..1 (default: 1)
--seed N =0             of every random draw (default: 0)
--keep-clusters         keep each job on the cluster that the log names for it
--set NAME=VALUE *      option of the policies; may be given again
--work N                work limit of each call of a search
--path =auto            stream: state changed in place, for the simple orders; general: the daemon's
                        core
--pieces N =1           cut the log into N pieces, replay each under every policy, and print ratios
                        to the first policy with intervals of 95 %
--seeds N =1            the same with N draws from --seed on
--json                  print the summaries as JSON
--quiet                 no progress, no notes on the log
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_options(
        parser,
        OPTIONS,
        **dict.fromkeys(("output", "report"), Path),
        **dict.fromkeys(("limit", "work", "pieces", "seeds"), _positive),
        moldable_share=float,
        seed=int,
        path=("auto", "stream", "general"),
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 done, 1 a replay is impossible. Raises `InputError`."""
    try:
        return _run(args)
    except BrokenPipeError:
        raise  # The reader has seen enough.
    except OSError as error:
        print(f"coalloc: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILED


def _run(args: argparse.Namespace) -> int:
    check_report(args.report)
    policies = list(dict.fromkeys(name.strip() for name in args.policy.split(",")))
    options = {name: parse_options(args.set, lookup(name).options) for name in policies}
    platform = read_platform(args.platform)
    workload = _workload(args, platform, args.seed)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
    if not args.quiet:
        _describe(workload, platform)
    faults: list[int] = []

    def replayed(workload: Workload, name: str, seed: int) -> Trace:
        with progress_bar(quiet=args.quiet) as report:
            trace = replay(
                workload,
                platform,
                name,
                options[name],
                path=args.path,
                work=args.work,
                seed=seed,
                on_progress=lambda done: report(name, done, len(workload.jobs)),
            )
        faults.append(_tell_faults(name, verify(trace)))
        return trace

    if args.pieces * args.seeds > 1:
        _compare(args, platform, policies, replayed)
    else:
        _replay_once(args, workload, policies, options, replayed)
    return FAILED if any(faults) else DONE


def _workload(args: argparse.Namespace, platform: Platform, seed: int) -> Workload:
    """The log as it is replayed, with the draws of a seed."""
    rule = JobRule.on(
        platform.clusters,
        sigma=read_sigma(args.sigma),
        bandwidth=read_bandwidth(args.bandwidth),
        seed=seed,
        keep_clusters=args.keep_clusters,
        partitions=platform.partitions,
    )
    workload = read_workload(args.workload, rule, args.limit)
    if args.moldable is None:
        return workload
    shape = read_shape(args.moldable, args.moldable_share)
    return make_moldable(workload, shape, platform.slots, seed)


def _compare(
    args: argparse.Namespace, platform: Platform, policies: Sequence[str], replayed: Replayed
) -> None:
    """Compare the policies over pieces and seeds."""
    if len(policies) < 2:
        raise InputError("--pieces", "and --seeds compare policies: name two or more")
    if args.report:
        raise InputError("--report", "shows one replay; leave --pieces and --seeds out")
    workloads = [
        (seed, piece)
        for seed in range(args.seed, args.seed + args.seeds)
        for piece in pieces(_workload(args, platform, seed), args.pieces)
    ]
    table = paired(workloads, policies, replayed)
    if args.output:
        write_pairs(table, args.output / "pairs.csv")
    print(json.dumps(table, indent=1) if args.json else paired_table(table, policies))


def _replay_once(
    args: argparse.Namespace,
    workload: Workload,
    policies: Sequence[str],
    options: dict[str, dict[str, Any]],
    replayed: Replayed,
) -> None:
    """Replay the whole log under each policy, and tell what came out."""
    results: list[tuple[Trace, Metrics]] = []
    summaries = []
    for name in policies:
        trace = replayed(workload, name, args.seed)
        metrics = measure(trace)
        results.append((trace, metrics))
        summary = summarise(trace, metrics, _settings(args, options[name]))
        summaries.append(summary)
        if args.output:
            write_jobs(trace, args.output / f"{name}.jobs.csv")
            write_json(summary, args.output / f"{name}.summary.json")
    traces = [trace for trace, _ in results]
    for trace in traces if args.output else ():
        picture = draw_gantt(trace, by_job=can_draw_jobs(traces))
        (args.output / f"{trace.policy}.gantt.svg").write_text(picture, encoding="utf-8")
    if args.json:
        print(json.dumps(summaries, indent=1, allow_nan=False))
    else:
        print(side_by_side(results))
        if table := start_table(results):
            print(f"\n{table}")
        for line in refusals(results):
            print(line if line.startswith(" ") else f"\n{line}")
    if args.report:
        args.report.write_text(compare_page(results), encoding="utf-8")


SETTINGS = (
    *("sigma", "bandwidth", "seed", "moldable", "moldable_share", "keep_clusters", "limit"),
    "work",
)


def _settings(args: argparse.Namespace, options: dict[str, Any]) -> dict[str, Any]:
    """Return what the figures depend on besides log and platform."""
    found = {"policy": options, **{name: getattr(args, name) for name in SETTINGS}}
    return found if args.moldable is not None else found | {"moldable_share": None}


def _describe(workload: Workload, platform: Platform) -> None:
    """Say on standard error what is replayed, and what was changed to make it so."""
    lines = list(workload.notes)
    for counts, what in ((workload.left_out, "left out"), (workload.adjusted, "jobs with")):
        lines += [f"{what}: {reason}: {count}" for reason, count in counts.items()]
    lines.append(
        f"replaying {len(workload.jobs)} jobs on {platform.name}: "
        f"{len(platform.clusters)} clusters, {platform.slots} slots"
    )
    print("\n".join(lines), file=sys.stderr)


def _tell_faults(policy: str, faults: Sequence[str]) -> int:
    for fault in faults[:10]:
        print(f"coalloc: error: {policy}: {fault}", file=sys.stderr)
    if len(faults) > 10:
        print(f"coalloc: error: {policy}: {len(faults) - 10} more", file=sys.stderr)
    return len(faults)
