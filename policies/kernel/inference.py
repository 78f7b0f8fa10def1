"""Infers the types of a kernel's variables as numba does, with less work.

Numba asks each time anew for the type of a field, or of a sum of two integers, and goes through all
that it knows of sums. A kernel asks for a hundred of these some ten thousand times. So what was
once found is kept. Numba also catches the warnings of each statement apart; here they are caught
together.
"""

from __future__ import annotations

import operator
from typing import Any

from numba.core import errors, types
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.typeinfer import ConstraintNetwork, TypeInferer
from numba.core.typing.templates import signature

from coalloc.policies.kernel.lowering import CHOICES

_PLAIN = (types.Number, types.Boolean, types.Array, types.BaseTuple)
_known: dict[Any, Any] = {}


class _Context:
    """Numba's context of typing, which remembers what it has been asked."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_getattr(self, kind: Any, name: str) -> Any:
        """Type of an attribute."""
        found = _known.get((kind, name))
        if found is None:
            found = self._context.resolve_getattr(kind, name)
            if not isinstance(found, types.BoundFunction):
                _known[kind, name] = found
        return found

    def resolve_function_type(self, function: Any, arguments: Any, named: Any) -> Any:
        """Signature of a call; that of an operator or a built-in function is kept."""
        if named or not (isinstance(function, str) or type(function) is types.Function):
            return self._context.resolve_function_type(function, arguments, named)
        quick = self._quick(function, arguments)
        if quick is not None:
            return quick
        key = (id(function), *arguments)
        found = _known.get(key)
        if found is not None:
            return found[0]
        found = self._context.resolve_function_type(function, arguments, named)
        if isinstance(function, str) or all(isinstance(kind, _PLAIN) for kind in arguments):
            _known[key] = found, function  # which so stays alive, and keeps its number
        return found

    def _quick(self, function: Any, arguments: Any) -> Any:
        """Signature of what numba would compile a function for; see `lowering`."""
        called = getattr(function, "typing_key", None)
        if called in CHOICES and len(arguments) == 2:
            kinds = [types.unliteral(kind) for kind in arguments]
            if all(isinstance(kind, types.Number) for kind in kinds):
                number = self._context.unify_types(*kinds)
                return signature(number, number, number)
        if called is operator.getitem and isinstance(arguments[0], types.BaseTuple):
            kind, index = arguments
            if isinstance(index, types.IntegerLiteral):
                return signature(kind[index.literal_value], kind, index)
        return None

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """Signature of an assignment to an item."""
        key = target, index, value
        found = _known.get(key)
        if found is None:
            found = _known[key] = self._context.resolve_setitem(target, index, value)
        return found


class _Constraints(ConstraintNetwork):
    """Constraints of the statements on the types."""

    def propagate(self, inferer: Any) -> list[Any]:
        """Apply all of them once; returns what failed."""
        failed: list[Any] = []
        with inferer.warnings.catch_warnings():
            for constraint in self.constraints:
                try:
                    constraint(inferer)
                except errors.ForceLiteralArg as error:
                    failed.append(error)
                except errors.TypingError as error:
                    located = errors.TypingError(str(error), loc=constraint.loc, highlighting=False)
                    located.__cause__ = error
                    failed.append(located)
        return failed


class _Inferer(TypeInferer):
    def __init__(self, context: Any, code: Any, warnings: Any) -> None:
        super().__init__(context, code, warnings)
        self.constraints = _Constraints()


@register_pass(mutates_CFG=True, analysis_only=False)
class TypeInference(FunctionPass):
    """Finds the types of the variables, and the signatures of the calls."""

    _name = "coalloc_type_inference"

    def __init__(self) -> None:
        """Numba asks for it."""
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Find them."""
        warnings: Any = errors.WarningsFixer(errors.NumbaWarning)  # type: ignore[attr-defined]
        infer = _Inferer(_Context(state.typingctx), state.func_ir, warnings)
        target = state.targetctx.target
        with state.typingctx.callstack.register(target, infer, state.func_id, state.args), warnings:
            for index, (name, kind) in enumerate(
                zip(state.func_ir.arg_names, state.args, strict=True)
            ):
                infer.seed_argument(name, index, kind)
            if state.return_type is not None:
                infer.seed_return(state.return_type)
            infer.build_constraint()
            state.typing_errors = infer.propagate()
            state.typemap, state.return_type, state.calltypes = infer.unify()
        return True
