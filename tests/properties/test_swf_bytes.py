"""Readers of foreign files, given anything at all."""

import contextlib
import gzip

from hypothesis import example, given
from hypothesis import strategies as st

from coalloc.adapters.formats.platforms import parse_platform
from coalloc.adapters.formats.swf_jobs import make_jobs
from coalloc.model.errors import InputError
from tests.support.swf_bytes import read_bytes

NUMBERS = st.one_of(
    st.just("-1"),
    st.integers(-2, 10**6).map(str),
    st.floats(allow_nan=True).map(repr),
    st.text(max_size=4),
)
LINES = st.lists(NUMBERS, max_size=22).map(" ".join)


@given(st.binary(max_size=400))
@example(b"\x1f\x8b")
@example(b"\x1f\x8b\x08\x00\x00\x00\x00\x00")
def test_bytes_are_a_log_or_an_input_error(content: bytes) -> None:
    with contextlib.suppress(InputError):
        read_bytes(content)


@given(st.binary(max_size=400).map(gzip.compress), st.integers(0, 60), st.integers(0, 255))
def test_zipped_and_damaged(content: bytes, place: int, byte: int) -> None:
    damaged = content[: place + 2] + bytes([byte]) + content[place + 3 :]
    with contextlib.suppress(InputError):
        read_bytes(damaged)


@given(st.lists(LINES, max_size=12))
def test_near_logs_become_jobs_that_the_model_accepts(lines: list[str]) -> None:
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    try:
        log = read_bytes(text)
    except InputError:
        return
    made = make_jobs(log)
    assert len(made.jobs) + sum(made.left_out.values()) == len(log.jobs)
    assert len({logged.job.id for logged in made.jobs}) == len(made.jobs)
    submits = [logged.job.submitted for logged in made.jobs]
    assert submits == sorted(submits)
    for logged in made.jobs:
        assert logged.job.procs >= 1
        assert 0.0 < logged.run_s <= logged.job.base_time


@given(st.binary(max_size=300), st.sampled_from(["p.toml", "p.json", "p.xml", "p.machines", "p"]))
@example(b"[" * 5000, "p.toml")
@example(b'{"clusters":' + b"[" * 100000, "p.json")
@example(b"1" * 5000, "p.toml")
@example(b'{"clusters": 1' + b"0" * 5000 + b"}", "p.json")
def test_bytes_are_a_platform_or_an_input_error(content: bytes, name: str) -> None:
    with contextlib.suppress(InputError):
        parse_platform(content, name, name)
