"""The programs that a script is certain to execute."""

from __future__ import annotations

import os
import re

# fmt: off
BUILTIN = frozenset({
    ".", ":", "alias", "bg", "break", "case", "cd", "command", "continue", "do", "done",
    "echo", "else", "eval", "exec", "exit", "export", "false", "fg", "fi", "for", "function",
    "getopts", "hash", "if", "in", "jobs", "kill", "printf", "pwd", "read", "return",
    "select", "set", "shift", "source", "test", "then", "time", "times", "trap", "true",
    "type", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
})
# fmt: on
"""What shells know by themselves; `true` and others are programs, too, but need not be."""
SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
PLAIN_LINE = re.compile(r"(?:exec +|\w+=[\w./:+-]* +)*([\w./+-]+)(?: [\w./:+=@%, -]*)?")
"""A command without any syntax of the shell."""


def programs(text: str) -> list[str]:
    """Programs that a script is certain to execute: its interpreter, and its one plain command.

    Of a shell script with more in it nothing is said: commands may be functions, or be skipped.
    """
    first, *lines = text.splitlines() or [""]
    words = first.removeprefix("#!").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    commands = [line.strip() for line in lines]
    commands = [line for line in commands if line and not line.startswith("#")]
    found = words[:1]
    if words and os.path.basename(words[0]) in SHELLS and len(commands) == 1:
        plain = PLAIN_LINE.fullmatch(commands[0])
        if plain is not None and plain[1] not in BUILTIN:
            found.append(plain[1])
    return found
