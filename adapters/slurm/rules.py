"""Rules of a Slurm cluster: its partitions, and the limits of QOS and associations.

Associations and QOS are those that slurmctld has in memory (``scontrol -o show assoc_mgr``), which
every user may read unless the site forbids it (``PrivateData``). Pure functions, but for the
groups of a partition, which are looked up on this machine.
"""

from __future__ import annotations

import grp
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

from coalloc.adapters.slurm.parsers.records import NodeRecord, PartitionEntry
from coalloc.adapters.slurm.parsers.rules import AccountEntry, Bounds, Manager
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.sites.batch_options import NAMES, BatchOptions
from coalloc.model.sites.site_rules import (
    Association,
    Limits,
    PartitionRules,
    Room,
    SiteRules,
    narrower,
)
from coalloc.model.values import fields_of, replace

MOST_ASSOCIATIONS = 2000
"""With more of them, what they forbid is learnt: all are sent with each reading."""
LIMIT_STEP_S = 60.0


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
        limit_step_s=LIMIT_STEP_S,
        reservations=reservations,
        rooms=tuple(_rooms(settings, manager, smallest)) if manager and has_limits else (),
        licenses=licenses,
    )


def _rooms(settings: SlurmSettings, manager: Manager, smallest: int) -> Iterator[Room]:
    """Rests of limits in processes of ours, those of accounts for each of their users."""
    accounts = {each.account: each for each in manager.associations if not each.user}
    below = (
        replace(room, account=each.account, user=each.user)
        for each in manager.associations
        for one in _chain(each, accounts)
        for room in one.rooms
        if each.user
    )
    for room in (*manager.rooms, *below):
        if settings.slots == "cpus" and room.what != "node":  # a node may take one more
            yield room
        elif settings.slots == "node":
            each = smallest if room.what == "cpu" else 1
            yield replace(room, left=room.left // max(each, 1))


def _partition(entry: PartitionEntry) -> PartitionRules:
    gids, members = _groups(entry.groups)
    fields = fields_of(entry, PartitionRules) | {"gids": gids, "members": members}
    return PartitionRules(**fields)


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

    return Bounds(
        minutes=next((each.minutes for each in chain if each.minutes is not None), None),
        of_job=dict(ChainMap(*(dict(each.of_job) for each in chain))),
        together=reduce(narrower, (each.together for each in chain)),
    )


def _limits(settings: SlurmSettings, bounds: Bounds, smallest: int) -> Limits:
    """Bounds in nodes and processes of ours; CPUs of whole nodes are those of the smallest."""
    most = narrower(bounds.of_job, bounds.together)
    cpus, nodes = most.pop("cpu", None), most.pop("node", None)
    if settings.slots == "node" and cpus is not None:
        nodes = min(cpus // max(smallest, 1), cpus if nodes is None else nodes)
        cpus = None
    return Limits(
        time_s=None if bounds.minutes is None else bounds.minutes * 60.0,
        nodes=nodes,
        procs=cpus,
        resources=most,
    )
