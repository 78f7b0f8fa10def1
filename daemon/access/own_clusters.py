"""Clusters that users register as their own, by the key of an executor of theirs.

A name is ``NAME@USER``, so that no user takes that of the site's or of another user's. Nothing is
stored but the key: a cluster is there for as long as one that speaks for it is not revoked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coalloc.core.base.requests import RequestError
from coalloc.daemon.access.key_table import Grant, KeyTable, Role
from coalloc.model.settings import ClusterConfig, Config
from coalloc.model.values import replace

MAX_OWN = 8
"""Clusters of one owner."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def check_own(table: KeyTable, clusters: Iterable[str], user: str, uid: int) -> None:
    """Refuse names that are no clusters of this user's, and too many. Raises `RequestError`."""
    for cluster in clusters:
        if not (cluster.endswith(f"@{user}") and NAME.fullmatch(cluster.removesuffix(f"@{user}"))):
            raise RequestError(
                "unknown_cluster",
                f"clusters: there is no cluster {cluster[:80]!r}; one of {user}'s own is called "
                f"NAME@{user}, with letters, digits, dots and dashes",
            )
    owned = {each.name for each in own_clusters(table.of_user(uid))} | set(clusters)
    if len(owned) > MAX_OWN:
        raise RequestError(
            "too_many", f"{user} has {MAX_OWN} clusters, and may have no more; disconnect one"
        )


def own_clusters(grants: Iterable[Grant]) -> list[ClusterConfig]:
    """The clusters of their owners' executors, by name."""
    owners = {
        cluster: grant.user
        for grant in grants
        if grant.role is Role.EXECUTOR and grant.revoked is None
        for cluster in grant.clusters
        if cluster.endswith(f"@{grant.user}")
    }
    return [
        ClusterConfig(name=name, owner=owner, adapter="slurm")
        for name, owner in sorted(owners.items())
    ]


def with_own(config: Config, table: KeyTable) -> Config:
    """The configuration with the users' own clusters behind the site's."""
    named = {cluster.name for cluster in config.clusters}
    own = (cluster for cluster in own_clusters(table) if cluster.name not in named)
    return replace(config, clusters=(*config.clusters, *own))
