"""docs/FORMATS.md and the JSON Schemas say what the code does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from coalloc.model.errors import InputError
from coalloc.model.formats.job_json import read_job
from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.plan import ObjectiveName, Reason, Status
from coalloc.policies.checking.check import check
from tests.unit.model.test_formats_reading import PLAN as DESIGN_PLAN
from tests.unit.model.test_formats_reading import SNAPSHOT as DESIGN_SNAPSHOT
from tests.unit.model.test_formats_refusals import ABSENT, PLAN_ROWS, SNAPSHOT_ROWS, altered
from tests.unit.policies.check.check_case import PLAN, SNAPSHOT

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "FORMATS.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json (\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SCHEMAS: list[dict[str, Any]] = [
    json.loads((ROOT / "docs" / "schema" / f"{name}.schema.json").read_text(encoding="utf-8"))
    for name in ("snapshot", "plan")
]
SNAPSHOTS, PLANS = map(Draft202012Validator, SCHEMAS)


def examples(kind: str) -> list[Any]:
    return [json.loads(text) for name, text in EXAMPLES if name == kind]


def test_the_generated_files_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "run make docs"


@pytest.mark.parametrize("schema", SCHEMAS, ids=["snapshot", "plan"])
def test_the_schemas_are_schemas(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    used = set(re.findall(r"#/\$defs/(\w+)", json.dumps(schema)))
    assert used == set(schema["$defs"])


def test_the_examples_read_and_the_plan_is_allowed() -> None:
    (snapshot,), (plan,) = examples("snapshot"), examples("plan")
    found = check(read_snapshot(snapshot), read_plan(plan))
    assert found.violations == ()
    assert found.metrics["coallocated"] == 1
    for job in examples("job"):
        assert read_job(job, "job", 0.0)[1] == []


def test_every_key_and_choice_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    for schema in SCHEMAS:
        for part in (schema, *schema["$defs"].values()):
            assert set(part.get("properties", ())) <= named
    for choices in (Reason, Status, ("amdahl", "downey", "table"), get_args(ObjectiveName)):
        assert {str(choice) for choice in choices} <= named


def test_every_key_of_the_schemas_has_words() -> None:
    for schema in SCHEMAS:
        for part in (schema, *schema["$defs"].values()):
            wordless = [
                key for key, of in part.get("properties", {}).items() if "description" not in of
            ]
            assert set(wordless) <= {"format", "kind", "model"}


def test_the_refusals_of_the_page_are_the_readers() -> None:
    told = re.findall(r"^\| `(\S*?)(?:\[\d\])?[^`]*: ([^`]*)` \| ", PAGE, re.MULTILINE)
    assert len(told) == 9
    whats = {message.partition(": ")[2] for _, _, message in SNAPSHOT_ROWS}
    shapes = {re.sub(r"'\w+'", "'?'", what) for what in whats}
    assert {re.sub(r"'\w+'", "'?'", what) for _, what in told} <= shapes


@pytest.mark.parametrize("value", [SNAPSHOT, json.loads(DESIGN_SNAPSHOT), *examples("snapshot")])
def test_the_schema_takes_snapshots(value: Any) -> None:
    SNAPSHOTS.validate(value)
    SNAPSHOTS.validate(json.loads(json.dumps(write_snapshot(read_snapshot(dict(value))))))


@pytest.mark.parametrize("value", [PLAN, json.loads(DESIGN_PLAN), *examples("plan")])
def test_the_schema_takes_plans(value: Any) -> None:
    PLANS.validate(value)
    PLANS.validate(json.loads(json.dumps(write_plan(read_plan(dict(value))))))


# What one value alone does not show, or JSON cannot say: the reader's business.
RELATIONS = re.compile(
    r"finite|there is no (node|task|cluster)|is used twice|is named twice|node set|is not JSON"
    r"|slots of a node|is before start|is not after start|cycle|must rise|procs but"
    r"|is above max_procs|is below min_procs|no listed process|not an index|valid Unicode"
    r"|is among the tasks|has started|is above max_nodes|nodes are more than|hold fewer than"
    r"|excludes memory|for divisible jobs|is not in nodes"
)


@pytest.mark.parametrize(
    ("validator", "base", "row"),
    [
        pytest.param(validator, base, row, id=row[2][:60])
        for validator, base, rows in (
            (SNAPSHOTS, SNAPSHOT, SNAPSHOT_ROWS),
            (PLANS, PLAN, PLAN_ROWS),
        )
        for row in rows
        if not RELATIONS.search(row[2])
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(
    validator: Draft202012Validator, base: Any, row: Any
) -> None:
    path, value, _ = row
    assert not validator.is_valid(altered(base, path, value))


def required_paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path of a JSON value that ends in a key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in pairs:
        if isinstance(value, dict):
            found.append((*at, key))
        if isinstance(item, dict | list):
            found += required_paths(item, (*at, key))
    return found


@pytest.mark.parametrize(
    ("validator", "read", "base"),
    [(SNAPSHOTS, read_snapshot, SNAPSHOT), (PLANS, read_plan, PLAN)],
    ids=["snapshot", "plan"],
)
def test_schema_and_reader_need_the_same_keys(
    validator: Draft202012Validator, read: Any, base: Any
) -> None:
    for path in required_paths(base):
        value = altered(base, path, ABSENT)
        try:
            read(value)
            reads = True
        except InputError as error:
            if "node" in error.what or "cluster" in error.what:
                continue
            reads = False
        assert validator.is_valid(value) == reads, path
