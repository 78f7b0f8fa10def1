"""Common ground of all commands: row in the table, options, output and errors."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from coalloc.option_text import add_options
from coalloc.runtime import texts
from coalloc.runtime.texts import printable

if TYPE_CHECKING:
    from coalloc.client.client import Client
    from coalloc.model.settings import Config
    from coalloc.wire.answers import Answer

T = TypeVar("T")

DONE, FAILED, BAD_USAGE = 0, 1, 2
CONFIG = "--config FILE   configuration (TOML)"
CONNECTION = """
--endpoint URL          of the daemon, instead of the file's
--timeout SECONDS =10   for an answer (default 10)
"""


class CommandError(Exception):
    """A command cannot go on; the message is one line.

    Exit code 1: refused or failed; 2: bad usage or unreadable input.
    """

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """Errors are one line, with the exit code of bad usage."""

    signed: tuple[str, ...] = ()
    """Options whose value may begin with a minus sign."""
    bare: tuple[str, ...] = ()
    """Options whose value, if they have one, is joined to them by ``=``."""

    def __init__(self, **kwargs: Any) -> None:
        # A shortened option would change its meaning with a new one.
        super().__init__(**{"allow_abbrev": False, **kwargs})

    def takes(self, flag: str) -> str | None:
        """Test if an option takes a value: none, optional or needed; null: there is none such."""
        action = self._option_string_actions.get(flag)
        if action is None:
            return None
        return "none" if action.nargs == 0 else "optional" if flag in self.bare else "needed"

    def whole(self, flag: str) -> str:
        return self._option_string_actions[flag].option_strings[-1]

    def dest(self, flag: str) -> str:
        return self._option_string_actions[flag].dest

    def flags(self) -> list[str]:
        return list(self._option_string_actions)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse; the value of a signed option is joined to it, or it would be an option itself."""
        words: list[str] = []
        for word in sys.argv[1:] if args is None else args:
            if words and words[-1] in self.signed:
                words[-1] += f"={word}"
            else:
                words.append(word)
        return super().parse_known_args(self._marked(words) if self.bare else words, namespace)

    def _marked(self, words: list[str]) -> list[str]:
        """The words with ``=`` behind each bare option, up to the first that is no option's."""
        marked, left = [], list(words)
        while left and left[0].startswith("-") and left[0] != "--":
            word = left.pop(0)
            marked.append(f"{word}=" if word in self.bare else word)
            action = self._option_string_actions.get(word)
            if word not in self.bare and action is not None and action.nargs is None and left:
                marked.append(left.pop(0))
        return marked + left

    def error(self, message: str) -> NoReturn:
        command = self.prog.partition(" ")[2]
        where = f"{command}: " if command else ""
        raise CommandError(f"{where}{message} (see {self.prog} --help)", BAD_USAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One row of a module's table."""

    doc: str
    """One line for the list of commands."""
    example: str
    """Shown at the end of its help page."""
    run: Callable[[argparse.Namespace], int]
    """Returns the exit code."""
    add: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    """Declares its options; by default it has none of its own."""
    about: str = ""
    """More than one line, for its help page."""
    asks: bool = True
    """Talks to the daemon, and so has the options for that."""
    query: bool = False
    """Has ``--json``."""


def declare(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a command's parser its options."""
    parser.description = command.about or f"{command.doc[:1].upper()}{command.doc[1:]}."
    parser.epilog = f"example:\n  {command.example}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add(parser)
    if command.query:
        add_options(parser, "--json   print JSON")
    if command.asks:
        group = parser.add_argument_group("connection")
        add_options(group, CONFIG + CONNECTION, config=Path, timeout=texts.number)
    parser.set_defaults(run=command.run)


def configuration(args: argparse.Namespace) -> Config:
    """The configuration that the options name, or that is found."""
    from coalloc.runtime.config.file import find_config, load

    return load(find_config(args.config))


def connect(args: argparse.Namespace) -> Client:
    """A client as the options say."""
    from coalloc.client.client import Client

    return Client(args.endpoint, args.timeout, config=args.config)


def each(names: Iterable[T], do: Callable[[T], object]) -> int:
    """Do it for all, though some are refused; returns the exit code."""
    from coalloc.wire.client import RefusedError

    code = DONE
    for name in names:
        try:
            do(name)
        except RefusedError as error:
            warn(error)
            code = FAILED
    return code


def until(limit_s: float | None) -> Callable[[], bool]:
    """A test that is true once so many seconds are over; None: never."""
    end = float("inf") if limit_s is None else time.monotonic() + limit_s
    return lambda: time.monotonic() >= end


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def print_json_rows(name: str, rows: Iterable[Any]) -> None:
    """Print an object with this one list as `print_json` does, each entry as it comes."""
    end = "]"
    sys.stdout.write(f'{{\n  "{name}": [')
    for number, row in enumerate(rows):
        text = json.dumps(row, indent=2, allow_nan=False).replace("\n", "\n    ")
        sys.stdout.write(f"{',' if number else ''}\n    {text}")
        end = "\n  ]"
    sys.stdout.write(f"{end}\n}}\n")


def answer_body(answer: Answer) -> dict[str, Any]:
    """An answer of the daemon without what belongs to the wire."""
    import msgspec

    body = msgspec.to_builtins(answer)
    return {key: value for key, value in body.items() if key != "type"}


def answer_json(answer: Answer) -> None:
    """Print an answer of the daemon as JSON."""
    print_json(answer_body(answer))


def note(text: str) -> None:
    """A remark that is no output."""
    print(f"coalloc: {text}", file=sys.stderr)


def warn(error: object) -> None:
    """An error after which the command goes on."""
    print(error_line(error), file=sys.stderr)


def error_line(error: object) -> str:
    """The one line an error is shown as."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, UnicodeEncodeError):
        wrong = error.object[max(0, error.start - 20) : error.end + 20]
        text = f"{wrong!r} is not UTF-8 text"
    return f"coalloc: error: {printable(text)}"
