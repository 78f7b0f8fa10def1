"""Fig. 3 of the OAS papers: makespan, solving time and compaction against the time slot.

Notes
-----
The published model is solved by the exact search with run times rounded up to slots (`oas-slots`,
engine ``search``). The mixed-integer program itself (engine ``mip``) is there for three jobs on
three nodes, where both can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.papers.oas.fig4 import EXACT, SLOTTED, planned, share_text
from benchmarks.papers.oas.workloads import SHAPES, oas_instance, workloads
from benchmarks.papers.study import Looks, Run, alone
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Row, Rows, tabulate
from coalloc.simulation.reproduce.solving import Solved, solve
from coalloc.simulation.reproduce.words import CLOSE, Facts, shown

SHARES = (0.15, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)
QUICK_SHARES = (0.15, 0.5, 1.0, 2.5)
SECONDS = 60.0
"""Most time of one search."""
TINY_NODES, TINY_JOBS, TINY_DRAWS = 1, 3, 3
MIP_SECONDS, QUICK_MIP_SECONDS = 30.0, 5.0
"""Most time of the mixed-integer program."""


def measure(run: Run) -> Iterable[Row]:
    """Solve every workload on every grid and without one."""
    shares = QUICK_SHARES if run.quick else SHARES
    cases = list(_cases(run))
    solve(cases[0][3], EXACT, seconds=1.0)  # loads what is compiled, so that all times compare
    solve(cases[0][3], SLOTTED, {"engine": "search"}, seconds=1.0)
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


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    large = rows.only(lambda row: row["jobs"] != TINY_JOBS)
    slots, exact = large.where(method="search"), large.where(method="oas")
    programs = rows.where(method="mip")
    sizes = sorted(slots.distinct("slot_share"))
    of_size = {share: slots.where(slot_share=share) for share in sizes}
    finest, half, largest = of_size[sizes[0]], of_size[0.5], of_size[sizes[-1]]
    first, last = (programs.where(slot_share=share) for share in (sizes[0], sizes[-1]))
    spans, filled = (_means(slots, name) for name in ("over_oas", "compaction"))
    above = {p: values[sizes.index(0.5)] / values[0] - 1.0 for p, values in spans.items()}
    return {
        "tables": "\n\n".join(_table(large, name) for name in large.distinct("platform")),
        "slots": slots,
        "slots_proved": slots.where(status="optimal"),
        "exact": exact,
        "exact_proved": exact.where(status="optimal"),
        "finest": finest,
        "half": half,
        "largest": largest,
        "finest_excess": [row["over_oas"] - 1.0 for row in finest],
        "half_excess": [row["over_oas"] - 1.0 for row in half],
        **_monotone(slots),
        "programs": programs,
        "program_finest": first,
        "program_largest": last,
        **_proofs(rows, programs),
        "rises": [values == sorted(values) for values in spans.values()],
        "spans": {p: f"{values[0]:.3f} to {values[-1]:.3f}" for p, values in spans.items()},
        "is_near": [value <= CLOSE for value in above.values()],
        "above": above,
        "slows": [
            fine.median("elapsed_s") > 10.0 * coarse.median("elapsed_s")
            for fine, coarse in ((first, last), (finest, largest))
        ],
        "falls": [values == sorted(values, reverse=True) for values in filled.values()],
        "filled": {p: f"{values[0]:.2f} to {values[-1]:.2f}" for p, values in filled.items()},
    }


def _means(slots: Rows, name: str) -> dict[str, list[float]]:
    """Means over the workloads of each platform, by rising size of the slot."""
    return {
        platform: [mine.where(slot_share=s).mean(name) for s in sorted(mine.distinct("slot_share"))]
        for (platform,), mine in slots.grouped("platform").items()
    }


def _monotone(slots: Rows) -> Facts:
    """On how many workloads no makespan falls as slots grow, of how many."""
    rising = []
    for group in slots.grouped("platform", "workload").values():
        rising_slots = sorted(group, key=lambda row: float(row["slot_share"]))
        spans = Rows(rising_slots).column("makespan_s")
        rising.append(all(b >= a - 1e-6 for a, b in pairwise(spans)))
    return {"rising": sum(rising), "curves": len(rising)}


def _table(rows: Rows, platform: str) -> str:
    mine = rows.where(platform=platform)
    lines = {"continuous": mine.where(slot_share=None)} | {
        shown(share, "%"): mine.where(slot_share=share) for share in mine.distinct("slot_share")
    }
    return tabulate(
        f"slot, {platform.replace('x', ' × ')} nodes",
        lines,
        {
            "makespan by `oas`": lambda group: shown(group.column("over_oas"), ".3f"),
            "mean": lambda group: f"{group.mean('over_oas'):.3f}",
            "mean compaction": lambda group: f"{group.mean('compaction'):.2f}",
            "median time": lambda group: f"{group.median('elapsed_s'):.2g} s",
        },
    )


def _proofs(rows: Rows, programs: Rows) -> Facts:
    """Programs that were proved optimal, and those of them that agree with the search."""
    twins = {
        (row["workload"], row["slot_share"]): row["makespan_s"]
        for row in rows.where(jobs=TINY_JOBS, method="search")
    }
    proved = programs.where(status="optimal")
    agree = [
        row
        for row in proved
        if abs(row["makespan_s"] / twins[row["workload"], row["slot_share"]] - 1.0) <= 1e-6
    ]
    return {"proved": proved, "agree": agree}


MEASURES = (
    ("over_oas", "makespan by\ncontinuous optimum"),
    ("elapsed_s", "solving time (s)"),
    ("compaction", "compaction degree"),
)


def draw(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    """A column of panels for each platform: thin lines are workloads, thick ones medians."""
    platforms = rows.distinct("platform")
    grid = plots.panels(figure, len(MEASURES), len(platforms), sharex=True, sharey="row")
    for down, (name, label) in enumerate(MEASURES):
        for across, platform in enumerate(platforms):
            axes = grid[down][across]
            if name == "elapsed_s":
                axes.set_yscale("log")
            _curves(axes, rows.where(platform=platform), name, looks)
            axes.set_xlabel("slot (% of mean base time)" if down == len(MEASURES) - 1 else "")
        grid[down][0].set_ylabel(label)
    sizes = [rows.where(platform=name)[0]["jobs"] for name in platforms]
    plots.letter(
        grid[:1],
        [
            f"{jobs} jobs, {name.replace('x', ' × ')} nodes"
            for jobs, name in zip(sizes, platforms, strict=True)
        ],
    )
    plots.legend_below(figure, grid[0][-1], 3)


def _curves(axes: plots.Axes, rows: Rows, name: str, looks: Looks) -> None:
    level = rows.where(method="oas").median(name)
    axes.axhline(level, color=plots.BLACK, linestyle="--", label="continuous time, oas")
    for method, (colour, marker, label) in looks.items():
        chosen = rows.where(method=method)
        for group in chosen.grouped("workload").values():
            ends = [100.0 * row["slot_share"] for row in group]
            axes.plot(ends, [row[name] for row in group], color=colour, linewidth=0.4, alpha=0.5)
        if of_size := chosen.grouped("slot_share"):
            at = [100.0 * share for (share,) in of_size]
            middles = [group.median(name) for group in of_size.values()]
            axes.plot(at, middles, color=colour, marker=marker, label=label)


EXPERIMENTS = alone("oas-fig3", measure, facts, draw, (plots.PAGE, 5.2))
