"""Parsers of what Slurm lets jobs do: partitions, licences, limits of QOS and associations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce

from msgspec import Struct, field

from coalloc.adapters.slurm.parsers.records import ParseError, PartitionEntry
from coalloc.adapters.slurm.parsers.text import (
    bound,
    present,
    read_duration,
    read_entries,
    read_pairs,
    read_words,
)
from coalloc.model.sites.site_rules import Limits, Room, narrower


class Bounds(Struct, frozen=True, kw_only=True):
    """Limits as an association or a QOS has them; None: none."""

    minutes: int | None = None
    """Of wall-clock time."""
    of_job: Mapping[str, int] = field(default_factory=dict)
    """``cpu``, ``node``, ``mem`` in MiB, and GRES, of one job."""
    together: Mapping[str, int] = field(default_factory=dict)
    """Of all jobs together, or of those of a user or an account."""


class AccountEntry(Struct, frozen=True, kw_only=True):
    """One association; `user` is empty for the account itself."""

    account: str
    user: str
    parent: str
    is_default: bool
    partition: str
    bounds: Bounds
    rooms: tuple[Room, ...] = ()


class Manager(Struct, frozen=True, kw_only=True):
    """Accounts and associations as slurmctld has them."""

    associations: tuple[AccountEntry, ...] = ()
    qos: Mapping[str, Bounds] = field(default_factory=dict)
    rooms: tuple[Room, ...] = ()
    """Of the limits of QOS."""


USED = {
    "GrpJobs": "GrpJobs",
    "GrpTRES": "GrpTRES",
    "MaxJobs": "MaxJobs",
    "MaxJobsPA": "MaxJobsPerAccount",
    "MaxTRESPA": "MaxTRESPerAccount",
    "MaxJobsPU": "MaxJobsPerUser",
    "MaxTRESPU": "MaxTRESPerUser",
}
"""Limits that scontrol shows with what is used of them, ``2(1)``, and sacctmgr's words for them."""


TOGETHER = ("GrpTRES", "MaxTRESPU", "MaxTRESPA")
"""Limits that no job by itself is within if it is beyond them."""
IN_BRACES = re.compile(r"(\S+)=\{([^}]*)\}")
OF_USE = re.compile(r"(?:^|,)(?:([a-z][^=,]*)=)?([0-9]{1,15})\(([0-9]{1,15})\)", re.A)
TAKEN = {"cpu": "CPUs", "node": "nodes", "mem": "MiB"}
"""Words for what is counted; others stand for themselves."""


def parse_partitions(text: str) -> tuple[PartitionEntry, ...]:
    """Partitions from the output of ``scontrol show partition``."""
    return read_entries(text, "PartitionName", None, "partitions", _partition, _odd_partition)


def _partition(pairs: Mapping[str, str], where: str) -> PartitionEntry:
    if "State" not in pairs:
        raise ParseError(where, "no State")
    return PartitionEntry(
        name=pairs["PartitionName"],
        state=pairs["State"].upper(),
        is_default=_is_default(pairs),
        limits=Limits(
            time_s=read_duration(pairs.get("MaxTime", ""), where),
            nodes=bound(pairs.get("MaxNodes", "")),
            least_nodes=bound(pairs.get("MinNodes", "")) or 0,
        ),
        default_time_s=read_duration(pairs.get("DefaultTime", ""), where),
        qos=present(pairs.get("QoS", "")),
        accounts=_allowed(pairs.get("AllowAccounts", "ALL")),
        denied_accounts=read_words(pairs.get("DenyAccounts", "")),
        allowed_qos=_allowed(pairs.get("AllowQos", "ALL")),
        denied_qos=read_words(pairs.get("DenyQos", "")),
        groups=_allowed(pairs.get("AllowGroups", "ALL")),
    )


def _odd_partition(pairs: Mapping[str, str], odd: str) -> PartitionEntry:
    name = pairs["PartitionName"]
    return PartitionEntry(name=name, state="not understood", is_default=_is_default(pairs), odd=odd)


def _is_default(pairs: Mapping[str, str]) -> bool:
    return pairs.get("Default", "").upper() == "YES"


def _allowed(text: str) -> tuple[str, ...] | None:
    """Those named in ``AllowAccounts`` and its like; None: all."""
    return None if text.strip().upper() in {"ALL", "(NULL)", ""} else read_words(text)


def parse_manager(text: str) -> Manager:
    """Accounts from the output of ``scontrol -o show assoc_mgr flags=assoc,qos``."""
    if not text.startswith("Current Association Manager state"):
        raise ParseError(text, "no association manager")
    associations, qos, names = [], {}, dict[str, str]()
    rooms: list[Room] = []
    for line in text.splitlines():
        if line.startswith("ClusterName="):
            pairs = read_pairs(line, None)
            user, _, uid = pairs.get("UserName", "").partition("(")
            names[uid.rstrip(")")] = user
            whose = f"{user} in account" if user else "account"
            whose = f"{whose} {pairs.get('Account', '')}"
            associations.append(
                AccountEntry(
                    account=pairs.get("Account", ""),
                    user=user,
                    parent=pairs.get("ParentAccount", "").partition("(")[0],
                    is_default=pairs.get("DefAssoc", "") == "Yes",
                    partition=pairs.get("Partition", ""),
                    bounds=_bounds(pairs),
                    rooms=tuple(_rooms(pairs, whose)),
                )
            )
        elif line.startswith("QOS="):
            head, _, each = line.partition(" Account Limits=")
            accounts, _, users = each.partition(" User Limits=")
            pairs = read_pairs(head, None)
            name = pairs["QOS"].partition("(")[0]
            # each user's and account's is shown only where it has used something
            own = " ".join(text for _, text in IN_BRACES.findall(each))
            qos[name] = _bounds(read_pairs(f"{own} {head}", None))
            rooms += _rooms(pairs, f"QOS {name}", qos=name)
            for account, text in IN_BRACES.findall(accounts):
                rooms += _rooms(read_pairs(text, None), f"QOS {name}", qos=name, account=account)
            for uid, text in IN_BRACES.findall(users):
                if user := names.get(uid, ""):
                    rooms += _rooms(read_pairs(text, None), f"QOS {name}", qos=name, user=user)
    return Manager(associations=tuple(associations), qos=qos, rooms=tuple(rooms))


def _rooms(pairs: Mapping[str, str], name: str, **whose: str) -> Iterator[Room]:
    """Limits of which something is used; of those on the number of jobs, what has no room left."""
    for key, limit in USED.items():
        for what, most, used in OF_USE.findall(pairs.get(key, "")):
            left, what = max(0, int(most) - int(used)), what.removeprefix("gres/")
            if int(used) and (what or not left):
                count = (
                    f"{TAKEN.get(what, what)} of {name} are taken"
                    if what
                    else f"jobs of {name} run"
                )
                why = f"{used} of {most} {count} ({limit})"
                yield Room(left=left, what=what, why=why, **whose)


def parse_licenses(text: str) -> dict[str, tuple[int, int]]:
    """Licences, all and free ones, from the output of ``scontrol -o show licenses``."""
    found = {}
    for line in text.splitlines():
        if line.startswith("LicenseName="):
            pairs = read_pairs(line, None)
            total, free = _count(pairs.get("Total", "")), _count(pairs.get("Free", ""))
            if total is None or free is None:
                raise ParseError(line, "a licence without its numbers")
            found[pairs["LicenseName"]] = total, free
    return found


def _bounds(pairs: Mapping[str, str]) -> Bounds:
    found = {key: _resources(pairs.get(key, "")) for key in ("MaxTRESPJ", *TOGETHER)}
    return Bounds(
        minutes=_count(pairs.get("MaxWallPJ", "")),
        of_job=found["MaxTRESPJ"],
        together=reduce(narrower, (found[key] for key in TOGETHER)),
    )


def _resources(text: str) -> dict[str, int]:
    """``cpu=8(0),node=N(0),gres/gpu=2(0)`` as the counts that are bounded."""
    pieces = (piece.partition("=") for piece in text.split(","))
    counts = {name.removeprefix("gres/"): _count(value) for name, _, value in pieces}
    return {name: count for name, count in counts.items() if count is not None}


def _count(text: str) -> int | None:
    found = re.match(r"([0-9]{1,15})(?:\(|$)", text, re.A)
    return int(found[1]) if found else None


def enforced(config: str) -> frozenset[str]:
    """Words of ``AccountingStorageEnforce`` in ``scontrol show config``."""
    found = re.search(r"^AccountingStorageEnforce[ \t]*=[ \t]*(\S*)", config, re.M)
    return frozenset(found[1].lower().split(",")) if found else frozenset()
