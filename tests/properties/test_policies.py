"""Properties of every policy on random snapshots."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES
from tests.snapshots import snapshots

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "objective": st.sampled_from(["makespan", "weighted_completion"]),
        "power_step": st.sampled_from([0.0, 0.05, 0.3, 0.8]),
        "coallocation": st.sampled_from(["sooner", "needed", "forbidden"]),
        "coallocate_moldable": st.booleans(),
        "guard_after": st.sampled_from([0, 1, 5]),
        "skip": st.booleans(),
    },
)


def known(name: str, options: dict[str, Any]) -> dict[str, Any]:
    table = POLICIES[name].options
    return {key: value for key, value in options.items() if key in table}


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=150)
@given(snapshot=snapshots(), options=OPTIONS)
def test_plan_is_allowed(name: str, snapshot: Snapshot, options: dict[str, Any]) -> None:
    policy = POLICIES[name]
    complete = read_options(known(name, options), policy.options)
    before = copy.deepcopy(snapshot)
    plan = policy.solve(snapshot, complete, Budget(seed=3))
    assert check(snapshot, plan).violations == ()
    assert plan.policy == name
    assert snapshot == before
    again = policy.solve(snapshot, complete, Budget(seed=3))
    assert again == plan
