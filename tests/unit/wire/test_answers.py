"""docs/PROTOCOL.md says what the daemon answers: every field, its kind, and whether it may lack."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from coalloc.core.base import requests
from coalloc.core.base.events import Caller
from coalloc.daemon.queries.answers import ANSWERS, Sources, answered
from coalloc.daemon.store.sqlite import Store
from coalloc.model.sites.parts import Launch
from coalloc.wire import (
    answers,
    job_rows,
    node_rows,
    share_answers,
)
from coalloc.wire.answers import Health
from coalloc.wire.frames import encode
from tests.support.core_site import Site
from tests.support.protocol_page import EXAMPLES, PAGE


def test_every_answer_is_documented() -> None:
    """The tables are made from the classes; here is that the page has one of each."""
    shown = set(re.findall(r"<!-- fields: (\w+)", PAGE))
    declared = {
        cls.__name__
        for module in (answers, job_rows, node_rows, share_answers)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct)
    }
    bases = {
        "Struct",
        "Answer",
        "DayUsage",
        "Factors",
        "Health",
        "JobSummary",
        "StreamChunks",
        "TimedAnswer",
    }
    assert declared - shown == bases | {"Shape"}  # in FORMATS.md


def test_every_question_is_answered_as_documented(tmp_path: Path) -> None:
    """What the daemon sends has every field of its type, and no other."""
    site = Site({"a": 2, "b": 2})
    site.run(site.submit(3))
    site.submit_workflow("x y", "x>y")
    store = Store(tmp_path / "coalloc.db")
    store.commit(site.effects)
    caller = Caller(user="ann", uid=1, gid=1, operator=True)
    sources = Sources(state=site.state, store=store, caller=caller, health=Health)
    for kind in ANSWERS:
        answer = answered(sources, {"type": kind, "job": "1"}, site.now)
        sent = json.loads(encode(answer))
        assert sent.pop("type") == kind
        assert set(sent) == set(answer.__struct_fields__)
        assert msgspec.convert(sent, type(answer)) == answer
    store.close()


@pytest.mark.parametrize(
    ("command", "cls"),
    [
        (requests.Cancel(job="2"), answers.Concerned),
        (requests.Hold(job="2"), answers.Concerned),
        (requests.PauseRounds(), answers.Concerned),
    ],
)
def test_a_command_is_answered_as_documented(
    command: requests.Command, cls: type[msgspec.Struct]
) -> None:
    site = Site({"a": 2})
    site.submit(2)
    site.submit(2)
    answer = site.ask(command, operator=True)
    assert isinstance(answer, requests.Done)
    assert set(answer.body) <= set(cls.__struct_fields__)
    msgspec.convert(dict(answer.body), cls)


def test_a_submit_is_answered_as_documented() -> None:
    site = Site({"a": 2})
    body = {"kind": "rigid", "procs": 1}
    submit = requests.Submit(token="t", job=body, launch=Launch(argv=("x",)))
    for again in (False, True):
        answer = site.ask(submit)
        assert isinstance(answer, requests.Done)
        assert set(answer.body) <= set(answers.Submitted.__struct_fields__)
        assert msgspec.convert(dict(answer.body), answers.Submitted).again is again


def test_example_answers_are_what_the_client_reads() -> None:
    shown = [json.loads(text) for kind, text in EXAMPLES if kind == "answer"]
    done = next(a for a in shown if a["type"] == "done")
    assert msgspec.convert(done, answers.Submitted).job == "12"
    ended = next(a for a in shown if a["type"] == "ended")
    assert msgspec.convert(ended, answers.EndedAnswer).jobs[0].state == "completed"
