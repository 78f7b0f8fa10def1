"""The independent checker: whether a plan is allowed, and what it is worth.

It shares no code with the kernel or any policy: it imports the model and the verifier of
certificates, and sweeps with numpy what the kernel keeps in profiles. `check` reads as a table of
contents; each family of rules is one function, whose docstring has the formula.

Notes
-----
Cost: O(E log E) for E entries of node maps, P log P for P placements.

Each family reports at most `MOST` lines, so that a plan which is wrong throughout is
answered as fast as a good one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from coalloc.model.plan import Placement, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.checking import certificates, jobs, occupation, value
from coalloc.policies.checking.occupation import LinkUse
from coalloc.policies.checking.sheet import NodeColumns, Sheet, make_sheet, node_columns, units_of

_NAMED = re.compile(r"\bjob (\S+?)(?=[:,;)]|\s|$)")
MOST = 100
"""Violations that one family reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Findings of the checker."""

    violations: tuple[str, ...]
    """One line each, naming the job, node, link or time; empty if the plan is allowed."""
    metrics: Mapping[str, float | None]
    """``makespan``, ``weighted_completion`` and ``total_execution`` in seconds; ``compaction``;
    ``bound``, ``gap`` and ``pareto_gap`` (None: not given); ``placed``, ``deferred`` and
    ``coallocated`` in jobs; ``peak_link_use.CLUSTER``, the largest share of a link in use (None:
    no limit)."""
    unverified: tuple[str, ...] = ()
    """What the plan says is proved, and would cost too much to add up; no violation."""

    @property
    def ok(self) -> bool:
        """No violation was found."""
        return not self.violations


def check(
    snapshot: Snapshot, plan: Plan, *, cells: int = certificates.CELLS, estimates: bool = False
) -> CheckResult:
    """Check a plan against the snapshot it was made for.

    Of the plan's options `saturation_threshold`, `power_step`, `coallocation` and
    `coallocate_moldable` count; `cells` steps, of about 30 ns, may be spent on its certificates.
    With `estimates`, placements that start later may have no nodes (`Budget.node_entries`): they
    are estimates, of which only the answers and the objective are checked.
    """
    nodes, units = node_columns(snapshot), units_of(snapshot)
    sheet, faults = make_sheet(snapshot, plan.placements, plan.options, nodes, units, estimates)
    proved = certificates.prove(snapshot, plan, nodes, cells)
    uses = occupation.link_uses(sheet)
    values = value.values_of(snapshot, plan.placements)
    families: list[Iterable[str]] = [
        jobs.options_valid(sheet),
        faults,
        value.answers(units, plan.placements, plan.deferred),
        *_feasibility(sheet, uses),
        jobs.pieces(sheet),
        jobs.run_times(sheet),
        value.reasons(snapshot, units, nodes, plan.deferred),
        value.objective(plan, values),
        value.status(plan),
        *_front(snapshot, plan, nodes, estimates),
        value.front_values(snapshot, plan),
        certificates.claims(plan, proved),
    ]
    split = {unit.job.id for unit, at in zip(sheet.units, sheet.inside, strict=True) if len(at) > 1}
    return CheckResult(
        violations=tuple(_listed(families)),
        metrics=value.metrics_of(sheet, plan, values, len(split), uses),
        unverified=tuple(proved.unverified),
    )


def jobs_named(snapshot: Snapshot, violations: Iterable[str]) -> tuple[str, ...]:
    """The jobs of the queue that violations name, in arrival order."""
    words = {word for line in violations for word in _NAMED.findall(line)}
    return tuple(job.id for job in snapshot.queue if job.id in words)


def occupation_violations(
    snapshot: Snapshot, placements: Sequence[Placement], options: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Check what was really run, or any set of placements: all but the run-time rule.

    The queue of the snapshot holds the jobs, its nodes the platform; options are as in a plan. Jobs
    without a placement are no violation; for the jobs with one, every rule holds on nodes, slots,
    memory, resources, features, clusters, links, reservations, starts and precedence.
    """
    nodes, units = node_columns(snapshot), units_of(snapshot)
    sheet, faults = make_sheet(snapshot, placements, options or {}, nodes, units)
    families = _feasibility(sheet, occupation.link_uses(sheet))
    return tuple(_listed([jobs.options_valid(sheet), faults, *families]))


def _feasibility(sheet: Sheet, uses: list[LinkUse]) -> list[Iterable[str]]:
    """Every rule on placements except how long they run."""
    taken = occupation.occupation(sheet)
    return [
        jobs.held(sheet),
        jobs.processes(sheet),
        jobs.layouts(sheet),
        jobs.slowdowns(sheet),
        jobs.clusters(sheet),
        jobs.coallocation(sheet),
        jobs.usable_nodes(sheet),
        jobs.features(sheet),
        jobs.starts(sheet),
        jobs.precedence(sheet),
        jobs.edges(sheet),
        occupation.slots(sheet, taken),
        occupation.memory(sheet, taken),
        occupation.resources(sheet, taken),
        occupation.exclusive(sheet, taken),
        occupation.reservations(sheet),
        occupation.links(sheet, uses),
    ]


def _front(
    snapshot: Snapshot, plan: Plan, nodes: NodeColumns, estimates: bool
) -> Iterator[Iterable[str]]:
    """The placements of each point of a front, checked like the plan's own."""
    units = units_of(snapshot)
    for i, point in enumerate(plan.front):
        if point.placements == plan.placements:
            continue
        sheet, faults = make_sheet(
            snapshot, point.placements, plan.options, nodes, units, estimates
        )
        families: list[Iterable[str]] = [
            faults,
            value.answers(units, point.placements, plan.deferred),
            *_feasibility(sheet, occupation.link_uses(sheet)),
            jobs.pieces(sheet),
            jobs.run_times(sheet),
        ]
        for family in families:
            yield map(f"front[{i}]: ".__add__, family)


def _listed(families: Iterable[Iterable[str]]) -> Iterator[str]:
    for family in families:
        lines = iter(family)
        yield from islice(lines, MOST)
        if next(lines, None) is not None:
            yield f"more than {MOST} violations of this kind; the others are not listed"
