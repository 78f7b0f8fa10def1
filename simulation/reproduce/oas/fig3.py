"""Fig. 3 of the OAS papers: makespan, solving time and compaction against the time slot.

Notes
-----
The published model is solved for the papers' eight jobs by the exact search with run times rounded
up to slots (`oas-slots`, engine ``search``), since no open solver solves the mixed-integer program
of that size. The program itself (engine ``mip``) is there for three jobs on three nodes, where
both can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.instances import oas_instance
from coalloc.simulation.reproduce.oas.fig4 import EXACT, SLOTTED, planned, share_text
from coalloc.simulation.reproduce.oas.workloads import SHAPES, workloads
from coalloc.simulation.reproduce.rows import column, distinct, grouped, spread, table, where
from coalloc.simulation.reproduce.solving import Solved, solve

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

SHARES = (0.15, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)
QUICK_SHARES = (0.15, 0.5, 1.0, 2.5)
SECONDS = 60.0
"""Most time of one search."""
TINY_NODES, TINY_JOBS, TINY_DRAWS = 1, 3, 3
MIP_SECONDS, QUICK_MIP_SECONDS = 30.0, 5.0
"""Most time of the mixed-integer program."""
COLUMNS = {
    "platform": "clusters x nodes per cluster",
    "jobs": "number of them",
    "workload": "WL-1 to WL-6, or the draw of a small one",
    "method": "oas: continuous; search and mip: the two engines of oas-slots",
    "slot_share": "time slot by mean base time",
    "makespan_s": "to the end of the last slot in use, s",
    "over_oas": "makespan by the continuous one",
    "compaction": "share of the machine's time that jobs fill, 0..1",
    "status": "how the search ended",
    "rows": "rows and columns of the program",
    "elapsed_s": "wall time of the call, s",
    "cpu_s": "its processor time without child processes, s",
}


def measure(run: Run) -> Iterable[Row]:
    """Solve every workload on every grid and without one."""
    shares = QUICK_SHARES if run.quick else SHARES
    cases = list(_cases(run))
    _warm_up(cases[0][3])
    for case in run.steps("oas-fig3", cases):
        yield from _on_all_grids(*case, shares, QUICK_MIP_SECONDS if run.quick else MIP_SECONDS)


def _cases(run: Run) -> Iterator[tuple[str, int, str, Snapshot]]:
    for nodes in SHAPES:
        found = workloads(nodes, run.seed)
        for case in found[:2] if run.quick else found:
            yield f"3x{nodes}", len(case.snapshot.queue), case.name, case.snapshot
    for draw in range(1 if run.quick else TINY_DRAWS):
        seed = run.seed * TINY_DRAWS + draw
        snapshot = oas_instance(seed, TINY_NODES, TINY_JOBS)
        yield f"3x{TINY_NODES}", TINY_JOBS, f"draw {seed}", snapshot


def _warm_up(snapshot: Snapshot) -> None:
    """Load what is compiled, so that the first time is as the others."""
    solve(snapshot, EXACT, seconds=1.0)
    solve(snapshot, SLOTTED, {"engine": "search"}, seconds=1.0)


def _on_all_grids(
    platform: str,
    jobs: int,
    name: str,
    snapshot: Snapshot,
    shares: Sequence[float],
    mip_seconds: float,
) -> Iterator[Row]:
    exact = solve(snapshot, EXACT, seconds=SECONDS)

    def row(method: str, share: float | None, solved: Solved) -> Row:
        makespan, status = planned(solved)
        return {
            "platform": platform,
            "jobs": jobs,
            "workload": name,
            "method": method,
            "slot_share": share,
            "makespan_s": makespan,
            "over_oas": makespan / exact.makespan,
            "compaction": solved.compaction * solved.makespan / makespan,
            "status": status,
            "rows": solved.plan.stats.get("rows"),
            "elapsed_s": solved.elapsed_s,
            "cpu_s": solved.cpu_s,
        }

    yield row("oas", None, exact)
    engines = ("search", "mip") if jobs == TINY_JOBS else ("search",)
    for share in shares:
        for engine in engines:
            options: dict[str, Any] = {"slot": share_text(share), "engine": engine}
            if engine == "mip":
                options["solver_seconds"] = mip_seconds
            yield row(engine, share, solve(snapshot, SLOTTED, options, seconds=SECONDS))


def describe(rows: Sequence[Row]) -> Story:
    """Text about the rows."""
    large = [row for row in rows if row["jobs"] != TINY_JOBS]
    slots, exact = where(large, method="search"), where(large, method="oas")
    shares = distinct(slots, "slot_share")
    proved = [row for row in slots if row["status"] == "optimal"]
    half, fine = where(slots, slot_share=0.5), where(slots, slot_share=shares[0])
    times = {share: _median(slots, share, "elapsed_s") for share in shares}
    rising, curves = _monotone(slots)
    return Story(
        headline=f"50 % slots cost {spread(_excess(half), _percent)} of makespan, "
        f"{_percent(shares[0])} slots {spread(_excess(fine), _percent)}",
        claims=(
            "The larger the slot, the larger the makespan, since a node stays taken to the end of "
            "the slot. Below about 50 % of the mean base time makespans are close to the smallest, "
            "while the solving time (CPLEX) grows exponentially as slots shrink; so 50 % is good "
            "enough. The compaction degree falls as slots grow.",
        ),
        measured=(
            *(_table(large, platform) for platform in distinct(large, "platform")),
            f"{len(proved)} of {len(slots)} slotted optima and "
            f"{len(where(exact, status='optimal'))} of {len(exact)} continuous ones were proved. "
            f"Above the continuous optimum the slotted one is {spread(_excess(half), _percent)} "
            f"at 50 % slots and {spread(_excess(fine), _percent)} at {_percent(shares[0])}. "
            f"On {rising} of {curves} workloads no larger slot has a smaller makespan.",
            f"The search took {_time(times[shares[0]])} (median) at slots of "
            f"{_percent(shares[0])}, {_time(times[0.5])} at 50 % and "
            f"{_time(times[shares[-1]])} at {_percent(shares[-1])}; in continuous time "
            f"{_time(median(column(exact, 'elapsed_s')))}.",
            *_program(rows),
        ),
        reasons=(
            "The makespan in slots is that of run times rounded up, so it depends on how well the "
            "run times happen to divide by the slot as much as on its size; it need not rise with "
            "every step. What the papers call close to the smallest makespan at 50 % is so only "
            "among slotted ones.",
            "The search branches on jobs and patterns, not on slots, so its time follows from how "
            "hard the packing is. The growth that the papers show is that of a program with a "
            "variable for each job, node and slot.",
            "The workload of the papers is not published; these are our WL-1 to WL-6 (see "
            "oas-fig4).",
        ),
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %".replace(".0 %", " %")


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s"


def _excess(rows: Sequence[Row]) -> list[float]:
    return [row["over_oas"] - 1.0 for row in rows]


def _median(rows: Sequence[Row], share: float | None, name: str) -> float:
    return float(median(row[name] for row in rows if row["slot_share"] == share))


def _monotone(rows: Sequence[Row]) -> tuple[int, int]:
    """Workloads whose makespan never falls as slots grow, of how many."""
    rising = []
    for group in grouped(rows, "platform", "workload").values():
        spans = column(sorted(group, key=lambda row: float(row["slot_share"])), "makespan_s")
        rising.append(all(b >= a - 1e-6 for a, b in pairwise(spans)))
    return sum(rising), len(rising)


def _table(rows: Sequence[Row], platform: str) -> str:
    chosen = where(rows, platform=platform)
    lines = []
    for share in (None, *distinct(chosen, "slot_share")):
        group = where(chosen, slot_share=share)
        lines.append(
            [
                "continuous" if share is None else _percent(share),
                spread(column(group, "over_oas"), "{:.3f}".format),
                f"{fmean(column(group, 'over_oas')):.3f}",
                f"{fmean(column(group, 'compaction')):.2f}",
                _time(median(column(group, "elapsed_s"))),
            ]
        )
    nodes = platform.replace("x", " × ")
    head = (f"slot, {nodes} nodes", "makespan by `oas`", "mean", "mean compaction", "median time")
    return table(head, lines)


def _program(rows: Sequence[Row]) -> Iterable[str]:
    """The literal model against the search, where both were run."""
    mips = where(rows, method="mip")
    if not mips:
        return
    twins = {
        (row["workload"], row["slot_share"]): row["makespan_s"]
        for row in where(rows, jobs=TINY_JOBS, method="search")
    }
    proved = where(mips, status="optimal")
    agree = [
        row
        for row in proved
        if abs(row["makespan_s"] - twins[row["workload"], row["slot_share"]])
        <= 1e-6 * row["makespan_s"]
    ]
    first, last = min(column(mips, "slot_share")), max(column(mips, "slot_share"))
    yield (
        f"The program itself, for {TINY_JOBS} jobs on {mips[0]['platform'].replace('x', ' × ')} "
        f"nodes, was proved optimal by HiGHS in {len(proved)} of {len(mips)} runs, with the "
        f"search's makespan in {len(agree)} of these. Its median time was "
        f"{_time(_median(mips, first, 'elapsed_s'))} at slots of {_percent(first)} and "
        f"{_time(_median(mips, last, 'elapsed_s'))} at {_percent(last)}, its median size "
        f"{_median(mips, first, 'rows'):,.0f} and {_median(mips, last, 'rows'):,.0f} rows and "
        "columns."
    )


LOOKS = {"search": (plots.BLUE, "o"), "mip": (plots.VERMILION, "s")}
LABELS = {"search": "slots, exact search", "mip": "slots, the program (HiGHS)"}
MEASURES = (
    ("over_oas", "makespan by\ncontinuous optimum"),
    ("elapsed_s", "solving time (s)"),
    ("compaction", "compaction degree"),
)


def draw(rows: Sequence[Row], figure: Figure) -> None:
    """A column of panels for each platform: thin lines are workloads, thick ones medians."""
    platforms = distinct(rows, "platform")
    grid = plots.panels(figure, len(MEASURES), len(platforms), sharex=True, sharey="row")
    for down, (name, label) in enumerate(MEASURES):
        for across, platform in enumerate(platforms):
            axes = grid[down][across]
            if name == "elapsed_s":
                axes.set_yscale("log")
            _curves(axes, where(rows, platform=platform), name)
            axes.set_xlabel("slot (% of mean base time)" if down == len(MEASURES) - 1 else "")
        grid[down][0].set_ylabel(label)
    plots.letter(grid[:1], [_title(where(rows, platform=name)) for name in platforms])
    plots.legend_below(figure, grid[0][-1], 3)


def _title(rows: Sequence[Row]) -> str:
    return f"{rows[0]['jobs']} jobs, {rows[0]['platform'].replace('x', ' × ')} nodes"


def _curves(axes: Axes, rows: Sequence[Row], name: str) -> None:
    for method in distinct(rows, "method"):
        chosen = where(rows, method=method)
        if method == "oas":
            middle = median(column(chosen, name))
            axes.axhline(middle, color=plots.BLACK, linestyle="--", label="continuous time, oas")
            continue
        colour, marker = LOOKS[method]
        for group in grouped(chosen, "workload").values():
            ends = [100.0 * row["slot_share"] for row in group]
            axes.plot(ends, [row[name] for row in group], color=colour, linewidth=0.4, alpha=0.5)
        shares = distinct(chosen, "slot_share")
        middles = [_median(chosen, share, name) for share in shares]
        at = [100.0 * share for share in shares]
        axes.plot(at, middles, color=colour, marker=marker, label=LABELS[method])


EXPERIMENTS = {
    "oas-fig3": Experiment(
        columns=COLUMNS,
        reduced="four sizes of slots, two workloads on each platform, one small instance.",
        size=(plots.PAGE, 5.2),
        measure=measure,
        describe=describe,
        draw=draw,
    )
}
