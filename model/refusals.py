"""Reasons for which an executor may refuse a part, as far as others act on them."""

from __future__ import annotations

PERMANENT = frozenset(
    {
        "bad_script",
        "cwd_missing",
        "not_executable",
        "not_found",
        "output_unwritable",
        "user_unknown",
    }
)
"""What another attempt cannot mend: the job ends as failed."""
