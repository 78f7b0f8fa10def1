"""Accounts of jobs as each cluster's batch system has them."""

from __future__ import annotations

import pytest

from coalloc.core.base.messages import Prepare
from coalloc.core.jobs.eligibility import account_there, check_accounts
from coalloc.model.errors import InputError
from coalloc.model.sites.batch_options import BatchOptions
from tests.support.core_site import Site

ACCOUNTS = {"ada/chem": "c1", "chem": "c2", "bob/*": "guest", "eve/*": ""}


@pytest.mark.parametrize(
    ("user", "account", "there"),
    [
        ("ada", "chem", "c1"),
        ("bob", "chem", "c2"),  # what is said of an account comes before what is said of a user
        ("bob", "bio", "guest"),
        ("bob", "", "guest"),
        ("eve", "bio", ""),  # her default association
        ("ada", "bio", "bio"),  # nothing is said of it
        ("ada", "", ""),
    ],
)
def test_first_key_that_is_there_says_the_account(user: str, account: str, there: str) -> None:
    assert account_there(ACCOUNTS, user, account) == there
    assert account_there({**ACCOUNTS, "*": "all"}, user, account) == (
        "all" if (user, account) in {("ada", "bio"), ("ada", "")} else there
    )


def test_each_cluster_is_told_its_own_account() -> None:
    site = Site({"a": 1, "b": 1}, accounts={"a": {"chem": "c1"}, "b": {"*": ""}})
    job = site.submit(2, batch=BatchOptions(account="chem", qos="long"))
    told = {cluster: order.batch for cluster, order in site.orders_for(job, Prepare)}
    assert told == {
        "a": BatchOptions(account="c1", qos="long"),
        "b": BatchOptions(qos="long"),
    }
    assert site.job(job).account == "chem"


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        ({"a b": "x"}, "accounts.a b: is none of ACCOUNT, USER/ACCOUNT"),
        ({"a/b/c": "x"}, "accounts.a/b/c: is none of"),
        ({"*/chem": "x"}, "accounts.*/chem: is none of"),
        ({"chem": 3}, "accounts.chem: 3 is not a text"),
        ({"chem": "c 1"}, "accounts.chem.account: 'c 1' holds a blank"),
    ],
)
def test_mappings_of_another_form_are_refused(accounts: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as error:
        check_accounts(accounts, "accounts")
    assert words in str(error.value)
