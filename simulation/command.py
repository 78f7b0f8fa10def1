"""``coalloc simulate``: replay job logs on a platform under several policies."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
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
from coalloc.simulation.study.command import count
from coalloc.simulation.study.paired import paired_json, paired_rows, paired_table, write_pairs
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload, read_workload

DONE, FAILED = 0, 1
MOST_TOLD = 10


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
        **dict.fromkeys(("limit", "work", "pieces", "seeds"), count),
        moldable_share=float,
        seed=int,
        path=("auto", "stream", "general"),
    )


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
    workload = _workload(args, platform)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
    if not args.quiet:
        _describe(workload, platform)
    if args.pieces * args.seeds > 1:
        return _compare(args, policies)
    faults: list[str] = []
    _tell(args, _traces(args, workload, platform, options, faults), options)
    return FAILED if faults else DONE


def _traces(
    args: argparse.Namespace,
    workload: Workload,
    platform: Platform,
    options: dict[str, dict[str, Any]],
    faults: list[str],
) -> Iterator[Trace]:
    """Replay the whole log under each policy; the faults of it are told, and added to these."""
    for name, given in options.items():
        with progress_bar(quiet=args.quiet) as report:
            trace = replay(
                workload,
                platform,
                name,
                given,
                path=args.path,
                work=args.work,
                seed=args.seed,
                on_progress=lambda done, name=name: report(name, done, len(workload.jobs)),  # type: ignore[misc]
            )
        found = [f"{name}: {fault}" for fault in verify(trace)]
        _tell_faults(found)
        faults += found
        yield trace


def _workload(args: argparse.Namespace, platform: Platform) -> Workload:
    """The log as it is replayed."""
    rule = JobRule.on(
        platform.clusters,
        sigma=read_sigma(args.sigma),
        bandwidth=read_bandwidth(args.bandwidth),
        seed=args.seed,
        keep_clusters=args.keep_clusters,
        partitions=platform.partitions,
    )
    workload = read_workload(args.workload, rule, args.limit)
    if args.moldable is None:
        return workload
    shape = read_shape(args.moldable, args.moldable_share)
    return make_moldable(workload, shape, platform.slots, args.seed)


def _compare(args: argparse.Namespace, policies: Sequence[str]) -> int:
    """Compare the policies over pieces and seeds."""
    if len(policies) < 2:
        raise InputError("--pieces", "and --seeds compare policies: name two or more")
    if args.report:
        raise InputError("--report", "shows one replay; leave --pieces and --seeds out")
    with progress_bar(quiet=args.quiet) as report:
        rows = paired_rows(args, policies, report)
    faults = [f"{row['piece']}: {row['failed']}" for row in rows if "failed" in row]
    good = rows.only(lambda row: "failed" not in row)
    if args.output:
        write_pairs(good, args.output / "pairs.csv")
    print(paired_json(good) if args.json else paired_table(good, policies))
    _tell_faults(faults)
    return FAILED if faults else DONE


def _tell(
    args: argparse.Namespace, found: Iterable[Trace], options: dict[str, dict[str, Any]]
) -> None:
    """Tell what comes out of the replays of the whole log."""
    results: list[tuple[Trace, Metrics]] = []
    summaries = []
    for trace in found:
        metrics = measure(trace)
        results.append((trace, metrics))
        summary = summarise(trace, metrics, _settings(args, options[trace.policy]))
        summaries.append(summary)
        if args.output:
            write_jobs(trace, args.output / f"{trace.policy}.jobs.csv")
            write_json(summary, args.output / f"{trace.policy}.summary.json")
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


def _tell_faults(faults: Sequence[str]) -> None:
    more = [f"{len(faults) - MOST_TOLD} more"] if len(faults) > MOST_TOLD else []
    for fault in [*faults[:MOST_TOLD], *more]:
        print(f"coalloc: error: {fault}", file=sys.stderr)
