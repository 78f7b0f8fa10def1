"""Tells operators, and users, of events: by a command, a webhook or mail, in a thread of its own.

The daemon's loop puts a notice into a bounded queue, and goes on; where the queue is full the
notice is dropped, counted and logged. What users wrote reaches the command as JSON on its standard
input, never as an argument and never through a shell.

Users are sent mail about their jobs if they asked for it, as sbatch sends it. Each is sent once at
most: what waits to be sent when the daemon ends is lost, and what happens while it is away is not
told.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage
from threading import Event, Thread
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

from msgspec import Struct, field
from structlog.stdlib import BoundLogger

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.records import JobRecord, JobState
from coalloc.daemon.access.access import TokenBucket
from coalloc.daemon.monitoring.figures import Survey
from coalloc.model.event_kinds import EventKind
from coalloc.model.mail import EACH_MEMBER, SHARES, is_address
from coalloc.model.settings import NotifiedEvent, NotifyConfig
from coalloc.runtime.logs import RateLimit
from coalloc.runtime.texts import printable

TOLD_EVERY_S = 60.0
"""Between two log lines of the same trouble, seconds."""
STOP_S = 2.0
KEPT = ("PATH", "HOME", "LANG", "TZ")
"""Variables of the daemon that a command sees."""
GOOD_ENDS = frozenset({JobState.COMPLETED, JobState.CANCELLED})
ENOUGH_AGAIN = 1.1
"""The disk is no longer low with so many times the limit, so that it is told once."""


class Notice(Struct, frozen=True, kw_only=True):
    """One event that is told."""

    event: str
    time: float
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs."""
    to: tuple[str, ...] = ()
    """Addresses of a user's mail; empty: it is for operators."""


def job_notice(
    event: AppendEvent, record: JobRecord | None, wanted: tuple[NotifiedEvent, ...]
) -> Notice | None:
    """The notice of a job's end; None: it is not wanted, or a task's or a piece's."""
    if event.kind is not EventKind.JOB_ENDED or record is None or record.flow:
        return None
    is_failure = record.state not in GOOD_ENDS
    kind: NotifiedEvent = "job_failed" if is_failure and "job_failed" in wanted else "job_ended"
    if kind not in wanted:
        return None
    return notice_of(record, event.time, kind)


def notice_of(
    record: JobRecord, time: float, event: str, what: str = "", to: tuple[str, ...] = ()
) -> Notice:
    """The notice of what has happened to a job; where that is not said, of its end."""
    code = "" if record.exit_code is None else f", exit code {record.exit_code}"
    why = f": {record.detail}" if record.detail else ""
    what = what or f"{record.state}{code}{why}"
    return Notice(
        event=event,
        time=time,
        to=to,
        text=f"job {record.id} ({record.name}) of {record.user}: {what}",
        fields={
            "job": record.id,
            "name": record.name,
            "user": record.user,
            "state": str(record.state),
            "exit_code": record.exit_code,
            "detail": record.detail,
            "clusters": list(record.clusters),
            "submitted": record.submitted,
            "started": record.started,
            "ended": record.ended,
        },
    )


class Watch:
    """Tells from one look to the next which clusters were lost, which returned, and a full disk."""

    def __init__(self) -> None:
        self._down_since: dict[str, float] = {}
        self._lost: set[str] = set()
        self._is_low = False

    def changes(self, found: Survey, config: NotifyConfig) -> Iterator[Notice]:
        """Changes since the look before; a cluster never seen counts from the first look."""
        for name in (self._down_since.keys() | self._lost) - found.clusters.keys():
            self._down_since.pop(name, None)
            self._lost.discard(name)
        for name, cluster in found.clusters.items():
            if cluster.up:
                self._down_since.pop(name, None)
                if name in self._lost:
                    self._lost.discard(name)
                    yield _cluster(found, "cluster_returned", name, "is read again")
                continue
            since = self._down_since.setdefault(name, found.time)
            if name not in self._lost and found.time - since >= config.lost_after_s:
                self._lost.add(name)
                what = f"could not be read for {found.time - since:.0f} s"
                why = f": {cluster.why}" if cluster.why else ""
                yield _cluster(found, "cluster_lost", name, f"{what}{why}")
        if found.disk is not None:
            yield from self._disk(found, found.disk[1], config.disk_low_mb << 20)

    def _disk(self, found: Survey, free: int, limit: int) -> Iterator[Notice]:
        if free >= limit * ENOUGH_AGAIN:
            self._is_low = False
        elif free < limit and not self._is_low:
            self._is_low = True
            yield Notice(
                event="disk_low",
                time=found.time,
                text=f"{free >> 20} MiB free on the disk of the store, fewer than {limit >> 20}",
                fields={"free_bytes": free, "limit_bytes": limit},
            )


def _cluster(found: Survey, kind: NotifiedEvent, name: str, text: str) -> Notice:
    fields = {"cluster": name, "detail": text}
    return Notice(event=kind, time=found.time, text=f"cluster {name} {text}", fields=fields)


Way = Callable[[Notice, NotifyConfig], None]


class Notifier:
    """Sends what is chosen; `close` ends it."""

    def __init__(self, config: NotifyConfig, log: BoundLogger) -> None:
        self.config, self._log = config, log
        self.counts: Counter[str] = Counter()
        """How often ``sent``, ``failed`` and ``dropped``."""
        self._waiting: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()
        self._thread: Thread | None = None
        self._is_stopping = Event()
        self._troubles = RateLimit(TOLD_EVERY_S)
        self._watch = Watch()

    @property
    def is_on(self) -> bool:
        return bool(self.config.events)

    def recorded(self, event: AppendEvent, record: JobRecord | None) -> None:
        if event.kind is EventKind.JOB_ENDED and self.is_on:
            notice = job_notice(event, record, self.config.events)
            if notice is not None:
                self.offer(notice)

    def surveyed(self, found: Survey) -> None:
        for notice in self._watch.changes(found, self.config):
            if notice.event in self.config.events:
                self.offer(notice)

    def offer(self, notice: Notice) -> None:
        """Take a notice; never waits."""
        if self._waiting.qsize() >= self.config.queue:
            self.drop(notice, "too many wait to be told")
            return
        self._waiting.put(notice)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="notify", daemon=True)
            self._thread.start()

    def drop(self, notice: Notice, why: str) -> None:
        self.counts["dropped"] += 1
        self._trouble("notification_dropped", notice, why)

    def close(self) -> None:
        """Send no more; what is being sent has two seconds."""
        self._is_stopping.set()
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None and not self._is_stopping.is_set():
            for send in self.ways():
                try:
                    send(notice, self.config)
                    self.counts["sent"] += 1
                except (OSError, subprocess.SubprocessError, ValueError) as error:
                    self.counts["failed"] += 1
                    self._trouble("notification_failed", notice, f"{send.__name__}: {error}")

    def ways(self) -> Iterator[Way]:
        config = self.config
        given = {command: config.command, webhook: config.webhook, mail: config.mail_to}
        return (way for way, value in given.items() if value)

    def _trouble(self, event: str, notice: Notice, why: str) -> None:
        if count := self._troubles.once_per(f"{event} {notice.event}"):
            self._log.warning(event, notice=notice.event, why=why[:300], count=count)


def body_of(notice: Notice) -> bytes:
    """The notice as commands and webhooks get it."""
    body = {
        "event": notice.event,
        "time": notice.time,
        "host": socket.gethostname(),
        "text": notice.text,
        **notice.fields,
    }
    return json.dumps(body).encode()


def command(notice: Notice, config: NotifyConfig) -> None:
    """Run the command with the notice on its standard input."""
    _run(config.command, body_of(notice), config.timeout_s)


def mail(notice: Notice, config: NotifyConfig) -> None:
    """Hand a mail to sendmail."""
    message, to = EmailMessage(), notice.to or config.mail_to
    message["To"] = ", ".join(to)
    message["Subject"] = f"coalloc: {printable(notice.text)[:200]}"
    message["Auto-Submitted"] = "auto-generated"
    facts = "".join(f"{key}: {value}\n" for key, value in notice.fields.items())
    message.set_content(f"{notice.text}\n\n{facts}")
    _run((config.sendmail, "-i", "--", *to), message.as_bytes(), config.timeout_s)


def webhook(notice: Notice, config: NotifyConfig) -> None:
    """Post the notice; where it is sent elsewhere by a redirection it is not followed."""
    headers = {"Content-Type": "application/json", "User-Agent": "coalloc"}
    request = Request(config.webhook, data=body_of(notice), headers=headers)
    with build_opener(_Stay).open(request, timeout=config.timeout_s):
        pass


class _Stay(HTTPRedirectHandler):
    """Follows no redirection."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


def _run(argv: Sequence[str], text: bytes, limit_s: float) -> None:
    """Run a program to its end, and end all that it has started where it takes too long."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={key: os.environ[key] for key in KEPT if key in os.environ},
        start_new_session=True,
    )
    with process:
        try:
            process.communicate(text, timeout=limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv[0])


HOUR_S = 3600.0
FIRST = "BEGIN"
"""Stands among the members that are left of an array of which none has begun."""


def types_of(event: AppendEvent, record: JobRecord) -> set[str]:
    """The types of mail that an event is."""
    if event.kind is EventKind.JOB_STARTED:
        return {"BEGIN"}
    if event.kind is not EventKind.JOB_ENDED:
        return {"REQUEUE"} if event.fields.get("ran") else set()
    types = {"END"} if record.state in GOOD_ENDS else {"END", "FAIL"}
    types |= {"TIME_LIMIT"} if record.state is JobState.TIMEOUT else set()
    return types | ({"INVALID_DEPEND"} if record.reason == "dependency" else set())


class UserMail(Notifier):
    """Sends it in a thread of its own, so many in an hour to one user.

    `jobs`: all jobs by id, as they are now; `began`: when the daemon did.
    """

    def __init__(
        self, config: NotifyConfig, log: BoundLogger, jobs: Mapping[str, JobRecord], began: float
    ) -> None:
        super().__init__(config, log)
        self._jobs, self._began, self._looked = jobs, began, began
        self._left: dict[str, set[str]] = {}
        """Members of arrays that have not ended."""
        self._buckets: dict[str, TokenBucket] = {}

    @property
    def is_on(self) -> bool:
        return self.config.user_mail

    def recorded(self, event: AppendEvent, record: JobRecord | None) -> None:
        """Tell what has happened to a job, if its user wants to know."""
        if record is None or not record.mail_type or record.flow or not self.is_on:
            return
        types, what = types_of(event, record), ""
        if record.array and EACH_MEMBER not in record.mail_type:
            types, what = self._of_array(record, types)
        if not types.isdisjoint(record.mail_type):
            told = {EventKind.JOB_STARTED: "has begun", EventKind.JOB_REQUEUED: "waits again"}
            self._send(record, event.time, what or told.get(event.kind, ""))

    def looked(self, placed: Iterable[JobRecord], now: float) -> None:
        """Tell whose run time has passed a share of its limit since the look before."""
        before, self._looked = self._looked, now
        for record in placed if self.is_on else ():
            for kind in SHARES.keys() & set(record.mail_type):
                at = (record.started or 0.0) + SHARES[kind] * (record.run_limit or 0.0)
                if record.started and record.run_limit and before < at <= now:
                    self._send(record, now, f"has run for {SHARES[kind]:.0%} of its time limit")

    def ways(self) -> Iterator[Way]:
        return iter((mail,))

    def _of_array(self, record: JobRecord, types: set[str]) -> tuple[set[str], str]:
        """Types of a member's event that are its array's: at its first start, and its last end."""
        left = self._left.get(record.array)
        if left is None:
            left = self._left[record.array] = {record.id, FIRST}
            members = list(self._members(record.array))
            left |= {each.id for each in members if not each.is_ended}
            if any((each.started or self._began) < self._began for each in members):
                left.remove(FIRST)
        if "END" not in types:
            is_first = FIRST in left and "BEGIN" in types
            left -= types
            return types if is_first else set(), "has begun, the first of its array"
        is_last = record.id in left and left <= {record.id, FIRST}
        left.discard(record.id)
        if not is_last:
            return set(), ""
        ends = Counter[str](each.state for each in self._members(record.array))
        ends = ends if record.rest is None else Counter(record.rest.ends)
        failed = sum(count for state, count in ends.items() if state not in GOOD_ENDS)
        types = {"END", "FAIL"} if failed else {"END"}
        return types, f"all of its array have ended, {failed} failed"

    def _members(self, array: str) -> Iterator[JobRecord]:
        begin = f"{array}_"
        return (job for id, job in self._jobs.items() if id.startswith(begin))

    def _send(self, record: JobRecord, now: float, what: str) -> None:
        """Send a mail, if its user has not had too many."""
        most = float(self.config.user_mails_per_h)
        bucket = self._buckets.setdefault(record.user, TokenBucket(most / HOUR_S, most))
        named = (record.mail_user or record.user).split(",")
        to = tuple(address for address in named if is_address(address))
        notice = notice_of(record, now, "user_mail", what, to)
        if bucket.left(now) < 1.0:
            self.drop(notice, f"{record.user} has had {most:g} in an hour")
        elif to:
            bucket.take(1.0)
            self.offer(notice)
