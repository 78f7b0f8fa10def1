"""Policies on a queue that needs counted resources: each lists items in its order, or searches.

Simple orders keep their names and decoders; `conservative` books the first `DEPTH` that wait, and
the others go on as under EASY. What searches tries these orders, EASY by arrival first, and then
moves items of the best while its work lasts; of a *project* with tasks, whole orders are bred, and
the best is proved: a queue on one node, where what that has, and licences, are
amounts that all share. All others lay EASY in the order of `ORDERS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.counted.bounds import bound_of
from coalloc.policies.counted.exact import EXACT, PLACED, ExactProject
from coalloc.policies.counted.planning import ENDLESS, CountedQueue
from coalloc.policies.incumbent import PROVED
from coalloc.policies.kernel.counted import compiled
from coalloc.policies.kernel.counted.fits import FLOATS, amount, run_time
from coalloc.policies.kernel.counted.listing import EASY, EVENT, STRICT
from coalloc.policies.kernel.counted.project import Project, breed
from coalloc.policies.kernel.instance.decoding import eligible_first
from coalloc.policies.kernel.instance.graph import graph_of, parents_first
from coalloc.policies.kernel.xorshift import seeded
from coalloc.policies.orders.queue_orders import order_jobs
from coalloc.policies.orders.simple import SIMPLE, laying, order_queue, traits

DEPTH = 500
"""Items that are booked ahead: the depth of backfilling that batch systems have by default."""
SEARCHES = ("auto", "oas", "bicriteria", "workflow")
TRIED = ("arrival", "shortest", "smallest-area", "longest", "most", "fewest")
ORDERS = {
    **dict.fromkeys(("demt", "list-smith", "gang", "sequential"), "shortest"),
    **dict.fromkeys(("list-lptf", "list-shelf", "two-shelf"), "longest"),
    "list-saf": "smallest-area",
}
MODES = {"strict": STRICT, "event": EVENT, "easy": EASY, "insert": EASY}
DECODER = SimpleNamespace(prepare=compiled.prepare, listing=compiled.list_items)


def _column(name: str, column: Any) -> Any:
    """A column as an array, a number as it is."""
    if isinstance(column, int):
        return column
    return np.array(column, np.float64 if name in (*FLOATS.split(), "size") else np.int64)


def solve(
    name: str,
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Plan under a policy's name."""
    queue = CountedQueue(problem, options, budget.origin, _column, DECODER)
    bound = bound_of(queue, weighs=queue.weighs) if budget.bounds and name in SEARCHES else None
    draws, count = np.random.default_rng(budget.seed), len(queue.items)
    work = fails = 0
    searches = name in SEARCHES and not budget.live
    patience = (options.get("patience") or 0) if searches else 0
    best: tuple[Any, ...] = ()
    stopped, met, unproved = False, False, ""

    def plan() -> Plan:
        rank, board, label, settings = best
        status = Status.TIME_LIMIT if stopped else Status.HEURISTIC
        more: dict[str, Any] = {"exact_search": unproved} if unproved and not met else {}
        more |= {"work": work, "seed": budget.seed}
        return queue.plan(
            board,
            name,
            {**more, "order": label, "booked": settings.get("depth", 0)},
            rank[1] if met else bound if rank[0] == 0 else None,
            Status.OPTIMAL if met else status,
        )

    def trials() -> Iterator[tuple[str, dict[str, Any] | None, int]]:
        """Orders, how each is laid, and the work of all; what does not look better is not laid."""
        nonlocal bound, unproved
        for label, settings in _starts(queue, name, live=budget.live):
            yield label, settings, count
        project = None
        if searches and not (met or queue.weighs) and any(item.parents for item in queue.items):
            project = project_of(queue)
        if project is not None:
            project.least[0] = best[0][1]
            exact = ExactProject(project, options.get("exact_work") or 0, bound, budget.seed)
            unproved = exact.unfit
            for label, order, cost in improved(
                project, exact, budget, work, options.get("patience")
            ):
                bound = exact.bound or None
                laid = (
                    {"order": parents_first(order, queue.items), "depth": count} if order else None
                )
                yield label, laid, cost + (count if order else 0)
                project.least[0] = min(project.least[0], best[0][1])
                if met:
                    break
            return
        while fails < patience and not met and count > 1:
            yield "moved", _moved(best[3], draws), count

    for label, settings, cost in trials():
        work += cost
        fails, better = fails + 1, False
        if settings is not None:
            board = queue.lay(**settings)
            rank = queue.rank(board)
            better = not best or rank < best[0]
            best, fails = ((rank, board, label, settings), 0) if better else (best, fails)
        left, least = best[0][:2]
        met = bound is not None and left == 0 and least <= bound * (1.0 + PROVED)
        if better and on_incumbent is not None:
            on_incumbent(plan())
        stopped = budget.stop()
        if stopped or (budget.work is not None and work >= budget.work):
            break
    return plan()


def _starts(queue: CountedQueue, name: str, *, live: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The orders of a policy, and how each is laid."""
    options, items, like = queue.options, queue.items, cast(Any, queue)
    after = options.get("guard_after") or 0
    guarded = [0 < after <= item.job.passed_over and not item.waits for item in items]

    def first(order: Any) -> list[int]:
        return sorted(order, key=lambda n: not guarded[n])

    if name in SIMPLE:
        laid = laying(name, options)
        order, heads = order_queue(like, laid)
        depth = DEPTH if laid.decoder == "insert" else 0
        order = first(eligible_first(items, order) if depth else order)
        heads = None if heads is None else first(heads)
        mode = MODES[laid.decoder]
        yield laid.order, {"order": order, "queue": heads, "mode": mode, "depth": depth}
        return
    jobs, limit = traits(like), options.get("wait_limit")
    overdue = None if limit is None else jobs.waited >= limit
    narrow = [
        queue.board.mode_first[n] + min(range(len(i.modes)), key=lambda m: _area(i.modes[m]))
        for n, i in enumerate(items)
    ]
    molds = any(len(item.modes) > 1 for item in items)
    for key in TRIED if name in SEARCHES else (ORDERS.get(name, "arrival"),):
        order = first(order_jobs(key, jobs, overdue).tolist())
        yield key, {"order": order}
        if molds and name in SEARCHES:
            yield f"{key}, narrow", {"order": order, "widest": narrow}
    if name in SEARCHES and not live and not any(item.parents for item in items):
        yield "booked", {"order": first(range(len(items))), "depth": DEPTH}


def _area(mode: tuple[int, float, float, float]) -> float:
    return mode[0] * (mode[1] + mode[2])


def _moved(settings: Mapping[str, Any], draws: np.random.Generator) -> dict[str, Any]:
    """The same order with an item elsewhere, or two exchanged."""
    order = list(settings["order"])
    i, j = draws.integers(len(order), size=2).tolist()
    if draws.random() < 0.5:
        order[i], order[j] = order[j], order[i]
    else:
        order.insert(j, order.pop(i))
    return {**settings, "order": order}


INDIVIDUALS = 400
ANEW = 60
"""Children in vain for each individual before another population."""
CHUNK = 50
"""Children between two looks at the limits."""
BRED = "bred"


def project_of(queue: CountedQueue) -> Project | None:
    """The project; None where amounts alone do not say what fits, or change with time."""
    b, items = queue.board, queue.items
    steady = (b.nodes, b.clusters, b.reservations) == (1, 1, 0) and not queue.tables.held
    if not steady or any(len(item.modes) > 1 or item.parts for item in items):
        return None
    n, forms = len(items), b.item_form
    if n < 2 or np.any(b.arrival > 0.0) or np.any(b.low[forms] > 1):
        return None
    sizes = [*b.size[: b.resources], *b.size[b.resources :: b.resources][: b.licences]]
    take = np.array(
        [
            [amount(b, s, 0, b.procs[m], r) for r in range(b.resources)]
            + [b.form_pool[s * b.licences + j] for j in range(b.licences)]
            for s, m in zip(forms, b.mode_first, strict=False)
        ]
    )
    scarce = take.sum(axis=0) > sizes
    scarce[0] |= not scarce.any()
    take, size = np.ascontiguousarray(take[:, scarce]), np.array(sizes)[scarce]
    if np.any(take > size):
        return None
    length = np.array([run_time(b, i, b.mode_first[i], b.power[0], 0) for i in range(n)])
    counts = ((INDIVIDUALS, n), 2, n, n, n, n)
    lists, told, best, *orders = (np.zeros(shape, np.int64) for shape in counts)
    sums = ((INDIVIDUALS, 2), n, n, 2 * n + 1, (2 * n + 1, len(size)))
    worth, *times = (np.zeros(shape) for shape in sums)
    given = (length, take, size, b.parent_first, b.parent, b.child_first, b.child)
    made: tuple[Any, ...] = (lists, worth, told, best, np.array([inf]), *orders, *times)
    return Project(*given, graph_of(items).bottom(length), *made)


def improved(
    project: Project, exact: ExactProject, budget: Budget, work: int, patience: int | None
) -> Iterator[tuple[str, list[int] | None, int]]:
    """Orders of something better, or None, with the work of each step; `work` has been done.

    They are bred, in turns with the exact search. Breeding ends after so many items in vain for
    each one of the project, the exact search then goes on to its end.
    """
    n, random, vain, bred = len(project.length), seeded(budget.seed), 0, 0
    while not exact.ended or patience is None or vain < patience:
        left = ENDLESS if budget.work is None else max(budget.work - work, 1)
        tired, before = patience is not None and vain >= patience, project.least[0]
        if not exact.ended and (tired or exact.work * PLACED <= bred):
            order, cost = exact.run(before, left, budget.stop, alone=tired)
            work += cost
            yield EXACT, order, cost
            continue
        children = min(CHUNK, -(-left // (3 * n)))
        breed(project, random, children, ANEW * INDIVIDUALS)
        better, cost = project.least[0] < before, 3 * n * children
        vain, bred, work = 0 if better else vain + 3 * children, bred + cost, work + cost
        yield BRED, project.best.tolist() if better else None, cost
