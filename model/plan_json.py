"""Plans from JSON and back (``coalloc-plan/1``)."""

from __future__ import annotations

from math import isfinite
from typing import Any

from coalloc.model import tables
from coalloc.model.decoded import array, mapping, plain
from coalloc.model.errors import InputError
from coalloc.model.fields import read_fields
from coalloc.model.nodeset import expand_counts
from coalloc.model.plan import Deferred, FrontPoint, Objective, Placement, Plan, Reason, Status


def read_plan(value: Any) -> Plan:
    """Read a plan from decoded JSON.

    Raises
    ------
    InputError
    """
    top = read_fields(value, tables.PLAN, "")
    del top["format"]
    top["status"] = Status(top["status"])
    top["objective"] = Objective(**read_fields(top["objective"], tables.OBJECTIVE, "objective"))
    top["placements"] = _placements(top["placements"], "placements")
    top["deferred"] = tuple(
        _deferred(item, f"deferred[{i}]")
        for i, item in enumerate(array(top.get("deferred", ()), "deferred"))
    )
    top["front"] = tuple(
        _point(item, f"front[{i}]") for i, item in enumerate(array(top.get("front", ()), "front"))
    )
    for key in ("options", "stats"):
        top[key] = dict(mapping(plain(top.get(key, {}), key), key))
    top["certificates"] = tuple(
        mapping(plain(item, f"certificates[{i}]"), f"certificates[{i}]")
        for i, item in enumerate(array(top.get("certificates", ()), "certificates"))
    )
    if top.get("chosen") is not None and top["chosen"] >= len(top["front"]):
        raise InputError("chosen", f"{top['chosen']} is not an index into front")
    return Plan(**top)


def _placements(value: Any, where: str) -> tuple[Placement, ...]:
    return tuple(_placement(item, f"{where}[{i}]") for i, item in enumerate(array(value, where)))


def _placement(value: Any, where: str) -> Placement:
    fields = read_fields(value, tables.PLACEMENT, where)
    # Plans are written expanded; one written by hand may fold its nodes.
    if any("[" in name or "," in name for name in fields["nodes"]):
        fields["nodes"] = expand_counts(fields["nodes"], f"{where}.nodes")
    return Placement(**fields)


def _deferred(value: Any, where: str) -> Deferred:
    fields = read_fields(value, tables.DEFERRED, where)
    return Deferred(**{**fields, "reason": Reason(fields["reason"])})


def _point(value: Any, where: str) -> FrontPoint:
    fields = read_fields(value, tables.FRONT_POINT, where)
    for key in ("cmax_bound", "weighted_completion_bound", "pareto_gap"):
        fields.setdefault(key, None)
    return FrontPoint(
        **{**fields, "placements": _placements(fields["placements"], f"{where}.placements")}
    )


def write_plan(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object that reads back equal."""
    objective = plan.objective
    out: dict[str, Any] = {
        "format": tables.PLAN_FORMAT,
        "policy": plan.policy,
        "options": dict(plan.options),
        "status": str(plan.status),
        "objective": {
            "name": objective.name,
            "value": objective.value,
            "bound": objective.bound
            if objective.bound is None or isfinite(objective.bound)
            else None,
            "deferred": objective.deferred,
        },
        "placements": [_write_placement(p) for p in plan.placements],
        "deferred": [_write_deferred(d) for d in plan.deferred],
        "stats": dict(plan.stats),
    }
    if plan.front:
        out["front"] = [_write_point(point) for point in plan.front]
        out["chosen"] = plan.chosen
        out["pareto_gap"] = plan.pareto_gap
    if plan.certificates:
        out["certificates"] = [dict(item) for item in plan.certificates]
    return out


def _write_placement(placement: Placement) -> dict[str, Any]:
    out: dict[str, Any] = {"job": placement.job}
    if placement.task is not None:
        out["task"] = placement.task
    out |= {"start": placement.start, "end": placement.end, "nodes": dict(placement.nodes)}
    if placement.sc != 1.0:
        out["sc"] = placement.sc
    if placement.chunks is not None:
        out["chunks"] = placement.chunks
    return out


def _write_deferred(deferred: Deferred) -> dict[str, Any]:
    out: dict[str, Any] = {"job": deferred.job}
    if deferred.task is not None:
        out["task"] = deferred.task
    return out | {"reason": str(deferred.reason), "detail": deferred.detail}


def _write_point(point: FrontPoint) -> dict[str, Any]:
    return {
        "cmax": point.cmax,
        "weighted_completion": point.weighted_completion,
        "cmax_bound": point.cmax_bound,
        "weighted_completion_bound": point.weighted_completion_bound,
        "pareto_gap": point.pareto_gap,
        "placements": [_write_placement(p) for p in point.placements],
    }
