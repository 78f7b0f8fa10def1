"""Enrolment: whose keys are authorized and revoked, asked by whom the kernel says.

One line of JSON asks, one answers (`coalloc.daemon.access.enrolment_socket` carries them). A user
has keys of his own bound to his own number, and proves that he holds their private halves; root and
the daemon's user decide over all keys. Changes are limited per user and minute.
"""

from __future__ import annotations

import hmac
import json
import math
import pwd
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from coalloc.core.base.requests import RequestError
from coalloc.daemon.access.access import Access, TokenBucket, user_buckets
from coalloc.daemon.access.key_table import Grant, KeyTableError, Role
from coalloc.daemon.access.own_clusters import check_own
from coalloc.model.settings import Config
from coalloc.runtime.key_files import fingerprint
from coalloc.wire.key_proof import ProofError, new_challenge

CHANGES_PER_MINUTE = 10
"""Keys that one user may enrol and revoke; as many at once."""
LINES_PER_S, LINES_AT_ONCE = 2.0, 60.0
"""Of one user, whatever they ask."""


class Peer(Struct, frozen=True, kw_only=True):
    """The process at the other end of the socket."""

    user: str
    uid: int
    is_admin: bool
    """Root, or the daemon's own user."""
    has_account: bool = True
    """False: a number without a name, of which a user of name spaces may have thousands."""


class Enrolment:
    """Decides over what is asked, and keeps the limits of each user.

    What is refused raises `RequestError`, or `KeyTableError` of the table. `on_change` is
    told of keys that may do less than before, `on_clusters` of every change; the table has times
    of `clock`, the limits go by `timer`.
    """

    def __init__(
        self,
        access: Access,
        config: Config,
        *,
        on_change: Callable[[str], None],
        on_clusters: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access, self.on_change, self.clock, self.timer = access, on_change, clock, timer
        self.on_clusters = on_clusters
        self.clusters = {cluster.name for cluster in config.clusters}
        self._changes = user_buckets(CHANGES_PER_MINUTE / 60.0, CHANGES_PER_MINUTE)
        self._lines = user_buckets(LINES_PER_S, LINES_AT_ONCE)

    def check_line(self, peer: Peer) -> None:
        """Refuse a question, unread, of a user who asks too often."""
        bucket = self._lines[peer.uid]
        self._check(bucket, peer, "asks too often", f"{LINES_PER_S:g} times in a second")
        bucket.take(1.0)

    def check_change(self, peer: Peer) -> None:
        """Refuse a change to a user who has made too many."""
        limit = f"{CHANGES_PER_MINUTE} times in a minute"
        bucket = self._changes[peer.uid]
        self._check(bucket, peer, "changes keys too often", limit)

    def _check(self, bucket: TokenBucket, peer: Peer, what: str, limit: str) -> None:
        left = bucket.left(self.timer())
        if left < 1.0 and not peer.is_admin:
            wait_s = math.ceil((1.0 - left) / bucket.per_s)
            raise RequestError(
                "too_fast", f"{peer.user} {what}, at most {limit}; try again in {wait_s} s"
            )

    def refused(self, error: RequestError | KeyTableError, peer: Peer) -> Mapping[str, Any]:
        self.access.refused(
            "enrolment_refused",
            str(peer.uid) if peer.has_account else "",
            error.code if isinstance(error, KeyTableError) else error.refused.code,
            what=str(error)[:200],
            user=peer.user,
            uid=peer.uid,
        )
        return {"error": str(error)}

    def prepare(self, body: Mapping[str, Any], peer: Peer) -> Grant:
        """The key that a user asks to have enrolled, if he may ask for it."""
        role = _role(body.get("role", Role.SUBMIT))
        user = body.get("user") or peer.user
        clusters = body.get("clusters") or ()
        if not isinstance(user, str) or not isinstance(clusters, list | tuple):
            raise RequestError("bad_request", "user, clusters: are not a text and a list")
        own = [
            str(name) for name in clusters if not (isinstance(name, str) and name in self.clusters)
        ]
        is_own = role is Role.SUBMIT or (role is Role.EXECUTOR and len(own) == len(clusters) > 0)
        account = _account(user) if peer.is_admin or user == peer.user else None
        if account is None or not (peer.is_admin or (account.pw_uid == peer.uid and is_own)):
            raise RequestError(
                "not_allowed",
                f"{peer.user} may enrol keys of his own to submit with, and for clusters of his "
                "own; ask root for other users and roles",
            )
        check_own(self.access.table, own, account.pw_name, account.pw_uid)
        return Grant(
            key=str(body.get("key")),
            user=account.pw_name,
            uid=account.pw_uid,
            gid=account.pw_gid,
            role=role,
            clusters=tuple(clusters),
            by=peer.user,
            added=self.clock(),
        )

    def kept(self, grant: Grant, peer: Peer, *, keep: bool) -> Grant | None:
        """The same key as it is enrolled already, which keeps the role it was given since."""
        old = self.access.table.live(grant.key)
        keep = keep or not peer.is_admin
        return old if old is not None and keep and old.uid == peer.uid == grant.uid else None

    def authorize(self, grant: Grant, peer: Peer) -> Grant:
        self.check_change(peer)
        was_live = self.access.table.live(grant.key) is not None
        self.access.table.authorize(grant, by_admin=peer.is_admin)
        self._changed("key_authorized", grant, peer, is_less=was_live)
        return grant

    def revoke(self, text: str, peer: Peer) -> Grant:
        """Take a key's rights away; to repeat it changes nothing."""
        table = self.access.table
        found = table.named(text, None if peer.is_admin else peer.uid)
        if found.revoked is not None:
            return found
        self.check_change(peer)
        grant = table.revoke(found.key, self.clock())
        self._changed("key_revoked", grant, peer, is_less=True)
        return grant

    def _changed(self, event: str, grant: Grant, peer: Peer, *, is_less: bool) -> None:
        self._changes[peer.uid].take(1.0)
        self.access.log.info(
            event,
            audit=True,
            key=fingerprint(grant.key),
            user=grant.user,
            uid=grant.uid,
            role=str(grant.role),
            clusters=list(grant.clusters),
            by=peer.user,
            by_uid=peer.uid,
        )
        if is_less:
            self.on_change(grant.key)
        self.on_clusters()


class Conversation:
    """The lines of one connection: a question and, where a key is to be proved, the proof."""

    def __init__(self, enrolment: Enrolment, peer: Peer) -> None:
        self._enrolment, self._peer = enrolment, peer
        self._pending: tuple[Grant, str] | None = None
        """A key that is enrolled as soon as its nonce comes back."""

    @property
    def is_open(self) -> bool:
        return self._pending is not None

    def answer(self, line: bytes) -> Mapping[str, Any]:
        pending, self._pending = self._pending, None
        try:
            body = _object(line)
            found = self._asked(body) if pending is None else self._proved(body, *pending)
        except (RequestError, KeyTableError) as error:
            return self._enrolment.refused(error, self._peer)
        return {"server": self._enrolment.access.pair.public, **found}

    def _asked(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        enrolment, peer = self._enrolment, self._peer
        match body.get("verb"):
            case "authorize":
                return self._authorize(body)
            case "revoke":
                return _row(enrolment.revoke(str(body.get("key")), peer))
            case "list":
                table = enrolment.access.table
                seen = list(table) if peer.is_admin else table.of_user(peer.uid)
                return {"keys": msgspec.to_builtins(seen)}
        verb = str(body.get("verb"))[:20]
        raise RequestError("bad_request", f"verb: {verb!r} is not authorize, revoke or list")

    def _authorize(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        enrolment, peer = self._enrolment, self._peer
        grant = enrolment.prepare(body, peer)
        kept = enrolment.kept(grant, peer, keep=bool(body.get("keep")))
        if kept is not None:
            return _row(kept)
        if peer.is_admin:
            return _row(enrolment.authorize(grant, peer))
        enrolment.access.table.check(grant, by_admin=False)
        enrolment.check_change(peer)
        try:
            challenge, nonce = new_challenge(grant.key, peer.uid)
        except ProofError as error:
            raise RequestError("unproved", str(error)) from error
        self._pending = grant, nonce
        return {"challenge": challenge}

    def _proved(self, body: Mapping[str, Any], grant: Grant, nonce: str) -> Mapping[str, Any]:
        if not hmac.compare_digest(str(body.get("proof")).encode(), nonce.encode()):
            raise RequestError("unproved", "proof: is not that of the key's private half")
        return _row(self._enrolment.authorize(grant, self._peer))


def _row(grant: Grant) -> Mapping[str, Any]:
    return {"key": msgspec.to_builtins(grant)}


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except (KeyError, ValueError):
        message = f"user: there is no account {user[:80]!r}"
        raise RequestError("unknown_user", message) from None


def _role(text: object) -> Role:
    try:
        return Role(str(text))
    except ValueError:
        message = f"role: {str(text)[:20]!r} is not one of {', '.join(Role)}"
        raise RequestError("bad_request", message) from None


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise RequestError("bad_request", "not one line with a JSON object")
    return body
