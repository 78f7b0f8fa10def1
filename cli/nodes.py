"""``coalloc nodes``: clusters, and their nodes folded by what they have in common."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, CommandError, answer_json, connect
from coalloc.cli.output import figure, show_table
from coalloc.client.client import Client, NoAnswerError
from coalloc.model.formats.nodeset import fold
from coalloc.model.values import replace
from coalloc.option_text import add_options
from coalloc.runtime.texts import length
from coalloc.wire.answers import NodesAnswer
from coalloc.wire.node_rows import ClusterRow, NodeRow

CLUSTER_HEADERS = ("CLUSTER", "STATE", "NODES", "SLOTS", "FREE", "LINK", "USED", "READ", "NOTE")
NODE_HEADERS = (
    *("CLUSTER", "STATE", "SLOTS", "FREE", "POWER", "RAW", "LOAD", "MEMORY", "RESOURCES"),
    *("FEATURES", "NODELIST"),
)
LOOK_EVERY_S = 0.2
"""Between two looks whether all clusters are read, seconds."""
UNKNOWN = frozenset({"unreachable", "stale"})
"""Clusters in these states get no new work: what is known of their nodes is too old."""
LOAD_STEP = 0.1
"""Nodes whose loads and raw powers differ by less are shown together."""


OPTIONS = """
-M --clusters NAMES   only these
--noheader            no headings
-N --each             a line for every node
--wait TIME           until a daemon answers and every cluster is read, at most so long (60s, 2m)
"""


def _nodes(args: argparse.Namespace) -> int:
    with connect(args) as client:
        answer = client.known_nodes() if args.wait is None else ready(client, args)
    clusters = _wanted(answer, args)
    if args.json:
        answer_json(replace(answer, clusters=clusters))
        return 0
    first = {row.site: row.cluster for row in reversed(clusters) if row.site}
    show_table(
        CLUSTER_HEADERS,
        [cluster_line(cluster, first.get(cluster.site, "")) for cluster in clusters],
        right=frozenset({"NODES", "SLOTS", "FREE", "LINK", "USED", "READ"}),
        header=not args.noheader,
    )
    print()
    show_table(
        NODE_HEADERS,
        [
            line
            for cluster in clusters
            if first.get(cluster.site, cluster.cluster) == cluster.cluster
            for line in node_lines(cluster, each=args.each)
        ],
        right=frozenset({"SLOTS", "FREE", "POWER", "RAW", "LOAD", "MEMORY"}),
        header=not args.noheader,
    )
    return 0


def _wanted(answer: NodesAnswer, args: argparse.Namespace) -> tuple[ClusterRow, ...]:
    rows = answer.clusters
    return tuple(row for row in rows if not args.clusters or row.cluster in args.clusters)


def ready(client: Client, args: argparse.Namespace) -> NodesAnswer:
    """The answer once every cluster asked for is read; an error where that is not in time."""
    end = time.monotonic() + args.wait
    while True:
        away = None
        try:
            answer = client.known_nodes()
            rows = _wanted(answer, args)
            away = [f"{row.cluster} {row.error}".strip() for row in rows if row.stale]
            if not away:
                return answer
        except NoAnswerError:
            if time.monotonic() >= end:
                raise
        if time.monotonic() >= end:
            raise CommandError(f"not read within {length(args.wait)}: {', '.join(away or ())}")
        time.sleep(LOOK_EVERY_S)


def cluster_line(row: ClusterRow, first: str = "") -> tuple[str, ...]:
    """Cells of one cluster; LINK and USED in Gbit/s, READ the age of its reading.

    `first`: of those that are the same machine; its slots are counted there.
    """
    twin = "" if first == row.cluster else first
    is_counted = not twin and state_of(row) not in UNKNOWN
    free = _resources(row.nodes, is_known=state_of(row) not in UNKNOWN)
    own = f"jobs of {row.owner} only" if row.owner else ""
    own += f", on the nodes of {twin}" if twin else ""
    own += f", read by {row.read_by}" if row.read_by else ""
    own += f"; type: coalloc connect {row.cluster.partition('@')[0]}" if own and row.error else ""
    waiting = f"{row.waiting_there} waiting there" if row.waiting_there else ""
    return (
        row.cluster,
        state_of(row),
        "-" if twin else str(len(row.nodes)),
        "-" if twin else str(sum(node.slots for node in row.nodes)),
        str(sum(node.free for node in row.nodes)) if is_counted else "-",
        "no limit" if row.link_gbps is None else figure(row.link_gbps),
        figure(row.link_used_gbps),
        "never" if row.age_s is None else f"{length(row.age_s)} ago",
        "; ".join(
            filter(
                None, (row.error, row.drain_reason, own, waiting, _share(row), free, *row.notices)
            )
        ),
    )


def _resources(nodes: Iterable[NodeRow], *, is_known: bool) -> str:
    """Free of all that there are, by name; a family that has types only by these."""
    there, free = Counter[str](), Counter[str]()
    for node in nodes:
        there.update(node.resources)
        free.update(node.free_resources)
    families = {name.partition(":")[0] for name in there if ":" in name}
    shown = (name for name in there if name not in families)
    return ", ".join(f"{free[n] if is_known and n in free else '?'}/{there[n]} {n}" for n in shown)


def _share(row: ClusterRow) -> str:
    """Delay that jobs cause to local ones; nothing is said where they go before none."""
    share = row.share
    if share is None:
        return ""
    said = f"starts {row.way}: {share.kept} of {share.nodes} kept"
    if share.delay_s:
        said += f", a local job delayed by {share.delay_s:g} s"
    return said + (f"; no claims: {share.paused}" if share.paused else "")


def state_of(row: ClusterRow) -> str:
    """In one word, what keeps a cluster from work."""
    if not row.connected:
        return "unreachable"
    if row.stale:
        return "stale"
    return "drained" if row.drained else "up"


def node_lines(cluster: ClusterRow, *, each: bool = False) -> list[tuple[str, ...]]:
    """Cells of a cluster's nodes; SLOTS, FREE and MEMORY are those of each node.

    Of a cluster that cannot be reached, the state of the nodes is unknown, and nothing is free.
    """
    groups: dict[str, list[NodeRow]] = {}
    for node in cluster.nodes:
        groups.setdefault(node.name if each else _likeness(node), []).append(node)
    is_known = state_of(cluster) not in UNKNOWN
    return [_node_line(cluster.cluster, group, is_known) for group in groups.values()]


def _likeness(node: NodeRow) -> str:
    """All that nodes of one line have in common."""
    raw, load = round(node.raw_power / LOAD_STEP), round(node.load / LOAD_STEP)
    return repr(replace(node, name="", load_age_s=0.0, cpus=None, raw_power=raw, load=load))


def _node_line(cluster: str, group: list[NodeRow], is_known: bool) -> tuple[str, ...]:
    node = group[0]
    is_told = is_known and node.free_memory_mb is not None
    free_memory = f"{node.free_memory_mb}/" if is_told else ""
    return (
        cluster,
        node.state if is_known else "unknown",
        str(node.slots),
        str(node.free) if is_known else "-",
        figure(node.power) if is_known else "-",
        f"{sum(n.raw_power for n in group) / len(group):.2f}" if is_known else "-",
        f"{sum(n.load for n in group) / len(group):.2f}" if is_known else "-",
        "-" if node.memory_mb is None else f"{free_memory}{node.memory_mb}M",
        _resources(group[:1], is_known=is_known) or "-",
        ",".join(node.features) or "-",
        fold(n.name for n in group) + (f" ({node.reason})" if node.reason else ""),
    )


COMMANDS: Mapping[str, Command] = {
    "nodes": Command(
        doc="clusters, nodes, effective power, load, slots, link use",
        about="Clusters, then nodes; those that have everything in common share a line. POWER is "
        "what planning\nsees, RAW the latest reading, LOAD the share taken by work that is not "
        "ours, LINK and USED in Gbit/s;\nMEMORY and RESOURCES are free/all.",
        example="coalloc nodes -M alpha,beta\n  coalloc nodes --wait 30s",
        add=partial(add_options, text=OPTIONS, clusters=parse.names, wait=parse.seconds),
        run=_nodes,
        query=True,
    )
}
