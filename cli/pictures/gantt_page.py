"""A plan as one page without outside parts: the dashboard's chart, to be zoomed, and a list."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from html import escape
from importlib.resources import files
from math import isfinite

from coalloc.cli.output import WALL_CLOCK_S
from coalloc.cli.pictures.gantt import name_of, rows_of
from coalloc.cli.pictures.picture import Picture, headline
from coalloc.model.cost import link_loads
from coalloc.model.nodeset import fold
from coalloc.model.plan import Placement
from coalloc.runtime.texts import instant, length

MODULES = (
    *("dom.js", "ticks.js", "tracks.js", "input.js"),
    *("colours.js", "painting.js", "drawing.js", "gantt.js"),
)
"""Of the dashboard, each after those it imports."""
BEGIN = """
const data = JSON.parse(document.getElementById("data").textContent);
const chart = new Gantt(() => data.now, { zero: data.zero, hasPages: false });
document.getElementById("chart").append(chart.element, chart.picked);
chart.setLanes(data.lanes, data.clusters);
chart.setLive(data.rows);
chart.fit();
const acts = { all: () => chart.fit(), out: () => chart.zoom(1.6), in: () => chart.zoom(0.6) };
for (const [id, act] of Object.entries(acts)) {
  document.getElementById(id).addEventListener("click", act);
}
"""


def html_gantt(
    picture: Picture,
    node_clusters: Mapping[str, str],
    *,
    critical: Collection[int] = (),
    proc_gbps: Mapping[str, float] | None = None,
    link_gbps: Mapping[str, float | None] | None = None,
) -> str:
    """The page.

    Parameters
    ----------
    critical : collection of int
        Placements on a critical path, by index.
    proc_gbps : mapping of job to Gbit/s
        Bandwidth that one process needs; links are drawn where it is known.
    link_gbps : mapping of cluster to Gbit/s or None
        Capacities of the links; None: without limit.
    """
    title = escape(headline(picture.plan))
    body = _data(picture, node_clusters, critical, proc_gbps or {}, link_gbps or {})
    # "<" could end the element
    data = json.dumps(body, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en" data-theme="auto"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_text('style.css')}</style></head><body><main><div>\n"
        f'<h1>{title}</h1><section class="panel" id="chart"><div class="bar buttons">'
        '<button type="button" id="all">All</button>'
        '<button type="button" id="out" aria-label="Zoom out">−</button>'
        '<button type="button" id="in" aria-label="Zoom in">+</button></div></section>\n'
        f"{_table(picture)}</div></main>\n"
        f'<script type="application/json" id="data">{data}</script>\n'
        f'<script type="module">{_script()}{BEGIN}</script></body></html>\n'
    )


def _data(
    picture: Picture,
    node_clusters: Mapping[str, str],
    critical: Collection[int],
    proc_gbps: Mapping[str, float],
    link_gbps: Mapping[str, float | None],
) -> dict[str, object]:
    lanes = Counter(node for row in rows_of(picture.plan, node_clusters) for node in row.nodes)
    number = {node: i for i, node in enumerate(lanes)}
    clusters = list(dict.fromkeys(node_clusters.get(node, "") for node in lanes))
    places = picture.plan.placements
    first = min((place.start for place in places), default=0.0)
    zero = first if picture.begin is None else picture.begin
    rows = []
    for i, place in enumerate(places):
        nodes = [n for node, count in place.nodes.items() for n in (number[node], count)]
        kind = "running" if picture.is_running(i) else "planned"
        loads = _loads(place, node_clusters, clusters, proc_gbps)
        words = "critical path" if i in critical else ""
        rows.append([name_of(place), words, "", kind, place.start, place.end, nodes, loads])
    return {
        "now": zero if picture.now is None else picture.now,
        "zero": None if zero > WALL_CLOCK_S else zero,
        "lanes": [[node_clusters.get(node, ""), node, slots] for node, slots in lanes.items()],
        "clusters": [[name, _finite(link_gbps.get(name))] for name in clusters],
        "rows": rows,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _loads(
    place: Placement,
    node_clusters: Mapping[str, str],
    clusters: list[str],
    proc_gbps: Mapping[str, float],
) -> list[float]:
    """Index of a cluster and the load on its link, one after the other."""
    need = proc_gbps.get(place.job, 0.0) if place.task is None else 0.0
    inside: Counter[str] = Counter()
    for node, count in place.nodes.items():
        inside[node_clusters.get(node, "")] += count
    if not need or len(inside) < 2:
        return []
    loads = link_loads(need, inside)
    return [value for name, load in loads.items() for value in (clusters.index(name), load)]


def _table(picture: Picture) -> str:
    plan = picture.plan
    first = min((p.start for p in plan.placements), default=0.0)
    zero = first if picture.now is None else picture.now
    is_clock = zero > WALL_CLOCK_S

    def at(time: float) -> str:
        sign = "-" if time < zero - 0.5 else "+"
        return instant(time) if is_clock else f"{sign}{length(abs(time - zero))}"

    rows = "".join(
        f"<tr><td>{escape(name_of(p))}</td><td>{at(p.start)}</td><td>{at(p.end)}</td>"
        f"<td>{length(p.end - p.start)}</td><td>{sum(p.nodes.values())}</td>"
        f"<td>{escape(fold(p.nodes))}</td></tr>"
        for p in sorted(plan.placements, key=lambda p: p.start)
    )
    return (
        '<div class="scroll"><table><tr><th>job</th><th>start</th><th>end</th><th>length</th>'
        f"<th>processes</th><th>nodes</th></tr>{rows}</table></div>"
    )


def _script() -> str:
    """The dashboard's modules as one."""
    text = "".join(_text(name) for name in MODULES)
    return re.sub(r"^import .*\n", "", text, flags=re.M).replace("\nexport ", "\n")


def _text(name: str) -> str:
    return (files("coalloc.dashboard") / "data" / name).read_text(encoding="utf-8")
