"""Compiled code that is optimised once, as a whole; see `linking`.

These classes stand on inner parts of numba, which another version may lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.np import arrayobj
from numba.np.arrayobj import fix_integer_index


class KernelLibrary(JITCodeLibrary):
    """A library that is optimised once, as a whole.

    Numba has it optimised three times: each function, then everything at no cost, so that counts of
    references come to stand in one function and can be left out, then everything. Here nothing is
    counted, and the first two rounds change nothing that the last would not.
    """

    def _optimize_functions(self, module: Any) -> None:
        """Leave that to the optimisation of everything."""
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Leave out what helps loops over long arrays: there are none, and it takes its time."""
        passes, builder = self._codegen._module_pass_manager(
            opt=2, loop_vectorize=False, slp_vectorize=False
        )
        passes.run(self._final_module, builder)


class HelperLibrary(KernelLibrary):
    """A library that is linked into others, and never run by itself."""

    def _optimize_final_module(self) -> None:
        """Leave that to the callers."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """There is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """Stand-in for the code generator where there is no machine code."""
        return _NoEnvironment


class _NoEnvironment:
    """Only what raises, prints or handles objects has a use for its environment."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """There is nothing to be set."""


@contextmanager
def indexing(both_ways: bool) -> Iterator[None]:
    """Compile in this context with an index below 0 counted from the end, or taken as it is."""
    former = arrayobj.fix_integer_index
    arrayobj.fix_integer_index = fix_integer_index if both_ways else _index_as_it_is
    try:
        yield
    finally:
        arrayobj.fix_integer_index = former


def _index_as_it_is(context: Any, builder: Any, kind: Any, index: Any, _: Any) -> Any:
    return context.cast(builder, index, kind, types.intp)
