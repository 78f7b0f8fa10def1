"""The decoder by counted resources, compiled: the same functions, on arrays."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

from coalloc.policies.kernel import heap
from coalloc.policies.kernel.counted import fits, listing
from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.record import record

record(fits.Board)


def _compiled(*modules: ModuleType) -> dict[str, Any]:
    """The functions of modules by name, each of which finds the others compiled."""
    known: dict[str, Any] = {"__name__": __name__, "__builtins__": __builtins__}
    for module in modules:
        for name, found in vars(module).items():
            if isinstance(found, FunctionType) and found.__module__ == module.__name__:
                made = FunctionType(found.__code__, known, name)
                called = name in ("listing", "prepare")
                known[name] = kernel(made) if called else helper()(made)
            elif not name.startswith("__"):
                known.setdefault(name, found)
    return known


_FUNCTIONS = _compiled(heap, fits, listing)
list_items, prepare = _FUNCTIONS["listing"], _FUNCTIONS["prepare"]
