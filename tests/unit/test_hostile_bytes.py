"""Bytes that once did what no reader of strangers' bytes may do; most were found by tests.fuzz."""

from __future__ import annotations

import json
import select
import socket
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest
import structlog

from coalloc.adapters.batch.token import parse_comment
from coalloc.adapters.runner.batch.barrier import Barrier
from coalloc.cli import arguments
from coalloc.core.base.requests import Refused, Submit
from coalloc.daemon.access.access import Access
from coalloc.daemon.access.enrolment import Conversation, Enrolment, Peer
from coalloc.daemon.access.key_table import KeyTable, KeyTableError, parse_table
from coalloc.model.errors import ConfigError, InputError
from coalloc.model.formats.nodeset import expand, fold
from coalloc.model.settings import AccessConfig, ClusterConfig, Config
from coalloc.model.sites.parts import Launch
from coalloc.runtime.config import file
from coalloc.runtime.key_files import KeyFileError, parse_key
from coalloc.wire.curve import is_key, new_pair
from tests.support.core_site import Site
from tests.support.part_specs import batch_spec


def test_a_stranger_at_the_barrier_who_says_no_text_is_sent_away() -> None:
    """It ended the part's runner, and with it the job."""
    poller = select.poll()
    barrier = Barrier({"n1": batch_spec(("n1", 1))}, "00" * 32, (0, 0), poller)
    try:
        with socket.create_connection(("localhost", barrier.port), 5.0) as stranger:
            stranger.sendall(b"hello n1 \xff\xfe\n" + b"prove \xff\n")
            for _ in range(4):
                for fd, _ in poller.poll(200):
                    barrier.take(fd)
            said = stranger.makefile("rb").read()
        assert said.startswith(b"prove ")
        assert barrier.nodes["n1"].connection is None
    finally:
        barrier.close()


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    silent: Any = structlog.wrap_logger(structlog.ReturnLogger())
    access = Access(new_pair(), KeyTable(tmp_path / "keys.json"), AccessConfig(), silent)
    config = Config(clusters=(ClusterConfig(name="alpha"),))
    return Enrolment(access, config, on_change=lambda key: None)


@pytest.mark.parametrize("cluster", [[], {}, None, 7, ["alpha"]])
def test_clusters_that_are_no_names_are_refused(enrolment: Enrolment, cluster: object) -> None:
    body = {"verb": "authorize", "key": "x", "role": "executor", "clusters": [cluster]}
    peer = Peer(user="root", uid=0, is_admin=True)
    answer = Conversation(enrolment, peer).answer(json.dumps(body).encode())
    assert str(answer["error"]).startswith("clusters: there is no cluster ")


@pytest.mark.parametrize("raw", [b"[" * 4000, b'{"a":' * 800, b"\xff", b'{"format":'])
def test_a_key_file_that_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(KeyFileError, match="is not JSON"):
        parse_key(raw, Path("key.json"))


@pytest.mark.parametrize("text", ["#" * 40, "0" * 35 + "%nSc1", "0" * 39, "0" * 39 + "é", None, 7])
def test_what_is_no_number_of_256_bits_is_no_key(text: object) -> None:
    """ZeroMQ refuses to convert it, which ended the command that read it."""
    assert not is_key(text)
    body = {"format": "coalloc-key/1", "public": text, "secret": text}
    with pytest.raises(KeyFileError, match="no pair"):
        parse_key(json.dumps(body).encode(), Path("key.json"))


def test_the_largest_key_is_one() -> None:
    assert is_key("%nSc0" * 8)
    assert all(is_key(new_pair().public) for _ in range(20))


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"format":"\xff"}', b'{"format":"x","keys":[]}'])
def test_a_damaged_table_of_keys_is_refused(raw: bytes) -> None:
    with pytest.raises(KeyTableError, match=r"^keys\.json: "):
        parse_table(raw, Path("keys.json"))


def test_digits_behind_a_bracket_make_no_endless_range() -> None:
    with pytest.raises(InputError, match="range too large"):
        expand("a[1-9]9223372036854775808")


@pytest.mark.parametrize("text", [f"now+{'9' * 400}", f"now+{'9' * 400}weeks", "9" * 5000, "1e400"])
def test_times_beyond_all_numbers_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a time"):
        arguments.begin(text, 0.0)
    with pytest.raises(ArgumentTypeError, match="is not a time"):
        arguments.seconds(text.removeprefix("now+"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            f"[daemon]\nmax_array = 1{'0' * 400}\n",
            "c: daemon.max_array: is a number of more than",
        ),
        (
            f"[rounds]\ntime_limit_s = 1{'0' * 400}\n",
            "c: rounds.time_limit_s: 1000000000000000000000000000000000000... is outside",
        ),
        (
            f"[daemon]\nmode = -1{'0' * 400}\n",
            "c: daemon.mode: -100000000000000000000000000000000000... is not one of multi-",
        ),
        (f"[daemon]\nmax_array = 1{'0' * 5000}\n", "c: holds a number too long or is nested too"),
        (f"a = {'[' * 5000}", "c: holds a number too long or is nested too deeply"),
    ],
)
def test_a_configuration_of_endless_numbers_is_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        file.parse(text, "c")
    assert str(caught.value).startswith(error)


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    with pytest.raises(InputError) as caught:
        expand("a[1-4\r\nb2", "nodes.a\nb")
    assert str(caught.value).isprintable()
    assert caught.value.where == "nodes.a b"


def test_a_kind_that_is_no_text_is_refused() -> None:
    answer = Site().ask(Submit(token="t", job={"kind": [None], "procs": 1}, launch=Launch(argv=())))
    assert isinstance(answer, Refused)
    assert "kind" in answer.message


def test_names_that_no_node_has_are_listed() -> None:
    assert fold(["a!", "b"]) == "a!,b"


def test_more_nodes_than_can_be_counted_are_refused() -> None:
    with pytest.raises(InputError, match="countless nodes"):
        expand("n" + "[1-9]" * 5000)


def test_a_token_of_endless_numbers_is_not_ours() -> None:
    assert parse_comment(f"coalloc:7.{'1' * 5000}.0:{'a' * 32}") is None
