"""Effective weights of waiting jobs: what they were submitted with, and whose turn it is.

    weight = submitted, within its user's limits
             * 2^(operator's priority + age + size - shares)

Each term counts doublings. `shares` says how far the job's project is ahead of what it is entitled
to, and its user within the project, and which of the project's jobs go before it:

    shares = min(limit, (sum over the levels of the tree of lead + ahead of it) / step)

*Lead* of a project: its usage divided by its share of the site, in seconds of the whole of its
entitlement, less the least such figure among its siblings that have jobs waiting. *Ahead of it*:
the same for its owner's jobs that arrived before it, as if they ran, by the equal part of the
project's entitlement that each owner with waiting jobs has. So whichever sibling has had least of
its share comes first, as in Slurm's fair tree, the children of one project by the same rule, and a
long queue of one user or project takes turns with the others in one and the same plan.

Usage is decayed (`core.base.projects`). A running job is charged for its next `ahead_s` seconds
too, as far as it is planned to run: what has just been started is felt at once.

The sum of the operator's priority and `shares` is also the order in which jobs that have waited too
long are booked (`model.jobs.JobFields.priority`).

References
----------
Slurm, "Fair Tree Fairshare Algorithm", https://slurm.schedmd.com/fair_tree.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from coalloc.core.base.plan_order import Precedence
from coalloc.core.base.projects import (
    OTHERS,
    Factors,
    Lead,
    ProjectTree,
    ProjectUser,
    decayed_proc_s,
    spans,
    within,
)
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State, arrival
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.suitable_nodes import least_slots
from coalloc.model.cost import base_time
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.settings import PriorityConfig
from coalloc.model.values import replace

LONGEST_S = 1e9
LEAST = 1e-9
"""Slots of a share of nothing."""


def is_on(state: State) -> bool:
    """Whether anything but the submitted weight may count."""
    rule = state.settings.priority
    return rule.has_factors or state.sharing.tree.has_weights or bool(state.marked.prioritised)


def project_of(state: State, record: JobRecord) -> str:
    """The project that a job is charged to."""
    return state.sharing.tree.project(record.account, record.user)


def owner_of(state: State, record: JobRecord) -> ProjectUser:
    """Whose share a job counts against."""
    return state.sharing.tree.owner_of(record.batch.account, record.user)


def capacity(state: State) -> int:
    """Slots of all clusters that are configured, as they were last read."""
    return sum(cluster.slots for cluster in state.clusters.values() if cluster.configured)


def beside_slots(rule: PriorityConfig, job: Job, procs: int, nodes: int) -> float:
    """Processors that a job is charged for beside its slots: resources and memory, as weighed."""
    weights, shape = rule.weights, job.shape
    if not weights:
        return 0.0
    asked = [(shape.per_proc, procs), (shape.per_node, nodes), (shape.per_job, 1)]
    memory_mb = shape.memory_mb_per_node * nodes or job.memory_mb_per_proc * procs
    return weights.get("mem_gb", 0.0) * memory_mb / 1024.0 + sum(
        weights.get(name, weights.get(name.partition(":")[0], 0.0)) * amount * times
        for amounts, times in asked
        for name, amount in amounts.items()
    )


def dearness(record: JobRecord, rule: PriorityConfig) -> float:
    """Processors that a placed job is charged for, by its slots."""
    beside = beside_slots(rule, record.job, record.placed_procs, len(record.nodes))
    return 1.0 + beside / max(record.placed_slots, 1)


def charged_proc_s(state: State, now: float) -> dict[ProjectUser, float]:
    """Decayed usage of every user in every project, with what runs charged ahead."""
    rule = state.settings.priority
    out: dict[ProjectUser, float] = {}
    for charged, usage in state.sharing.usage.items():
        owner = state.sharing.tree.owner(*charged)
        out[owner] = out.get(owner, 0.0) + usage.now(now, rule.half_life_s)
    for record in state.placed_records():
        if record.is_in_queues:
            continue
        owner = owner_of(state, record)
        own = 0.0
        for _, procs, start, end in spans(record, now):
            own += decayed_proc_s(procs, start, end, now, rule.half_life_s)
        begun = now if record.started is None else record.started
        left = min(max(begun + record.planned - now, 0.0), rule.ahead_s)
        own += left * record.placed_slots
        out[owner] = out.get(owner, 0.0) + own * dearness(record, rule)
    return out


Level = tuple[tuple[str, ...], Lead]
"""What has the siblings of a lead in common, and the lead, still counted from nothing."""


def _levels(
    state: State, waiting: Collection[ProjectUser], slots: int, now: float
) -> dict[ProjectUser, list[Level]]:
    """Usage by share of each owner at each level, from the highest project to the user."""
    tree, of_owner = state.sharing.tree, charged_proc_s(state, now)
    of_project: dict[str, float] = {}
    for (project, _), proc_s in of_owner.items():
        for name in tree.path(project):
            of_project[name] = of_project.get(name, 0.0) + proc_s
    members = Counter(project for project, _ in of_owner.keys() | set(waiting))
    levels: dict[ProjectUser, list[Level]] = {}
    for project, user in waiting:
        path, rows = tree.path(project), levels.setdefault((project, user), [])
        for depth, name in enumerate(path):
            proc_s = of_project.get(name, 0.0)
            rows.append((path[:depth], _lead(name, share_of(tree, name), proc_s, slots)))
        share, proc_s = (
            share_of(tree, project) / members[project],
            of_owner.get((project, user), 0.0),
        )
        rows.append(((*path, ""), _lead(user, share, proc_s, slots)))
    return levels


def _lead(name: str, share: float, proc_s: float, slots: int) -> Lead:
    seconds = min(proc_s / max(share * slots, LEAST), LONGEST_S)
    return Lead(name=name, share=share, usage_proc_s=proc_s, seconds=seconds)


def share_of(tree: ProjectTree, project: str) -> float:
    """Share of a project, or of the others, of everything."""
    return tree.shares.get(project, tree.shares[OTHERS])


@dataclass(slots=True)
class Turns:
    """Factors of waiting jobs, one after the other: each behind its owner's earlier ones."""

    state: State
    now: float
    owners: set[ProjectUser] = field(default_factory=set)
    """Who has jobs waiting."""
    slots: int = 0
    """Of the site."""
    leads: dict[ProjectUser, tuple[Lead, ...]] = field(default_factory=dict)
    lead_s: dict[ProjectUser, float] = field(default_factory=dict)
    """Sums of these, seconds."""
    least: dict[tuple[str, ...], float] = field(default_factory=dict)
    """From where leads are counted, by what the siblings have in common, seconds."""
    sharers: Counter[str] = field(default_factory=Counter)
    """By project: how many of them."""
    ahead_s: dict[ProjectUser, float] = field(default_factory=dict)
    """Entitlement that their jobs so far take, seconds."""
    most: dict[ProjectUser, float] = field(default_factory=dict)

    def meet(self, owners: Collection[ProjectUser]) -> None:
        """Count these owners among those who have jobs waiting; who comes later moves no other."""
        self.owners.update(owners)
        self.sharers = Counter(project for project, _ in self.owners)
        self.slots = capacity(self.state)
        self.most = {owner: self.state.sharing.tree.max_weight(*owner) for owner in self.owners}
        if not self.slots or not self.state.settings.priority.shares:
            return
        levels = _levels(self.state, self.owners, self.slots, self.now)
        least = dict[tuple[str, ...], float]()
        for above, lead in chain.from_iterable(levels.values()):
            least[above] = min(least.get(above, lead.seconds), lead.seconds)
        self.least = least | self.least
        for owner in owners:
            self.leads[owner] = tuple(
                replace(lead, seconds=lead.seconds - self.least[above])
                for above, lead in levels[owner]
            )
            self.lead_s[owner] = sum(lead.seconds for lead in self.leads[owner])

    def precedence(self, record: JobRecord) -> Precedence:
        """The place of a job behind those before it."""
        found = self.of(record)
        return -found.precedence, -found.weight, arrival(record.id)

    def of(self, record: JobRecord) -> Factors:
        """The factors of the next job, which takes its turn."""
        rule, tree = self.state.settings.priority, self.state.sharing.tree
        owner = owner_of(self.state, record)
        if owner not in self.owners:
            self.meet((owner,))
        project, _ = owner
        before_s, shares = self.ahead_s.get(owner, 0.0), 0.0
        leads = self.leads.get(owner)
        if leads is not None:
            shares = -min((self.lead_s[owner] + before_s) / rule.step_s, rule.shares or 0.0)
            share = share_of(tree, project) / self.sharers[project]
            entitled = max(share * self.slots, LEAST)
            self.ahead_s[owner] = before_s + charge_of(self.state, record, rule) / entitled
        allowed = min(record.job.weight, self.most[owner])
        waited_s = max(self.now - max(record.submitted, record.job.earliest), 0.0)
        age = rule.age * min(waited_s / rule.age_full_s, 1.0) if rule.age else 0.0
        share = narrowest(record.job) / max(self.slots, 1) if rule.size else 0.0
        size = rule.size * min(share, 1.0)
        return Factors(
            submitted=record.job.weight,
            allowed=allowed,
            operator=record.priority,
            age=age,
            size=size,
            shares=shares,
            leads=leads or (),
            ahead_s=before_s,
            weight=within(allowed * 2.0 ** (record.priority + age + size + shares)),
        )


def factors(
    state: State, records: Iterable[JobRecord], now: float, turns: Turns | None = None
) -> Iterator[tuple[JobRecord, Factors]]:
    """The factors of waiting jobs, which are given in arrival order; `turns` go on behind them."""
    asked = list(records)
    names = {record.id for record in asked}
    # What waits in the clusters' queues has not had its share yet, and goes before.
    queued = (record for record in state.placed_records() if record.is_in_queues)
    chosen = [*(record for record in queued if record.id not in names), *asked]
    turns = turns or Turns(state, now)
    turns.meet({owner_of(state, record) for record in chosen})
    for record in chosen:
        found = turns.of(record)
        if record.id in names:
            yield record, found


def charge_of(state: State, record: JobRecord, rule: PriorityConfig) -> float:
    """Charge to its project at a job's start, processor-seconds."""
    job = record.job
    match job:
        case RigidJob() | MoldableJob():
            procs = narrowest(record.job)
            beside = beside_slots(rule, job, procs, job.shape.min_nodes)
            return (least_slots(state, job, procs) + beside) * min(
                base_time(job, procs), rule.ahead_s
            )
        case WorkflowJob(tasks=tasks):
            return min(sum(task.work for task in tasks), narrowest(record.job) * rule.ahead_s)
        case DivisibleJob(work=work):
            return min(work, rule.ahead_s)
