"""Rules of a cluster's batch system: partitions, QOS and associations, and whom they let in.

What is not known stands in nobody's way: it is learnt from refusals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, TypeVar

from msgspec import Struct, field

from coalloc.model.sites.batch_options import PLAIN, BatchOptions
from coalloc.model.values import replace

Number = TypeVar("Number", int, float)
UP = "UP"
MEMORY = "mem"
"""Among the names of resources, MiB."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds on one job of ours; None: there is none, or it is not known."""

    time_s: float | None = None
    """Longest time limit, seconds."""
    nodes: int | None = None
    procs: int | None = None
    """The most at once."""
    least_nodes: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    """The most of each at once, by name; ``mem``: MiB."""

    def and_those(self, other: Limits) -> Limits:
        return Limits(
            time_s=least_of(self.time_s, other.time_s),
            nodes=least_of(self.nodes, other.nodes),
            procs=least_of(self.procs, other.procs),
            least_nodes=max(self.least_nodes, other.least_nodes),
            resources=narrower(self.resources, other.resources),
        )


def least_of(one: Number | None, other: Number | None) -> Number | None:
    """The least of two limits; None is none."""
    return other if one is None else one if other is None else min(one, other)


def narrower(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The least that any of two says of each name."""
    return {name: min(one.get(name, most), most) for name, most in {**one, **other}.items()}


NO_LIMITS = Limits()


class PartitionRules(Struct, frozen=True, kw_only=True):
    """One partition, or queue."""

    name: str
    state: str = UP
    """``UP`` where it starts jobs."""
    limits: Limits = NO_LIMITS
    """As above."""
    default_time_s: float | None = None
    """Of a job that names no time limit, seconds."""
    qos: str = ""
    """Whose limits hold for all of its jobs; empty: none."""
    accounts: tuple[str, ...] | None = None
    """Those that may use it; None: all."""
    denied_accounts: tuple[str, ...] = ()
    allowed_qos: tuple[str, ...] | None = None
    """Those that may use it; None: all."""
    denied_qos: tuple[str, ...] = ()
    gids: tuple[int, ...] | None = None
    """Groups whose users may use it; None: all users may."""
    members: tuple[str, ...] = ()
    """Users of those groups, as far as they are listed there."""


class Association(Struct, frozen=True, kw_only=True):
    """A user of an account; the limits are those of the accounts above it too."""

    account: str
    user: str
    is_default: bool = False
    limits: Limits = NO_LIMITS


class Room(Struct, frozen=True, kw_only=True):
    """Rest of a limit on all the jobs of a QOS or an association that run now."""

    left: int
    """Processes of ours that may still start, or units of `what`; at 0 none may."""
    why: str
    """How much is used, in words."""
    what: str = ""
    """``cpu``, ``node`` or another resource, as ``gpu:a100``; empty: jobs."""
    qos: str = ""
    """Whose jobs it is for, as ``account`` and ``user``; empty: all."""
    account: str = ""
    user: str = ""


class SiteRules(Struct, frozen=True, kw_only=True):
    """Rules of a batch system for its jobs."""

    honoured: tuple[str, ...] = ("account",)
    """Options of jobs that it is told (`BatchOptions`)."""
    usual: BatchOptions = PLAIN
    """What jobs are submitted with that do not say otherwise, as ``batch``."""
    partitions: tuple[PartitionRules, ...] = ()
    """Below; empty: not known."""
    qos: Mapping[str, Limits] = field(default_factory=dict)
    """By name."""
    associations: tuple[Association, ...] | None = None
    """``account``, ``user``, ``is_default``, ``limits`` of each; null: none is needed, or they are
    not known."""
    limit_step_s: float = 0.0
    """Time limits are whole multiples of it there, seconds; 0: they are as asked for."""
    reservations: tuple[str, ...] = ()
    """Ids of those, among the reading's, that no job may run into."""
    rooms: tuple[Room, ...] = ()
    """Limits of which something is used, as ``left`` and ``why``, of whose jobs."""
    licenses: Mapping[str, tuple[int, int]] | None = None
    """All and free ones by name; null: they are not known."""
    bounds_memory: bool = True
    """Processes cannot take more than they asked for, as far as is known."""

    @property
    def are_of_time(self) -> bool:
        """Whether any of them depends on a job's time limit."""
        limits = [*self.qos.values(), *(one.limits for one in self.partitions)]
        limits += (one.limits for one in self.associations or ())
        return bool(self.reservations) or any(one.time_s is not None for one in limits)


class Asking(Struct, frozen=True, kw_only=True):
    """Whoever asks for nodes of a cluster, and what the batch system would be told of it."""

    user: str
    uid: int = -1
    gid: int = -1
    """-1: not known."""
    batch: BatchOptions = PLAIN
    """With the account that this cluster knows."""
    time_limit_s: float | None = None
    nodes: int = 1
    """At the most in one part."""
    least: int = 1
    """Slots, with fewer of which it does not start."""
    amounts: Mapping[str, int] = field(default_factory=dict)
    """The same of other resources."""


class Verdict(Struct, frozen=True, kw_only=True):
    """Verdict of a batch system on a job."""

    never: str = ""
    """Why it would never take it; empty: it would, as far as is known."""
    closed: str = ""
    """Why it takes nothing of its kind now."""
    full: str = ""
    """Why it would not start it at the moment: it may wait in the queue there."""
    partitions: tuple[str, ...] | None = None
    """Those that would; None: any, or they are not known."""
    limits: Limits = NO_LIMITS
    """Of each of its parts, the widest among those partitions."""
    default_time_s: float | None = None
    """Its time limit, where it has none of its own, seconds."""


ANY = Verdict()


def judged(rules: SiteRules, asking: Asking) -> Verdict:
    """Judge a job by the rules of a batch system."""
    for name, option in asking.batch.written():
        if name not in rules.honoured:
            return Verdict(never=f"{option} cannot be honoured there")
    batch = _filled(rules.usual, asking.batch)
    named = asking.batch.reservation
    is_there = any(id.partition(":")[2] == named for id in rules.reservations)
    if named and named != rules.usual.reservation and not is_there:
        return Verdict(never=f"there is no reservation {named} of its nodes")
    association, why = _association(rules, asking, batch.account)
    if batch.qos and rules.qos and batch.qos not in rules.qos:
        why = why or f"there is no QOS {batch.qos}"
    never, taken = _licenses(rules.licenses, batch.licenses)
    if why := why or never:
        return Verdict(never=why)
    limits = NO_LIMITS if association is None else association.limits
    account = batch.account or ("" if association is None else association.account)
    if batch.qos:
        limits = limits.and_those(rules.qos.get(batch.qos, NO_LIMITS))
    if why := _too_long(limits.time_s, asking.time_limit_s, _whose(batch, account)):
        return Verdict(never=why)
    full = taken or _full(rules, asking, account, batch.qos)
    if not rules.partitions:
        return Verdict(limits=limits, full=full)
    return _by_partitions(rules, asking, replace(batch, account=account), limits, full)


def _filled(usual: BatchOptions, own: BatchOptions) -> BatchOptions:
    given: dict[str, Any] = dict(own.given())
    return replace(usual, **given)


def _licenses(known: Mapping[str, tuple[int, int]] | None, asked: str) -> tuple[str, str]:
    """Reasons why there are never so many licences, or not now."""
    if known is None or "|" in asked:  # of which one is enough
        return "", ""
    taken = ""
    for item in filter(None, asked.replace(";", ",").split(",")):
        name, _, count = item.partition(":")
        if name not in known:
            return f"there is no licence {name}", ""
        (total, free), wanted = known[name], int(count) if count.isdecimal() else 1
        if wanted > total:
            return f"there are {total} licences {name}, the job asks for {wanted}", ""
        if wanted > free:
            taken = f"{free} of {total} licences {name} are free"
    return "", taken


SLOTS = frozenset({"", "cpu", "node"})
"""What rests of limits are counted in processes."""


def _full(rules: SiteRules, asking: Asking, account: str, qos: str) -> str:
    """The limit of the moment that is in a job's way; empty: none is."""
    return next(
        (
            room.why
            for room in rules.rooms
            if room.left
            < (asking.least if room.what in SLOTS else asking.amounts.get(room.what, 0))
            and room.qos in {"", qos}
            and room.account in {"", account}
            and room.user in {"", asking.user}
        ),
        "",
    )


def _whose(batch: BatchOptions, account: str) -> str:
    names = [f"QOS {batch.qos}"] if batch.qos else []
    return " or ".join([*names, *([f"account {account}"] if account else [])]) or "an account"


def _association(rules: SiteRules, asking: Asking, account: str) -> tuple[Association | None, str]:
    """The association that counts, or why there is none."""
    if rules.associations is None:
        return None, ""
    own = [each for each in rules.associations if each.user == asking.user]
    if not own:
        return None, f"{asking.user} has no account there"
    if not account:
        return next((each for each in own if each.is_default), None), ""
    found = next((each for each in own if each.account == account), None)
    if found is None:
        names = ", ".join(dict.fromkeys(each.account for each in own))
        return None, f"{asking.user} is not in account {account} there, only in {names}"
    return found, ""


def _by_partitions(
    rules: SiteRules, asking: Asking, batch: BatchOptions, limits: Limits, full: str
) -> Verdict:
    by_name = {each.name: each for each in rules.partitions}
    wanted = batch.partitions
    never, closed, taking = [], [], []
    for name in wanted:
        if name not in by_name:
            never.append(f"there is no partition {name}")
            continue
        partition = by_name[name]
        own = partition.limits.and_those(rules.qos.get(partition.qos, NO_LIMITS))
        widest = own.and_those(limits)
        why = next(_objections(partition, widest, asking, batch), "")
        if why:
            never.append(why)
        elif partition.state != UP:
            closed.append(f"partition {name} is {partition.state}")
        else:
            taking.append((partition, widest))
    if not wanted:
        return Verdict(limits=limits, full=full)
    if not taking:
        return Verdict(never="" if closed else ", ".join(never), closed=", ".join(closed))
    return Verdict(
        partitions=tuple(partition.name for partition, _ in taking),
        limits=_widest(each for _, each in taking),
        full=full
        or (_full(rules, asking, batch.account, taking[0][0].qos) if len(taking) == 1 else ""),
        default_time_s=min(
            (p.default_time_s for p, _ in taking if p.default_time_s is not None), default=None
        ),
    )


def _objections(
    partition: PartitionRules, limits: Limits, asking: Asking, batch: BatchOptions
) -> Iterator[str]:
    where = f"partition {partition.name}"
    yield from filter(None, (_too_long(limits.time_s, asking.time_limit_s, where),))
    account, qos = batch.account, batch.qos
    if account and (
        account in partition.denied_accounts
        or (partition.accounts is not None and account not in partition.accounts)
    ):
        yield f"{where} is not for account {account}"
    if qos and (
        qos in partition.denied_qos
        or (partition.allowed_qos is not None and qos not in partition.allowed_qos)
    ):
        yield f"{where} is not for QOS {qos}"
    is_outside = asking.gid not in (partition.gids or ()) and asking.user not in partition.members
    # Root may always; and of whom nothing is known, nothing is said.
    if partition.gids is not None and is_outside and asking.uid > 0 and asking.gid >= 0:
        yield f"{where} is not for {asking.user}"
    if asking.nodes < limits.least_nodes:
        what = "1" if asking.nodes == 1 else f"at most {asking.nodes}"
        yield f"{where} takes no fewer than {limits.least_nodes} nodes, the job has {what}"


def _too_long(most_s: float | None, asked_s: float | None, who: str) -> str:
    if most_s is None or asked_s is None or asked_s <= most_s:
        return ""
    return f"{who} allows {span_text(most_s)}, the job asks for {span_text(asked_s)}"


def _widest(limits: Iterable[Limits]) -> Limits:

    def most(values: list[Number | None]) -> Number | None:
        known = [value for value in values if value is not None]
        return max(known) if len(known) == len(values) else None

    each = list(limits)
    return Limits(
        time_s=most([one.time_s for one in each]),
        nodes=most([one.nodes for one in each]),
        procs=most([one.procs for one in each]),
        least_nodes=min(one.least_nodes for one in each),
        resources=reduce(_wider, (one.resources for one in each)),
    )


def _wider(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one[name], other[name]) for name in one.keys() & other.keys()}


def span_text(seconds: float) -> str:
    """A length of time in the largest unit that has no fraction: 90 s, 5 min, 2 h, 3 d."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size and seconds % size == 0.0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
