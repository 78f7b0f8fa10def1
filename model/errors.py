"""The one error for input that cannot be read: it says where and what."""

from __future__ import annotations


class InputError(ValueError):
    """Input from outside is malformed: at ``queue[3].sigma``, ``1.7 is outside 0..1``.

    Both are kept as one line, whatever of the input they quote.
    """

    def __init__(self, where: str, what: str) -> None:
        where, what = _one_line(where), _one_line(what)
        super().__init__(f"{where}: {what}" if where else what)
        self.where = where
        self.what = what


def _one_line(text: str) -> str:
    return text if text.isprintable() else " ".join(text.split())


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line with file and key."""
