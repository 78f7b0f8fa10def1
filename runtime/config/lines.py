"""On which line of a TOML text each key stands; tomli tells that only for syntax errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

import tomli

from coalloc.model.structs import Path

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_EMPTY = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PLAIN = re.compile(r"[^,\]}#\n]*")
# Triple quotes first; a basic string may hold an escaped quote, a literal one may not.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'",
    re.DOTALL,
)


def key_lines(text: str) -> dict[Path, int]:
    """Map each key, table and array element of a valid TOML text to its line, from 1.

    Parameters
    ----------
    text : str
        TOML that tomli accepts; what it makes of any other text means nothing.

    Returns
    -------
    dict of path to line
        A path such as ``("clusters", 1, "link_gbps")``; tables of an array count from 0.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of a path, or of the innermost table around it that the text names; else 1."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        # how many tables each array of tables has so far
        self.counts: dict[Path, int] = {}
        self._line, self._line_at = 1, 0

    def document(self) -> None:
        table: Path = ()
        while True:
            self._skip(_EMPTY)
            if self.at >= len(self.text):
                return
            if self.text.startswith("[[", self.at):
                table = self._header(2, is_array=True)
            elif self.text.startswith("[", self.at):
                table = self._header(1, is_array=False)
            else:
                self._pair(table)

    def _header(self, brackets: int, *, is_array: bool) -> Path:
        line = self._now()
        self.at += brackets
        names = self._key()
        self._skip(_BLANK)
        self.at += brackets
        path: Path = ()
        for name in names[:-1]:
            path = self._inside((*path, name))
        path = (*path, names[-1])
        if is_array:
            self.lines.setdefault(path, line)
            self.counts[path] = self.counts.get(path, 0) + 1
            path = self._inside(path)
        self.lines[path] = line
        return path

    def _inside(self, path: Path) -> Path:
        """Of an array of tables, the table that was begun last."""
        return (*path, self.counts[path] - 1) if path in self.counts else path

    def _pair(self, table: Path) -> None:
        line = self._now()
        path = table
        for name in self._key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._skip(_BLANK)
        self._step("=")
        self._value(path)

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip(_BLANK)
            found = _STRING.match(self.text, self.at)
            if found:
                names.append(str(tomli.loads(f"k = {found[0]}")["k"]))
            else:
                found = _BARE.match(self.text, self.at)
                if not found:
                    raise ValueError(f"no key on line {self._now()}")
                names.append(found[0])
            self.at = found.end()
            self._skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _value(self, path: Path) -> None:
        self._skip(_BLANK)
        found = _STRING.match(self.text, self.at)
        if found:
            self.at = found.end()
        elif self.text.startswith("[", self.at):
            self._items(path)
        elif self.text.startswith("{", self.at):
            self._inline_table(path)
        else:
            self._skip(_PLAIN)

    def _items(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_EMPTY)
            if self._took("]"):
                return
            self.lines[(*path, index)] = self._now()
            self._value((*path, index))
            index += 1
            self._skip(_EMPTY)
            self._took(",")

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip(_EMPTY)
            if self._took("}"):
                return
            self._pair(path)
            self._skip(_EMPTY)
            self._took(",")

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()

    def _took(self, char: str) -> bool:
        if self.at >= len(self.text):
            raise ValueError("the text ends inside a value")
        if not self.text.startswith(char, self.at):
            return False
        self.at += 1
        return True

    def _step(self, char: str) -> None:
        if not self._took(char):
            raise ValueError(f"no {char} on line {self._now()}")

    def _now(self) -> int:
        # counted from where it was last asked: linear over the whole text
        self._line += self.text.count("\n", self._line_at, self.at)
        self._line_at = self.at
        return self._line
