"""Authorization in multi-user mode: from the key that signed a message to a user and a role.

Every message is looked up, not every connection: a key that is revoked is refused from its next
message on. What a user costs is limited in two ways, by number and by the daemon's time; a user
who is over his limit is refused in microseconds, and no other user waits for him.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from structlog.stdlib import BoundLogger

from coalloc.core.base.events import Caller
from coalloc.core.base.messages import ROOT_REFUSED
from coalloc.core.base.requests import Refused, RequestError
from coalloc.daemon.access.key_table import Grant, KeyTable, Role
from coalloc.model.settings import AccessConfig
from coalloc.runtime.key_files import fingerprint
from coalloc.runtime.logs import RateLimit
from coalloc.wire.curve import BROKEN, CLOSED, KeyPair
from coalloc.wire.server import CLIENTS, EXECUTORS, WATCHERS

BYTES_PER_REQUEST = 1 << 16
"""A longer request counts as several."""
TIME_SHARE = 0.25
"""Of the daemon's time that one user's questions may take."""
TIME_BURST_S = 0.1
"""Nobody else waits longer for the questions of one user, and one answer more."""
REFUSALS_PER_REQUEST, REFUSALS_AT_ONCE = 2.0, 2000.0
"""A user who asks too fast is told so this often for each request he may make, and so many times
at once; what he sends beyond is not even answered."""
TOLD_EVERY_S = 1.0
"""Of the same refusal to the same user, one line in this time, with a count; seconds."""
UNANSWERED = Refused(code="too_fast", message="")
REVOKED = Refused(code="not_allowed", message="this key was revoked")
EXECUTORS_ONLY = Refused(code="not_allowed", message="this key is an executor's")

ADMITTED = {
    CLIENTS: (Role.SUBMIT, Role.OPERATOR),
    EXECUTORS: (Role.EXECUTOR,),
    # Publications go to all watchers alike; other users ask for events on the clients' socket.
    WATCHERS: (Role.OPERATOR,),
}
JOB_NUMBER = re.compile(r"job [\d_.]+")
BEFORE_A_KEY = {
    BROKEN: "no key, or made for another daemon",
    CLOSED: "no key: it hung up before it showed one",
}
"""What is said of handshakes that ended before `Access.admits` was asked."""


class TokenBucket:
    """So many units at once, and so many in a second; one that is overdrawn pays back first."""

    def __init__(self, per_s: float, burst: float) -> None:
        self.per_s, self.burst = per_s, burst
        self._left, self._at = burst, 0.0

    def left(self, now: float) -> float:
        self._left = min(self.burst, self._left + (now - self._at) * self.per_s)
        self._at = now
        return self._left

    def take(self, units: float) -> None:
        """Take them, also more than there are."""
        self._left -= units


def user_buckets(per_s: float, burst: float) -> defaultdict[int, TokenBucket]:
    """A token bucket for each user, by number; full at first."""
    return defaultdict(lambda: TokenBucket(per_s, burst))


class Access:
    """The guard of the daemon's sockets, where users are told apart by their keys."""

    def __init__(
        self,
        pair: KeyPair,
        table: KeyTable,
        settings: AccessConfig,
        log: BoundLogger,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pair, self.table, self.clock = pair, table, clock
        self.log, self._refused = log, RateLimit(TOLD_EVERY_S)
        self.configure(settings)

    def configure(self, settings: AccessConfig) -> None:
        self.settings = settings
        rate = settings.requests_per_s
        self._requests = user_buckets(rate, settings.burst)
        self._seconds = user_buckets(TIME_SHARE, TIME_BURST_S)
        self._refusals = user_buckets(REFUSALS_PER_REQUEST * rate, REFUSALS_AT_ONCE)

    def refused(self, event: str, who: str, kind: str, **fields: Any) -> None:
        """Log a refusal with ``audit=true``; those of one kind to one party share a line a second.

        The party is a user, or a socket where no user is known: nothing that it can vary. For the
        same reason the kind is not the text of the refusal.
        """
        if count := self._refused.once_per(f"{event} {who} {kind}"):
            self.log.warning(event, audit=True, **fields, count=count)

    def admits(self, domain: str, key: str) -> bool:
        grant = self.table.live(key)
        if grant is not None and grant.role in ADMITTED[domain]:
            return True
        known = self.table.known(key)
        code, what = ("unknown_key" if known is None else "revoked_key"), ""
        if grant is not None:
            code, what = "wrong_role", f"a key for {grant.role}"
        self.refused(
            "connection_refused",
            f"{domain} {known.uid if known else ''}",
            code,
            what=what or code.replace("_", " "),
            socket=domain,
            **_fields(known, key),
        )
        return False

    def handshaken(self, domain: str, outcome: str) -> None:
        """A handshake has ended; what `admits` has refused is told already."""
        what = BEFORE_A_KEY.get(outcome)
        if what is not None:
            self.refused("connection_refused", domain, outcome, what=what, socket=domain)

    def is_live(self, key: str) -> bool:
        return self.table.live(key) is not None

    def refusal(self, key: str, size: int) -> Refused | None:
        """Reason not to read a client's frame: revoked, or too many."""
        grant = self.table.live(key)
        if grant is None or grant.role is Role.EXECUTOR:
            refused = REVOKED if grant is None else EXECUTORS_ONLY
            code = "revoked_key" if grant is None else "wrong_role"
            self._audit_key("request_refused", key, code, what=refused.message)
            return refused
        if not self.settings.requests_per_s:
            return None
        now = self.clock()
        requests, seconds = self._requests[grant.uid], self._seconds[grant.uid]
        if requests.left(now) >= 1.0 and seconds.left(now) > 0.0:
            requests.take(1.0 + size / BYTES_PER_REQUEST)
            return None
        rate = self.settings.requests_per_s
        told = self._refusals[grant.uid]
        if told.left(now) < 1.0:
            return UNANSWERED
        told.take(1.0)
        message = f"{grant.user} asks too much; at most {rate:g} requests in a second"
        self._audit_key("request_refused", key, "too_fast", what="too many requests")
        return Refused(code="too_fast", message=message)

    def charge(self, key: str, seconds: float) -> None:
        """A request of this key has kept the daemon busy for so long."""
        grant = self.table.live(key)
        if grant is not None:
            self._seconds[grant.uid].take(seconds)

    def caller(self, key: str) -> Caller:
        """The user of a request whose key was good when it came."""
        grant = self.table.known(key)
        if grant is None:
            raise RequestError("not_allowed", "unknown key")
        return Caller(
            user=grant.user,
            uid=grant.uid,
            gid=grant.gid,
            operator=grant.role is Role.OPERATOR,
            key=key,
        )

    def check_submit(self, caller: Caller) -> None:
        """Refuse jobs that no executor would start. Raises `RefusedError`."""
        if caller.uid == 0 and not self.settings.root_jobs:
            raise RequestError("not_allowed", ROOT_REFUSED)

    def may_speak_for(self, key: str, cluster: str) -> bool:
        grant = self.table.live(key)
        return grant is not None and grant.role is Role.EXECUTOR and cluster in grant.clusters

    def statement_refused(self, key: str, cluster: str) -> None:
        cluster = cluster[:80]
        code, what = "wrong_cluster", f"not an executor of {cluster}"
        if self.table.live(key) is None:
            code, what = "revoked_key", "revoked key"
        self._audit_key("statement_refused", key, code, what=what, cluster=cluster)

    def _audit_key(self, event: str, key: str, code: str, **fields: Any) -> None:
        """A refusal to the holder of a key that is in the table."""
        known = self.table.known(key)
        who = "" if known is None else str(known.uid)
        self.refused(event, who, code, **fields, **_fields(known, key))

    def request_refused(self, caller: Caller, refused: Refused) -> None:
        """A request was understood, and is not the caller's to make."""
        self.refused(
            "request_refused",
            str(caller.uid),
            JOB_NUMBER.sub("job", refused.message),
            what=refused.message,
            user=caller.user,
            uid=caller.uid,
            key=fingerprint(caller.key),
        )


def _fields(grant: Grant | None, key: str) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"key": fingerprint(key)}
    return fields if grant is None else {**fields, "user": grant.user, "uid": grant.uid}
