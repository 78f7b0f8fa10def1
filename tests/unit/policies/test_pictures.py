"""The pictures in the documentation are those of the policies."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
# Searches draw the same ones, too, but take seconds.
QUICK = (
    *(("rigid", name) for name in ("fcfs", "easy", "conservative", "mbpc", "cbs")),
    *(("moldable", name) for name in ("sequential", "gang", "demt")),
    *(("workflow", "m-heft"), ("workflow", "mca-heft"), ("divisible", "easy")),
)


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("kind", "policy"), QUICK)
def test_the_picture_is_what_the_policy_plans(pictures: ModuleType, kind: str, policy: str) -> None:
    drawn = (DOCS / "policies/pictures" / f"{kind}-{policy}.svg").read_text(encoding="utf-8")
    queue, policies = pictures.QUEUES[kind]
    assert policy in policies
    assert pictures.picture(queue, policy) == drawn, "make docs draws it again"


def test_every_picture_is_shown(pictures: ModuleType) -> None:
    named = {f"{kind}-{name}.svg" for kind, (_, names) in pictures.QUEUES.items() for name in names}
    page = (DOCS / "policies/pictures.md").read_text(encoding="utf-8")
    assert {path.name for path in (DOCS / "policies/pictures").iterdir()} == named
    assert not [name for name in named if f"(pictures/{name})" not in page]
