"""Random snapshots for tests of policies: small, and with a bit of everything.

They are drawn on a day's clock: today's wall clock, where a double has .2 us left, or a small one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.snapshot import Snapshot

NAMES = ("alpha", "beta", "gamma")
TIMES = st.sampled_from([0.5, 1.0, 3.0, 7.0, 10.0, 33.3, 100.0])
UNUSUAL = st.sampled_from([0.001, 0.07, 1e4 / 3.0, 86_400.1, 2.6e6])
"""Base times as they are rare, seconds."""
LIMITS = st.sampled_from([0.001, 1.0, 6.5, 9.0, 12.0, 36.0, 600.0])
"""Some before a job would end on full-speed nodes, some only on its weakest ones, seconds."""
CLOCKS = st.one_of(
    st.sampled_from([0.0, 0.0, 1_795_299_950.123]),
    st.integers(0, 10**9).map(lambda n: 1.7e9 + n / 7.0),
)
"""What is added to all times: half of the snapshots have today's wall clock."""
POWERS = st.sampled_from([0.5, 0.61, 0.75, 0.75, 1.0, 1.0])


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    out = []
    for name in NAMES[: draw(st.integers(1, 3))]:
        nodes = []
        for n in range(draw(st.integers(1, 5))):
            node = {
                "name": f"{name}{n}",
                "power": draw(POWERS),
                "slots": draw(st.sampled_from([1, 1, 2, 3, 4])),
                "features": draw(st.sampled_from([[], [], ["gpu"], ["gpu", "big"]])),
                "memory_mb": draw(st.sampled_from([None, None, 100, 256])),
                "state": draw(st.sampled_from(["up", "up", "up", "up", "draining", "down"])),
            }
            if draw(st.integers(0, 5)) == 0:
                node["free_at"] = draw(st.sampled_from([40.0, 55.0, 90.0]))
            nodes.append(node)
        out.append(
            {
                "name": name,
                "link_gbps": draw(st.sampled_from([None, 1.0, 0.3, 0.0])),
                "intra_gbps": draw(st.sampled_from([None, 8.0, 0.5])),
                "link_latency_s": draw(st.sampled_from([0.0, 0.5])),
                "stale": draw(st.integers(0, 9)) == 0,
                "nodes": nodes,
            }
        )
    return out


def job_fields(draw: st.DrawFn, number: int, names: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": f"j{number}",
        "submitted": 0.0,
        "weight": draw(st.sampled_from([0.0, 1.0, 2.5])),
        "sigma": draw(st.sampled_from([1.0, 0.5, 0.0])),
        "features": draw(st.sampled_from([[], [], [], ["gpu"]])),
        "memory_mb_per_proc": draw(st.sampled_from([0, 0, 0, 40, 90])),
        "held": draw(st.integers(0, 14)) == 0,
        "passed_over": draw(st.integers(0, 12)),
    }
    if draw(st.integers(0, 4)) == 0:
        out["earliest"] = draw(st.sampled_from([60.0, 75.5, 130.0]))
    if draw(st.integers(0, 2)) == 0:
        out["time_limit"] = draw(LIMITS)
    if draw(st.integers(0, 4)) == 0:
        out["clusters"] = draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    if number and draw(st.integers(0, 4)) == 0:
        pool = [f"j{n}" for n in range(number + 2)] + ["r0", "gone"]
        out["after"] = draw(st.lists(st.sampled_from(pool), unique=True, max_size=2))
    return out


@st.composite
def jobs(draw: st.DrawFn, number: int, names: list[str]) -> dict[str, Any]:
    out = job_fields(draw, number, names)
    kind = draw(st.sampled_from(["rigid"] * 6 + ["moldable"] * 2 + ["workflow", "divisible"]))
    out["kind"] = kind
    gbps = draw(st.sampled_from([0.0, 0.05, 0.2, 1.0]))
    if kind == "rigid":
        time = draw(UNUSUAL if draw(st.integers(0, 5)) == 0 else TIMES)
        out |= {"procs": draw(st.integers(1, 14)), "base_time": time, "proc_gbps": gbps}
    elif kind == "moldable":
        if draw(st.booleans()):
            out["times"] = draw(
                st.sampled_from([[10.0, 6.0, 4.5], [30.0], [20.0, 11.0, 8.0, 7.0, 7.0]])
            )
        else:
            out["speedup"] = {"model": "amdahl", "time": 60.0, "parallel_fraction": 0.9}
            out |= {"min_procs": draw(st.integers(1, 3)), "max_procs": 9}
        if draw(st.booleans()):
            out["proc_gbps"] = gbps
    elif kind == "workflow":
        tasks = draw(st.integers(1, 4))
        widths = st.sampled_from([(1, 1), (1, 1), (1, 4), (1, 4), (6, 6), (9, 12)])
        out["tasks"] = [
            {
                "id": f"t{t}",
                "work": draw(st.sampled_from([0.0, 5.0, 20.0])),
                "parallel_fraction": draw(st.sampled_from([0.0, 0.9])),
                **dict(zip(("min_procs", "max_procs"), draw(widths), strict=True)),
                "comm_gb": draw(st.sampled_from([0.0, 0.1, 1.0])),
            }
            for t in range(tasks)
        ]
        out["edges"] = [
            {"from": f"t{a}", "to": f"t{b}", "gb": draw(st.sampled_from([0.0, 2.0]))}
            for b in range(tasks)
            for a in range(b)
            if draw(st.booleans())
        ]
        out["started"] = [
            {
                "task": f"s{s}",
                "clusters": draw(st.lists(st.sampled_from(names), unique=True, min_size=1)),
                "end": draw(st.sampled_from([10.0, 51.5, 64.0])),
            }
            for s in range(draw(st.sampled_from([0, 0, 1, 2])))
        ]
        out["edges"] += [
            {"from": one["task"], "to": f"t{t}", "gb": draw(st.sampled_from([0.0, 2.0]))}
            for one in out["started"]
            for t in range(tasks)
            if draw(st.booleans())
        ]
    else:
        work, chunk = draw(st.sampled_from([(100.0, 10.0), (100.0, 10.0), (0.7, 0.3), (1e5, 7e3)]))
        out |= {"work": work, "chunk_s": chunk}
    return out


@st.composite
def snapshots(
    draw: st.DrawFn, most: int = 8, clocks: st.SearchStrategy[float] = CLOCKS
) -> Snapshot:
    """A snapshot at 50 s on one of the clocks, with up to `most` queued jobs."""
    platform = draw(clusters())
    names = [cluster["name"] for cluster in platform]
    nodes = {node["name"]: node["slots"] for cluster in platform for node in cluster["nodes"]}
    queue = [draw(jobs(number, names)) for number in range(draw(st.integers(0, most)))]
    left = dict(nodes)
    running = []
    for n in range(draw(st.integers(0, 3))):
        taken = {}
        for name in draw(st.lists(st.sampled_from(sorted(nodes)), unique=True, max_size=3)):
            if left[name]:
                taken[name] = draw(st.integers(1, left[name]))
                left[name] -= taken[name]
        running.append(
            {
                "id": f"r{n}",
                "nodes": taken,
                "start": 0.0,
                "end": draw(st.sampled_from([20.0, 58.0, 80.0])),
                "link_gbps": {draw(st.sampled_from(names)): draw(st.sampled_from([0.1, 0.25]))},
            }
        )
    reservations = [
        {
            "id": f"v{n}",
            "nodes": draw(st.lists(st.sampled_from(sorted(nodes)), unique=True, min_size=1)),
            "start": draw(st.sampled_from([10.0, 52.0, 70.0])),
            "end": draw(st.sampled_from([71.0, 95.0, 300.0])),
            "jobs": draw(st.sampled_from([[], ["j0"], ["j1", "j2"]])),
        }
        for n in range(draw(st.integers(0, 2)))
    ]
    body = {
        "format": "coalloc-snapshot/1",
        "time": 50.0,
        "overrun_s": draw(st.sampled_from([0.0, 60.0, 5.0])),
        "clusters": platform,
        "queue": queue,
        "running": running,
        "reservations": reservations,
    }
    clock = draw(clocks)
    return read_snapshot({**later(body, clock), "time": 50.0 + clock})


TIME_KEYS = {"free_at", "submitted", "earliest", "start", "end"}


def later(body: Any, seconds: float) -> Any:
    """The same document with all times moved; base times and other lengths have other keys."""
    if isinstance(body, dict):
        return {
            key: value + seconds if key in TIME_KEYS else later(value, seconds)
            for key, value in body.items()
        }
    return [later(value, seconds) for value in body] if isinstance(body, list) else body
