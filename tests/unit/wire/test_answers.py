"""docs/PROTOCOL.md says what the daemon answers: every field, its kind, and whether it may lack."""

from __future__ import annotations

import builtins
import json
from collections import abc
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from coalloc.core.base import requests
from coalloc.core.base.records import JobRecord, JobSummary, PartRecord
from coalloc.daemon.queries.answers import ANSWERS, Health, Sources, answered
from coalloc.daemon.queries.caller import Caller
from coalloc.daemon.store.sqlite import Store
from coalloc.model.sites.parts import Launch
from coalloc.model.sites.reading import ShareUse
from coalloc.wire import (
    answers,
    estimate_answers,
    job_rows,
    node_rows,
    rule_rows,
    share_answers,
)
from coalloc.wire.frames import encode
from tests.support.core_site import Site
from tests.support.protocol_page import EXAMPLES, SECTIONS, table

ANSWER = "Field of the answer"
DOCUMENTED: tuple[tuple[str, str, type[msgspec.Struct]], ...] = (
    ("refused", "Field", answers.Refusal),
    ("submit", ANSWER, answers.Submitted),
    ("cancel", ANSWER, answers.Concerned),
    ("backup", ANSWER, answers.BackupAnswer),
    ("queue", ANSWER, answers.QueueAnswer),
    ("Job row", "Field", job_rows.QueueRow),
    ("Job row", "Field of `progress`", job_rows.Progress),
    ("show", ANSWER, answers.ShowAnswer),
    ("Job details", "Field", job_rows.JobDetails),
    ("Job details", "Field of a record", JobRecord),
    ("Job details", "Field of a part", PartRecord),
    ("Job details", "Field of a task or a piece", job_rows.MemberRow),
    ("Job details", "Field of a task", job_rows.TaskRow),
    ("Job details", "Field of a piece", job_rows.PieceRow),
    ("why", ANSWER, answers.WhyAnswer),
    ("why", "Field of `why`", answers.Why),
    ("wait", ANSWER, answers.EndedAnswer),
    ("wait", "Field of an ended job", answers.EndedJob),
    ("nodes", ANSWER, answers.NodesAnswer),
    ("nodes", "Field of a cluster", node_rows.ClusterRow),
    ("nodes", "Field of a share", ShareUse),
    ("nodes", "Field of a node", node_rows.NodeRow),
    ("nodes", "Field of a reservation", node_rows.ReservationRow),
    ("reserve", ANSWER, answers.ReserveAnswer),
    ("priority", ANSWER, share_answers.PriorityAnswer),
    ("priority", "Field of a priority", share_answers.PriorityRow),
    ("priority", "Field of a lead", share_answers.LeadRow),
    ("estimates", ANSWER, estimate_answers.AccuracyAnswer),
    ("estimates", "Field of a start accuracy", estimate_answers.StartAccuracyRow),
    ("estimates", "Field of run times", estimate_answers.RunTimeRow),
    ("account", ANSWER, share_answers.AccountAnswer),
    ("account", "Field of an account", share_answers.AccountRow),
    ("usage", ANSWER, share_answers.UsageAnswer),
    ("usage", "Field of a usage", share_answers.UsageRow),
    ("rules", ANSWER, share_answers.RulesAnswer),
    ("plan", ANSWER, answers.PlanAnswer),
    ("plan", "Field of `plan`", answers.NewestPlan),
    ("plan", "Field of `rule_costs`", rule_rows.RuleCostsRow),
    ("plan", "Field of a rule's cost", rule_rows.RuleCostRow),
    ("plan", "Field of running work", answers.RunningRow),
    ("events", ANSWER, answers.EventsAnswer),
    ("event.KIND.JOB", "Field", answers.Event),
    ("snapshot", ANSWER, answers.SnapshotAnswer),
    ("status", ANSWER, answers.ServiceStatus),
    ("status", "Field of `solver`", answers.SolverStatus),
    ("status", "Field of `last_round`", answers.LastRound),
    ("test_submit", ANSWER, answers.Estimate),
)
ADDS_TO: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    job_rows.JobDetails: job_rows.QueueRow,
    JobRecord: JobSummary,
    job_rows.TaskRow: job_rows.MemberRow,
    job_rows.PieceRow: job_rows.MemberRow,
}
"""Types of which the page has only what they add to another."""
NOT_SENT: dict[type[msgspec.Struct], set[str]] = {answers.Submitted: {"token"}}
"""What the client adds."""
ONE = {str: "text", int: "integer", float: "number", bool: "flag"}
MANY = {str: "text", int: "integers", float: "numbers", bool: "flags"}


def kind_of(hint: Any) -> str:
    """The kind of a field, in the document's words."""
    kinds = get_args(hint)
    if type(None) in kinds:
        return f"{kind_of(kinds[0])} or null"
    is_pairs = bool(kinds) and get_origin(kinds[-1] if len(kinds) > 1 else None) is tuple
    match get_origin(hint):
        case builtins.tuple:
            if get_origin(kinds[0]) is tuple:
                return "list of pairs"
            return "list of text" if kinds[0] is str else "list"
        case builtins.dict | abc.Mapping:
            if kinds[1] in MANY:
                return f"object of {MANY[kinds[1]]}"
            return "object of lists of pairs" if is_pairs else "object"
        case _:
            is_enum = isinstance(hint, type) and issubclass(hint, str)
            return "text" if is_enum else ONE.get(hint, "object")


def described(cls: type[msgspec.Struct]) -> dict[str, str]:
    """Each field of a type with its kind, and its default where it may be absent."""
    hints = get_type_hints(cls)
    out = {}
    for field in msgspec.structs.fields(cls):
        out[field.name] = kind_of(hints[field.name])
        if not field.required:
            fixed = field.default is not msgspec.NODEFAULT
            value = field.default if fixed else field.default_factory()
            plain = {} if isinstance(value, msgspec.Struct) else msgspec.to_builtins(value)
            out[field.name] += f", default {json.dumps(plain).removesuffix('.0')}"
    return out


@pytest.mark.parametrize(("section", "head", "cls"), DOCUMENTED)
def test_answers_are_documented(section: str, head: str, cls: type[msgspec.Struct]) -> None:
    expected = described(cls)
    if (base := ADDS_TO.get(cls)) is not None:
        expected = {n: k for n, k in expected.items() if n not in described(base)}
    for name in NOT_SENT.get(cls, ()):
        del expected[name]
    assert table(SECTIONS[section], head) == expected


def test_every_answer_is_documented() -> None:
    shown = {cls for _, _, cls in DOCUMENTED}
    declared = {
        cls
        for module in (answers, estimate_answers, job_rows, node_rows, rule_rows, share_answers)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct)
    }
    assert declared - shown == {msgspec.Struct, answers.Answer, JobSummary, Launch}


def test_every_question_is_answered_as_documented(tmp_path: Path) -> None:
    """What the daemon sends has every field of its type, and no other."""
    site = Site({"a": 2, "b": 2})
    site.run(site.submit(3))
    site.submit_workflow("x y", "x>y")
    store = Store(tmp_path / "coalloc.db")
    store.commit(site.effects)
    caller = Caller(user="ann", uid=1, gid=1, is_operator=True)
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
        assert set(answer.body) <= set(table(SECTIONS["submit"], ANSWER))
        assert msgspec.convert(dict(answer.body), answers.Submitted).again is again


def test_example_answers_are_what_the_client_reads() -> None:
    shown = [json.loads(text) for kind, text in EXAMPLES if kind == "answer"]
    done = next(a for a in shown if a["type"] == "done")
    assert msgspec.convert(done, answers.Submitted).job == "12"
    ended = next(a for a in shown if a["type"] == "ended")
    assert msgspec.convert(ended, answers.EndedAnswer).jobs[0].state == "completed"
