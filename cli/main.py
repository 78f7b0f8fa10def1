"""``coalloc``: the command line of users and operators.

A command's module is loaded when the command is given, so that ``coalloc queue`` starts as
quickly as it answers.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module

import coalloc
from coalloc.cli.command import (
    BAD_USAGE,
    FAILED,
    Command,
    CommandError,
    Parser,
    declare,
    error_line,
    note,
)
from coalloc.programs import PIPE_CLOSED, end_output, missing_part, open_output

INTERRUPTED = 130
"""128 + SIGINT: as a shell reports a program that this signal ended."""

MODULES: Mapping[str, str] = {
    "submit": "coalloc.cli.submit.command",
    "sbatch": "coalloc.cli.submit.sbatch",
    "submit-workflow": "coalloc.cli.submit.workflow",
    "run": "coalloc.cli.interactive.run",
    "attach": "coalloc.cli.interactive.run",
    **dict.fromkeys(("queue", "wait"), "coalloc.cli.jobs.queue"),
    "show": "coalloc.cli.jobs.show",
    "update": "coalloc.cli.update",
    "status": "coalloc.cli.status",
    "doctor": "coalloc.cli.doctor.command",
    "top": "coalloc.cli.top.command",
    "why": "coalloc.cli.jobs.why",
    "nodes": "coalloc.cli.nodes",
    "calibrate": "coalloc.cli.operators.calibrate",
    "plan": "coalloc.cli.plan",
    "priority": "coalloc.cli.jobs.priority",
    "estimates": "coalloc.cli.estimates",
    **dict.fromkeys(("account", "usage"), "coalloc.cli.account"),
    "keys": "coalloc.cli.operators.keys",
    **dict.fromkeys(("connect", "disconnect"), "coalloc.cli.connect.command"),
    "events": "coalloc.cli.events",
    "dashboard": "coalloc.cli.dashboard",
    **dict.fromkeys(
        ("cancel", "hold", "release", "set-priority", "drain", "resume", "pause", "round"),
        "coalloc.cli.operators.operate",
    ),
    **dict.fromkeys(("reserve", "unreserve"), "coalloc.cli.operators.reserve"),
    **dict.fromkeys(("backup", "restore"), "coalloc.cli.operators.backup"),
    **dict.fromkeys(("snapshot", "solve", "check", "policies"), "coalloc.cli.offline"),
    **dict.fromkeys(("simulate", "shadow", "study", "reproduce"), "coalloc.cli.simulate"),
    "demo": "coalloc.cli.demo",
}
"""The module of each command; each has a table COMMANDS."""

OF_SLURM: Mapping[str, str] = {
    "srun": "coalloc run COMMAND starts it once for each process, and its output comes here; in a "
    "script of coalloc sbatch, write srun",
    "salloc": "coalloc run --pty bash gives a shell on the first of its nodes",
    "sattach": "coalloc attach follows the output of a job",
    "scancel": "coalloc cancel ends jobs",
    "squeue": "coalloc queue lists jobs",
    "sinfo": "coalloc nodes lists clusters and nodes",
    "sacct": "coalloc account lists what has ended",
    "scontrol": "see coalloc show, update, hold, release, reserve, drain and resume",
}
"""Commands of Slurm, and what to write for each."""

GROUPS = (
    (
        "jobs",
        (
            *("submit", "sbatch", "submit-workflow", "run", "attach", "queue", "show", "why"),
            *("wait", "cancel", "hold", "release", "update"),
        ),
    ),
    (
        "clusters and rounds",
        (
            *("top", "dashboard", "nodes", "plan", "priority", "account", "usage", "events"),
            *("estimates", "status", "snapshot", "connect", "disconnect"),
        ),
    ),
    (
        "operators",
        (
            *("doctor", "set-priority", "drain", "resume", "reserve", "unreserve", "pause"),
            *("round", "calibrate", "keys", "backup", "restore"),
        ),
    ),
    (
        "without a daemon",
        ("solve", "check", "simulate", "shadow", "study", "reproduce", "policies", "demo"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 refused or failed, 2 bad usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.disable()  # while a command is loaded nothing becomes garbage, and looking costs a sixth
    open_output()
    warnings.showwarning = lambda message, *where: note(str(message))
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        end_output()
        return PIPE_CLOSED
    except CommandError as error:
        print(error_line(error), file=sys.stderr)
        return error.code
    except Exception as error:
        todo = missing_part(error) if isinstance(error, ModuleNotFoundError) else ""
        failed = FAILED if todo else _code_of(error)
        if failed is None:
            raise
        if isinstance(error, OSError):
            end_output()
        print(error_line(todo or error), file=sys.stderr)
        return failed


def _run(arguments: Sequence[str]) -> int:
    if not arguments:
        print(build_parser(only="", overview=True).format_help(), end="")
        return BAD_USAGE
    first = arguments[0]
    if first in OF_SLURM:
        raise CommandError(f"there is no command {first!r}; {OF_SLURM[first]}", BAD_USAGE)
    if not first.startswith("-") and first not in MODULES:
        near = difflib.get_close_matches(first, MODULES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CommandError(f"there is no command {first!r}{hint} (see coalloc --help)", BAD_USAGE)
    is_help = first in {"-h", "--help"}
    parser = build_parser(only=first if first in MODULES else "", overview=is_help)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = f"{first}: " if first in MODULES else ""
        name = f"coalloc {first}" if first in MODULES else "coalloc"
        what = f"unrecognized arguments: {' '.join(unknown)}"
        after = next((word for word in arguments if word in MODULES), "")
        if first.startswith("-") and after:
            what += f"; options come after the command: coalloc {after} {' '.join(unknown[:2])}"
            name = f"coalloc {after}"
        raise CommandError(f"{command}{what} (see {name} --help)", BAD_USAGE)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    code: int = args.run(args)
    return code


def _code_of(error: Exception) -> int | None:
    """Exit code of an error that is one line for the user; None is a defect of ours."""
    from coalloc.client.client import NoAnswerError, RefusedError
    from coalloc.model.errors import ConfigError, InputError

    if isinstance(error, InputError | ConfigError | UnicodeError):
        return BAD_USAGE
    if isinstance(error, RefusedError | NoAnswerError | OSError):
        return FAILED
    return None


def build_parser(only: str | None = None, *, overview: bool = False) -> argparse.ArgumentParser:
    """The parser of the whole command line; with `only`, of this command alone (empty: none).

    All are loaded for man pages and completion, and for an `overview`: a help page that has them
    all.
    """
    parser = Parser(
        prog="coalloc",
        description="Makes several clusters work as one.",
        usage="coalloc COMMAND [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_overview() if overview else None,
    )
    parser.add_argument("--version", action="version", version=f"coalloc {coalloc.__version__}")
    chosen = list(MODULES) if only is None else [only] if only else []
    if not chosen:
        return parser
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in chosen:
        row = load_command(name)
        # argparse takes a per cent sign in a help text for a format
        declare(commands.add_parser(name, prog=f"coalloc {name}", help=row.doc), row)
    return parser


def load_command(name: str) -> Command:
    """The row of a command."""
    table: Mapping[str, Command] = import_module(MODULES[name]).COMMANDS
    return table[name]


def _overview() -> str:
    lines = []
    for title, names in GROUPS:
        lines += [f"{title}:", *(f"  {name:<10} {load_command(name).doc}" for name in names), ""]
    return "\n".join([*lines, "coalloc COMMAND --help shows a command's options and an example."])


if __name__ == "__main__":
    sys.exit(main())
