"""Arrays of the kernels have the shapes that stand beside their fields."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from coalloc.policies.kernel import state
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.record import room_for
from coalloc.policies.kernel.search import annealing, listing_state
from coalloc.policies.kernel.search.lister import Lister, domains_of
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

FIELD = re.compile(r"^    (\w+): \w+  # ([^,:;\n]+)", re.MULTILINE)


def written(kind: Any, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes that the comments of a tuple's fields give in these letters."""
    out = {}
    for name, text in FIELD.findall(inspect.getsource(kind)):
        parts = [re.sub(r"(\d) ([A-Z])", r"\1 * \2", part.strip()) for part in text.split(" x ")]
        if all(re.fullmatch(r"[A-Z0-9 +*()]+", part) for part in parts):
            letters = {**vars(state), **sizes}
            if set(re.findall(r"[A-Z]+", text)) <= letters.keys():
                out[name] = tuple(int(eval(part, {}, letters)) for part in parts)
    return out


def arrays() -> list[tuple[str, Any]]:
    queue = [rigid(n, 1 + n, 5.0, features=["gpu"] if n == 3 else []) for n in range(5)]
    clusters = [cluster("a", 3), cluster("b", 4, features=["gpu"]), cluster("c", 2, power=0.5)]
    planner = Planner(case(clusters, queue), {})
    lister = Lister(planner, [0, 1, 2, 4], planner.decode([3], "insert"))
    return [
        ("Problem", planner.compiled.problem),
        ("Base", planner.compiled.base),
        ("Rows", lister.rows),
        ("ListingGenes", lister.genes()),
        ("Domains", domains_of(lister, (1.0, 1.5))),
    ]


@pytest.mark.parametrize(
    ("name", "given"), arrays(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_shapes_are_those_that_are_written(name: str, given: Any) -> None:
    sizes = {"N": 5, "L": 4, "K": 3, "C": 3, "M": 5, "G": 2, "R": 0, "P": 0, "S": 2}
    if name in ("Base", "Rows"):
        sizes["T"] = given.time.size
    module = {"Rows": listing_state, "ListingGenes": listing_state}
    kind = getattr(module.get(name, annealing if name == "Domains" else state), name)
    told = written(kind, sizes)
    assert told
    shapes = {field: np.shape(getattr(given, field)) for field in told}
    assert shapes == told


def test_rooms_have_the_shapes_of_annotations() -> None:
    start = np.ones(2)
    made = room_for(state.Outcome, N=2, pool=7, start=start)
    assert made.start is start
    assert (made.use_class.shape, made.use_class.dtype) == ((7,), np.dtype(np.int64))
    scratch = room_for(state.Scratch, N=2, G=3, C=4, K=5, B=1)
    assert (scratch.sums.shape, scratch.stair.shape) == ((3, 2), (state.STEPS, 2))
    assert (scratch.least.dtype, scratch.until.dtype) == (np.dtype(np.int32), np.dtype(np.float64))
