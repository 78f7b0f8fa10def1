"""Rules of a Slurm cluster: its partitions, and the limits of QOS and associations.

Associations and QOS are those that slurmctld has in memory (``scontrol -o show assoc_mgr``), which
every user may read unless the site forbids it (``PrivateData``). Pure functions, but for the
groups of a partition, which are looked up on this machine.
"""

from __future__ import annotations

import grp
from collections.abc import Iterable, Iterator, Mapping

from coalloc.adapters.slurm.parsers.records import NodeRecord, PartitionEntry
from coalloc.adapters.slurm.parsers.rules import AccountEntry, Bounds, Manager, Use
from coalloc.adapters.slurm.part_commands import HOLD_S
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.sites.batch_options import NAMES, BatchOptions
from coalloc.model.sites.site_rules import (
    Association,
    License,
    Limits,
    PartitionRules,
    Room,
    SiteRules,
)

MOST_ASSOCIATIONS = 2000
"""With more of them, what they forbid is learnt: all are sent with each reading."""
ADDED_S = HOLD_S + 60.0
"""What a part's limit is longer by than its job's at the most, but for the grace, seconds."""
GRACE_S = 10.0


def site_rules(
    settings: SlurmSettings,
    partitions: Iterable[PartitionEntry],
    nodes: Iterable[NodeRecord],
    manager: Manager | None,
    words: frozenset[str],
    reservations: tuple[str, ...] = (),
    licenses: Mapping[str, tuple[int, int]] | None = None,
) -> SiteRules:
    """Rules of the cluster as planning sees them.

    Without a manager there is none, or it may not be read; `words` say what is enforced of it.
    `reservations` are the ids of those into which no job may run, `licenses` how many there are of
    each, and how many are free.
    """
    entries = tuple(partitions)
    smallest = min((node.cpus for node in nodes), default=1)
    has_limits = manager is not None and bool(words & {"limits", "safe"})
    usual = next((p.name for p in entries if p.is_default), "")
    associations = None
    if manager is not None and words & {"associations", "limits", "qos", "safe", "wckeys"}:
        associations = _associations(settings, manager, smallest, has_limits=has_limits)
    qos = manager.qos if manager is not None and words & {"limits", "qos", "safe"} else {}
    return SiteRules(
        honoured=NAMES,
        usual=BatchOptions(
            partition=settings.partition or usual,
            account=settings.account,
            qos=settings.qos,
            reservation=settings.reservation,
        ),
        partitions=tuple(
            _partition(entry) for entry in entries if entry.name != settings.handover_partition
        ),
        qos={
            name: _limits(settings, bounds, smallest) if has_limits else Limits()
            for name, bounds in qos.items()
        },
        associations=associations,
        added_s=ADDED_S + GRACE_S,
        reservations=reservations,
        rooms=tuple(_rooms(settings, manager, smallest)) if manager and has_limits else (),
        licenses=None
        if licenses is None
        else {name: License(total=all, free=free) for name, (all, free) in licenses.items()},
    )


def _rooms(settings: SlurmSettings, manager: Manager, smallest: int) -> Iterator[Room]:
    """Limits of which something is used now, each with what is left of it."""
    for use in manager.uses:
        yield from _room(settings, use, smallest, f"QOS {use.qos}", qos=use.qos)
    accounts = {each.account: each for each in manager.associations if not each.user}
    for each in manager.associations:
        if not each.user:
            continue
        for one in _chain(each, accounts):
            name = f"{one.user} in account {one.account}" if one.user else f"account {one.account}"
            for use in one.uses:
                mine = {"user": each.user, "account": each.account}
                yield from _room(settings, use, smallest, name, **mine)


def _room(
    settings: SlurmSettings, use: Use, smallest: int, name: str, **whose: str
) -> Iterator[Room]:
    left, is_whole = max(0, use.most - use.used), settings.slots == "node"
    what, says = {"cpu": ("CPUs", "are taken"), "node": ("nodes", "are taken")}.get(
        use.what, ("jobs", "run")
    )
    if use.what == "cpu" and is_whole:
        left //= max(smallest, 1)
    # A node that another job has may take one more, and jobs are counted one by one.
    if not use.used or (left and not use.what) or (use.what == "node" and not is_whole):
        return
    whose = {"account": use.account, "user": use.user} | whose
    why = f"{use.used} of {use.most} {what} of {name} {says} ({use.limit})"
    yield Room(left=left, why=why, **whose)


def _partition(entry: PartitionEntry) -> PartitionRules:
    gids, members = _groups(entry.groups)
    return PartitionRules(
        name=entry.name,
        state=entry.state,
        limits=Limits(time_s=entry.max_time_s, nodes=entry.max_nodes, least_nodes=entry.min_nodes),
        default_time_s=entry.default_time_s,
        qos=entry.qos,
        accounts=entry.accounts,
        denied_accounts=entry.denied_accounts,
        allowed_qos=entry.allowed_qos,
        denied_qos=entry.denied_qos,
        gids=gids,
        members=members,
    )


def _groups(names: tuple[str, ...] | None) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """Ids and listed members of groups; no bound where one of them is not known here."""
    if names is None:
        return None, ()
    found = []
    for name in names:
        try:
            found.append(grp.getgrnam(name))
        except (KeyError, ValueError):
            return None, ()
    return (
        tuple(group.gr_gid for group in found),
        tuple(dict.fromkeys(user for group in found for user in group.gr_mem)),
    )


def _associations(
    settings: SlurmSettings, manager: Manager, smallest: int, *, has_limits: bool
) -> tuple[Association, ...] | None:
    """Those of users, each with the limits of the accounts above it."""
    users = [each for each in manager.associations if each.user and not each.partition]
    if len(users) > MOST_ASSOCIATIONS or any(each.partition for each in manager.associations):
        return None
    accounts = {each.account: each for each in manager.associations if not each.user}
    return tuple(
        Association(
            account=each.account,
            user=each.user,
            is_default=each.is_default,
            limits=(
                _limits(settings, _inherited(each, accounts), smallest) if has_limits else Limits()
            ),
        )
        for each in users
    )


def _chain(entry: AccountEntry, accounts: Mapping[str, AccountEntry]) -> list[AccountEntry]:
    """An association, and the accounts above it."""
    chain, above = [entry], accounts.get(entry.account)
    while above is not None and len(chain) <= len(accounts) + 1:
        chain.append(above)
        above = accounts.get(above.parent) if above.parent != above.account else None
    return chain


def _inherited(entry: AccountEntry, accounts: Mapping[str, AccountEntry]) -> Bounds:
    """A job's bounds are those of the nearest that has any; all jobs' hold at every level."""
    chain = [each.bounds for each in _chain(entry, accounts)]

    def nearest(name: str) -> int | None:
        return next((v for each in chain if (v := getattr(each, name)) is not None), None)

    def least(name: str) -> int | None:
        return min((v for each in chain if (v := getattr(each, name)) is not None), default=None)

    return Bounds(
        minutes=nearest("minutes"),
        cpus=nearest("cpus"),
        nodes=nearest("nodes"),
        all_cpus=least("all_cpus"),
        all_nodes=least("all_nodes"),
    )


def _limits(settings: SlurmSettings, bounds: Bounds, smallest: int) -> Limits:
    """Bounds in nodes and processes of ours; CPUs of whole nodes are those of the smallest."""
    cpus = [v for v in (bounds.cpus, bounds.all_cpus) if v is not None]
    nodes = [v for v in (bounds.nodes, bounds.all_nodes) if v is not None]
    if settings.slots == "node":
        nodes += [count // max(smallest, 1) for count in cpus]
        cpus = []
    return Limits(
        time_s=None if bounds.minutes is None else bounds.minutes * 60.0,
        nodes=min(nodes, default=None),
        procs=min(cpus, default=None),
    )
