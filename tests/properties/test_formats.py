"""The formats: what is written reads back equal; whatever comes in, only InputError comes out."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from coalloc.daemon.solver.sent import decode_plan, decode_snapshot, encode_snapshot
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import decode_json
from coalloc.model.formats.nodeset import expand
from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from coalloc.policies.checking.sheet import units_of
from tests.properties.format_cases import NODES, json_values, placements, plans, snapshots
from tests.unit.policies.check.check_case import PLAN, SNAPSHOT

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
SNAPSHOTS, PLANS = (
    Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")))
    for name in ("snapshot", "plan")
)
WIDE = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

counts = st.dictionaries(st.sampled_from(NODES), st.integers(1, 10**6), min_size=1)
# NaN and infinity too: Python's reader lets them through.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@WIDE
@given(snapshots())
def test_a_snapshot_reads_back_equal(snapshot: Snapshot) -> None:
    written = decode_json(json.dumps(write_snapshot(snapshot), allow_nan=False))
    assert read_snapshot(written) == snapshot
    SNAPSHOTS.validate(written)
    assert decode_snapshot(encode_snapshot(snapshot)) == replace(snapshot, warnings=())


@WIDE
@given(plans())
def test_a_plan_reads_back_equal(plan: Plan) -> None:
    written = decode_json(json.dumps(write_plan(plan), allow_nan=False))
    assert read_plan(written) == plan
    assert decode_plan(json.dumps(written).encode()) == plan
    PLANS.validate(written)


@given(st.binary() | st.text().map(str.encode))
def test_bytes_raise_only_input_error(data: bytes) -> None:
    with pytest.raises(InputError):
        read_snapshot(decode_json(data, "file"))


@given(anything)
def test_json_raises_only_input_error(value: Any) -> None:
    for read in (read_snapshot, read_plan):
        with pytest.raises(InputError):
            read(value)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key inside a JSON value."""
    found: list[tuple[Any, Any]] = []
    rest = [value]
    while rest:
        item = rest.pop()
        keys = list(item) if isinstance(item, dict) else list(range(len(item)))
        for key in keys:
            found.append((item, key))
            if isinstance(item[key], dict | list):
                rest.append(item[key])
    return found


@pytest.mark.parametrize(
    ("base", "read", "schema"),
    [(SNAPSHOT, read_snapshot, SNAPSHOTS), (PLAN, read_plan, PLANS)],
    ids=["snapshot", "plan"],
)
@settings(max_examples=300)
@given(data=st.data())
def test_one_changed_value_raises_only_input_error(
    base: Any, read: Any, schema: Draft202012Validator, data: st.DataObject
) -> None:
    value = copy.deepcopy(dict(base))
    holder, key = data.draw(st.sampled_from(places(value)))
    holder[key] = data.draw(anything)
    try:
        read(value)
    except InputError:
        return
    # What the reader takes, the schema takes.
    assert schema.is_valid(value), list(schema.iter_errors(value))


@given(st.text("ab[]-,0123456789/ &!^é\n", max_size=12))
def test_node_sets_raise_only_input_error(text: str) -> None:
    try:
        names = expand(text)
    except InputError:
        return
    assert len(set(names)) == len(names) > 0


@settings(WIDE, max_examples=100)
@given(snapshots(), plans(), st.data())
def test_the_checker_answers_every_readable_pair(
    snapshot: Snapshot, plan: Plan, data: st.DataObject
) -> None:
    units = list(units_of(snapshot))
    answers = data.draw(st.lists(st.sampled_from(units), unique=True) if units else st.just([]))
    placed = tuple(
        replace(data.draw(placements), job=job, task=task, nodes=data.draw(counts))
        for job, task in answers
    )
    options = {
        "power_step": data.draw(st.none() | st.floats(0, 1)),
        "saturation_threshold": data.draw(st.none() | st.floats(1, 1e18)),
    }
    for one in (plan, replace(plan, placements=placed, options=options)):
        found = check(snapshot, one)
        assert all(isinstance(line, str) for line in found.violations)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=3))
def test_json_text_reads_back_equal(value: dict[str, Any]) -> None:
    assert decode_json(json.dumps(value)) == value
