"""Fig. 4 of the OAS papers: six workloads of eight jobs against six plain orders.

Notes
-----
The rank correlation is Spearman's, between sigma_j * Tb_j of the jobs and the power of the nodes
they got: the mean over their processes, and the weakest, which alone decides SP_j.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import correlation, fmean

from benchmarks.papers.oas.workloads import PLAIN, SHAPES, Workload, workloads
from benchmarks.papers.study import Looks, Run, alone
from coalloc.model.plan import Placement, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.check import occupation_violations
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Estimate, Row, Rows, estimate, table, tabulate
from coalloc.simulation.reproduce.solving import (
    Solved,
    rigid_jobs,
    solve,
)
from coalloc.simulation.reproduce.words import CLOSE, Facts, Held, held_on, shown

SECONDS = 60.0
"""Most time of one search; each of them ends by proof long before."""
SLOTTED, NEAR, EXACT, BALANCED = "oas-slots", "oas-slots, 15 %", "oas", "oas-balanced"
SHARES = {SLOTTED: 0.5, NEAR: 0.15}
"""Time slot by mean base time: that of the conference paper (section 4.2), and the least of Fig. 3,
for the extended paper's "defined to obtain a near-optimal makespan".
"""
SETS, QUICK_SETS = 30, 1
"""Of six workloads, on each platform; set 0 has the documented ones."""
SEARCHES = (SLOTTED, NEAR, EXACT, BALANCED)
EXTENDED, CONFERENCE = "3x2", "3x4"
"""Platforms of the two papers."""


def measure(run: Run) -> Iterable[Row]:
    """Plan every workload of every set with every policy."""
    shapes, sets = (SHAPES[-1:], QUICK_SETS) if run.quick else (SHAPES, SETS)
    first = run.seed * SETS
    places = [(nodes, number) for number in range(first, first + sets) for nodes in shapes]
    first_case = workloads(shapes[0])[0].snapshot
    for name in SEARCHES:
        solve_with(first_case, name, 1.0)  # loads what is compiled, so that all times compare
    for nodes, number in run.steps("oas-fig4", places):
        for case in workloads(nodes, number):
            yield from _rows(number, case)


def _rows(number: int, case: Workload) -> Iterable[Row]:
    """One workload with every policy."""
    results = {name: solve_with(case.snapshot, name) for name in (*PLAIN, *SEARCHES)}
    for name, solved in results.items():
        span, status = planned(solved)
        rhos = power_correlation(case.snapshot, solved.plan)
        yield {
            "platform": f"3x{case.nodes}",
            "set": number,
            "workload": case.name,
            "draw": case.draw,
            "policy": name,
            "makespan_s": span,
            "over_oas": span / results[EXACT].makespan,
            "carried_out_s": carried_out(case.snapshot, solved.plan) if name in SHARES else None,
            "compaction": solved.compaction * solved.makespan / span,
            "status": status,
            "cpu_s": solved.cpu_s,
            "rho_mean": rhos[0],
            "rho_weakest": rhos[1],
        }


def solve_with(snapshot: Snapshot, name: str, seconds: float = SECONDS) -> Solved:
    """Plan with a policy of the figure, by the name it has there."""
    if name not in SHARES:
        return solve(snapshot, name, seconds=seconds)
    options = {"slot": share_text(SHARES[name]), "engine": "search"}
    return solve(snapshot, SLOTTED, options, seconds=seconds)


def share_text(share: float) -> str:
    """A share of the mean base time, as the option `slot` takes it."""
    return f"{100.0 * share:g}%"


def planned(solved: Solved) -> tuple[float, str]:
    """Makespan in seconds, and how the search ended.

    Of the published model the makespan is that of whole slots; its optimum bounds no plan that is
    free of slots, so the plan itself does not claim to be one.
    """
    stats = solved.plan.stats
    if "slotted_makespan" not in stats:
        return solved.makespan, str(solved.plan.status)
    span, bound = float(stats["slotted_makespan"]), stats["slotted_bound"]
    proved = bound is not None and bound >= span * (1.0 - 1e-9)
    return span, str(Status.OPTIMAL if proved else solved.plan.status)


def power_correlation(snapshot: Snapshot, plan: Plan) -> tuple[float | None, float | None]:
    """Spearman's correlation of sigma * Tb with mean and with weakest power; None: undefined."""
    power = {node.name: node.power for cluster in snapshot.clusters for node in cluster.nodes}
    need = {job.id: job.sigma * job.base_time for job in rigid_jobs(snapshot)}
    needs, means, weakest = [], [], []
    for placement in plan.placements:
        needs.append(need[placement.job])
        total = sum(power[node] * count for node, count in placement.nodes.items())
        means.append(total / sum(placement.nodes.values()))
        weakest.append(min(power[node] for node in placement.nodes))
    return spearman(needs, means), spearman(needs, weakest)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, ties at their mean rank; None if one never varies."""
    ranks = _ranks(first), _ranks(second)
    return None if any(len(set(each)) == 1 for each in ranks) else correlation(*ranks)


def _ranks(values: Sequence[float]) -> list[float]:
    # To six digits, or one power reached by two sums would be two ranks.
    keys = [float(f"{value:.6e}") for value in values]
    return [(sum(o < key for o in keys) + sum(o <= key for o in keys) - 1) / 2 for key in keys]


def carried_out(snapshot: Snapshot, plan: Plan) -> float:
    """Makespan of a plan's order and nodes without its slots, seconds.

    Jobs are taken in the order of their planned starts. Each starts on its planned nodes as soon
    as they are free and the links can carry it; none starts later than planned.
    """
    done: list[Placement] = []
    for placement in sorted(plan.placements, key=lambda p: (p.start, p.end)):
        length = placement.end - placement.start
        ready = max(
            (p.end for p in done if p.nodes.keys() & placement.nodes.keys()),
            default=snapshot.time,
        )
        starts = (ready, *sorted(p.end for p in done if p.end > ready))
        moved = (replace(placement, start=start, end=start + length) for start in starts)
        done.append(next(p for p in moved if not occupation_violations(snapshot, [*done, p])))
    return max(p.end for p in done) - snapshot.time


CASE = ("platform", "set", "workload")
Ratios = Mapping[int, Sequence[float]]
"""Of each set, one of each workload."""


def over_best(
    rows: Rows, policy: str, name: str, best: Callable[[list[float]], float] = min
) -> Ratios:
    """A figure of a policy by that of the best plain order, workload by workload."""
    against = "compaction" if name == "compaction" else "makespan_s"
    out: dict[int, list[float]] = {}
    for (_, number, _), group in rows.grouped(*CASE).items():
        (row,) = group.where(policy=policy)
        plain = [one[against] for one in group if one["policy"] in PLAIN]
        out.setdefault(number, []).append(row[name] / best(plain))
    return out


def means(ratios: Ratios) -> Estimate:
    """The mean over the workloads, with its interval over the sets."""
    return estimate([fmean(own) for own in ratios.values()])


def share(ratios: Ratios, holds: Callable[[float], bool]) -> Estimate:
    """Share of the workloads on which something holds."""
    return means({number: [float(holds(one)) for one in own] for number, own in ratios.items()})


def facts(rows: Rows) -> Facts:
    """Values of the placeholders."""
    plain = rows.only(lambda row: row["policy"] in PLAIN)
    cases = plain.grouped(*CASE)
    exact = rows.where(policy=EXACT)
    platforms = rows.distinct("platform")
    of_platform = {name: rows.where(platform=name) for name in platforms}
    heavy = estimate(
        [
            group.mean("rho_mean")
            for group in rows.where(policy=SLOTTED).grouped("set").values()
            if group.column("rho_mean")
        ]
    )
    return {
        "sets": len(rows.distinct("set")),
        "best": [min(group.column("over_oas")) for group in cases.values()],
        "worst": [max(group.column("over_oas")) for group in cases.values()],
        **{
            told: means(_by_set(rows.where(policy=policy), "over_oas"))
            for told, policy in (("half", SLOTTED), ("fine", NEAR), ("balanced", BALANCED))
        },
        "plain_best": means(
            {
                number: [min(one.column("over_oas")) for one in own.grouped(*CASE).values()]
                for (number,), own in plain.grouped("set").items()
            }
        ),
        "exact": exact,
        "proved": exact.where(status="optimal"),
        "tables": "\n\n".join(map(_table, of_platform.values())),
        "standings": _standings(of_platform),
        "matching": _best_two(plain.where(workload="WL-1")),
        "small_first": _best_two(plain.where(workload="WL-2")),
        "correlations": _correlations(rows),
        **_claimed("extended", of_platform.get(EXTENDED), NEAR),
        **_claimed("conference", of_platform.get(CONFERENCE), SLOTTED),
        **_plain_orders(rows),
        "is_heavy_on_strong": Held.YES
        if heavy.low >= 0.5
        else Held.PARTLY
        if heavy.low > 0.0
        else Held.NO,
        "heavy": heavy,
    }


def _by_set(rows: Rows, name: str) -> Ratios:
    return {number: own.column(name) for (number,), own in rows.grouped("set").items()}


def _claimed(paper: str, rows: Rows | None, policy: str) -> Facts:
    """Claims of a paper on its platform and slot; lists of nothing where that was not run."""
    if rows is None:
        names = ("", "_close", "_won", "_worst", "_held", "_filled", "_full", "_compact")
        return {f"{paper}{name}": [] for name in names}
    spans = over_best(rows, policy, "makespan_s")
    filled = over_best(rows, policy, "compaction", max)
    close = share(spans, lambda ratio: ratio <= 1.0 + CLOSE)
    full = share(filled, lambda ratio: ratio >= 1.0 - CLOSE)
    return {
        paper: means(spans),
        f"{paper}_close": close,
        f"{paper}_won": share(spans, lambda ratio: ratio <= 1.0 + 1e-9),
        f"{paper}_worst": max(map(max, spans.values())),
        f"{paper}_held": held_on(close),
        f"{paper}_filled": means(filled),
        f"{paper}_full": full,
        f"{paper}_compact": held_on(full),
    }


def _plain_orders(rows: Rows) -> Facts:
    """Each plain order by the best one: on how many workloads it is that, or well behind."""
    ratios = {policy: over_best(rows, policy, "makespan_s") for policy in PLAIN}
    won = {name: share(own, lambda ratio: ratio <= 1.0 + 1e-9) for name, own in ratios.items()}
    lost = {name: share(own, lambda ratio: ratio > 1.0 + CLOSE) for name, own in ratios.items()}
    return {
        "vary": [min(won[name].low, lost[name].low) > CLOSE for name in PLAIN],
        "plain_won": {name: one.mean for name, one in won.items()},
        "plain_lost": {name: one.mean for name, one in lost.items()},
    }


def _standings(of_platform: Mapping[str, Rows]) -> str:
    lines = []
    for platform, rows in of_platform.items():
        for policy, part in SHARES.items():
            cells = [f"{platform.replace('x', ' × ')} nodes, slots of {100.0 * part:g} %"]
            for name in ("makespan_s", "carried_out_s"):
                ratios = over_best(rows, policy, name)
                lost = share(ratios, lambda ratio: ratio > 1.0 + 1e-9)
                cells += [shown(means(ratios), ".3f"), shown(lost, ".0%")]
            lines.append(cells)
    return table(("", "whole slots", "loses on", "carried out without them", "loses on"), lines)


def _table(rows: Rows) -> str:
    nodes = rows[0]["platform"].replace("x", " × ")
    return tabulate(
        f"makespan by `oas`, {nodes} nodes",
        rows.by_code("policy"),
        rows.by_value("workload", lambda group: f"{group.mean('over_oas'):.3f}")
        | {
            "all": lambda group: shown(means(_by_set(group, "over_oas")), ".3f"),
            "compaction": lambda group: shown(means(_by_set(group, "compaction")), ".2f"),
        },
    )


def _best_two(rows: Rows) -> str:
    """The two best plain orders on each platform, in the mean."""
    found = {}
    for (platform,), group in rows.grouped("platform").items():
        spans = {name: own.mean("over_oas") for (name,), own in group.grouped("policy").items()}
        found[platform] = sorted(spans, key=lambda name: spans[name])
    return "; ".join(f"`{one}` and `{two}` ({at})" for at, (one, two, *_) in found.items())


def _correlations(rows: Rows) -> str:
    def cells(group: Rows, name: str) -> list[str]:
        values = group.column(name)
        above = f"{sum(value > 0.0 for value in values)} of {len(values)}"
        return [f"{fmean(values):.2f}", above] if values else ["", ""]

    lines = [
        [f"`{policy}`", *cells(mine, "rho_mean"), *cells(mine, "rho_weakest")]
        for policy in (*SEARCHES, "fcfs")
        for mine in [rows.where(policy=policy)]
    ]
    head = ("rank correlation of σ·Tb with", "mean power", "above 0", "weakest power", "above 0")
    return table(head, lines)


def draw(rows: Rows, figure: plots.Figure, looks: Looks) -> None:
    """Makespan above compaction, a column of panels for each platform: means with intervals."""
    platforms = rows.distinct("platform")
    grid = plots.panels(figure, 2, len(platforms), sharex="col", sharey="row")
    for line, name in zip(grid, ("over_oas", "compaction"), strict=True):
        for axes, platform in zip(line, platforms, strict=True):
            _dots(axes, rows.where(platform=platform), name, looks)
    grid[0][0].set_ylabel("makespan by OAS, continuous")
    grid[1][0].set_ylabel("compaction degree")
    names = [f"3 clusters × {name.partition('x')[2]} nodes" for name in platforms]
    plots.letter(grid, names * 2)
    plots.legend_below(figure, grid[0][0], 5)


def _dots(axes: plots.Axes, rows: Rows, name: str, looks: Looks) -> None:
    names = rows.distinct("workload")

    def point(policy: str, workload: str) -> Estimate:
        return estimate(rows.where(policy=policy, workload=workload).column(name))

    def beside(workload: str, number: int) -> float:
        return names.index(workload) + 0.09 * (number - (len(looks) - 1) / 2)

    plots.curves(axes, looks, names, point, beside, joined=False)
    axes.set_xticks(range(len(names)), names)
    for place in range(len(names) - 1):
        axes.axvline(place + 0.5, color="#DDDDDD", linewidth=0.5)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.08)


EXPERIMENTS = alone("oas-fig4", measure, facts, draw, (plots.PAGE, 4.6))
