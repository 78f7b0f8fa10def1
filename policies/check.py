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
from coalloc.policies import check_certificates, check_jobs, check_occupation, check_value
from coalloc.policies.check_occupation import LinkUse
from coalloc.policies.check_sheet import NodeColumns, Sheet, make_sheet, node_columns, units_of

_NAMED = re.compile(r"\bjob (\S+?)(?=[:,;)]|\s|$)")
MOST = 100
"""Violations that one family reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Findings of the checker.

    Attributes
    ----------
    violations : tuple of str
        One line each, naming the job, node, link or time; empty if the plan is allowed.
    metrics : mapping
        ``makespan``, ``weighted_completion`` and ``total_execution`` in seconds;
        ``compaction``; ``bound``, ``gap`` and ``pareto_gap`` (None: not given);
        ``placed``, ``deferred`` and ``coallocated`` in jobs; ``peak_link_use.CLUSTER``,
        the largest share of a link in use (None: no limit).
    unverified : tuple of str
        What the plan says is proved, and would cost too much to add up; no violation.
    """

    violations: tuple[str, ...]
    metrics: Mapping[str, float | None]
    unverified: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """No violation was found."""
        return not self.violations


def check(snapshot: Snapshot, plan: Plan, *, cells: int = check_certificates.CELLS) -> CheckResult:
    """Check a plan against the snapshot it was made for.

    Parameters
    ----------
    snapshot : Snapshot
    plan : Plan
        Its options count: `saturation_threshold`, `power_step`, `coallocation` and
        `coallocate_moldable`.
    cells : int
        Steps that may be spent on its certificates, of about 30 ns.

    Returns
    -------
    CheckResult
    """
    nodes, units = node_columns(snapshot), units_of(snapshot)
    sheet, faults = make_sheet(snapshot, plan.placements, plan.options, nodes, units)
    proved = check_certificates.prove(snapshot, plan, nodes, cells)
    uses = check_occupation.link_uses(sheet)
    values = check_value.values_of(snapshot, plan.placements)
    families: list[Iterable[str]] = [
        check_jobs.options_valid(sheet),
        faults,
        check_value.answers(units, plan.placements, plan.deferred),
        *_feasibility(sheet, uses),
        check_jobs.pieces(sheet),
        check_jobs.run_times(sheet),
        check_value.reasons(snapshot, units, nodes, plan.deferred),
        check_value.objective(plan, values),
        check_value.status(plan),
        *_front(snapshot, plan, nodes),
        check_value.front_values(snapshot, plan),
        check_certificates.claims(plan, proved),
    ]
    split = {unit.job.id for unit, at in zip(sheet.units, sheet.inside, strict=True) if len(at) > 1}
    return CheckResult(
        violations=tuple(_listed(families)),
        metrics=check_value.metrics_of(snapshot, plan, values, len(split), uses),
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

    Jobs of the snapshot without a placement are no violation; for the jobs with one, every
    rule holds on nodes, slots, memory, features, clusters, links, reservations, starts and
    precedence.

    Parameters
    ----------
    snapshot : Snapshot
        Its queue holds the jobs, its nodes the platform.
    placements : sequence of Placement
        With actual starts and ends, seconds.
    options : mapping, optional
        As in a plan.

    Returns
    -------
    tuple of str
    """
    nodes, units = node_columns(snapshot), units_of(snapshot)
    sheet, faults = make_sheet(snapshot, placements, options or {}, nodes, units)
    families = _feasibility(sheet, check_occupation.link_uses(sheet))
    return tuple(_listed([check_jobs.options_valid(sheet), faults, *families]))


def _feasibility(sheet: Sheet, uses: list[LinkUse]) -> list[Iterable[str]]:
    """Every rule on placements except how long they run."""
    taken = check_occupation.occupation(sheet)
    return [
        check_jobs.held(sheet),
        check_jobs.processes(sheet),
        check_jobs.slowdowns(sheet),
        check_jobs.clusters(sheet),
        check_jobs.coallocation(sheet),
        check_jobs.usable_nodes(sheet),
        check_jobs.features(sheet),
        check_jobs.starts(sheet),
        check_jobs.precedence(sheet),
        check_jobs.edges(sheet),
        check_occupation.slots(sheet, taken),
        check_occupation.memory(sheet, taken),
        check_occupation.reservations(sheet),
        check_occupation.links(sheet, uses),
    ]


def _front(snapshot: Snapshot, plan: Plan, nodes: NodeColumns) -> Iterator[Iterable[str]]:
    """The placements of each point of a front, checked like the plan's own."""
    units = units_of(snapshot)
    for i, point in enumerate(plan.front):
        if point.placements == plan.placements:
            continue
        sheet, faults = make_sheet(snapshot, point.placements, plan.options, nodes, units)
        families: list[Iterable[str]] = [
            faults,
            check_value.answers(units, point.placements, plan.deferred),
            *_feasibility(sheet, check_occupation.link_uses(sheet)),
            check_jobs.pieces(sheet),
            check_jobs.run_times(sheet),
        ]
        for family in families:
            yield _prefixed(f"front[{i}]: ", family)


def _prefixed(prefix: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield prefix + line


def _listed(families: Iterable[Iterable[str]]) -> Iterator[str]:
    for family in families:
        lines = iter(family)
        yield from islice(lines, MOST)
        if next(lines, None) is not None:
            yield f"more than {MOST} violations of this kind; the others are not listed"
