"""``coalloc plan``: what is going to start when, and how good that is."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from coalloc.cli.command import BAD_USAGE, Command, CommandError, answer_json, connect, print_json
from coalloc.cli.files import load_plan, load_snapshot
from coalloc.cli.output import WALL_CLOCK_S, figure, node_set, show_table, width
from coalloc.cli.pictures.gantt import Picture, picture_of
from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.jobs import WorkflowJob
from coalloc.model.pictures.plans import counts, headline, name_of
from coalloc.model.plan import Placement, Plan
from coalloc.option_text import add_options
from coalloc.runtime.texts import instant, length
from coalloc.wire.answers import RuleCostRow, RuleCostsRow

HEADERS = ("JOBID", "START", "END", "RUNS", "PROCS", "CLUSTERS", "NODELIST")
WAITING_HEADERS = ("JOBID", "REASON", "DETAIL")
Edges = Mapping[str, Sequence[tuple[str, str]]]
"""Of each workflow, parents with their children."""
NAMED = 6
"""Tasks of a critical path, at the most."""


OPTIONS = """
PLAN? @file       one made by solve, not the daemon's
--snapshot FILE   the snapshot PLAN was made for
--gantt           draw it
--cost            what shares, limits, guarantees and the guard cost
"""


def _plan(args: argparse.Namespace) -> int:
    if args.cost:
        from coalloc.cli.plan_cost import show_costs

        if args.file is not None:
            raise CommandError("plan: --cost is of the daemon's queue", BAD_USAGE)
        return show_costs(args)
    if args.file is None:
        if args.snapshot is not None:
            raise CommandError("plan: --snapshot needs PLAN (see coalloc plan --help)", BAD_USAGE)
        with connect(args) as client:
            answer = client.plan()
        if args.json:
            answer_json(answer)
            return 0
        if not answer.plan.plan:
            print("nothing has been planned yet")
            return 0
        newest = answer.plan
        plan = read_plan(newest.plan)
        running = [Placement(**asdict(row)) for row in answer.running]
        shown = Shown(
            plan=plan,
            node_clusters=answer.node_clusters,
            title=f"round {newest.round} of {instant(newest.time)}: ",
            picture=picture_of(plan, running, newest.time, answer.time),
            edges=answer.edges,
            rules=rule_lines(answer.rules, answer.rule_costs),
        )
    else:
        shown = _from_file(args.file, args.snapshot)
        if args.json:
            print_json({"plan": write_plan(shown.plan), "node_clusters": shown.node_clusters})
            return 0
    _show(shown, args)
    return 0


class Shown(Struct, frozen=True, kw_only=True):
    """A plan with what is needed to show it."""

    plan: Plan
    node_clusters: Mapping[str, str]
    title: str
    picture: Picture
    edges: Edges = {}
    rules: tuple[str, ...] = ()
    """Lines about what the site's rules cost."""

    @property
    def is_wall(self) -> bool:
        first = min((p.start for p in self.plan.placements), default=0.0)
        return (first if self.picture.begin is None else self.picture.begin) > WALL_CLOCK_S


def _from_file(path: Path, snapshot: Path | None) -> Shown:
    plan, title = load_plan(path), f"{path}: "
    if snapshot is None:
        return Shown(plan=plan, node_clusters={}, title=title, picture=Picture(plan=plan))
    problem = load_snapshot(snapshot)
    busy = [
        Placement(
            job=job.id,
            start=job.start,
            end=job.busy_until(problem.time, problem.overrun_s),
            nodes=job.nodes,
        )
        for job in problem.running
    ]
    return Shown(
        plan=plan,
        node_clusters={node.name: cluster.name for cluster, node in problem.nodes()},
        title=title,
        picture=picture_of(plan, busy, problem.time, problem.time),
        edges={
            job.id: [(edge.parent, edge.child) for edge in job.edges]
            for job in problem.queue
            if isinstance(job, WorkflowJob)
        },
    )


def _show(shown: Shown, args: argparse.Namespace) -> None:
    from coalloc.cli.pictures import gantt

    plan, clusters = shown.plan, shown.node_clusters
    paths = critical_paths(shown.picture.plan, shown.edges)
    critical = frozenset(index for path in paths.values() for index in path)
    print(shown.title + headline(plan))
    print("\n".join([counts(plan), *shown.rules]))
    if args.gantt == "text":
        print()
        lines = gantt.text_gantt(shown.picture, clusters, columns=width(), critical=critical)
        print("\n".join([*lines, *path_lines(shown.picture.plan, paths)]))
    else:
        _list(shown)


def _list(shown: Shown) -> None:
    if shown.plan.placements:
        print()
        numbers = frozenset(
            {"PROCS", "RUNS"} if shown.is_wall else {"START", "END", "RUNS", "PROCS"}
        )
        show_table(HEADERS, placement_lines(shown), right=numbers)
    if shown.plan.deferred:
        print()
        rows = [(name_of(d), str(d.reason), d.detail) for d in shown.plan.deferred]
        show_table(WAITING_HEADERS, rows)


def placement_lines(shown: Shown) -> list[tuple[str, ...]]:
    """Cells of the placements by rising start."""

    def at(value: float) -> str:
        return instant(value) if shown.is_wall else f"{value:.6g}"

    out: list[tuple[str, ...]] = []
    for p in sorted(shown.plan.placements, key=lambda p: p.start):
        clusters = dict.fromkeys(shown.node_clusters.get(node, "?") for node in p.nodes)
        out.append(
            (
                name_of(p),
                at(p.start),
                at(p.end),
                length(p.end - p.start),
                str(sum(p.nodes.values())),
                "+".join(clusters) if shown.node_clusters else "-",
                node_set(p.nodes),
            )
        )
    return out


def rule_lines(rules: Collection[str], found: RuleCostsRow | None) -> tuple[str, ...]:
    """A line for each rule in force; `found` is of the newest round that computed their costs."""
    if not rules:
        return ()
    if found is None:
        return ("cost of rules: not computed yet",)
    known = {**dict.fromkeys(rules, RuleCostRow(why="not computed")), **found.rules}
    return tuple(
        f"cost of {rule}: {_cost_words(row)} (round {found.round})" for rule, row in known.items()
    )


def _cost_words(row: RuleCostRow) -> str:
    if row.cost is None or row.with_rule is None:
        return row.why or "not computed"
    share = f" ({row.cost / row.with_rule:.1%})" if row.with_rule > 0.0 else ""
    most = "no bound" if row.at_most is None else f"at most {figure(row.at_most)}"
    held = f", {row.held} held" if row.held else ""
    return f"{figure(row.cost)} of {figure(row.with_rule)}{share}, {most}{held}"


def critical_paths(plan: Plan, edges: Edges) -> dict[str, list[int]]:
    """Of each workflow, the chain of tasks that ends last: its placements, by rising start.

    From the task that ends last back to its parent that ends last, and so on: the chain whose delay
    delays the workflow. Tasks that have ended or run already are in no plan, nor here.
    """
    places: dict[str, dict[str, int]] = {}
    for index, placement in enumerate(plan.placements):
        if placement.task is not None:
            places.setdefault(placement.job, {})[placement.task] = index
    out = {}
    for job, of in places.items():
        parents: dict[str, list[int]] = {}
        for parent, child in edges.get(job, ()):
            if parent in of and child in of:
                parents.setdefault(child, []).append(of[parent])
        last: int | None = max(of.values(), key=lambda i: plan.placements[i].end)
        path: list[int] = []
        while last is not None:
            path.append(last)
            before = parents.get(plan.placements[last].task or "", ())
            last = max(before, key=lambda i: plan.placements[i].end, default=None)
        out[job] = path[::-1]
    return out


def path_lines(plan: Plan, paths: Mapping[str, Sequence[int]]) -> list[str]:
    """Each critical path in a line."""
    lines = []
    for job, path in paths.items():
        tasks = [plan.placements[i].task or "" for i in path]
        if len(tasks) > NAMED:
            tasks = [*tasks[: NAMED - 2], f"({len(tasks) - NAMED + 1} more)", tasks[-1]]
        seconds = plan.placements[path[-1]].end - plan.placements[path[0]].start
        lines.append(f"critical path of {job}, {length(seconds)}: {' > '.join(tasks)}")
    return lines


COMMANDS: Mapping[str, Command] = {
    "plan": Command(
        doc="what starts when, with objective, bound and gap",
        about="The daemon's newest plan, or one made by 'coalloc solve', as a list or a picture.",
        example="coalloc plan --gantt text\n"
        "  coalloc plan plan.json --snapshot snapshot.json --gantt text",
        add=partial(add_options, text=OPTIONS, file=Path, snapshot=Path, gantt=("text",)),
        run=_plan,
        query=True,
    )
}
