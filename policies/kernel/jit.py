"""The decorators of the compiled kernels.

Notes
-----
Numba's cache keeps a caller's old code when a callee in another file changes. So the name under
which a kernel is cached ends in a checksum of all files that hold kernels of this folder.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any
from zlib import crc32

from numba import njit

SOURCES = ("state.py", "profile.py", "allotment.py", "fit.py", "seek.py", "decoders.py")


def _checksum() -> str:
    total = 0
    for name in SOURCES:
        try:
            total = crc32(pkgutil.get_data(__package__, name) or b"", total)
        except OSError:  # no source beside the byte code: it does not change either
            continue
    return f"{total:08x}"


_SUFFIX = f"_{_checksum()}"


def kernel(function: Callable[..., Any]) -> Any:
    """Compile, with a cache where one can be written."""
    return _compile(function)


def part(function: Callable[..., Any]) -> Any:
    """Compile what only kernels call: without the wrappers for calls from Python."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compile(function: Callable[..., Any], **flags: Any) -> Any:
    function.__qualname__ += _SUFFIX
    try:
        return njit(cache=True, error_model="numpy", **flags)(function)
    except RuntimeError:  # numba raises at import where nothing is writable for its cache
        return njit(error_model="numpy", **flags)(function)
