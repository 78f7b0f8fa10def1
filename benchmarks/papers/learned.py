"""Our policies on what learned schedulers were measured on, by the protocols of their papers.

    coalloc reproduce learned [FOLDER] [--logs lublin-256] [--pieces 10] [--seed 1]
                              [--policies easy-spf,auto] [--afresh]

FOLDER has the logs (by default ``../shared/data/swf``). Windows of `WINDOW` consecutive jobs of a
log begin at places that the seed draws, each on an idle machine (RLScheduler, SchedInspector,
RLBackfilling); ``cert-knn`` replays 2,000 jobs of CERIT 2013 whose predecessors, 3,000 jobs, are
known (kNN-EASY). Each line gives the mean wait and the mean bounded slowdown, which turn round in
overload, by EASY's on the same windows: geometric means, with intervals of 95 % from resampling
windows, and on how many windows no single order is better than a policy. A log's estimates are
its users', or none: then every policy has the run times that were. ``exact`` gives all of them
these. ``--policies`` chooses policies, and with them the orders; EASY is always among them.
``easy-wfp3``, ``easy-unicef`` and what is no order take the general path, hundreds of times as
slow.

Every replay is checked, and kept in ``learned.rows.jsonl`` of the output folder: what stands there
is not replayed again, unless ``--afresh`` asks for it. The page is written anew after each window.

Of the published logs SDSC-SP2, PIK-IPLEX, ANL-Intrepid and Lublin's other one are not in FOLDER.

References
----------
Zhang et al., RLScheduler, SC 2020; Zhang et al., SchedInspector, HPDC 2022; Kolker-Hicks et al.,
RLBackfilling, 2024; Klusáček, Soysal, walltime prediction in Alea, JSSPP 2020.
"""

from __future__ import annotations

import json
import os
import random
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from coalloc.adapters.formats.platforms import Platform
from coalloc.model.errors import InputError
from coalloc.model.platform import Cluster, Node
from coalloc.model.values import replace
from coalloc.simulation.made_by import made_by
from coalloc.simulation.metrics import measure
from coalloc.simulation.progress import Report
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce.rows import table
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload, piece_of, read_workload

NAME, DOC = "learned", "what learned schedulers were measured on: logs, windows, measures"
WINDOW, WINDOWS = 1_024, 10
"""Jobs of a window, and how many of a log."""
ORDERS = ("fcfs", "easy", "easy-spf", "easy-saf", "easy-f1", "easy-wfp3", "easy-unicef")
BASE = "easy"
OTHERS = ("auto", "conservative", "easy-sjbf")
USERS, EXACT = "estimates of users", "exact run times"
MEASURES = ("mean_wait_s", "mean_bounded_slowdown")
LEAST = {"mean_wait_s": 1.0, "mean_bounded_slowdown": 1e-3}
"""Smaller figures count as this: a ratio to nothing says nothing."""
RESAMPLES = 2_000


class Protocol(Struct, frozen=True, kw_only=True):
    """A log, its machine, and the pieces of it."""

    file: str
    nodes: int
    slots: int = 1
    window: int = WINDOW
    first: int | None = None
    """Of the only window; None: windows are drawn."""
    has_estimates: bool = True


PROTOCOLS = {
    "lublin-256": Protocol(file="lublin_256.swf.gz", nodes=256, has_estimates=False),
    "hpc2n": Protocol(file="HPC2N-2002-2.1-cln.first25k.swf.gz", nodes=120, slots=2),
    "sdsc-blue": Protocol(file="SDSC-BLUE-2000-4.2-cln.first25k.swf.gz", nodes=144, slots=8),
    "cert-knn": Protocol(
        file="CERIT-wagap-2013.part1.xswf.gz", nodes=136, slots=16, window=2_000, first=3_000
    ),
}


def windows(workload: Workload, how: Protocol, count: int, seed: int) -> Iterator[Workload]:
    """Pieces of a log; what ended before a drawn one is not known, as the machine is idle."""
    logged = [one for one in workload.jobs if one.job.procs <= how.nodes * how.slots]
    if how.first is not None:
        yield piece_of(logged, how.first, how.window, how.file)
        return
    draw = random.Random(seed)
    for _ in range(count):
        first = draw.randrange(len(logged) - how.window)
        yield replace(piece_of(logged, first, how.window, f"{how.file}@{first}"), earlier=())


def exact(workload: Workload) -> Workload:
    """The same jobs, whose run times are known beforehand."""
    jobs, earlier = (
        tuple(replace(one, job=replace(one.job, base_time=one.run_s)) for one in logged)
        for logged in (workload.jobs, workload.earlier)
    )
    return replace(workload, jobs=jobs, earlier=earlier)


class Kept:
    """Rows of replays in a file, one JSON line each. Raises `InputError`."""

    def __init__(self, path: Path, *, afresh: bool) -> None:
        self.path = path
        if afresh:
            path.unlink(missing_ok=True)
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):  # cut off: replayed again
            path.write_text("".join(lines[:-1]), "utf-8")
            del lines[-1]
        self.rows: dict[str, Mapping[str, float]]
        try:
            self.rows = {row["replay"]: row for row in map(json.loads, lines)}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(str(path), f"has a line that is no row: {error}") from error

    def row(
        self, piece: Workload, machine: Platform, policy: str, times: str
    ) -> Mapping[str, float]:
        """Figures of a replay, by measure."""
        name = f"{piece.name}, {times}, {policy}"
        if name not in self.rows:
            trace = replay(piece, machine, policy, {})
            if faults := verify(trace):
                raise InputError(name, faults[0])
            found = measure(trace)
            row = {"replay": name, **{each: getattr(found, each) for each in MEASURES}}
            self.rows[name] = row | {"elapsed_s": trace.stats["elapsed_s"], "made_by": made_by()}
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps(self.rows[name]), file=file)
        return self.rows[name]


def machine_of(how: Protocol) -> Platform:
    """One cluster of equal nodes."""
    nodes = tuple(Node(name=f"n{n}", slots=how.slots) for n in range(how.nodes))
    return Platform(name=how.file, clusters=(Cluster(name="c", nodes=nodes),))


def interval(ratios: np.ndarray, draw: np.random.Generator) -> tuple[float, float]:
    """Of the geometric mean, 95 %."""
    picks = draw.integers(len(ratios), size=(RESAMPLES, len(ratios)))
    means = np.exp(np.log(ratios)[picks].mean(axis=1))
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def section(title: str, rows: Sequence[Mapping[str, Mapping[str, float]]]) -> str:
    """A heading and a table, in Markdown; rows are of windows, by policy."""
    draw = np.random.default_rng(0)
    figures = {
        policy: np.array([[max(each[policy][m], LEAST[m]) for each in rows] for m in MEASURES])
        for policy in rows[0]
    }
    means = zip(MEASURES, figures[BASE].mean(1), strict=True)
    told = ", ".join(f"{measure} {value:.6g}" for measure, value in means)
    best, lines = np.min([figures[one] for one in ORDERS if one in figures], axis=0), []
    for policy, mine in figures.items():
        ratios = mine / figures[BASE]
        texts = []
        for each in ratios:
            low, high = interval(each, draw)
            texts.append(f"{np.exp(np.log(each).mean()):.3f} ({low:.3f} to {high:.3f})")
        wins = ", ".join(str(int(n)) for n in (mine <= best * (1.0 + 1e-9)).sum(axis=1))
        lines.append((policy, *texts, wins))
    head = ("policy", "mean wait", "mean bounded slowdown", "windows no order is better on")
    told = f"{len(rows)} windows, by EASY's; means of EASY: {told}."
    return f"## {title}\n\n{told}\n\n{table(head, lines)}"


def sections(
    name: str, pieces: Sequence[Workload], policies: Sequence[str], kept: Kept
) -> Iterator[list[str]]:
    """The sections of a log, anew after each of its windows."""
    how, done = PROTOCOLS[name], {}
    machine = machine_of(how)
    for times in (USERS, EXACT) if how.has_estimates else (EXACT,):
        rows = []
        for piece in pieces:
            asked = exact(piece) if times == EXACT else piece
            rows.append({one: kept.row(asked, machine, one, times) for one in policies})
            done[times] = section(f"{name}, {times}", rows)
            yield list(done.values())


def run(args: Namespace, report: Report) -> int:
    """Measure, and write the tables; returns 0. Raises `InputError`."""
    shared = Path(os.environ.get("COALLOC_SHARED") or "../shared", "data", "swf")
    folder = Path(args.name[1]) if len(args.name) > 1 else shared
    names, count = args.logs or tuple(PROTOCOLS), args.pieces or (2 if args.quick else WINDOWS)
    if odd := set(names) - PROTOCOLS.keys():
        raise InputError("--logs", f"there is no {min(odd)!r}; there are {', '.join(PROTOCOLS)}")
    policies = tuple(dict.fromkeys((BASE, *(args.policies or (*ORDERS, *OTHERS)))))
    args.output.mkdir(parents=True, exist_ok=True)
    kept = Kept(args.output / f"{NAME}.rows.jsonl", afresh=args.afresh)
    parts = [f"# {NAME}: {DOC}"]
    for number, name in enumerate(names):
        report(name, number, len(names))
        how, mine = PROTOCOLS[name], list[str]()
        pieces = list(windows(read_workload([folder / how.file]), how, count, args.seed))
        for mine in sections(name, pieces, policies, kept):
            page = "\n\n".join((*parts, *mine))
            (args.output / f"{NAME}.md").write_text(f"{page}\n", encoding="utf-8")
        parts += mine
    report(NAME, len(names), len(names))
    print("\n\n".join(parts))
    return 0
