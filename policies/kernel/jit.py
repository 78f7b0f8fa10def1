"""The decorators of the compiled kernels.

Notes
-----
Numba's cache keeps a caller's old code when a callee in another file changes. So the name under
which a kernel is cached ends in a checksum of all files that hold kernels of this folder.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from os.path import basename
from typing import Any
from zlib import crc32

from numba import njit

SHARED = ("state.py", "loads.py")
"""Read by `SOURCES` and by `SEARCH`: to change them recompiles both."""
SOURCES = ("profile.py", "allotment.py", "fit.py", "seek.py", "decoders.py")
SEARCH = ("listing_state.py", "listing_place.py", "listing.py", "annealing.py")
"""Kernels of their own, which call none of `SOURCES`: to change them recompiles these only."""
EXACT = ("branch_state.py", "branch_bounds.py", "branch_and_bound.py")
"""Those of the exact search, of `oas`."""

FLOW = ("serial_sgs.py", "serial_annealing.py")
"""Those of the search for workflows, of `workflow`."""


def _checksum(names: tuple[str, ...]) -> str:
    total = 0
    for name in names:
        try:
            total = crc32(pkgutil.get_data(__package__, name) or b"", total)
        except OSError:  # no source beside the byte code: it does not change either
            continue
    return f"{total:08x}"


# "_n" for kernels without counts of references: a flag is no part of numba's cache key
_SHARED_SUFFIX = f"_s_{_checksum(SHARED)}"
_SUFFIX = f"_n_{_checksum((*SHARED, *SOURCES))}"
_EXACT_SUFFIX = f"_{_checksum(EXACT)}"
_FLOW_SUFFIX = f"_{_checksum(FLOW)}"
_SEARCH_SUFFIX = f"_i_{_checksum((*SHARED, *SEARCH))}"


def kernel(function: Callable[..., Any]) -> Any:
    """Compile, with a cache where one can be written."""
    return _compile(function)


def part(function: Callable[..., Any]) -> Any:
    """Compile what only kernels call: without the wrappers for calls from Python."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def shared(function: Callable[..., Any]) -> Any:
    """Compile what the kernels of `SOURCES` and of `SEARCH` call, into them."""
    function.__qualname__ += _SHARED_SUFFIX
    return _cached(
        function, _nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )


def alone(function: Callable[..., Any]) -> Any:
    """Compile a kernel that allocates nothing, and calls only what is `inlined` in its own file.

    The files of `FLOW` may call each other, and what is `called`.
    """
    function.__qualname__ += _alone_suffix(function)
    return _cached(function, _nrt=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile what only an `alone` kernel of the same file calls, into it."""
    function.__qualname__ += _alone_suffix(function)
    return _cached(
        function, _nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )


def called(function: Callable[..., Any]) -> Any:
    """Compile what an `alone` kernel calls, but not into it: that compiles faster."""
    function.__qualname__ += _alone_suffix(function)
    return _cached(function, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _alone_suffix(function: Callable[..., Any]) -> str:
    flow = basename(function.__code__.co_filename) in FLOW
    return _FLOW_SUFFIX if flow else _EXACT_SUFFIX


def _compile(function: Callable[..., Any], **flags: Any) -> Any:
    name = basename(function.__code__.co_filename)
    function.__qualname__ += _SEARCH_SUFFIX if name in SEARCH else _SUFFIX
    if name in SOURCES or name in SEARCH:
        # These allocate nothing. Without counts of references they are three times as fast.
        flags["_nrt"] = False
    if name in SEARCH and "no_cpython_wrapper" in flags:
        flags["forceinline"] = True
    return _cached(function, **flags)


def _cached(function: Callable[..., Any], **flags: Any) -> Any:
    try:
        return njit(cache=True, error_model="numpy", **flags)(function)
    except RuntimeError:  # numba raises at import where nothing is writable for its cache
        return njit(error_model="numpy", **flags)(function)
