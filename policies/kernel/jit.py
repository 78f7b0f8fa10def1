"""The decorators of compiled functions, and the names under which numba caches them.

A `kernel` is called from Python; a `helper` by compiled functions only. Both may be called by
functions of other files. A template becomes a kernel of each module that has it `specialized`.

Notes
-----
Numba's cache compares the file of a function alone: it keeps a caller's old code when a callee or
a constant in another file changes. So the name under which a function is cached ends in a checksum
of its module and of all modules of this package that it imports, directly or through others.
A change compiles anew what depends on it, and nothing else. For that, a module with compiled
functions imports nothing else of coalloc.
"""

from __future__ import annotations

import dis
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import FunctionType
from typing import Any, TypeVar, cast
from warnings import warn
from zlib import crc32

from numba import njit

from coalloc.policies.kernel.linking import HelperCompiler, KernelCompiler, for_any_value

Function = TypeVar("Function", bound=Callable[..., Any])

HOME = __name__.rpartition(".")[0]
UNKEPT = (
    "no folder for compiled code can be written, so that each start compiles anew; "
    "name one in NUMBA_CACHE_DIR"
)
FLAGS: dict[str, Any] = {
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_rewrites": True,
    "_nrt": False,
}


def kernel(function: Function) -> Function:
    """Compile a function that is called from Python.

    It makes no arrays: no references are counted, which is three times as fast.
    """
    function.__qualname__ += f"_{stamp(function.__module__)}"
    _settle_cache()
    try:
        return cast(Function, njit(cache=True, pipeline_class=KernelCompiler, **FLAGS)(function))
    except RuntimeError:  # numba raises at import where nothing is writable for its cache
        _warn_unkept()
        return cast(Function, njit(pipeline_class=KernelCompiler, **FLAGS)(function))


def helper(*, inline: bool = False) -> Callable[[Function], Function]:
    """Compile a function that only compiled functions call, without a wrapper for Python.

    `inline`: into each caller. That takes longer to compile.
    """

    def decorate(function: Function) -> Function:
        flags = FLAGS | {"no_cpython_wrapper": True, "forceinline": inline}
        compiled = njit(pipeline_class=HelperCompiler, **flags)(function)
        for_any_value(compiled)
        return cast(Function, compiled)

    return decorate


def specialized(template: Function, module: str, **parts: Callable[..., Any]) -> Function:
    """Compile a function anew, in which some names stand for the functions of a module.

    A function that took them as arguments, or that was made around them, would not be cached. This
    one is cached under the stamp of the module, which has to import the template.
    """
    known = {**template.__globals__, **parts, "__name__": module}
    function = FunctionType(template.__code__, known, template.__name__)
    function.__qualname__ = f"{module.rpartition('.')[2]}_{template.__name__}"
    return cast(Function, kernel(function))


def stamp(module: str) -> str:
    """Checksum of a module and of all that it imports from its own package."""
    known, left = {module}, [module]
    for one in left:
        left += _imports(one) - known
        known.update(left)
    total = 0
    for name in sorted(known):
        total = crc32(_content(name), total)
    return f"{total:08x}"


@cache
def _imports(module: str) -> frozenset[str]:
    """The modules of its package that one imports when it is loaded."""
    package = HOME if module.startswith(f"{HOME}.") else module.partition(".")[0]
    names, source = set[str](), ""
    for step in dis.get_instructions(_loader(module)[0].get_code(module)):
        if step.opname == "IMPORT_NAME":
            source = str(step.argval)
            names.add(source)
        elif step.opname == "IMPORT_FROM":
            names.add(f"{source}.{step.argval}")
    return frozenset(name for name in names if name.startswith(f"{package}.") and _exists(name))


def _exists(name: str) -> bool:
    """Whether this is a module; else it is something in one."""
    try:
        return find_spec(name) is not None
    except ImportError:  # what should hold it is no folder, or cannot be imported
        return False


@cache
def _content(module: str) -> bytes:
    """The source of a module, or its byte code where there is no more."""
    loader, origin = _loader(module)
    return cast(bytes, loader.get_data(origin))


def _loader(module: str) -> tuple[Any, str]:
    """Loader of a module, of its source, byte code or archive, and where that is."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return spec.loader, spec.origin


@cache  # once: what numba does to the filters of warnings would have it shown again
def _warn_unkept() -> None:
    warn(UNKEPT, RuntimeWarning, stacklevel=1)


def _settle_cache() -> None:
    """Keep numba from a cache below the working folder, such as ``~`` where there is no home."""
    if not os.path.isabs(os.environ.get("XDG_CACHE_HOME", "/")):
        del os.environ["XDG_CACHE_HOME"]
    if not os.path.isabs(os.path.expanduser("~")):
        os.environ.setdefault("XDG_CACHE_HOME", os.devnull)
