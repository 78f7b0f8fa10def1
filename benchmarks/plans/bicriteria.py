"""`bicriteria`: objectives, proved gap and solve time.

    python -m benchmarks bicriteria [--sizes 100x200 400x200] [--seeds 3] [--first 100] [--work N]

Instances of the four families of the bi-criteria paper. C is the makespan and S the weighted
completion, divided by their bounds; of the balanced point, and of the point whose Pareto gap is the
smallest. Times are CPU times of one thread: reading the snapshot into arrays, the search, and the
certificate. `beats demt` counts runs where the balanced point is better in both criteria than
`demt` with either reading of its makespan, or as short where its makespan is the bound itself.

With ``--at 1.08`` the weighted completion of the best schedule that ends within so many bounds on
the makespan is printed too, and what the certificate proves the least that any such schedule has.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from math import inf

from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.bicriteria.options import BicriteriaOptions
from coalloc.policies.moldable.bicriteria.policy import Bicriteria
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.options import defaults_of, read_options
from coalloc.policies.published.demt import ShelfSearch
from coalloc.policies.published.options import DemtOptions

HEAD = f"{'':24}{'balanced C / S':>18}{'best gap':>10}{'at C / S':>16}{'beats demt':>12}"


@dataclass(slots=True, kw_only=True)
class Total:
    """Sums over the instances of a family; the ratios are ratios of sums."""

    cmax: list[float] = field(default_factory=lambda: [0.0, 0.0])
    completion: list[float] = field(default_factory=lambda: [0.0, 0.0])
    bounds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    gap: float = 0.0
    within: list[float] = field(default_factory=lambda: [0.0, 0.0])
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    wins: int = 0
    runs: int = 0


def one_run(snapshot: Snapshot, work: int, certify: bool, at: float, total: Total) -> None:
    """Solve and prove once; with `at`, for that end as well."""
    options = read_options({"search": work, "certify": certify}, BicriteriaOptions)
    began = time.process_time()
    policy = Bicriteria(Planner(snapshot, options), options, Budget(seed=1), None)
    ready = time.process_time()
    chosen = policy.search()
    searched = time.process_time()
    policy.prove(chosen)
    proved = time.process_time()
    curve = policy.curve
    assert curve is not None
    completion = max(bound.value for bound in curve.bounds if bound.cap == inf)
    gap, best = min(
        ((curve.gap(laid.cmax, laid.total), laid) for laid in policy.front.points),
        key=lambda pair: pair[0],
    )
    for place, laid in enumerate((chosen, best)):
        total.cmax[place] += laid.cmax
        total.completion[place] += laid.total
    for place, bound in enumerate((curve.cmax, completion)):
        total.bounds[place] += bound
    if at:
        cap = at * curve.cmax
        found = policy.front.within(cap)
        total.within[0] += inf if found is None else found.total
        total.within[1] += curve.at(cap, cap).value
    for place, span in enumerate((ready - began, searched - ready, proved - searched)):
        total.seconds[place] += span
    total.gap += gap
    total.wins += beats_demt(snapshot, chosen.cmax, chosen.total, curve.cmax)
    total.runs += 1


def beats_demt(snapshot: Snapshot, cmax: float, completion: float, bound: float) -> bool:
    """Whether both readings are worse in both criteria, or as short where nothing is shorter."""
    shortest = cmax <= bound * (1.0 + 1e-9)
    for guess in ("reached", "accepted"):
        options = read_options({"guess": guess, "selection": "auto"}, DemtOptions)
        planner = Planner(snapshot, options)
        search = ShelfSearch(Layer(planner, of_planner(planner)), options, Budget(seed=1))
        schedule = search.run().schedule
        is_shorter = shortest or cmax < schedule.makespan
        if not is_shorter or completion >= schedule.weighted_completion:
            return False
    return True


def told(name: str, total: Total) -> str:
    runs, bounds = total.runs, total.bounds
    balanced, best = (
        f"{total.cmax[place] / bounds[0]:.3f} / {total.completion[place] / bounds[1]:.3f}"
        for place in (0, 1)
    )
    spans = " + ".join(f"{span / runs:.2f}" for span in total.seconds)
    within = " / ".join(f"{value / bounds[1]:.3f}" for value in total.within)
    return (
        f"{name:24}{balanced:>18}{100.0 * total.gap / runs:>8.2f} %{best:>16}"
        f"{total.wins:>8} / {runs}  {spans} s" + (f"  within {within}" if total.within[1] else "")
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks bicriteria", description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["100x200", "400x200"])
    parser.add_argument("--seeds", type=int, default=3, help="instances of each family and size")
    parser.add_argument("--first", type=int, default=100, help="seed of the first instance")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--work", type=int, default=defaults_of(BicriteriaOptions)["search"])
    parser.add_argument("--at", type=float, default=0.0, help="an end, in bounds on the makespan")
    parser.add_argument("--no-certify", action="store_true", help="the search's own prices only")
    chosen = parser.parse_args(argv)
    began = time.process_time()
    one_run(moldable_instance("weakly", 20, 10, 0), 5_000, True, 0.0, Total())
    seconds = time.process_time() - began
    print(f"first call, with compiling where nothing is cached: {seconds:.1f} s\n{HEAD}")
    for size in chosen.sizes:
        jobs, procs = (int(part) for part in size.split("x"))
        for family in chosen.families:
            total = Total()
            for seed in range(chosen.first, chosen.first + chosen.seeds):
                snapshot = moldable_instance(family, jobs, procs, seed)
                one_run(snapshot, chosen.work, not chosen.no_certify, chosen.at, total)
            print(told(f"{family} {size}", total), flush=True)


if __name__ == "__main__":
    main()
