"""The client's end of a job's streams: where it has read to, and its connection's questions."""

from __future__ import annotations

import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from typing import Any

from coalloc.client.base import new_connection
from coalloc.client.client import Client, NoAnswerError, RefusedError
from coalloc.wire.answers import StreamAnswer
from coalloc.wire.client import RequestConnection

ASK_S = 3.0
"""A question is asked again after so long, in case the daemon was restarted meanwhile, seconds."""
SOON_S = 0.2
"""After a refusal that says to come again."""
TRANSIENT = frozenset({"busy", "too_fast", "storage"})
INPUT_BYTES = 16 << 10
"""Of one question."""
ENDED = frozenset({"completed", "failed", "cancelled", "timeout", "lost"})


class Reading:
    """Places up to which the streams of one attempt of a job were read."""

    def __init__(self, begin: int = 0) -> None:
        self._begin = begin
        self.attempt = 0
        self.parts = 1
        self._at: dict[int, dict[str, int]] = {}
        self._ended: set[int] = set()

    def at(self, part: int) -> Mapping[str, int]:
        return self._at.get(part, {"o": self._begin, "e": self._begin} if self._begin else {})

    def take(self, part: int, answer: StreamAnswer) -> list[tuple[str, int, bytes]]:
        """News of an answer: stream, bytes that are lost before, and what follows."""
        if answer.attempt != self.attempt:
            self.attempt, self._at, self._ended = answer.attempt, {}, set()
        self.parts = max(self.parts, answer.parts)
        if answer.ended:
            self._ended.add(part)
        new = []
        own = self._at.setdefault(part, {}) if answer.chunks else {}
        for name, place, text in answer.chunks:
            data = a2b_base64(text)
            known = own.get(name, max(0, self._begin) if self._begin >= 0 else place)
            data = data[max(0, known - place) :]
            lost = max(0, place - known)
            own[name] = max(known, place) + len(data)
            if data or lost:
                new.append((name, lost, data))
        return new

    @property
    def is_whole(self) -> bool:
        return len(self._ended) >= self.parts


class StreamSession:
    """One client's reading of a job's streams, over a connection of its own.

    `on_chunk` gets each stream's name, how many bytes before it are lost, and the bytes.
    """

    def __init__(
        self,
        client: Client,
        job: str,
        on_chunk: Callable[[str, int, bytes], None],
        *,
        begin: int = 0,
        away_s: float = 60.0,
    ) -> None:
        self.connection = new_connection(client, RequestConnection)
        self.job, self.reading = job, Reading(begin)
        self.state = "pending"
        self.stream = ""
        self._on_chunk, self._away_s = on_chunk, away_s
        self._asked: dict[int, tuple[str, float]] = {}
        """By part: the question's id, and when to ask again."""
        self._input, self._taken = bytearray(), 0
        self._sent = ("", float("-inf"))
        self.answered = time.monotonic()

    def give(self, data: bytes) -> None:
        """Send bytes to the job's terminal."""
        self._input += data

    @property
    def input_left(self) -> int:
        return len(self._input)

    def tell(self, **wish: Any) -> None:
        """Ask for something at once in every part, such as a signal; no answer is waited for."""
        for part in range(self.reading.parts):
            self._send(part=part, **wish)

    def step(self, limit_s: float) -> StreamAnswer | None:
        """Ask what is to be asked, and take in an answer; the last one, where the job has ended.

        Raises `RefusedError`, and `NoAnswerError` where the daemon has been away for too long.
        """
        now = time.monotonic()
        for part in range(self.reading.parts):
            if now >= self._asked.get(part, ("", 0.0))[1]:
                at = dict(self.reading.at(part))
                asked = self._send(part=part, attempt=self.reading.attempt, at=at)
                self._asked[part] = asked, now + ASK_S
        if self._input and now >= self._sent[1]:
            data = b2a_base64(self._input[:INPUT_BYTES], newline=False).decode()
            self._sent = self._send(input=data, input_at=self._taken), now + ASK_S
        due = min(again for _, again in self._asked.values())
        answer = self.connection.next_answer(max(0.0, min(limit_s, due - now)))
        if answer is None:
            if now - self.answered > self._away_s:
                why = f"the daemon has not answered for {self._away_s:g} s"
                raise NoAnswerError(f"{why}; job {self.job} is there when it is back")
            return None
        self.answered = now
        of = next((p for p, (asked, _) in self._asked.items() if asked == answer.id), None)
        if answer.refusal is not None:
            if answer.refusal.code not in TRANSIENT:
                raise RefusedError(answer.refusal.code, answer.refusal.message)
            if of is not None:
                self._asked[of] = "", now + SOON_S
            return None
        return self._take(of, answer.id, answer.read(StreamAnswer))

    def _take(self, part: int | None, asked: str, answer: StreamAnswer) -> StreamAnswer | None:
        if asked == self._sent[0]:
            done = max(0, answer.taken - self._taken)
            del self._input[:done]
            self._taken += done
            self._sent = "", float("-inf") if done else time.monotonic() + SOON_S
        if part is None:
            return None
        self.state, self.stream = answer.state, answer.stream
        self._asked[part] = "", 0.0
        for name, lost, data in self.reading.take(part, answer):
            self._on_chunk(name, lost, data)
        return answer if answer.state in ENDED else None

    def _send(self, **fields: Any) -> str:
        return self.connection.send({"type": "stream", "job": self.job, **fields})

    def close(self) -> None:
        self.connection.close()
