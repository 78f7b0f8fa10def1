"""Which tokens of submits stay in memory: the store knows them all, and is asked for the others."""

from __future__ import annotations

from coalloc.core.native_jobs import NOBODY
from coalloc.core.state import State

SPARE = 1000
"""Beyond two for each job in memory."""


def forget_tokens(state: State) -> None:
    """Drop the tokens of jobs that are no longer in memory, once they are the greater part.

    Those of handed jobs stay, since the core looks for them without asking the store.
    """
    if len(state.tokens) <= 2 * len(state.jobs) + SPARE:
        return
    known = {job.partition("_")[0] for job in state.jobs}
    state.tokens = {
        key: job for key, job in state.tokens.items() if key[0] == NOBODY or job in known
    }
