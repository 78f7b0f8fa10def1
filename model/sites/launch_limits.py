"""Limits of what a program can be started with: execve(2), path_resolution(7).

They are Linux's for pages of 4 KiB and the usual stack limit of 8 MiB. What is longer could be
queued, and would fail on every node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coalloc.model.errors import InputError
from coalloc.model.sites.parts import Launch

LONGEST_TEXT = 131_071
"""An argument, or a variable with its name and the sign between them, bytes."""
LONGEST_START = 1_966_080
"""A command with its environment, bytes: 2 MiB without 128 KiB for the executor's variables."""
LONGEST_PATH = 4095
"""A file's name with its folders, bytes."""
OVERHEAD = 9
"""Of each text beside its own bytes: an end, and an address."""


def check_launch(launch: Launch, commands: Mapping[str, Sequence[str]]) -> None:
    """Refuse what no program can be started with: the launch's, or the tasks' of a workflow."""
    for field in ("cwd", "stdout", "stderr"):
        _size(f"launch.{field}", getattr(launch, field), LONGEST_PATH, "a path")
    taken = 0
    for name, value in launch.env.items():
        text = f"{name}={value}"
        taken += _size("launch.env", text, LONGEST_TEXT, f"the variable {name[:40]}") + OVERHEAD
    for where, argv in (
        ("launch.argv", launch.argv),
        *((f"commands.{task}", argv) for task, argv in commands.items()),
    ):
        _check_command(where, argv, taken, is_path=not launch.script)


def _check_command(where: str, argv: Sequence[str], taken: int, *, is_path: bool) -> None:
    if argv and is_path:
        _size(f"{where}[0]", argv[0], LONGEST_PATH, "a path")
    for place, text in enumerate(argv):
        taken += _size(f"{where}[{place}]", text, LONGEST_TEXT, "an argument") + OVERHEAD
    if taken > LONGEST_START:
        most = f"a program can be started with {LONGEST_START:,}"
        raise InputError(where, f"is {taken:,} bytes with the environment; {most}")


def _size(where: str, text: str, most: int, what: str) -> int:
    size = len(text.encode())
    if size > most:
        raise InputError(where, f"is {size:,} bytes; {what} holds at most {most:,}")
    return size
