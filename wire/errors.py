"""A refusal of the daemon, as its client raises it."""

from __future__ import annotations

from typing import Any


class RefusedError(Exception):
    """The daemon did not do what was asked.

    Attributes
    ----------
    code : str
        ``bad_request``, ``not_found``, ``not_allowed``, ``infeasible``, ``too_many``,
        ``wrong_state``, ``storage``, ``busy``, ``too_fast`` or ``internal``. Only after
        ``storage``, ``busy``, ``too_fast`` and ``too_many`` may the same request succeed later.
    message : str
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless it is a refusal.

    Raises
    ------
    RefusedError
    """
    if answer.get("type") == "refused":
        raise RefusedError(str(answer.get("code")), str(answer.get("message")))
    return answer
