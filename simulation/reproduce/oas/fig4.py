"""Fig. 4 of the OAS papers: six workloads of eight jobs against six plain orders.

Notes
-----
Four series stand for OAS: the optimum of the published model in time slots (`oas-slots`, by the
exact search) of half the mean base time, the conference paper's choice, and of 15 % of it, a size
whose makespan is near the optimum, as the extended paper has it; the optimum in continuous time
(`oas`); and the one-pass rule that the extended paper read out of its solutions (`oas-balanced`).

The rank correlation is Spearman's, between sigma_j * Tb_j of the jobs and the power of the nodes
they got: the mean over their processes, and the weakest, which alone decides SP_j.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.oas.replay import carried_out
from coalloc.simulation.reproduce.oas.workloads import PLAIN, SHAPES, Workload, workloads
from coalloc.simulation.reproduce.rows import column, distinct, grouped, spread, table, where
from coalloc.simulation.reproduce.solving import Solved, rigid_jobs, solve

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Axes, Figure

SLOT_SHARE = 0.5
"""Time slot by mean base time (section 4.2 of the conference paper)."""
SECONDS = 60.0
"""Most time of one search; each of them ends by proof long before."""
NEAR_SHARE = 0.15
"""The least size of Fig. 3; "defined to obtain a near-optimal makespan" in the extended paper."""
SLOTTED, NEAR, EXACT, BALANCED = "oas-slots", "oas-slots, 15 %", "oas", "oas-balanced"
SHARES = {SLOTTED: SLOT_SHARE, NEAR: NEAR_SHARE}
SEARCHES = (SLOTTED, NEAR, EXACT, BALANCED)
EXTENDED, CONFERENCE = "3x2", "3x4"
"""Platforms of the two papers."""
COLUMNS = {
    "platform": "clusters x nodes per cluster",
    "workload": "WL-1 to WL-6",
    "draw": "seed of the generator",
    "policy": "of the registry, or with slots of another size",
    "makespan_s": "s; for oas-slots to the end of the last slot",
    "over_oas": "makespan by that of oas",
    "carried_out_s": "of oas-slots: its order and nodes without the slots, s",
    "compaction": "share of the machine's time that jobs fill, 0..1",
    "status": "how the search ended",
    "cpu_s": "processor time of the call, s",
    "rho_mean": "rank correlation of sigma times base time with the mean power of a job's nodes",
    "rho_weakest": "the same with its weakest node's power",
}


def measure(run: Run) -> Iterable[Row]:
    """Plan every workload with every policy."""
    shapes = SHAPES[-1:] if run.quick else SHAPES
    cases = [case for nodes in shapes for case in workloads(nodes, run.seed)]
    _warm_up(cases[0].snapshot)
    for case in run.steps("oas-fig4", cases):
        results = {name: solve_with(case.snapshot, name) for name in (*PLAIN, *SEARCHES)}
        for name, solved in results.items():
            span, status = planned(solved)
            rhos = power_correlation(case.snapshot, solved.plan)
            yield {
                "platform": f"3x{case.nodes}",
                "workload": case.name,
                "draw": case.draw,
                "policy": name,
                "makespan_s": span,
                "over_oas": span / results[EXACT].makespan,
                "carried_out_s": _carried_out(case, solved.plan, name),
                "compaction": solved.compaction * solved.makespan / span,
                "status": status,
                "cpu_s": solved.cpu_s,
                "rho_mean": rhos[0],
                "rho_weakest": rhos[1],
            }


def _carried_out(case: Workload, plan: Plan, name: str) -> float | None:
    return carried_out(case.snapshot, plan) if name in SHARES else None


def _warm_up(snapshot: Snapshot) -> None:
    """Load what is compiled, so that the first time is as the others."""
    for name in SEARCHES:
        solve_with(snapshot, name, 1.0)


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
    a, b = _ranks(first), _ranks(second)
    middle = (len(a) - 1) / 2
    across = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    within = sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)
    return None if within == 0.0 else float(across / within**0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    # To six digits, or one power reached by two sums would be two ranks.
    keys = [f"{value:.6e}" for value in values]
    order = sorted(range(len(keys)), key=lambda i: float(keys[i]))
    places: dict[str, list[int]] = {}
    for place, i in enumerate(order):
        places.setdefault(keys[i], []).append(place)
    return [fmean(places[key]) for key in keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Slots of one size on one platform against the best plain order of each workload.

    Attributes
    ----------
    over_best : list of float
        Makespan of whole slots by that of the best plain order, by workload.
    carried_out : list of float
        The same of the plan without its slots.
    """

    over_best: list[float]
    carried_out: list[float]

    @property
    def lost(self) -> int:
        """Workloads on which the best plain order is shorter."""
        return sum(ratio > 1.0 + 1e-9 for ratio in self.over_best)


def standing(rows: Sequence[Row], policy: str) -> Standing:
    """Ratios of slots of this size, on the platforms of these rows."""
    over, freed = [], []
    for group in grouped(rows, "platform", "workload").values():
        best = min(row["makespan_s"] for row in group if row["policy"] in PLAIN)
        (row,) = where(group, policy=policy)
        over.append(row["makespan_s"] / best)
        freed.append(row["carried_out_s"] / best)
    return Standing(over_best=over, carried_out=freed)


def describe(rows: Sequence[Row]) -> Story:
    """Text about the rows."""
    plain = [row for row in rows if row["policy"] in PLAIN]
    cases = grouped(plain, "platform", "workload")
    best = [min(column(group, "over_oas")) for group in cases.values()]
    worst = [max(column(group, "over_oas")) for group in cases.values()]
    exact, balanced = where(rows, policy=EXACT), where(rows, policy=BALANCED)
    proved = sum(row["status"] == "optimal" for row in exact)
    slots = {
        policy: spread(column(where(rows, policy=policy), "over_oas"), _ratio) for policy in SHARES
    }
    return Story(
        headline=f"makespan by oas: best plain order {spread(best, _ratio)}, "
        f"50 % slots {slots[SLOTTED]}, 15 % slots {slots[NEAR]}",
        claims=(
            "On every workload OAS has the best or close to the best makespan and compaction, "
            "whatever the workload's nature, while each plain order does well on some workloads "
            "and badly on others. The conference paper (3 × 4 nodes) takes slots of 50 % of the "
            "mean base time, the extended one (3 × 2 nodes) a size “defined to obtain a "
            "near-optimal makespan”. In the solver's solutions jobs with heavier processing run "
            "on the more powerful nodes (extended paper).",
        ),
        measured=(
            *(_table(rows, platform) for platform in distinct(rows, "platform")),
            f"Continuous `oas` was proved optimal on {proved} of {len(exact)} workloads and took "
            f"{spread(column(exact, 'cpu_s'))} s. The best plain order is at "
            f"{spread(best, _ratio)} times its makespan, the worst at "
            f"{spread(worst, _ratio)}. `oas` has a compaction of "
            f"{spread(column(exact, 'compaction'), '{:.2f}'.format)}, `oas-balanced` a makespan of "
            f"{spread(column(balanced, 'over_oas'), _ratio)}.",
            "The optimum in slots by the best plain order of each workload:",
            _standings(rows),
            *_favoured(rows),
            _correlations(rows),
        ),
        reasons=(
            "The papers' job lists and bandwidths per process are not published; ours come from "
            "a seeded rule (`oas/workloads.py`), so single bars cannot be compared, only what "
            "the text says of all of them.",
            _verdict(rows),
            "A slot that is begun is paid in full: each job's time is rounded up to a multiple of "
            "the slot, and the plain orders round nothing. An optimum on that grid can therefore "
            "be behind a plain order that is not. The papers carried their plans out in a "
            "simulator and do not say whether jobs kept to the slots there; both readings are "
            "given above. Finer slots cost less (see oas-fig3), continuous time costs nothing.",
            "Which nodes a job gets in an optimal plan is often free, since many plans have the "
            "same makespan, and a job too wide for the strong clusters gets weak nodes whatever it "
            "computes: a rank correlation over eight jobs shows a tendency at most.",
        ),
    )


def _standings(rows: Sequence[Row]) -> str:
    lines = []
    for platform in distinct(rows, "platform"):
        for policy, share in SHARES.items():
            found = standing(where(rows, platform=platform), policy)
            lines.append(
                [
                    f"{platform.replace('x', ' × ')} nodes, slots of {100.0 * share:g} %",
                    spread(found.over_best, _ratio),
                    f"{found.lost} of {len(found.over_best)}",
                    spread(found.carried_out, _ratio),
                    f"{sum(r > 1.0 + 1e-9 for r in found.carried_out)} of {len(found.over_best)}",
                ]
            )
    return table(("", "whole slots", "loses on", "carried out without them", "loses on"), lines)


def _verdict(rows: Sequence[Row]) -> str:
    """The claim on each paper's platform at its slot size."""
    said = []
    for platform, policy, paper in (
        (EXTENDED, NEAR, "extended paper's platform at a near-optimal size"),
        (CONFERENCE, SLOTTED, "conference paper's platform at 50 %"),
    ):
        mine = where(rows, platform=platform)
        if mine:
            found = standing(mine, policy)
            won = len(found.over_best) - found.lost
            said.append(
                f"on the {paper} OAS is the best on {won} of {len(found.over_best)} workloads and "
                f"at worst {_ratio(max(found.over_best))} times the best plain order"
            )
    return "The claim depends on the size of a slot: " + "; ".join(said) + "."


_ratio: Callable[[float], str] = "{:.3f}".format


def _table(rows: Sequence[Row], platform: str) -> str:
    chosen = where(rows, platform=platform)
    names = distinct(chosen, "workload")
    lines = [
        [
            f"`{policy}`",
            *(_ratio(row["over_oas"]) for row in where(chosen, policy=policy)),
            f"{fmean(column(where(chosen, policy=policy), 'compaction')):.2f}",
        ]
        for policy in distinct(chosen, "policy")
    ]
    nodes = platform.replace("x", " × ")
    return table((f"makespan by `oas`, {nodes} nodes", *names, "mean compaction"), lines)


def _favoured(rows: Sequence[Row]) -> Iterable[str]:
    plain = [row for row in rows if row["policy"] in PLAIN]
    for name, nature in (("WL-1", "matching resources"), ("WL-2", "small jobs first")):
        winners = [
            f"{_first_two(group)} ({platform})"
            for (platform,), group in grouped(where(plain, workload=name), "platform").items()
        ]
        yield f"On {name}, made for {nature}, the two best plain orders are {'; '.join(winners)}."


def _first_two(group: Sequence[Row]) -> str:
    best = sorted(group, key=lambda row: float(row["makespan_s"]))[:2]
    return " and ".join(f"`{row['policy']}`" for row in best)


def _correlations(rows: Sequence[Row]) -> str:
    lines = []
    for policy in (*SEARCHES, "fcfs"):
        chosen = where(rows, policy=policy)
        cells = [f"`{policy}`"]
        for name in ("rho_mean", "rho_weakest"):
            values = column(chosen, name)
            above = sum(value > 0.0 for value in values)
            cells += [f"{median(values):.2f}", f"{above} of {len(values)}"] if values else ["", ""]
        lines.append(cells)
    head = ("rank correlation of σ·Tb with", "mean power", "above 0", "weakest power", "above 0")
    return "\n\n".join(
        ("Medians over the workloads, each over its eight jobs:", table(head, lines))
    )


LOOKS = {
    "fcfs": (plots.GREY, "o", False),
    "sjf": (plots.GREY, "v", False),
    "bjf": (plots.GREY, "^", False),
    "fpfs": (plots.GREY, "s", False),
    "spt": (plots.GREY, "<", False),
    "lpt": (plots.GREY, ">", False),
    SLOTTED: (plots.ORANGE, "s", True),
    NEAR: (plots.VERMILION, "P", True),
    EXACT: (plots.BLUE, "o", True),
    BALANCED: (plots.GREEN, "D", True),
}
LABELS = {
    SLOTTED: "OAS, 50 % slots",
    NEAR: "OAS, 15 % slots",
    EXACT: "OAS, continuous",
    BALANCED: "OAS, balanced",
}


def draw(rows: Sequence[Row], figure: Figure) -> None:
    """Makespan above compaction, a column of panels for each platform."""
    platforms = distinct(rows, "platform")
    grid = plots.panels(figure, 2, len(platforms), sharex="col", sharey="row")
    for across, platform in enumerate(platforms):
        chosen = where(rows, platform=platform)
        _dots(grid[0][across], chosen, "makespan_s", 1e-6)
        _freed(grid[0][across], where(chosen, policy=SLOTTED))
        _dots(grid[1][across], chosen, "compaction", 1.0)
    grid[0][0].set_ylabel("makespan (10⁶ s)")
    grid[1][0].set_ylabel("compaction degree")
    names = [f"3 clusters × {name.partition('x')[2]} nodes" for name in platforms]
    plots.letter(grid, names * 2)
    plots.legend_below(figure, grid[0][0], 5)


def _dots(axes: Axes, rows: Sequence[Row], name: str, scale: float) -> None:
    workload_names = distinct(rows, "workload")
    for policy, (colour, marker, filled) in LOOKS.items():
        chosen = where(rows, policy=policy)
        axes.plot(
            _places(chosen, policy),
            [row[name] * scale for row in chosen],
            linestyle="none",
            marker=marker,
            color=colour,
            markerfacecolor=colour if filled else "white",
            label=LABELS.get(policy, policy.upper()),
        )
    axes.set_xticks(range(len(workload_names)), workload_names)
    for place in range(len(workload_names) - 1):
        axes.axvline(place + 0.5, color="#DDDDDD", linewidth=0.5)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.08)


def _freed(axes: Axes, rows: Sequence[Row]) -> None:
    """The slotted plans again, carried out without their slots."""
    axes.plot(
        _places(rows, SLOTTED),
        [row["carried_out_s"] * 1e-6 for row in rows],
        linestyle="none",
        marker="x",
        color=LOOKS[SLOTTED][0],
        label="50 % slots, carried out",
    )


def _places(rows: Sequence[Row], policy: str) -> list[float]:
    shift = list(LOOKS).index(policy) - (len(LOOKS) - 1) / 2
    return [place + 0.09 * shift for place in range(len(rows))]


EXPERIMENTS = {
    "oas-fig4": Experiment(
        columns=COLUMNS,
        reduced="only the conference paper's platform of 3 × 4 nodes.",
        size=(plots.PAGE, 4.6),
        measure=measure,
        describe=describe,
        draw=draw,
    )
}
