"""Options of a command, declared as its help page shows them.

Notes
-----
A line is one option: its names, the name of its value if it takes one, and behind two blanks its
help, which may go on in indented lines::

    -M --clusters NAMES        only these
    --interval SECONDS =2      between two looks
    --set NAME=VALUE *         of the policy; may be given again
    --output PATTERN @stdout   file for its output, such as %j.out
    --init [DIR]               write a first configuration
    --noheader                 no headings

``=2`` is a default, written as it would be typed, ``@stdout`` the name under which the value is
kept, ``!`` behind the value says that it is needed, and ``*`` that all values are kept. A value in
brackets may be left out, and is empty then. A line without names is an argument; ``?``, ``+`` or
``*`` at its end is how often it may come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Reader = Callable[[str], Any] | Sequence[str]
"""Reads a value, or lists the values that there are."""
MARKS: dict[str, Callable[[str], dict[str, Any]]] = {
    "@": lambda text: {"dest": text},
    "=": lambda text: {"default": text},
    "!": lambda text: {"required": True},
    "*": lambda text: {"action": "append", "default": []},
    "[": lambda text: {"metavar": text.rstrip("]"), "nargs": "?", "const": ""},
}


def add_options(group: Any, text: str, **readers: Reader) -> None:
    """Declare options to a parser or a group of it; `readers` are by the names of the values."""
    for entry in filter(None, re.split(r"\n(?=\S)", text.strip())):
        head, _, about = entry.partition("  ")
        how: dict[str, Any] = {"help": " ".join(about.split()).replace("%", "%%") or None}
        names = [word for word in head.split() if word.startswith("-")]
        for word in head.split()[len(names) :]:
            how |= MARKS[word[0]](word[1:]) if word[0] in MARKS else {"metavar": word}
        if not names:
            if how["metavar"][-1] in "?+*":
                how |= {"metavar": how["metavar"][:-1], "nargs": how["metavar"][-1]}
            names = [how.pop("dest", how["metavar"].lower())]
        whole = next((name for name in names if name.startswith("--")), names[0])
        reader = readers.get(how.get("dest", whole.lstrip("-").replace("-", "_")))
        if reader is not None:
            how["type" if callable(reader) else "choices"] = reader
        elif "metavar" not in how:
            how["action"] = "store_true"
        group.add_argument(*names, **how)
