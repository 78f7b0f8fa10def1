"""``coalloc shadow``: gains of a site, from its own accounts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from coalloc.adapters.formats.swf_jobs import LoggedJob, read_bandwidth
from coalloc.model.errors import InputError
from coalloc.model.values import replace
from coalloc.option_text import add_options
from coalloc.simulation.metrics import Metrics, measure
from coalloc.simulation.progress import progress_bar
from coalloc.simulation.report.page import check_report, html_table, section
from coalloc.simulation.report.replays import Results, compare_page
from coalloc.simulation.reports import aligned, duration, side_by_side
from coalloc.simulation.shadow.past import (
    ALONE,
    ClusterPast,
    Gain,
    gain_of,
    missed,
    replay_past,
    replayed,
)
from coalloc.simulation.shadow.site import COMMANDS, read_site

DONE, SHUT = 0, 3
CASES = {"each job on one cluster": ALONE, "some on several": {"coallocation": "sooner"}}
ABOUT = """\
Replay a site's own accounts, before anything is installed: as it was, and as it would have been
under auto, each job on one cluster, and some on several. Where the replay of the past misses the
real waits, no gain is reported, and the exit code is 3. A cluster is a folder of its name with what
these print (DATE: some weeks ago):

""" + "\n".join(f"  {words} > CLUSTER/{file}" for file, words in COMMANDS.items())
ANYWHERE = (
    "a job could run on any cluster that has its CPUs, memory and GPUs, equally fast; one of a "
    "partition with part of the nodes stays there"
)
OPTIONS = """
CLUSTER+ @sites        folder of a cluster
--link B =10           of each cluster (default: 10 Gbit/s)
--bandwidth B =0.05    network need of a process of a job on several clusters (default: 0.05
                       Gbit/s)
--within PERCENT =10   how far replayed mean waits may be off (default: 10)
--keep-clusters        leave each job on its cluster
--report FILE          write one HTML page with charts
--quiet                no progress
"""
UNKNOWN = (
    "jobs that had ended before the window; what was cancelled while it waited",
    "nodes that were down, reservations, limits of users and accounts, licences, preemption",
    "nodes that a job would not take; of a job that was requeued, all runs but the last",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = ABOUT
    add_options(parser, OPTIONS, sites=Path, within=float, report=Path)


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 done, 3 the replay of the past misses. Raises `InputError`."""
    check_report(args.report)
    need, link = read_bandwidth(args.bandwidth), read_bandwidth(args.link, where="--link")
    if len(link.values) > 1:
        raise InputError("--link", "is one bandwidth, the same of each cluster")
    sites = [read_site(folder, need, link.values[0]) for folder in args.sites]
    names = [site.cluster.name for site in sites]
    if len(set(names)) < len(names):
        raise InputError(names[0], "is the name of two folders; each cluster has a name of its own")
    keeps, within = args.keep_clusters or len(sites) == 1, args.within / 100.0
    with progress_bar(quiet=args.quiet) as report:
        window, past, clusters = replay_past(sites, report)
        off, platform = missed(past, clusters), past.slot_map.platform
        jobs = [as_equals(one, keeps=keeps) for one in past.workload.jobs]
        cases = list(CASES.items())[: 1 if keeps else 2] if off <= within else []
        traces = [replayed(jobs, platform, "auto", given, report, name) for name, given in cases]
    results = [(trace, measure(trace)) for trace in (past, *traces)]
    begin, end = (f"{datetime.fromtimestamp(at, UTC):%d %B %Y, %H:%M}" for at in window)
    told = Shadow(
        window=(begin, end),
        clusters=clusters,
        missed=off,
        within=within,
        gains={trace.policy: gain_of(past, trace) for trace in traces},
        figures={trace.policy: metrics for trace, metrics in results},
        lists={
            "Assumed": _assumed(keeps, link.values[0], args.bandwidth),
            "Not known": UNKNOWN,
            "Rows not used": [x for one in sites for x in unused_lines(one.unused)] or ["none"],
            "Notes": [note for site in sites for note in site.notes] or ["none"],
        },
    )
    if args.report:
        args.report.write_text(as_page(told, results), encoding="utf-8")
    print(msgspec.json.encode(told).decode() if args.json else as_text(told, results))
    return DONE if off <= within else SHUT


def as_equals(logged: LoggedJob, *, keeps: bool) -> LoggedJob:
    """The job as no more than others, on any cluster unless it needs a part of its own."""
    job = logged.job
    clusters = job.clusters if keeps or job.features else None
    return replace(logged, job=replace(job, weight=1.0, clusters=clusters))


def _assumed(keeps: bool, link_gbps: float, need: str) -> tuple[str, ...]:
    return (
        "users would have submitted the same jobs at the same times, with the same time limits",
        "jobs stay on their clusters" if keeps else ANYWHERE,
        "a job that had one node keeps to one; on several clusters a job takes as long as on one",
        f"links of {link_gbps:g} Gbit/s, of which each process on several needs {need}",
    )


PLACES = 3
"""Rows that are named of each reason."""
TABLE = "Mean waits by the cluster of submission: real, replayed, and as they would have been"


class Shadow(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    window: tuple[str, str]
    clusters: Sequence[ClusterPast]
    missed: float
    """How far the replay is off, and how far it may be."""
    within: float
    gains: Mapping[str, Gain]
    figures: Mapping[str, Metrics]
    lists: Mapping[str, Sequence[str]]
    """What is assumed, not known, not used, and noted."""


def paragraph(told: Shadow) -> str:
    """Words that can be read to a head of department."""
    jobs, past = [one.jobs for one in told.clusters], next(iter(told.figures.values()))
    real = float(np.average([one.real_wait_s for one in told.clusters], weights=jobs))
    text = (
        f"From {' to '.join(told.window)}, {sum(jobs):,} jobs on "
        f"{' and '.join(one.cluster for one in told.clusters)} waited for {duration(real)} on "
        f"average. Replayed from the accounts they wait for {duration(past.mean_wait_s)}: cluster "
        f"by cluster the replay is off by {told.missed:.1%}."
    )
    if not told.gains:
        return (
            f"{text} That is more than the {told.within:.0%} allowed: what held jobs up is not "
            "known well enough, so no gain is reported."
        )
    for name, gain in told.gains.items():
        one = gain.saved
        text += (
            f" Planned by coalloc, {name}, they would have waited for "
            f"{duration(told.figures[name].mean_wait_s)}, {one.mean:.0%} less (95 % interval: "
            f"{one.low:.0%} to {one.high:.0%}"
            f"{'' if one.low > told.missed else '; not clearly more than the replay is off'}): "
            f"{told.figures[name].coallocated_share:.0%} of the jobs on several clusters, and "
            f"{gain.longer:.0%} would have waited over a minute longer."
        )
    return text


def _table(told: Shadow) -> list[list[str]]:
    rows = [["cluster", "jobs", "real", "as it was", "off, job by job", *told.gains]]
    for k, one in enumerate(told.clusters):
        waits = (one.real_wait_s, one.replayed_wait_s, one.astray_s)
        after = (gain.home_wait_s[k] for gain in told.gains.values())
        rows.append([one.cluster, f"{one.jobs}", *map(duration, (*waits, *after))])
    return rows


def unused_lines(unused: Mapping[str, Sequence[str]]) -> list[str]:
    """Rows that are not used: how many, why, and where the first are."""
    return [
        f"{len(at)} row{'s' * (len(at) > 1)}: {why} "
        f"({', '.join(at[:PLACES])}{', …' if len(at) > PLACES else ''})"
        for why, at in unused.items()
    ]


def as_text(told: Shadow, results: Results) -> str:
    """The answer for a terminal."""
    parts = [paragraph(told), f"{TABLE}\n{aligned(_table(told))}"]
    parts += [side_by_side(results)] if told.gains else []
    parts += ["\n  ".join([f"{title}:", *lines]) for title, lines in told.lists.items()]
    return "\n\n".join(parts)


def as_page(told: Shadow, results: Results) -> str:
    """The answer as one page of HTML."""
    head, *rows = _table(told)
    first = [section("In one paragraph", f"<p>{escape(paragraph(told))}</p>")]
    first.append(section(TABLE, html_table(head, rows)))
    last = [
        section(title, *(f"<p>{escape(line)}</p>" for line in lines))
        for title, lines in told.lists.items()
    ]
    names = ", ".join(one.cluster for one in told.clusters)
    return compare_page(results, f"{names}: what was, and what would have been", first, last)
