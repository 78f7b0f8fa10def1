"""Compiles helpers only as far as their callers need.

Numba optimises every function together with all that it calls, and translates it to machine code,
before it does the same with each caller. A helper is never called but from compiled code, which
holds a copy of it: what is done to it alone is done again there. So it is left as LLVM's code, and
is not cached.
"""

from __future__ import annotations

from typing import Any, ClassVar

from numba.core import types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NoPythonBackend,
    PreLowerStripPhis,
)

from coalloc.policies.kernel.inference import TypeInference
from coalloc.policies.kernel.lowering import Lowering

PASSES: tuple[tuple[Any, str], ...] = (
    (untyped_passes.TranslateByteCode, "read the byte code"),
    (untyped_passes.FixupArgs, "count the arguments"),
    (untyped_passes.IRProcessing, "number the blocks"),
    (untyped_passes.ReconstructSSA, "assign to each variable once"),
    (TypeInference, "infer types"),
    (PreLowerStripPhis, "leave out phi nodes"),
    (IRLegalization, "end the lives of variables"),
    (AnnotateTypes, "note the types"),
    (Lowering, "write LLVM's code"),
    (NoPythonBackend, "gather the results"),
)
"""Those of numba's passes that change a kernel: there are no closures, generators, `with`, objects,
constants to be folded before types are known, nor overloads that must be inlined."""


class _Flags(Flags):
    """Flags that are compared quickly: for each operator numba looks them up some six times."""

    HASH = hash(Flags())  # of all flags alike: the names of the options are hashed
    DEFAULTS: ClassVar = {name: option.default for name, option in Flags.options.items()}

    def __hash__(self) -> int:
        return self.HASH

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Flags):
            return bool({**self.DEFAULTS, **self._values} == {**self.DEFAULTS, **other._values})
        return super().__eq__(other)


class KernelCompiler(Compiler):
    """Compiles as numba does, and sooner."""

    def __init__(
        self,
        typing: Any,
        target: Any,
        library: Any,
        arguments: Any,
        returned: Any,
        flags: Any,
        locals_: Any,
    ) -> None:
        super().__init__(typing, target, library, arguments, returned, _Flags(flags), locals_)

    def define_pipelines(self) -> list[PassManager]:
        """List the passes."""
        passes = PassManager("nopython")
        for one, name in PASSES:
            passes.add_pass(one, name)
        passes.finalize()
        return [passes]


class _KernelLibrary(JITCodeLibrary):
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


class LeanCompiler(KernelCompiler):
    """Compiles a function that counts no references into a library of its own."""

    LIBRARY: type[JITCodeLibrary] = _KernelLibrary

    def compile_extra(self, function: Any) -> Any:
        """Compile it."""
        codegen = self.state.targetctx.codegen()
        self.state.library = self.LIBRARY(codegen, function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


class _HelperLibrary(_KernelLibrary):
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


class HelperCompiler(LeanCompiler):
    """Compiles a function that is linked into others."""

    LIBRARY = _HelperLibrary


class _NoEnvironment:
    """Only what raises, prints or handles objects has a use for its environment."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """There is nothing to be set."""


def for_any_value(dispatcher: Any) -> None:
    """Do not compile a function once more where an argument is written as a number."""
    resolve: Any = getattr(dispatcher, "get_call_template", None)

    def template(arguments: Any, named: Any) -> Any:
        kinds = tuple(types.unliteral(kind) for kind in arguments)
        return resolve(kinds, {name: types.unliteral(kind) for name, kind in named.items()})

    if resolve is not None:  # it is where numba compiles nothing
        dispatcher.get_call_template = template
