"""The one error for input that cannot be read: it says where and what."""

from __future__ import annotations


class InputError(ValueError):
    """Input from outside is malformed.

    Parameters
    ----------
    where : str
        Path of the offending value, such as ``queue[3].sigma``.
    what : str
        What is wrong with it, such as ``1.7 is outside 0..1``.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.where = where
        self.what = what
