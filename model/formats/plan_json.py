"""Plans from JSON and back (``coalloc-plan/1``)."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from msgspec import Raw, json, to_builtins

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import of_format, plain
from coalloc.model.formats.nodeset import expand_counts
from coalloc.model.formats.structs import read_json, written
from coalloc.model.plan import PLAN_FORMAT, FrontPoint, Placement, Plan
from coalloc.model.values import replace

MOST_KEPT = 2000
"""Placements of a plan that are kept on disk, and as many jobs without a start."""


def read_plan(value: Any) -> Plan:
    """Read a plan from decoded JSON. Raises `InputError`."""
    top = of_format(value, PLAN_FORMAT, "placements")
    for key in ("options", "stats", "certificates"):
        plain(top.get(key), key)
    plan: Plan = read_json(top, Plan)
    if plan.chosen is not None and plan.chosen >= len(plan.front):
        raise InputError("chosen", f"{plan.chosen} is not an index into front")
    front = tuple(
        replace(point, placements=_expanded(point.placements, f"front[{i}].placements"))
        for i, point in enumerate(plan.front)
    )
    return replace(plan, placements=_expanded(plan.placements, "placements"), front=front)


def _expanded(placements: Iterable[Placement], where: str) -> tuple[Placement, ...]:
    """Plans are written expanded; one written by hand may fold its nodes."""
    return tuple(
        replace(one, nodes=expand_counts(one.nodes, f"{where}[{i}].nodes"))
        if any("[" in name or "," in name for name in one.nodes)
        else one
        for i, one in enumerate(placements)
    )


def write_plan(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object that reads back equal."""
    objective = written(plan.objective, "bound", "deferred")
    if objective["bound"] is not None and not isfinite(objective["bound"]):
        objective["bound"] = None
    out: dict[str, Any] = {
        "format": PLAN_FORMAT,
        "policy": plan.policy,
        "options": dict(plan.options),
        "status": str(plan.status),
        "objective": objective,
        "placements": _placements(plan.placements),
        "deferred": [written(one, "detail") for one in plan.deferred],
        "stats": dict(plan.stats),
    }
    if plan.front:
        out["front"] = [_point(point) for point in plan.front]
        out["chosen"] = plan.chosen
        out["pareto_gap"] = plan.pareto_gap
    if plan.certificates:
        out["certificates"] = [dict(item) for item in plan.certificates]
    return out


def plan_to_keep(plan: Plan) -> dict[str, Any]:
    """As `write_plan` has it, with the placements and deferrals, which are many, as texts.

    Of a long plan only the first are kept; ``stats.not_kept`` says how many others there are.
    """
    total = len(plan.placements) + len(plan.deferred)
    placed, deferred = plan.placements[:MOST_KEPT], plan.deferred[:MOST_KEPT]
    plan = replace(plan, placements=(), deferred=())
    left = total - len(placed) - len(deferred)
    if left:
        plan = replace(plan, front=(), stats={**plan.stats, "not_kept": left})
    texts = {"placements": Raw(json.encode(placed)), "deferred": Raw(json.encode(deferred))}
    return write_plan(plan) | texts


def _placements(placements: tuple[Placement, ...]) -> list[dict[str, Any]]:
    """As `written` does, for all at once."""
    out: list[dict[str, Any]] = list(to_builtins(placements))
    for one in out:
        if one.get("sc") == 1.0:
            del one["sc"]
    return out


def _point(point: FrontPoint) -> dict[str, Any]:
    bounds = written(
        replace(point, placements=()), "cmax_bound", "weighted_completion_bound", "pareto_gap"
    )
    return bounds | {"placements": _placements(point.placements)}
