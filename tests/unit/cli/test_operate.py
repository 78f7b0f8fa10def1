"""``coalloc cancel``, ``hold``, ``drain`` and ``nodes --wait``, over a made-up connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from coalloc.cli import nodes
from coalloc.cli.operators import operate
from coalloc.client.client import NoAnswerError, RefusedError
from coalloc.wire.answers import NodesAnswer, Why
from coalloc.wire.node_rows import ClusterRow
from tests.support.command_line import error_of, run


class Refusing:
    """A connection over which job 2 is refused."""

    asked: list[tuple[str, str]]

    def __init__(self) -> None:
        self.asked = []
        self.reasons: list[str] = []

    def __enter__(self) -> Refusing:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def why(self, job: str) -> Why:
        state = {"2": "completed", "4": "cancelled"}[job]
        return Why(job=job, state=state, reason="", detail="")

    def ask(self, kind: str, *, job: str, reason: str = "") -> dict[str, Any]:
        self.asked.append((kind, job))
        self.reasons.append(reason)
        if job in ("2", "4"):
            raise RefusedError("wrong_state", f"job {job} has ended already")
        return {"jobs": [job]}


def test_one_refusal_does_not_keep_the_others_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Refusing()
    monkeypatch.setattr(operate, "connect", lambda args: client)
    assert run("cancel", "1", "2", "3") == 1
    assert client.asked == [("cancel", "1"), ("cancel", "2"), ("cancel", "3")]
    assert error_of(capsys) == "job 2 has ended already\n"


def test_a_reason_goes_with_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Refusing()
    monkeypatch.setattr(operate, "connect", lambda args: client)
    assert run("cancel", "1", "3", "--reason", "wrong input") == 0
    assert client.reasons == ["wrong input", "wrong input"]


def test_what_was_cancelled_with_another_job_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(operate, "connect", lambda args: Refusing())
    assert run("cancel", "1", "4") == 0
    assert capsys.readouterr().err == ""
    assert run("cancel", "4") == 1
    assert run("hold", "1", "4") == 1


def test_jobs_are_named_as_the_queue_prints_them(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Refusing()
    monkeypatch.setattr(operate, "connect", lambda args: client)
    assert run("cancel", "3_[0-2,7],5", "5", "12.align") == 0
    named = ["3_0", "3_1", "3_2", "3_7", "5", "12.align"]
    assert client.asked == [("cancel", job) for job in named]


@pytest.mark.parametrize("word", ["3_[x]", "3_[", "3_[2-1]", "12,", "alpha"])
def test_what_names_no_job_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cancel", word) == 2
    assert "argument JOB: " in error_of(capsys)


class Draining(Refusing):
    """A connection to a daemon with these clusters and nodes."""

    known = ("alpha", "beta", "a1", "a2", "b1", "plus+one", "max2")

    def drain(self, name: str, reason: str = "") -> None:
        if name not in self.known:
            raise RefusedError("not_found", f"there is no {name}")
        self.asked.append((name, reason))


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("a[1-2],b1", ["a1", "a2", "b1"]),
        ("a[1-2]x2,b1x4", ["a1", "a2", "b1"]),
        ("alpha+beta", ["alpha", "beta"]),
        ("plus+one", ["plus+one"]),  # a name is a name
        ("max2", ["max2"]),
    ],
)
def test_nodes_are_named_as_the_queue_prints_them(
    word: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Draining()
    monkeypatch.setattr(operate, "connect", lambda args: client)
    assert run("drain", word, "--reason", "fan") == 0
    assert client.asked == [(name, "fan") for name in names]


def test_a_node_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(operate, "connect", lambda args: Draining())
    assert run("drain", "c1x4") == 1
    assert error_of(capsys) == "there is no c1\n"


def test_nodes_waits_until_every_cluster_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = {
        "cluster": "alpha",
        "connected": False,
        "stale": True,
        "drained": False,
        "nodes": [],
        "age_s": None,
        "link_gbps": None,
        "link_used_gbps": 0.0,
    }
    there = {**away, "connected": True, "stale": False}

    class Starting(Refusing):
        answers: Iterator[Any] = iter([NoAnswerError("not yet"), away, there])

        def known_nodes(self) -> NodesAnswer:
            answer = next(self.answers)
            if isinstance(answer, Exception):
                raise answer
            return NodesAnswer(clusters=(msgspec.convert(answer, ClusterRow),))

    monkeypatch.setattr(nodes, "connect", lambda args: Starting())
    monkeypatch.setattr(nodes, "LOOK_EVERY_S", 0.0)
    assert run("nodes", "--wait", "60s") == 0
    assert re.search(r"^alpha +up ", capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr(Starting, "answers", iter([away] * 100_000))
    assert run("nodes", "--wait", ".05s") == 1
    assert "not read within 0:00: alpha" in capsys.readouterr().err
