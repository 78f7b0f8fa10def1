"""Logging: one JSON object a line, or lines for people."""

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from coalloc.runtime import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    """Put back what `configure` changes for the whole process."""
    root = logging.getLogger()
    handlers, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions = raising
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_line_is_json_on_every_stream(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    logs.configure("info", "json", stream)
    logs.get_logger().info("job_started", name="é日本\udcff")
    stream.flush()
    assert json.loads(raw.getvalue().decode(encoding))["name"] == "é日本\udcff"


def test_json_lines() -> None:
    stream = io.StringIO()
    logs.configure("info", "auto", stream)
    logs.get_logger(cluster="alpha").info("round_finished", round=3, gap=None, name="é")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert list(entry)[:3] == ["timestamp", "level", "event"]
    stamp = datetime.fromisoformat(entry.pop("timestamp"))
    assert stamp.utcoffset() is not None
    assert entry == {
        "event": "round_finished",
        "level": "info",
        "cluster": "alpha",
        "round": 3,
        "gap": None,
        "name": "é",
    }


def test_errors_keep_their_traceback_on_one_line() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        raise ValueError("broken\nvalue")
    except ValueError:
        logs.get_logger().exception("round_failed")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["exception"][0]["exc_type"] == "ValueError"
    assert entry["level"] == "error"


SECRET = "hunter2-of-ada"


def fail_with(secret: str, error: type[BaseException]) -> None:
    env = {"DB_PASSWORD": secret}
    if error is RecursionError:
        fail_with(env["DB_PASSWORD"], error)
    try:
        raise error("a cause")
    except error as cause:
        raise RuntimeError("an effect") from cause


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize(
    "error", [ValueError, KeyError, OSError, RecursionError, KeyboardInterrupt]
)
def test_no_value_of_a_frame_is_logged(form: logs.Format, error: type[BaseException]) -> None:
    stream = io.StringIO()
    logs.configure("debug", form, stream)
    try:
        fail_with(SECRET, error)
    except (RuntimeError, RecursionError):
        logs.get_logger().exception("round_failed")
        logging.getLogger("another").exception("round failed")
    assert "fail_with" in stream.getvalue()
    assert SECRET not in stream.getvalue()
    assert len(stream.getvalue()) < 30_000, "the frames of a deep recursion"


@pytest.mark.parametrize("form", ["json", "console"])
def test_arguments_of_a_failed_callback_are_not_logged(form: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure("debug", form, stream)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        logs.report_callback_errors(loop)
        loop.call_soon(fail_with, SECRET, ValueError)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert "callback_failed" in stream.getvalue()
    assert "Exception in callback" in stream.getvalue()
    assert SECRET not in stream.getvalue()


def test_lines_for_people_on_a_terminal() -> None:
    stream = Terminal()
    logs.configure("info", "auto", stream)
    logs.get_logger().info("job_started", job="17")
    assert "job_started" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_named_format_outranks_the_stream() -> None:
    terminal = Terminal()
    logs.configure("info", "json", terminal)
    logs.get_logger().info("job_started")
    assert json.loads(terminal.getvalue())["event"] == "job_started"
    stream = io.StringIO()
    logs.configure("info", "console", stream)
    logs.get_logger().info("job_started")
    assert "\x1b" not in stream.getvalue()  # no colours in a file


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_name_of_a_job_makes_no_line_and_moves_no_terminal(form: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure("info", form, stream)
    logs.get_logger().info("job_started", name="a\nb\x1b]0;owned\x07", user="é")
    said = stream.getvalue()
    assert said.count("\n") == 1
    assert "\x1b]" not in said
    assert "é" in said


def test_level_is_kept_and_can_be_changed() -> None:
    stream = io.StringIO()
    log = logs.get_logger()
    logs.configure("warning", "json", stream)
    log.info("hidden")
    logs.configure("debug", "json", stream)
    log.debug("shown")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["shown"]


def test_standard_library_is_routed_in() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logging.getLogger("somewhere").warning("%d left", 3)
    logging.getLogger("apscheduler.scheduler").info("added a job")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"]) == ("3 left", "warning")
    assert "DeprecationWarning: old" in second["event"]


def test_closed_stream_is_no_error() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    stream.close()
    logs.get_logger().info("job_started")


def test_rate_limit_counts_what_it_holds_back() -> None:
    now = 0.0
    limit = logs.RateLimit(10.0, clock=lambda: now)
    assert [limit.once_per("a"), limit.once_per("a"), limit.once_per("b")] == [1, 0, 1]
    now = 9.9
    assert limit.once_per("a") == 0
    now = 10.0
    assert limit.once_per("a") == 3
    assert limit.once_per("a") == 0


def test_rate_limit_forgets_the_oldest_keys() -> None:
    now = 0.0
    limit = logs.RateLimit(10.0, clock=lambda: now)
    for key in range(5000):
        limit.once_per(str(key))
    assert len(limit._seen) == logs.MAX_KEYS
    assert limit.once_per("4999") == 0
    assert limit.once_per("0") == 1
