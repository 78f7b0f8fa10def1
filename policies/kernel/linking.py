"""Compiles helpers only as far as their callers need.

Numba optimises every function together with all that it calls, and translates it to machine code,
before it does the same with each caller. A helper is never called but from compiled code, which
holds a copy of it: what is done to it alone is done again there. So it is left as LLVM's code, and
is not cached.

That takes half of the time, and stands on how numba keeps compiled code (`libraries`), which is
nothing that numba promises. A numba that keeps it otherwise compiles the ordinary way: what is
computed is the same.
"""

from __future__ import annotations

import gc
from contextlib import nullcontext
from functools import cache
from typing import Any

from numba.core import types
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock

try:
    from coalloc.policies.kernel.libraries import HelperLibrary, KernelLibrary, indexing
except ImportError:
    LIBRARIES: dict[str, Any] = {}
    indexing = nullcontext  # type: ignore[assignment]
else:
    LIBRARIES = {"kernel": KernelLibrary, "helper": HelperLibrary}
FORWARD = {"coalloc.policies.kernel.search.bins"}
"""Modules whose indices are never below 0: what would look for that takes a sixth of their time.
They call nothing of numpy's, which would be compiled along with them, and kept for others."""


@cache
def links(codegen: Any) -> bool:
    """Whether numba lets us: libraries without a function are made to see it."""
    try:
        with global_compiler_lock:
            for library in LIBRARIES.values():
                library(codegen, "trial").finalize()
    except Exception:
        return False
    return bool(LIBRARIES)


class KernelCompiler(Compiler):
    """Compiles a function that counts no references into a library of its own."""

    LIBRARY = "kernel"

    def compile_extra(self, function: Any) -> Any:
        """Compile it; the many objects that this takes are not looked through meanwhile."""
        codegen = self.state.targetctx.codegen()
        if links(codegen):
            self.state.library = LIBRARIES[self.LIBRARY](codegen, function.__qualname__)
            self.state.library.enable_object_caching()
        collects = gc.isenabled()
        gc.disable()
        try:
            with global_compiler_lock, indexing(function.__module__ not in FORWARD):
                return super().compile_extra(function)
        finally:
            if collects:
                gc.enable()


class HelperCompiler(KernelCompiler):
    """Compiles a function that is linked into others."""

    LIBRARY = "helper"


def for_any_value(dispatcher: Any) -> None:
    """Do not compile a function once more where an argument is written as a number."""
    resolve: Any = getattr(dispatcher, "get_call_template", None)

    def template(arguments: Any, named: Any) -> Any:
        kinds = tuple(types.unliteral(kind) for kind in arguments)
        return resolve(kinds, {name: types.unliteral(kind) for name, kind in named.items()})

    if resolve is not None:  # it is where numba compiles nothing
        dispatcher.get_call_template = template
