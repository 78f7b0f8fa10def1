"""Tells operators of events: by a command, a webhook or mail, in a thread of its own.

The daemon's loop puts a notice into a bounded queue, and goes on; where the queue is full the
notice is dropped, counted and logged. What users wrote reaches the command as JSON on its standard
input, never as an argument and never through a shell.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from email.message import EmailMessage
from threading import Event, Thread
from urllib.request import HTTPRedirectHandler, Request, build_opener

from structlog.stdlib import BoundLogger

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.records import JobRecord
from coalloc.daemon.monitoring.figures import Survey
from coalloc.daemon.monitoring.notices import Notice, Watch, job_notice
from coalloc.model.event_kinds import EventKind
from coalloc.model.settings import NotifyConfig
from coalloc.runtime.logs import RateLimit

TOLD_EVERY_S = 60.0
"""Between two log lines of the same trouble, seconds."""
STOP_S = 2.0
KEPT = ("PATH", "HOME", "LANG", "TZ")
"""Variables of the daemon that a command sees."""


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
        """Something is to be told."""
        return bool(self.config.events)

    def recorded(self, event: AppendEvent, record: JobRecord | None) -> None:
        """Tell of a job's end, if that is wanted."""
        if event.kind is EventKind.JOB_ENDED and self.is_on:
            notice = job_notice(event, record, self.config.events)
            if notice is not None:
                self.offer(notice)

    def surveyed(self, found: Survey) -> None:
        """Tell what has changed since the look before."""
        for notice in self._watch.changes(found, self.config):
            if notice.event in self.config.events:
                self.offer(notice)

    def offer(self, notice: Notice) -> None:
        """Take a notice; never waits."""
        if self._waiting.qsize() >= self.config.queue:
            self.counts["dropped"] += 1
            self._trouble("notification_dropped", notice, "too many wait to be told")
            return
        self._waiting.put(notice)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="notify", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send no more; what is being sent has two seconds."""
        self._is_stopping.set()
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None and not self._is_stopping.is_set():
            config = self.config
            ways = {command: config.command, webhook: config.webhook, mail: config.mail_to}
            for send in (way for way, given in ways.items() if given):
                try:
                    send(notice, config)
                    self.counts["sent"] += 1
                except (OSError, subprocess.SubprocessError, ValueError) as error:
                    self.counts["failed"] += 1
                    self._trouble("notification_failed", notice, f"{send.__name__}: {error}")

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
    message = EmailMessage()
    message["To"] = ", ".join(config.mail_to)
    message["Subject"] = f"coalloc: {_line(notice.text)[:200]}"
    message["Auto-Submitted"] = "auto-generated"
    facts = "".join(f"{key}: {value}\n" for key, value in notice.fields.items())
    message.set_content(f"{notice.text}\n\n{facts}")
    _run((config.sendmail, "-i", "--", *config.mail_to), message.as_bytes(), config.timeout_s)


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


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


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
