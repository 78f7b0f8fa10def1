"""The programs; those of the server say what to install where only the client is.

Without extras the package is the client: commands that ask a daemon, `Client` and `Executor`. The
extra ``server`` adds what daemon, executors, policies and the simulation import.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

import coalloc

SERVER = frozenset(
    {
        *("apscheduler", "highspy", "markdown_it", "numba", "numpy", "prometheus_client"),
        *("psutil", "pulp", "rich", "structlog", "tomli_w"),
    }
)
"""What the extra ``server`` installs, by the names that are imported."""
PIPE_CLOSED = 141
"""128 + SIGPIPE: as a shell reports a program that this signal ended."""


def missing_part(error: ModuleNotFoundError) -> str:
    """What to install for a module that is missing; empty: it is none of the server's."""
    name = (error.name or "").partition(".")[0]
    if name not in SERVER:
        return ""
    from coalloc.runtime.texts import to_install

    return f"this needs the server ({name} is missing): {to_install('server')}"


def require_server() -> None:
    """Refuse to begin where the server's processes could not be started."""
    from importlib.util import find_spec

    for name in sorted(SERVER):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def open_output() -> None:
    """Have standard output and error take every text: where they are not UTF-8, or are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def end_output() -> None:
    """Drop what standard output does not take, which the interpreter would write at its end."""
    from contextlib import suppress

    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command() -> int:
    """``coalloc``; its version alone loads nothing else."""
    if sys.argv[1:] == ["--version"]:
        print(f"coalloc {coalloc.__version__}")
        return 0
    from coalloc.cli.main import main

    return main()


def daemon() -> int:
    """``coallocd``."""
    return _run("coallocd", "coalloc.daemon.main")


def executor() -> int:
    """``coalloc-executor``."""
    return _run("coalloc-executor", "coalloc.executor.main")


def _run(name: str, module: str) -> int:
    open_output()
    try:
        code: int = import_module(module).main()
        sys.stdout.flush()
    except OSError as error:  # a program says itself what it cannot read: this is its output
        end_output()
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        print(f"{name}: error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        todo = missing_part(error)
        if not todo:
            raise
        print(f"{name}: error: {todo}", file=sys.stderr)
        return 1
    return code
