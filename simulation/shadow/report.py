"""Answer of the command: a paragraph, figures, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from msgspec import Struct

from coalloc.simulation.metrics import Metrics
from coalloc.simulation.report.page import html_table, section
from coalloc.simulation.report.replays import compare_page
from coalloc.simulation.reports import aligned, duration, side_by_side
from coalloc.simulation.shadow.past import ClusterPast, Gain
from coalloc.simulation.trace import Trace

PLACES = 3
"""Rows that are named of each reason."""
TABLE = "Mean waits by the cluster of submission: real, replayed, and as they would have been"
Results = Sequence[tuple[Trace, Metrics]]


class Shadow(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    window: tuple[str, str]
    clusters: Sequence[ClusterPast]
    missed: float
    """How far the replay is off, and how far it may be."""
    within: float
    gains: Mapping[str, Gain]
    figures: Mapping[str, Metrics]
    lists: Mapping[str, Sequence[str]]
    """What is assumed, not known, not used, and noted."""


def paragraph(told: Shadow) -> str:
    """Words that can be read to a head of department."""
    jobs, past = [one.jobs for one in told.clusters], next(iter(told.figures.values()))
    real = float(np.average([one.real_wait_s for one in told.clusters], weights=jobs))
    text = (
        f"From {' to '.join(told.window)}, {sum(jobs):,} jobs on "
        f"{' and '.join(one.cluster for one in told.clusters)} waited for {duration(real)} on "
        f"average. Replayed from the accounts they wait for {duration(past.mean_wait_s)}: cluster "
        f"by cluster the replay is off by {told.missed:.1%}."
    )
    if not told.gains:
        return (
            f"{text} That is more than the {told.within:.0%} allowed: what held jobs up is not "
            "known well enough, so no gain is reported."
        )
    for name, gain in told.gains.items():
        one = gain.saved
        text += (
            f" Planned by coalloc, {name}, they would have waited for "
            f"{duration(told.figures[name].mean_wait_s)}, {one.mean:.0%} less (95 % interval: "
            f"{one.low:.0%} to {one.high:.0%}"
            f"{'' if one.low > told.missed else '; not clearly more than the replay is off'}): "
            f"{told.figures[name].coallocated_share:.0%} of the jobs on several clusters, and "
            f"{gain.longer:.0%} would have waited over a minute longer."
        )
    return text


def _table(told: Shadow) -> list[list[str]]:
    rows = [["cluster", "jobs", "real", "as it was", "off, job by job", *told.gains]]
    for k, one in enumerate(told.clusters):
        waits = (one.real_wait_s, one.replayed_wait_s, one.astray_s)
        after = (gain.home_wait_s[k] for gain in told.gains.values())
        rows.append([one.cluster, f"{one.jobs}", *map(duration, (*waits, *after))])
    return rows


def unused_lines(unused: Mapping[str, Sequence[str]]) -> list[str]:
    """Rows that are not used: how many, why, and where the first are."""
    return [
        f"{len(at)} rows: {why} ({', '.join(at[:PLACES])}{', …' if len(at) > PLACES else ''})"
        for why, at in unused.items()
    ]


def as_text(told: Shadow, results: Results) -> str:
    """The answer for a terminal."""
    parts = [paragraph(told), f"{TABLE}\n{aligned(_table(told))}"]
    parts += [side_by_side(results)] if told.gains else []
    parts += ["\n  ".join([f"{title}:", *lines]) for title, lines in told.lists.items()]
    return "\n\n".join(parts)


def as_page(told: Shadow, results: Results) -> str:
    """The answer as one page of HTML."""
    head, *rows = _table(told)
    first = [section("In one paragraph", f"<p>{escape(paragraph(told))}</p>")]
    first.append(section(TABLE, html_table(head, rows)))
    last = [
        section(title, *(f"<p>{escape(line)}</p>" for line in lines))
        for title, lines in told.lists.items()
    ]
    names = ", ".join(one.cluster for one in told.clusters)
    return compare_page(results, f"{names}: what was, and what would have been", first, last)
