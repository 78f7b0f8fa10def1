"""Tokens of jobs that ended long ago are the store's to remember."""

from __future__ import annotations

from coalloc.core.base.events import TokenRecalled
from coalloc.core.base.state import NOBODY, SPARE_TOKENS, forget_tokens
from tests.support.core_site import Site


def test_tokens_of_forgotten_jobs_go_and_all_others_stay() -> None:
    site = Site(keep_ended=1)
    state = site.state
    for number in range(5):
        site.submit(token=f"old{number}")
        site.run(str(number + 1))
        site.finish(str(number + 1))
    site.submit(token="waits")
    site.submit(token="array", array=(3, 4))
    state.tokens[NOBODY, "handed"] = "77"
    before = dict(state.tokens)
    forget_tokens(state)
    assert state.tokens == before, "they are few"
    for number in range(SPARE_TOKENS + 20):
        state.tokens["bob", str(number)] = "1"
    assert "1" not in state.jobs
    forget_tokens(state)
    kept = {token for _, token in state.tokens}
    assert kept == {"old4", "waits", "array", "handed"}


def test_a_recalled_token_is_known_to_the_submit_that_follows() -> None:
    site = Site(keep_ended=0)
    old = site.submit(token="old")
    site.run(old)
    site.finish(old)
    state = site.state
    for number in range(SPARE_TOKENS + 20):
        state.tokens["bob", str(number)] = old
    site.submit(token="other")
    assert ("ann", "old") not in state.tokens, "it is forgotten as requests come"
    site.do(TokenRecalled(user="ann", token="old", job=old))
    assert site.submit(token="old") == old
