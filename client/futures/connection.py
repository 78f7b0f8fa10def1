"""Talk of `coalloc.Executor` with the daemon: two threads, one client each.

One sends submits, many at a time, and cancellations. The other follows the event stream, so that
a thousand jobs cost no more questions than one. Both outlive a restart of the daemon: submits go
out again with the same token, and the stream goes on where it stopped; where it does not (an older
copy of the store, events already removed), the queue is read page by page.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeGuard

from coalloc.client.client import Client, NoAnswerError, RefusedError
from coalloc.client.futures.future import Call
from coalloc.model.event_kinds import EventKind
from coalloc.model.values import fields_of
from coalloc.wire.answers import EndedJob, Event, Submitted

ENDED = frozenset({"completed", "failed", "cancelled", "timeout", "lost"})
RETRIED = frozenset({"storage", "busy", "too_many"})
"""Refusals after which the same request may succeed later."""
PAUSE_S = 0.5
"""Between tries, seconds."""
BATCH = 1000
"""Submits under way at a time."""


class QueueFullError(Exception):
    """The daemon takes no more jobs of ours before some have started."""


class RetryBudget:
    """For how long something has failed without a success in between."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None

    def too_long(self, error: Exception | None) -> TypeGuard[Exception]:
        """Note a failure, or a success (None); True once patience is over."""
        if error is None or isinstance(error, QueueFullError):
            self._since = None
            return False
        now = time.monotonic()
        self._since = self._since or now
        return now - self._since > self._patience_s


class DaemonConnection:
    """Carries calls to the daemon and their ends back; there must be one.

    `client` makes a client for each thread. The daemon may be away, or refuse for the moment, for
    `patience_s`.
    """

    def __init__(self, client: Callable[[], Client], patience_s: float) -> None:
        self._client = client
        self._sending_fails = RetryBudget(patience_s)
        self._following_fails = RetryBudget(patience_s)
        self._changed = threading.Condition()
        self._to_send: deque[Call] = deque()
        self._to_cancel: deque[Call] = deque()
        self._sending: list[Call] = []
        self._by_job: dict[str, Call] = {}
        self._early: dict[str, EndedJob] = {}
        self._stopping = False
        self._pid = os.getpid()
        with client() as first:
            last = first.last_event()
        self._threads = [
            threading.Thread(target=self._follow, args=(last,), name="coalloc-follow", daemon=True),
            threading.Thread(target=self._send, name="coalloc-send", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether this process has the threads, not the one that was forked."""
        return self._pid == os.getpid()

    def submit(self, call: Call) -> None:
        with self._changed:
            self._to_send.append(call)
            self._changed.notify_all()

    def withdraw(self, call: Call) -> None:
        """Have a call's job ended, or never submitted."""
        with self._changed:
            call.withdrawn = True
            self._to_cancel.append(call)
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until every call has ended, and what was withdrawn has been told to the daemon."""
        with self._changed:
            self._changed.wait_for(self._is_settled)

    def _is_settled(self) -> bool:
        return not (self._to_send or self._to_cancel or self._sending or self._by_job)

    def stop(self, *, join: bool) -> None:
        """End both threads when everything has been sent and has ended."""
        if not self.is_ours:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if join:
            for thread in self._threads:
                thread.join()

    def _is_over(self) -> bool:
        return self._stopping and self._is_settled()

    # Sending

    def _send(self) -> None:
        client = self._client()
        while self._take():
            trouble: Exception | None
            try:
                trouble = self._sent(client)
                self._cancelled(client)
            except NoAnswerError as error:
                trouble = error
                client.close()
            except Exception as error:  # a defect must not leave futures that never end
                self._give_up(error)
                continue
            if self._sending_fails.too_long(trouble):
                self._give_up(trouble)
            elif trouble is not None:
                with self._changed:
                    self._changed.wait_for(lambda: False, PAUSE_S)
        client.close()

    def _take(self) -> bool:
        """Wait for something to do, and choose it; False at the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._to_send or self._to_cancel or self._sending or self._is_over()
            )
            while self._to_send and len(self._sending) < BATCH:
                self._sending.append(self._to_send.popleft())
            return not self._is_over()

    def _sent(self, client: Client) -> Exception | None:
        """Submit what was chosen; returns a refusal that may pass."""
        with self._changed:
            unwanted = [call for call in self._sending if call.withdrawn and not call.sent]
        for call in unwanted:
            self._drop(call)
        batch = list(self._sending)
        for call in batch:
            call.sent = True
        passing: Exception | None = None
        outcomes = client.submit_many([call.body for call in batch])
        for call, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Submitted):
                self._register(call, outcome.job)
            elif outcome.code in RETRIED:
                # With jobs of ours in the queue, its limit is only a matter of time.
                full = outcome.code == "too_many" and self._by_job
                passing = QueueFullError(str(outcome)) if full else outcome
            else:
                self._drop(call)
                call.future.fail(outcome)
        return passing

    def _drop(self, call: Call) -> None:
        with self._changed:
            if call in self._sending:
                self._sending.remove(call)
            self._forget_early()
            self._changed.notify_all()

    def _register(self, call: Call, job: str) -> None:
        call.future.accept(job)
        with self._changed:
            self._sending.remove(call)
            ending = self._early.pop(job, None)
            if ending is None:
                self._by_job[job] = call
            if call.withdrawn and call not in self._to_cancel:
                self._to_cancel.append(call)
            self._forget_early()
        if ending is not None:
            call.ended(ending)
        with self._changed:
            self._changed.notify_all()

    def _forget_early(self) -> None:
        """Ends of jobs that may still turn out to be ours matter only while we submit."""
        if not self._sending:
            self._early.clear()

    def _cancelled(self, client: Client) -> None:
        while True:
            with self._changed:
                if not self._to_cancel:
                    return
                call = self._to_cancel[0]
                known = bool(call.future.job) and call.future.job in self._by_job
            if known:
                try:
                    client.cancel(call.future.job)
                except RefusedError as error:
                    if error.code in RETRIED:
                        raise NoAnswerError(str(error)) from error
            with self._changed:
                self._to_cancel.popleft()
                self._changed.notify_all()

    def _give_up(self, error: Exception) -> None:
        with self._changed:
            lost = [*self._sending, *self._to_send]
            self._sending.clear()
            self._to_send.clear()
            self._to_cancel.clear()
        self._fail(lost, error)

    def _fail(self, lost: Iterable[Call], error: Exception) -> None:
        for call in lost:
            call.future.fail(error)
        with self._changed:
            self._changed.notify_all()

    # Following

    def _follow(self, last: int) -> None:
        client = self._client()
        while not self._is_over():
            try:
                last = self._reconciled(client, last)
                self._following_fails.too_long(None)
                for event in client.events(last, follow=True, stopped=self._is_over, away_s=0.0):
                    last = event.seq
                    self._heard(event)
            except NoAnswerError as error:
                client.close()
                if self._following_fails.too_long(error):
                    self._lose_all(error)
            except Exception as error:  # a defect must not leave futures that never end
                self._lose_all(error)
            if not self._is_over():
                time.sleep(PAUSE_S)
        client.close()

    def _reconciled(self, client: Client, last: int) -> int:
        """After a silence: what became of our jobs; returns the last event that counts.

        The events come first: the queue remembers only so many of the jobs that have ended.
        """
        newest = client.last_event()
        if newest < last:
            last = newest  # an older copy of the store has taken its place
        for event in client.events(last):
            last = event.seq
            self._heard(event)
        with self._changed:
            ours = dict(self._by_job)
        rows = {row.id: row for row in client.queue(everything=True)} if ours else {}
        for job, call in ours.items():
            row = rows.get(job)
            if row is None:
                self._end(EndedJob(id=job, state="lost", detail="the daemon does not know it"))
            elif row.state in ENDED:
                self._end(EndedJob(**fields_of(row, EndedJob)))
            elif row.state == "running":
                call.future.begin()
        return last

    def _heard(self, event: Event) -> None:
        if event.kind == EventKind.JOB_STARTED:
            call = self._by_job.get(event.job)
            if call is not None:
                call.future.begin()
        elif event.kind == EventKind.JOB_ENDED:
            fields = event.fields
            self._end(
                EndedJob(
                    id=event.job,
                    state=str(fields.get("state")),
                    exit_code=fields.get("exit_code"),
                    detail=str(fields.get("detail") or ""),
                )
            )

    def _end(self, ending: EndedJob) -> None:
        with self._changed:
            call = self._by_job.get(ending.id)
            if call is None and self._sending:
                self._early[ending.id] = ending
        if call is None:
            return
        call.ended(ending)
        with self._changed:
            self._by_job.pop(ending.id, None)
            self._changed.notify_all()

    def _lose_all(self, error: Exception) -> None:
        """Nothing more can be known of the jobs; they may go on."""
        with self._changed:
            lost = list(self._by_job.values())
            self._by_job.clear()
        self._fail(lost, error)
