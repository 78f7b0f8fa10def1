"""The decorators of kernels that call each other across files of this folder.

Notes
-----
Numba's cache keeps a caller's old code when a callee in another file changes. So the name under
which such a kernel is cached ends in a checksum of all files that hold them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any
from zlib import crc32

from coalloc.policies.kernel.jit import alone, inlined

FILES = (
    "acceptance.py",
    "pool_profile.py",
    "pool_insertion.py",
    "pool_reinsertion.py",
    "pool_list.py",
)


def whole(function: Callable[..., Any]) -> Any:
    """Compile a kernel that allocates nothing, and calls only what is a `piece`."""
    return alone(_named(function))


def piece(function: Callable[..., Any]) -> Any:
    """Compile what only a `whole` kernel calls, into it."""
    return inlined(_named(function))


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    total = 0
    for name in FILES:
        try:
            total = crc32(pkgutil.get_data(__package__, name) or b"", total)
        except OSError:  # no source beside the byte code: it does not change either
            continue
    function.__qualname__ += f"_{total:08x}"
    return function
