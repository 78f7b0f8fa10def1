"""A Slurm cluster as its own commands tell of it: nodes, partitions, accounts.

Notes
-----
- A job that had one node keeps to one; one of a partition with part of the nodes, to those.
- What still ran when the accounts were written holds its nodes until its time limit.
- Nodes that are down now are left out, as if they had never been up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from coalloc.adapters.formats.sacct_log import read_log
from coalloc.adapters.formats.slurm_nodes import read_limits, read_nodes
from coalloc.adapters.formats.swf import SwfJob
from coalloc.adapters.formats.swf_jobs import Draw, JobRule, LoggedJob, make_jobs
from coalloc.model.errors import InputError
from coalloc.model.platform import Cluster, NodeState
from coalloc.model.values import replace

COMMANDS = {
    "sacct": "sacct -aPX -S DATE --format=JobID,User,Partition,Priority,Cluster,Submit,Eligible,"
    "Start,End,Elapsed,Timelimit,State,NNodes,NCPUS,ReqTRES,AllocTRES,ReqMem",
    "nodes": "scontrol show node",
    "sinfo": "sinfo",
}
"""The command whose output each file of a cluster has, by the beginning of its name."""

PRIORITIES = 1000.0
"""Of Slurm to a weight, so that all of them are within the range of weights."""


class Site(Struct, kw_only=True):
    """One cluster and its past."""

    cluster: Cluster
    jobs: list[LoggedJob] = field(default_factory=list)
    """Bound to it, in seconds since 1970; their weights are their priorities at their start."""
    unused: dict[str, list[str]] = field(default_factory=dict)
    """Files and lines of the rows that are not used, by reason."""
    notes: list[str] = field(default_factory=list)


def read_site(folder: Path, bandwidth: Draw, link_gbps: float) -> Site:
    """Read the folder of a cluster, which gives its name. Raises `InputError`."""
    name = folder.resolve().name
    found = {kind: sorted(folder.glob(f"{kind}*")) for kind in COMMANDS}
    for kind, words in COMMANDS.items():
        if not found[kind]:
            raise InputError(str(folder), f"lacks what this prints: {words} > {folder}/{kind}")
    nodes, limits = read_nodes(found["nodes"][0], name), read_limits(found["sinfo"][0])
    down = [one.name for one in nodes if one.state is NodeState.DOWN]
    # one that takes no more work now did its part before
    up = tuple(replace(one, state=NodeState.UP) for one in nodes if one.name not in down)
    if not up:
        raise InputError(str(found["nodes"][0]), "has no node that is up")
    site = Site(cluster=Cluster(name=name, nodes=up, link_gbps=link_gbps))
    if down:
        site.notes.append(f"{len(down)} nodes are down now, left out: {', '.join(down)}")
    rule = JobRule.on((site.cluster,), bandwidth=bandwidth)
    for path in found["sacct"]:
        _read_accounts(site, path, rule, limits)
    if not site.jobs:
        raise InputError(str(folder), "has no job in its accounts that ran")
    return site


def _read_accounts(
    site: Site, path: Path, rule: JobRule, limits: Mapping[str, float | None]
) -> None:
    log = read_log(path)
    is_alone = len({line.cluster for line in log.jobs}) < 2
    lines = {}
    for line in log.jobs:
        limit = line.requested_s or limits.get(line.partition_name)
        line = dataclasses.replace(line, requested_s=limit)
        if not is_alone and line.cluster != site.cluster.name:
            line = dataclasses.replace(line, unusable="of another cluster")
        elif line.unusable == "still ran" and line.wait_s is not None and limit:
            line = dataclasses.replace(line, unusable="", run_s=limit)
        lines[line.line] = line
    made = make_jobs(dataclasses.replace(log, jobs=tuple(lines.values())), rule)
    for logged in made.jobs:
        line = lines.pop(logged.line)
        site.jobs.append(_bound(logged, line, site.cluster, log.jobs[0].submit_s))
    faults = [(line.unusable or "no CPUs or no run time", n) for n, line in lines.items()]
    for fault, number in [*faults, *((what, n) for n, what in log.summary.bad_lines)]:
        site.unused.setdefault(fault, []).append(f"{path}:{number}")
    site.notes += [f"{path}: {what}: {count} jobs" for what, count in made.adjusted.items()]


def _bound(logged: LoggedJob, line: SwfJob, cluster: Cluster, first: float) -> LoggedJob:
    """The job on its cluster, and its part of it, in seconds since 1970."""
    job, part = logged.job, line.partition_name
    inside = sum(part in node.features for node in cluster.nodes)
    alone = line.nodes == 1 and any(node.slots > 1 for node in cluster.nodes)
    job = replace(
        job,
        id=f"{cluster.name}-{job.id}",
        submitted=job.submitted + first,
        weight=(line.priority or 0) / PRIORITIES,
        clusters=(cluster.name,),
        features=(part,) if 0 < inside < len(cluster.nodes) else (),
        shape=replace(job.shape, max_nodes=1) if alone else job.shape,
    )
    return replace(logged, job=job)
