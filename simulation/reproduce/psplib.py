"""``coalloc reproduce psplib``: projects of PSPLIB, by the search for what shares licences.

A project is a workflow; its resources are licences of the one cluster, whose node has a slot for
each task. The first and the last task, of no length, are left out. Read are files of the library
(``.sm``, single mode), and lists in JSON with the best makespans and bounds that were published.

References
----------
R. Kolisch, A. Sprecher, "PSPLIB, a project scheduling problem library", European Journal of
Operational Research 96(1), 1997. https://www.om-db.wi.tum.de/psplib/
"""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from pathlib import Path
from statistics import fmean
from typing import Annotated

from msgspec import Meta, Struct

from coalloc.adapters.formats.files import read_bytes
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import decode_json
from coalloc.model.formats.snapshot_json import write_snapshot
from coalloc.model.formats.structs import read_json
from coalloc.model.jobs import Edge, Task, WorkflowJob
from coalloc.model.plan import Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.shape import Shape
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.progress import Report
from coalloc.simulation.reproduce.rows import Rows, tabulate, to_csv
from coalloc.simulation.reproduce.solving import solve

NAME = "psplib"
DOC = "projects of PSPLIB (a folder or a file after it): what is proved, and gaps to the best known"
WORK = 150_000_000
"""Placements of tasks for each project."""
QUICK, QUICK_WORK = 20, 600_000  # every so many-th project
LARGEST_FILE = 100_000_000
Whole = Annotated[int, Meta(ge=0, le=1_000_000)]


class Project(Struct, frozen=True, kw_only=True, rename={"group": "set"}):
    """One project, as the lists have it."""

    group: str
    name: str
    durations: tuple[Whole, ...]
    requests: tuple[tuple[Whole, ...], ...]
    """Of each task, for each resource."""
    successors: tuple[tuple[Whole, ...], ...]
    """Of each task, by number from 0."""
    capacities: tuple[Whole, ...]
    best_makespan: Whole | None = None
    lower_bound: Whole | None = None

    def snapshot(self) -> Snapshot:
        """The project on its cluster. Raises `InputError`."""
        last = len(self.durations) - 1
        rows = {len(self.durations), len(self.requests), len(self.successors)}
        odd = any(len(row) != len(self.capacities) for row in self.requests)
        if len(rows) > 1 or odd or last < 2 or max((0, *sum(self.successors, ()))) > last:
            raise InputError(self.name, "has tasks without a duration, requests or successors")
        tasks, edges = [], []
        for n in range(1, last):
            shape = Shape(per_job=_named(self.requests[n]))
            tasks.append(Task(id=str(n + 1), work=float(self.durations[n]), shape=shape))
            ends = [str(s + 1) for s in self.successors[n] if s != last]
            edges += [Edge(parent=str(n + 1), child=child) for child in ends]
        node, given = Node(name="node", slots=len(tasks)), _named(self.capacities)
        return Snapshot(
            clusters=(Cluster(name="project", nodes=(node,), resources=given),),
            queue=(WorkflowJob(id=self.name, tasks=tuple(tasks), edges=tuple(edges)),),
        )


def _named(amounts: tuple[int, ...]) -> dict[str, int]:
    return {f"R{r}": amount for r, amount in enumerate(amounts, start=1) if amount}


def read_projects(place: Path) -> list[Project]:
    """The projects of a folder or a file, by name. Raises `InputError`."""
    if not place.exists():
        raise InputError(str(place), "is absent; name a folder: coalloc reproduce psplib FOLDER")
    found: dict[str, Project] = {}
    for path in sorted(place.iterdir()) if place.is_dir() else [place]:
        if path.suffix != ".sm" and ".json" not in path.suffixes:
            continue
        text = read_bytes(path, LARGEST_FILE).decode("utf-8", "replace")
        if path.suffix == ".sm":
            one = read_sm(text, path)
            found.setdefault(one.name, one)
        else:
            listed = read_json(decode_json(text), tuple[Project, ...], str(path))
            found |= {one.name: one for one in listed}
    if not found:
        raise InputError(str(place), "holds no project: no .sm file, and no list in JSON")
    parts = {name: [int(part) for part in re.findall("[0-9]+", name)] for name in found}
    return sorted(found.values(), key=lambda one: (parts[one.name], one.name))


def read_sm(text: str, path: Path) -> Project:
    """The project of a file of the library. Raises `InputError`."""
    sections: dict[str, list[list[int]]] = {}
    title = ""
    for line in text.splitlines():
        if re.match(r"[A-Z][A-Z /]+:?\s*$", line):
            title = line.strip(" :")
        elif re.fullmatch(r"[\s0-9]+", line) and line.strip():
            sections.setdefault(title, []).append([int(word) for word in line.split()])
    edges, tasks, sizes = (
        sections.get(key, [])
        for key in ("PRECEDENCE RELATIONS", "REQUESTS/DURATIONS", "RESOURCEAVAILABILITIES")
    )
    set_of = re.match(r"j(30|60|90|120)(?=[0-9]{1,2}_)", path.stem)
    modes = {row[1] for row in (*edges, *tasks) if len(row) > 2}
    if len(edges) != len(tasks) or len(sizes) != 1 or modes != {1}:
        raise InputError(str(path), "is no project of PSPLIB in a single mode")
    return Project(
        group=set_of[0] if set_of else "",
        name=path.stem,
        durations=tuple(row[2] for row in tasks),
        requests=tuple(tuple(row[3:]) for row in tasks),
        successors=tuple(tuple(n - 1 for n in row[3:]) for row in edges),
        capacities=tuple(sizes[0]),
    )


def run(args: Namespace, report: Report) -> int:
    """Plan every project, check and compare it; returns 0. Raises `InputError`."""
    shared = Path(os.environ.get("COALLOC_SHARED") or "../shared", "data", "psplib")
    place = Path(args.name[1]) if len(args.name) > 1 else shared
    projects = read_projects(place)[:: QUICK if args.quick and place.is_dir() else 1]
    work = args.work or (QUICK_WORK if args.quick else WORK)
    args.output.mkdir(parents=True, exist_ok=True)
    rows = Rows()
    for number, project in enumerate(projects):
        report(project.name, number, len(projects))
        snapshot = project.snapshot()
        found = solve(snapshot, "workflow", {"patience": None}, work=work, seed=args.seed)
        bound, proved = found.plan.objective.bound or 0.0, found.plan.status is Status.OPTIMAL
        row = {"set": project.group, "name": project.name, "makespan": round(found.makespan, 6)}
        row |= {"bound": round(found.makespan if proved else bound, 6)}
        row |= {"best": project.best_makespan, "best_bound": project.lower_bound}
        rows.append({**row, "cpu_s": round(found.cpu_s, 3)})
        if not place.is_dir() and len(projects) == 1:
            body = json.dumps(write_snapshot(snapshot), indent=1)
            (args.output / f"{project.name}.json").write_text(body + "\n", encoding="utf-8")
    report(NAME, len(projects), len(projects))
    (args.output / f"{NAME}.csv").write_text(to_csv(rows[0], rows), encoding="utf-8")
    told = f"Work limit {work:,} placements, seed {args.seed}; gaps are means, of makespans."
    page = f"# {NAME}: {DOC}\n\n{table_of(rows)}\n\n{told}\n"
    (args.output / f"{NAME}.md").write_text(page, encoding="utf-8")
    print(page, end="")
    return 0


def table_of(rows: Rows) -> str:
    """A line for each set."""

    def gaps(group: Rows, to: str) -> list[float]:
        return [row["makespan"] / row[to] - 1.0 for row in group if row[to]]

    def mean(shares: list[float]) -> str:
        return f"{fmean(shares):.2%}" if shares else "-"

    return tabulate(
        "set",
        {name: group for (name,), group in rows.grouped("set").items()},
        {
            "projects": lambda group: str(len(group)),
            "proved optimal here": lambda g: str(sum(r["bound"] >= r["makespan"] for r in g)),
            "at the best known": lambda g: str(sum(gap <= 0.0 for gap in gaps(g, "best"))),
            "gap to the best known": lambda g: mean(gaps(g, "best")),
            "gap to the best bound": lambda g: mean(gaps(g, "best_bound")),
            "mean s": lambda g: f"{g.mean('cpu_s'):.1f}",
        },
    )
