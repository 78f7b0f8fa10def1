"""docs/PROTOCOL.md says what the codec does: every type, every field, every example."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import fields

from coalloc.core.base import messages, requests
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.parts import Launch, PartReport, PartState
from coalloc.model.sites.reading import ClusterReading, NativeJob, NodeReading
from coalloc.model.sites.site_rules import PartitionRules, SiteRules
from coalloc.model.snapshot import Reservation, Running
from coalloc.model.values import replace
from coalloc.wire import codec
from coalloc.wire.frames import PROTOCOL, WireError, decode_any, decode_object, encode
from coalloc.wire.questions import QUESTIONS
from tests.support.protocol_page import EXAMPLES, PAGE, ROOT, SECTIONS, table

TYPES: Mapping[str, type[Any]] = {
    **codec.ORDERS,
    **codec.TO_EXECUTOR,
    **codec.FROM_EXECUTOR,
    **codec.COMMANDS,
    "Launch": Launch,
    "Part report": PartReport,
}
NESTED = (ClusterReading, NodeReading, Running, Reservation, NativeJob, SiteRules, PartitionRules)


@pytest.mark.parametrize("cls", [*TYPES.values(), *QUESTIONS.values(), *NESTED])
def test_every_type_with_fields_has_a_table(cls: type[Any]) -> None:
    assert not fields(cls) or f"<!-- fields: {cls.__name__}" in PAGE


@pytest.mark.parametrize("name", [*QUESTIONS, "test_submit", "refused"])
def test_every_question_has_a_section(name: str) -> None:
    assert name in SECTIONS


def test_every_type_of_the_document_exists() -> None:
    known = {*TYPES, *QUESTIONS, "test_submit", "refused"}
    known |= {"round", "rule_costs"}  # publications
    headings = re.findall(r"^#{3,5} `([a-z_]+)`$", PAGE, re.M)
    assert set(headings) <= known


def test_every_event_is_documented() -> None:
    documented = re.findall(r"^\| `([a-z_]+)` \| `", SECTIONS["event.KIND.JOB"], re.M)
    assert [kind for kind in documented if kind != "seq"] == list(EventKind)


def test_every_kind_of_event_is_recorded_somewhere() -> None:
    folders = (ROOT / "core", ROOT / "daemon" / "store")
    source = "".join(p.read_text(encoding="utf-8") for f in folders for p in f.rglob("*.py"))
    assert {kind.name for kind in EventKind} == set(re.findall(r"EventKind\.([A-Z_]+)", source))


def test_every_fault_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "wire").glob("*.py"))
    raised = set(re.findall(r'WireError\(\s*"([a-z_]+)"', source))
    documented = set(re.findall(r"^\| `([a-z_]+)` \| ", SECTIONS["Faults"], re.M))
    assert raised == documented


def test_every_refusal_code_is_documented() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("core", "daemon", "wire")
        for path in (ROOT / folder).rglob("*.py")
        if not path.name.startswith("enrolment")  # its codes are the log's alone
    )
    used = set(re.findall(r'(?:Refused\(\s*code=|RequestError\(\s*)"([a-z_]+)"', source))
    documented = set(re.findall(r"^\| `([a-z_]+)` \| [^|]+ \| (?:no|later) \|$", PAGE, re.M))
    assert used <= documented
    assert documented - used <= {"bad_request"}


def test_the_version_is_the_documents() -> None:
    assert PAGE.startswith(f"# The wire protocol of coalloc, version {PROTOCOL}\n")


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_example_decodes_and_says_the_same_again(kind: str, text: str) -> None:
    frame, body = text.encode(), json.loads(text)
    match kind:
        case "client":
            again = codec.tagged(codec.decode_command(decode_object(frame)))
        case "to_executor":
            again = decode_any(codec.encode_message(codec.decode_for_executor(frame)))
        case "from_executor":
            again = decode_any(codec.encode_message(codec.decode_from_executor(frame)))
        case "answer" | "publication":
            again = decode_any(frame)
        case _:
            pytest.fail(f"unknown kind of example: {kind}")
    assert_within(body, {"id": body.get("id"), "protocol": 1, **again})


def assert_within(part: Any, whole: Any) -> None:
    """Everything the example says is in what was understood of it."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_within(value, whole[key])
    elif isinstance(part, list):
        assert len(part) == len(whole)
        for one, other in zip(part, whole, strict=True):
            assert_within(one, other)
    else:
        assert part == whole


def test_every_type_has_an_example_or_no_fields() -> None:
    shown = {json.loads(text).get("type") for _, text in EXAMPLES}
    assert {*codec.ORDERS, *codec.TO_EXECUTOR, *codec.FROM_EXECUTOR} <= shown


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", "bad_json"),
        (b"{", "bad_json"),
        (b"\xff\xfe", "bad_json"),
        (b'{"type": "\xff"}', "bad_json"),  # invalid UTF-8 inside a text
        (b'{"type": "\\ud800"}', "bad_json"),  # half of a surrogate pair
        (b'{"type": NaN}', "bad_json"),
        (b'{"type": 1e999}', "bad_json"),
        (b"[" * 100_000, "bad_json"),
        (b'{"type":' * 100_000, "bad_json"),
        (b"[]", "bad_shape"),
        (b"3", "bad_shape"),
        (b"{}", "bad_shape"),
        (b'{"type": 3}', "bad_shape"),
        (b'{"type": "ping", "protocol": 2}', "bad_version"),
        (b'{"type": "ping", "protocol": "one"}', "bad_version"),
    ],
)
def test_what_is_no_message_has_a_code(frame: bytes, code: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_object(frame)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("decode", "body", "code", "words"),
    [
        (codec.decode_from_executor, {"type": "prepare"}, "unknown_type", "prepare"),
        (codec.decode_from_executor, {"type": "hello"}, "bad_field", "cluster"),
        (
            codec.decode_from_executor,
            {"type": "report", "cluster": "a", "last_seq": "x"},
            "bad_field",
            "last_seq: expected int, got str",
        ),
        (codec.decode_for_executor, {"type": "hello"}, "unknown_type", "hello"),
        (
            codec.decode_for_executor,
            {"type": "start", "job": "1", "attempt": 1},
            "bad_field",
            "seq",
        ),
        (codec.decode_for_executor, {"type": "ping"}, "bad_field", "epoch"),
    ],
)
def test_a_wrong_message_says_where(decode: Any, body: Any, code: str, words: str) -> None:
    with pytest.raises(WireError, match=re.escape(words)) as caught:
        decode(encode(body))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"type": "sumbit"}, "unknown_type", "sumbit"),
        ({"type": "cancel"}, "bad_field", "job"),
        ({"type": "cancel", "job": 12}, "bad_field", "job: expected str, got int"),
        (
            {"type": "submit", "token": "t", "job": {}, "launch": {"argv": "ls"}},
            "bad_field",
            "launch.argv: expected array, got str",
        ),
    ],
)
def test_a_wrong_request_says_where(body: Any, code: str, words: str) -> None:
    with pytest.raises(WireError, match=re.escape(words)) as caught:
        codec.decode_command(body)
    assert caught.value.code == code


def test_unknown_fields_are_ignored() -> None:
    body = {"type": "cancel", "job": "12", "colour": "red", "id": "1"}
    assert codec.decode_command(body) == requests.Cancel(job="12")


@pytest.mark.parametrize("kind", [messages.Hello, messages.Report])
def test_what_an_executor_knows_of_each_process_is_not_sent(kind: type[Any]) -> None:
    part = PartReport(
        job="1", attempt=1, part=0, state=PartState.FINISHED, exit_code=3, cpu_s=1.5, max_rss_mb=2.0
    )
    known = replace(part, codes=(3, None, 0))
    sent = codec.encode_message(kind(cluster="a", last_seq=1, parts=(known,)))
    assert set(json.loads(sent)["parts"][0]) == set(table(SECTIONS["Part report"]))
    heard = codec.decode_from_executor(sent)
    assert isinstance(heard, messages.Hello | messages.Report)
    assert heard.parts == (part,)
