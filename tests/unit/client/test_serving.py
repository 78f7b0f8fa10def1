"""A worker of `coalloc.Executor` beside a client that says what a test tells it to."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coalloc.client.futures import serving
from coalloc.client.futures.calls import calls_text
from coalloc.wire.client import AnswerFrame
from coalloc.wire.frames import encode


def slow() -> None:
    time.sleep(0.3)


class Client:
    """Sends calls at once, takes some back when one has begun, and ends after so many results."""

    def __init__(self, messages: list[dict[str, Any]], *, ends_after: int) -> None:
        self.poller = select.poll()
        self.messages, self.ends_after = messages, ends_after
        self.heard: list[Mapping[str, Any]] = []

    def send(self, message: Mapping[str, Any]) -> None:
        self.heard.append(message)

    def next_answer(self, timeout_s: float) -> AnswerFrame | None:
        kinds = [message["type"] for message in self.heard]
        if self.messages and (self.messages[0]["type"] == "call" or "begun" in kinds):
            return AnswerFrame("", None, encode(self.messages.pop(0)))
        if kinds.count("result") == self.ends_after:
            return AnswerFrame("", None, encode({"type": "end"}))
        self.poller.poll(timeout_s * 1000)
        return None


def served(folder: Path, messages: list[dict[str, Any]], ends_after: int) -> Client:
    record = folder / "worker-1.record"
    record.touch()
    client = Client(messages, ends_after=ends_after)
    serving.Worker(client, record).serve()  # type: ignore[arg-type]
    return client


def call(folder: Path, number: int, function: Any, *arguments: Any) -> dict[str, Any]:
    text = calls_text(function, [(arguments, {})])[1]
    return {"type": "call", "call": number, "text": text, "output": str(folder / f"{number}.out")}


def test_calls_are_recorded_made_and_taken_back(tmp_path: Path) -> None:
    calls = [call(tmp_path, 4, slow), call(tmp_path, 7, abs, -1), call(tmp_path, 9, abs, -2)]
    client = served(tmp_path, [*calls, {"type": "take_back", "calls": [4, 7, 11]}], 2)
    kinds = [(message["type"], message.get("call")) for message in client.heard]
    assert kinds[:3] == [("hello", None), ("begun", 4), ("returned", None)]
    assert kinds[3:] == [("result", 4), ("result", 9)]
    (back,) = (message for message in client.heard if message["type"] == "returned")
    assert (back["calls"], back["running"]) == ([7], 4)
    assert int((tmp_path / "worker-1.record").read_text()) == 9


def test_a_worker_whose_client_is_gone_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "GONE_S", 0.05)
    served(tmp_path, [call(tmp_path, 1, abs, 1)], ends_after=-1)
