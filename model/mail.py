"""Mail about a job to its user, in the words of sbatch."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

ALL = ("BEGIN", "END", "FAIL", "INVALID_DEPEND", "REQUEUE")
SHARES = {"TIME_LIMIT_50": 0.5, "TIME_LIMIT_80": 0.8, "TIME_LIMIT_90": 0.9}
"""Of its time limit, after which a job's user is told."""
EACH_MEMBER = "ARRAY_TASKS"
TYPES = frozenset((*ALL, *SHARES, "TIME_LIMIT", EACH_MEMBER))
IDLE = frozenset(("NONE", "STAGE_OUT"))
"""Words that ask for no mail: nothing is staged out here."""
Addresses = Annotated[str, Meta(max_length=254)]
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+=-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?")


def is_address(text: str) -> bool:
    """Whether mail can go there: neither an option nor a file nor a command of sendmail's."""
    return _ADDRESS.fullmatch(text) is not None
