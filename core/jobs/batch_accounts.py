"""Accounts of jobs as each cluster's batch system has them (``[clusters.accounts]``)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from coalloc.core.base.records import JobRecord
from coalloc.model.errors import InputError
from coalloc.model.settings import ClusterConfig
from coalloc.model.sites.batch_options import BatchOptions, check_options

EVERY = "*"
_KEY = re.compile(r"\*|[^/*\s]+(/(\*|[^/*\s]+))?")


def account_there(accounts: Mapping[str, str], user: str, account: str) -> str:
    """The account of a cluster that stands for a job's; empty: the user's default one.

    The first of ``USER/ACCOUNT``, ``ACCOUNT``, ``USER/*`` and ``*`` that `accounts` has says it;
    where it has none, the account is the job's own.
    """
    keys = (f"{user}/{account}", account) if account else ()
    for key in (*keys, f"{user}/{EVERY}", EVERY):
        if key in accounts:
            return accounts[key]
    return account


def told(settings: ClusterConfig, record: JobRecord) -> BatchOptions:
    """Options that a cluster's batch system is told for a job."""
    account = account_there(settings.accounts, record.user, record.account)
    return record.batch.with_account(account)


def check_accounts(accounts: Mapping[str, object], where: str) -> None:
    """Refuse keys of another form, and what is no account."""
    for key, value in accounts.items():
        if not _KEY.fullmatch(key):
            forms = "ACCOUNT, USER/ACCOUNT, USER/* or *"
            raise InputError(f"{where}.{key}", f"is none of {forms}")
        if not isinstance(value, str):
            raise InputError(f"{where}.{key}", f"{value!r} is not a text")
        check_options(BatchOptions(account=value), f"{where}.{key}")
