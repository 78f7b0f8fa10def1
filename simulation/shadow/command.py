"""``coalloc shadow``: gains of a site, from its own accounts."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from coalloc.adapters.formats.swf_jobs import LoggedJob, read_bandwidth
from coalloc.model.errors import InputError
from coalloc.model.values import replace
from coalloc.simulation.metrics import measure
from coalloc.simulation.progress import progress_bar
from coalloc.simulation.report.page import check_report
from coalloc.simulation.shadow.past import ALONE, gain_of, missed, replay_past, replayed
from coalloc.simulation.shadow.report import Shadow, as_page, as_text, unused_lines
from coalloc.simulation.shadow.site import COMMANDS, read_site

DONE, SHUT = 0, 3
CASES = {"each job on one cluster": ALONE, "some on several": {"coallocation": "sooner"}}
ABOUT = """\
Replay a site's own accounts, before anything is installed: as it was, and as it would have been
under auto, each job on one cluster, and some on several. Where the replay of the past misses the
real waits, no gain is reported, and the exit code is 3. A cluster is a folder of its name with what
these print (DATE: some weeks ago):

""" + "\n".join(f"  {words} > CLUSTER/{file}" for file, words in COMMANDS.items())
UNKNOWN = (
    "jobs that had ended before the window; what was cancelled while it waited",
    "nodes that were down, reservations, limits of users and accounts, licences, preemption",
    "nodes that a job would not take; of a job that was requeued, all runs but the last",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description, add = ABOUT, parser.add_argument
    add("sites", nargs="+", type=Path, metavar="CLUSTER", help="folder of a cluster")
    add("--link", metavar="B", default="10", help="of each cluster (default: 10 Gbit/s)")
    need = "network need of a process of a job on several clusters (default: 0.05 Gbit/s)"
    add("--bandwidth", metavar="B", default="0.05", help=need)
    off = "how far replayed mean waits may be off (default: 10)"
    add("--within", metavar="PERCENT", type=float, default=10.0, help=off)
    add("--keep-clusters", action="store_true", help="leave each job on its cluster")
    add("--report", metavar="FILE", type=Path, help="write one HTML page with charts")
    add("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 done, 3 the replay of the past misses. Raises `InputError`."""
    check_report(args.report)
    need, link = read_bandwidth(args.bandwidth), read_bandwidth(args.link, where="--link")
    sites = [read_site(folder, need, link.values[0]) for folder in args.sites]
    names = [site.cluster.name for site in sites]
    if len(set(names)) < len(names):
        raise InputError(names[0], "is the name of two folders; each cluster has a name of its own")
    keeps, within = args.keep_clusters or len(sites) == 1, args.within / 100.0
    with progress_bar(quiet=args.quiet) as report:
        window, past, clusters = replay_past(sites, report)
        off, platform = missed(past, clusters), past.slot_map.platform
        jobs = past.workload.jobs if keeps else tuple(map(_free, past.workload.jobs))
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
            "Assumed": _assumed(args),
            "Not known": UNKNOWN,
            "Rows not used": [x for one in sites for x in unused_lines(one.unused)] or ["none"],
            "Notes": [note for site in sites for note in site.notes] or ["none"],
        },
    )
    if args.report:
        args.report.write_text(as_page(told, results), encoding="utf-8")
    print(msgspec.json.encode(told).decode() if args.json else as_text(told, results))
    return DONE if off <= within else SHUT


def _free(logged: LoggedJob) -> LoggedJob:
    """The job on any cluster, unless it needs a part of its own."""
    job = logged.job
    return replace(
        logged, job=replace(job, weight=1.0, clusters=job.clusters if job.features else None)
    )


def _assumed(args: argparse.Namespace) -> tuple[str, ...]:
    where = (
        "a job could run on any cluster that has its CPUs, memory and GPUs, equally fast; one of "
    )
    where += "a partition with part of the nodes stays there"
    return (
        "users would have submitted the same jobs at the same times, with the same time limits",
        "jobs stay on their clusters" if args.keep_clusters else where,
        "a job that had one node keeps to one; on several clusters a job takes as long as on one",
        f"links of {args.link} Gbit/s, of which each process on several needs {args.bandwidth}",
    )
