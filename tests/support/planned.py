"""One call for tests: the plan of a policy, which must pass the checker."""

from __future__ import annotations

from typing import Any

from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup


def planned(
    name: str,
    snapshot: Snapshot,
    budget: Budget | None = None,
    on_incumbent: OnIncumbent | None = None,
    **given: Any,
) -> Plan:
    """Plan with the options that are given."""
    policy = lookup(name)
    options = read_options(given, policy.options)
    plan = policy.solve(snapshot, options, budget or Budget(), on_incumbent)
    assert check(snapshot, plan).violations == ()
    return plan
