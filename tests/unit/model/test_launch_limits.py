"""Limits of commands: what is admitted can be started here, and the next byte is refused."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from coalloc.model.errors import InputError
from coalloc.model.sites.launch_limits import (
    LONGEST_PATH,
    LONGEST_START,
    LONGEST_TEXT,
    OVERHEAD,
    check_launch,
)
from coalloc.model.sites.parts import Launch

TRUE = "/bin/true"
MANY = [TRUE, *["x" * 100_000] * 19]
FULL = [*MANY, "x" * (LONGEST_START - sum(len(word) + OVERHEAD for word in MANY) - OVERHEAD)]


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ((TRUE, "x" * LONGEST_TEXT), {}),
        ((TRUE, "\u20ac" * (LONGEST_TEXT // 3) + "x"), {}),
        ((TRUE,), {"A": "x" * (LONGEST_TEXT - 2)}),
        (FULL, {}),
        (MANY, {"A": "x" * (len(FULL[-1]) - 2)}),
    ],
    ids=["argument", "argument of bytes", "variable", "command", "command and environment"],
)
def test_the_kernel_starts_what_is_admitted(argv: list[str], env: Mapping[str, str]) -> None:
    check_launch(Launch(argv=tuple(argv), env=env), {})
    assert subprocess.run(argv, env=env, check=False).returncode == 0
    if env:
        longer = Launch(argv=tuple(argv), env={"A": env["A"] + "x"})
    else:
        longer = Launch(argv=(*argv[:-1], argv[-1] + "x"))
    with pytest.raises(InputError, match=r"bytes.*1,966,080|bytes.* at most 131,071"):
        check_launch(longer, {})


def test_longer_texts_than_admitted_are_not_started() -> None:
    with pytest.raises(OSError, match="Argument list too long") as caught:
        subprocess.run([TRUE, "x" * (LONGEST_TEXT + 1)], check=False)
    assert caught.value.errno == errno.E2BIG


PATH = "p" * (LONGEST_PATH + 1)


@pytest.mark.parametrize(
    ("fields", "commands", "where"),
    [
        ({"cwd": PATH}, {}, "launch.cwd"),
        ({"stdout": PATH}, {}, "launch.stdout"),
        ({"stderr": PATH}, {}, "launch.stderr"),
        ({"argv": (PATH,)}, {}, r"launch.argv\[0\]"),
        ({"argv": ()}, {"a": (TRUE,), "b": (TRUE, "x" * 200_000)}, r"commands.b\[1\]"),
        ({"argv": (), "env": {"A": "x" * 100_000}}, {"a": MANY}, "commands.a"),
    ],
)
def test_each_text_has_its_place(
    fields: dict[str, Any], commands: Mapping[str, list[str]], where: str
) -> None:
    with pytest.raises(InputError, match=f"{where}: is [0-9,]+ bytes"):
        check_launch(Launch(**{"argv": (TRUE,), **fields}), commands)


def test_the_name_of_a_script_is_no_path() -> None:
    check_launch(Launch(argv=(PATH,), script="#!/bin/sh\n"), {})
