"""Clusters that users register as their own, by the key of an executor of theirs.

A name is ``NAME@USER``, so that no user takes that of the site's or of another user's. Nothing is
stored but the key: a cluster is there for as long as one that speaks for it is not revoked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coalloc.daemon.access.key_table import Grant, KeyTable, KeyTableError, Role
from coalloc.model.settings import ClusterConfig, Config
from coalloc.model.values import replace

MAX_OWN = 8
"""Clusters of one owner."""


def check_own(table: KeyTable, clusters: Iterable[str], user: str, uid: int) -> None:
    """Refuse names that are no clusters of this user's, and too many. Raises `KeyTableError`."""
    for cluster in clusters:
        if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,31}}@{re.escape(user)}", cluster):
            what = f"there is no cluster {cluster[:80]!r}; one of {user}'s own is NAME@{user}"
            raise KeyTableError(f"clusters: {what}, of letters, digits, . _ -", "unknown_cluster")
    if len({*clusters, *owners_of(table.of_user(uid))}) > MAX_OWN:
        what = f"{user} has {MAX_OWN} clusters, and may have no more; disconnect one"
        raise KeyTableError(what, "too_many")


def owners_of(grants: Iterable[Grant]) -> dict[str, str]:
    """The owners of clusters that live keys register."""
    live = (each for each in grants if each.role is Role.EXECUTOR and each.revoked is None)
    named = ((name, grant.user) for grant in live for name in grant.clusters)
    return {name: user for name, user in named if name.endswith(f"@{user}")}


def with_own(config: Config, table: KeyTable) -> Config:
    """The configuration with the users' own clusters behind the site's."""
    named = {cluster.name for cluster in config.clusters}
    own = (
        ClusterConfig(name=name, owner=user, adapter="slurm")
        for name, user in sorted(owners_of(table).items())
        if name not in named
    )
    return replace(config, clusters=(*config.clusters, *own))
