"""Functions as jobs: what can be named and written, and what comes back."""

from __future__ import annotations

import functools
import json
import math
import operator
from pathlib import Path
from typing import Any

import pytest

from coalloc.client.futures import call_runner
from coalloc.client.futures.calls import (
    CallError,
    NotCallableThereError,
    as_json,
    calls_text,
    function_name,
    read_outcomes,
)
from coalloc.client.futures.future import JobFailedError
from coalloc.client.futures.results import finished, only, pattern, returned
from coalloc.wire.answers import EndedJob


class Named:
    @staticmethod
    def twice(value: int) -> int:
        return 2 * value

    def method(self) -> None: ...


class OwnError(Exception):
    pass


def raising(kind: str) -> None:
    if kind == "own":
        raise OwnError("of our own")
    if kind == "key":
        raise KeyError("missing", 3)
    if kind == "unwritable":
        raise ValueError({1, 2})
    b"\xff".decode()


def unwritable() -> object:
    return object()


def nested() -> Any:
    def inner() -> None: ...

    return inner


@functools.wraps(raising)
def wrapped(kind: str) -> None:
    raising(kind)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param(lambda: 1, "cannot be named", id="lambda"),
        pytest.param(nested(), "cannot be named", id="closure"),
        pytest.param(Named().method, "not what a job would find", id="method of an object"),
        pytest.param(functools.partial(max, 1), "not what a job would find", id="partial"),
        pytest.param(wrapped, "not what a job would find", id="another function of that name"),
    ],
)
def test_what_a_job_would_not_find_is_refused(function: Any, words: str) -> None:
    with pytest.raises(NotCallableThereError, match=words):
        function_name(function)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (math.sqrt, "math:sqrt"),
        (Named.twice, f"{__name__}:Named.twice"),
        (json.dumps, "json:dumps"),
    ],
)
def test_functions_at_the_top_are_named(function: Any, name: str) -> None:
    assert function_name(function) == (name, "")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param({1}, "argument: set is not JSON", id="set"),
        pytest.param([{"a": b"x"}], r"argument\[0\]\['a'\]: bytes is not JSON", id="where"),
        pytest.param({1: 2}, "key 1 is not a text", id="a key that would become a text"),
    ],
)
def test_values_that_json_would_change_are_refused(value: Any, words: str) -> None:
    with pytest.raises(NotCallableThereError, match=words):
        as_json(value, "argument")


def carried_out(tmp_path: Path, function: Any, *calls: tuple[Any, ...]) -> tuple[int, Path]:
    path = tmp_path / "call-1.json"
    path.write_text(calls_text(function, [(arguments, {}) for arguments in calls])[1])
    return call_runner.main(path, 0), path


def end(tmp_path: Path, state: str, value: Any = list) -> Any:
    ending = EndedJob(id="7", state=state, exit_code=0 if state == "completed" else 1)
    return returned(ending, path=tmp_path / "call-1.json", output=tmp_path / "out", value=value)


def test_results_come_back_and_nothing_stays(tmp_path: Path) -> None:
    assert carried_out(tmp_path, operator.add, (1, 2), ("a", "b"))[0] == 0
    assert [outcome.value for outcome in end(tmp_path, "completed")] == [3, "ab"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "error", "arguments"),
    [
        pytest.param("key", KeyError, ("missing", 3), id="built in"),
        pytest.param("own", CallError, None, id="of a module"),
        pytest.param("unwritable", ValueError, ("{1, 2}",), id="with arguments that are not JSON"),
        pytest.param("decode", CallError, None, id="built in, but not made of texts"),
    ],
)
def test_an_exception_comes_back_with_its_job(
    tmp_path: Path, kind: str, error: type[Exception], arguments: tuple[Any, ...] | None
) -> None:
    code, _ = carried_out(tmp_path, raising, (kind,))
    assert code == call_runner.RAISED
    with pytest.raises(error) as caught:
        end(tmp_path, "failed", only)
    assert arguments is None or caught.value.args == arguments
    assert "in job 7" in caught.value.__notes__[0]
    assert "in raising" in caught.value.__notes__[0]


def test_a_chunk_keeps_what_was_done_before_the_failure(tmp_path: Path) -> None:
    carried_out(tmp_path, operator.truediv, (4, 2), (1, 0), (6, 3))
    first, second = end(tmp_path, "failed")
    assert first.value == 2.0
    assert isinstance(second.exception(), ZeroDivisionError)


def test_a_result_that_is_not_json_is_an_error_that_says_so(tmp_path: Path) -> None:
    carried_out(tmp_path, unwritable, ())
    with pytest.raises(CallError, match=r"the result of .*unwritable: object is not JSON"):
        end(tmp_path, "failed", only)


def test_a_rank_that_fails_decides(tmp_path: Path) -> None:
    path = tmp_path / "call-1.json"
    path.write_text(calls_text(operator.neg, [((1,), {})])[1])
    assert call_runner.main(path, 0) == 0
    path.write_text(calls_text(operator.neg, [(("x",), {})])[1])
    assert call_runner.main(path, 2) == call_runner.RAISED
    with pytest.raises(TypeError, match="bad operand"):
        end(tmp_path, "failed", only)


@pytest.mark.parametrize("state", ["lost", "timeout", "cancelled", "failed"])
def test_a_job_without_result_names_itself_and_the_reason(tmp_path: Path, state: str) -> None:
    ending = EndedJob(id="7", state=state, detail="alpha: node is gone")
    with pytest.raises(JobFailedError, match=f"job 7 {state}: alpha: node is gone"):
        returned(ending, path=tmp_path / "call-1.json", output=tmp_path / "out", value=list)


def test_a_file_that_holds_no_results(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"outcomes": [{"error": 3}]}')
    with pytest.raises(ValueError, match="holds no results"):
        read_outcomes(path)


def test_commands_say_where_their_output_is(tmp_path: Path) -> None:
    file = tmp_path / "50%"
    done = finished(EndedJob(id="7", state="failed", exit_code=3), output=pattern(file))
    assert (done.exit_code, done.output) == (3, str(file))
    assert finished(EndedJob(id="7", state="completed", exit_code=0), output="%j.o").output == "7.o"
    with pytest.raises(JobFailedError, match="job 7 timeout, exit code 143: over 60 s"):
        finished(
            EndedJob(id="7", state="timeout", exit_code=143, detail="over 60 s"), output="%j.o"
        )
