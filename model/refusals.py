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

LASTING = frozenset({"bad_time_limit", "not_permitted"})
"""What another attempt on the same cluster cannot mend; another cluster may take the job."""
OVER_LIMIT = "over_limit"
"""Over a limit of the batch system's accounts or of a partition: for good, or for the moment."""
