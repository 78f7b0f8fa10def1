"""The options of a submission from all places where they are said, and what is told of them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from coalloc.cli.command import BAD_USAGE, CommandError, Parser, note, warn
from coalloc.cli.submit.sbatch_words import PASSED_ON, WORDS, Consequence, written_out
from coalloc.cli.submit.script_lines import Said, lines_of, options_of, words_of
from coalloc.model.output_names import strange_marks


class Told:
    """Warnings and refusals of a command, told at the end: all refusals, else the warnings."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.where: dict[str, str] = {}
        """By the name of an option's value, where it was said."""
        self._refusals: list[str] = []
        self._warnings: list[str] = []

    def of(self, dest: str) -> str:
        return self.where.get(dest, f"{self.command}: ")

    def refuse(self, where: str, what: str) -> None:
        self._refusals.append(f"{where}{what}")

    def warn(self, where: str, what: str) -> None:
        self._warnings.append(f"warning: {where}{what}")

    def end(self) -> None:
        """Tell all; raises the last of the refusals, after the others were told."""
        self.stop()
        for warning in self._warnings:
            note(warning)

    def stop(self) -> None:
        """Tell the refusals, in the order of their lines; raises as `end`."""
        refusals = sorted(self._refusals, key=_line)
        for refusal in refusals[:-1]:
            warn(refusal)
        if refusals:
            raise CommandError(refusals[-1], BAD_USAGE)


def _line(text: str) -> int:
    found = re.match(r"[^ ]*:([0-9]+): ", text)
    return int(found[1]) if found else 0


def before_the_script(args: argparse.Namespace, command: str) -> None:
    """Refuse words of the command line that stay refused whatever a script says."""
    told = Told(command)
    judge(argparse.Namespace(**{**vars(args), "once": True}), told)
    told.stop()


def script_options(script: str, shown: str, prefixes: tuple[str, ...], told: Told) -> list[Said]:
    """The options in a script's lines; the script is `shown` so to people."""
    lines, out = lines_of(script, prefixes), []
    for number, text in lines.read:
        where = f"{shown}:{number}: "
        try:
            out.append(Said(where, words_of(text)))
        except argparse.ArgumentTypeError as error:
            told.refuse(where, str(error))
    if lines.late:
        numbers = ", ".join(map(str, lines.late))
        what = "options behind the first command are not read, in line"
        told.warn(f"{shown}: ", f"{what}{'s' * (len(lines.late) > 1)} {numbers}")
    return out


def merged(
    args: argparse.Namespace,
    add: Callable[[Parser], None],
    said: Iterable[Said],
    told: Told,
    *,
    completes: bool = False,
) -> argparse.Namespace:
    """All options that `add` declares: a later place over an earlier one, typed words over all.

    Where it `completes` them, long options that are unknown are taken for whole ones, as by sbatch.
    """
    parser = Parser(prog=f"coalloc {told.command}", add_help=False)
    add(parser)
    defaults = vars(parser.parse_args([]))
    found = argparse.Namespace()
    for where, words in said:
        whole = partial(_completed, told, where) if completes else str
        for option, wrong in options_of(words, parser, whole):
            try:
                if wrong:
                    raise CommandError(wrong)
                parser.parse_args([option], found)
            except CommandError as error:
                what = str(error).partition(" (see ")[0]
                told.refuse(where, what.removeprefix(f"{told.command}: "))
            else:
                told.where[parser.dest(option.partition("=")[0])] = where
    typed = {k: v for k, v in vars(args).items() if k not in defaults or v != defaults[k]}
    for dest in typed:
        told.where.pop(dest, None)
    return argparse.Namespace(**{**defaults, **vars(found), **typed})


def _completed(told: Told, where: str, flag: str) -> str:
    whole = written_out(flag)
    if whole != flag:
        told.warn(where, f"{flag} is taken for {whole}, as sbatch does")
    return whole


def add_words(parser: Parser, *, over: bool = False) -> None:
    """Declare the options of sbatch that a command lacks, each unlisted.

    With `over`, over options of ours, too, that have their names but not their meaning.
    """
    group = parser.add_argument_group("of sbatch, without an equal here")
    known = parser.flags()
    for word in WORDS:
        is_ours = over and word.verdict is not Consequence.MEANT and word.names != "-h --help"
        flags = [flag for flag in word.flags if is_ours or flag not in known]
        how: dict[str, Any] = {"dest": word.dest, "help": argparse.SUPPRESS, "default": None}
        if word.value == "none":
            how |= {"action": "store_const", "const": ""}
        elif word.value == "optional":
            how |= {"nargs": "?"}
            parser.bare = (*parser.bare, *flags)
        if flags:
            group.add_argument(*flags, **how)


def judge(options: argparse.Namespace, told: Told) -> None:
    """Name every option of sbatch that was given and that the command lacks, or pass it on."""
    for word in WORDS:
        value = getattr(options, word.dest, None)
        if value is None or value in word.harmless:
            continue
        said = word.flags[-1] + (f"={value}" if value else "")
        what = f"{said}: {word.why.format(value)}"
        if word.verdict is Consequence.PASSED:
            pass_on(options, told, word.dest, said)
        elif word.verdict is Consequence.WARNED:
            told.warn(told.of(word.dest), what)
        else:
            told.refuse(told.of(word.dest), what)


def pass_on(options: argparse.Namespace, told: Told, dest: str, said: str) -> None:
    """Pass an option on to the batch system of a job's one cluster."""
    if options.once:
        options.passed = (*getattr(options, "passed", ()), said)
    else:
        told.refuse(told.of(dest), f"{said}: {PASSED_ON}")


def judge_marks(options: argparse.Namespace, told: Told, *, once: bool) -> None:
    """Name the marks in names of output files that stay, or are not what they seem."""
    for dest, option in (("stdout", "--output"), ("stderr", "--error")):
        pattern = getattr(options, dest) or ""
        strange = strange_marks(pattern, once=once)
        if strange:
            what = f"{option}={pattern}: {', '.join(strange)} is no mark here, and stays as it is"
            told.warn(told.of(dest), what)
        if re.search(r"(?<!%)(?:%%)*%[0-9]*a", pattern) and options.array is None:
            told.warn(told.of(dest), f"{option}={pattern}: in no array, %a is 0")
        if "\\" in pattern and once:
            what = "a backslash, to sbatch, keeps marks as they are; write %% for %"
            told.refuse(told.of(dest), f"{option}={pattern}: {what}")
