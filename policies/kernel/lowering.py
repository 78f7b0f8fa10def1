"""Writes LLVM's code of a kernel with fewer instructions than numba.

Numba keeps most variables on the stack, builds an array or a tuple whole before it takes one number
out of it, counts the rounds of a `range` of any step, and calls functions for `min` and `max`. LLVM
finds out what of this is needed, and that takes most of its time. Here

- a variable that is assigned once is no place on the stack, if that comes before all of its uses;
- a field of a record, a row of an array, a tuple of indices and a `range` are *parts*: values of
  which code is written where a use needs them;
- `min` and `max` of two numbers are a comparison and a choice.

All else is left to numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir as llvm
from numba.core import errors, ir, types
from numba.core.analysis import compute_use_defs
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering
from numba.np.arrayobj import load_item, store_item

from coalloc.policies.kernel.parts import Field, Range, Row, Struct, Tuple
from coalloc.policies.kernel.record import RecordType, array_of

TUPLE: Any = types.BaseTuple
CHOICES: dict[Any, str] = {min: "<", max: ">"}


class _Lower(Lower):
    """Writes the code of one function."""

    def init(self) -> None:
        """Find which variables need no place on the stack."""
        super().init()
        self.parts: dict[str, Any] = {}
        self.rounds: dict[ir.Block, tuple[Range, Any]] = {}

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that are assigned once, before all of their uses."""
        blocks = self.func_ir.blocks
        assigned: dict[str, list[int]] = {}
        for label, block in blocks.items():
            for assign in block.find_insts(ir.Assign):
                assigned.setdefault(assign.target.name, []).append(label)
        once = {name: labels[0] for name, labels in assigned.items() if len(labels) == 1}
        dominators = self.func_ir.variable_lifetime.cfg.dominators()
        for label, names in compute_use_defs(blocks).usemap.items():
            for name in names:
                home = once.get(name, label)
                if home >= label or home not in dominators[label]:
                    once.pop(name, None)
        self._singly_assigned_vars = set(once)
        self._blk_local_varmap: dict[str, Any] = {}

    def pre_block(self, block: ir.Block) -> None:
        """Begin a block; places on the stack are made where a variable is first assigned."""
        self._cur_ir_block = block
        if block in self.rounds:
            self._count(*self.rounds[block])

    def lower_block(self, block: ir.Block) -> None:
        """Write the code of a block."""
        self.pre_block(block)
        try:
            for statement in block.body:
                self.loc = statement.loc
                self.lower_inst(statement)
        except Exception as error:
            error.add_note(f"at {self.loc}")
            raise
        self.post_block(block)

    def lower_inst(self, inst: Any) -> None:
        """Write the code of a statement."""
        if isinstance(inst, ir.Assign) and inst.target.name in self._singly_assigned_vars:
            parts = self._parts(inst.target.name, inst.value)
            if isinstance(parts, Field) and not inst.target.is_temp:
                parts = self._loaded(parts)
            if parts is not None:
                self.parts[inst.target.name] = parts
                return
        super().lower_inst(inst)

    def loadvar(self, name: str) -> Any:
        """Value of a variable."""
        parts = self.parts.get(name)
        return super().loadvar(name) if parts is None else self._whole(parts)

    def delvar(self, name: str) -> None:
        """End the life of a variable."""
        if name not in self.parts:
            super().delvar(name)

    def _parts(self, target: str, value: Any) -> Any:
        """Parts that a variable is made of; None if it is whole."""
        kind: Any = self.typeof(target)
        if isinstance(value, ir.Var):
            return self.parts.get(value.name) if self.typeof(value.name) == kind else None
        if not isinstance(value, ir.Expr):
            return None
        if value.op == "getattr":
            return self._attribute_parts(kind, value)
        if value.op == "getitem" and isinstance(kind, types.Array):
            found = self._item(value.value.name, value.index.name)
            if found is None or self.context.enable_nrt or len(found[1]) != kind.ndim:
                return None
            return Row([found[0], *found[1]], kind) if kind.layout == "C" else None
        if value.op == "build_tuple" and _all_integers(kind):
            given = [self._cast_var(item, one) for item, one in zip(value.items, kind, strict=True)]
            return Tuple(given, kind)
        if value.op == "call" and isinstance(kind, types.RangeType):
            return self._range(kind, value)
        if value.op == "getiter" and isinstance(self.parts.get(value.value.name), Range):
            return self._iterator(self.parts[value.value.name])
        if value.op == "iternext" and isinstance(self.parts.get(value.value.name), Range):
            return self._next(self.parts[value.value.name])
        return None

    def _attribute_parts(self, kind: types.Type, value: ir.Expr) -> Any:
        of = self.typeof(value.value.name)
        if isinstance(of, RecordType) and isinstance(kind, types.Array):
            place = of.place[value.attr]
            if of.fields[place][1] == kind:
                return Field(self.loadvar(value.value.name), place, kind)
        if value.attr == "shape" and _is_simple(of):
            array = self._array(value.value.name)
            lengths = [array.part(self.builder, 1 + axis) for axis in range(of.ndim)]
            return Tuple(lengths, kind)
        return None

    def _loaded(self, field: Field) -> Row:
        """A field with a name of its own: it is read before the loops that use it."""
        kind = field.kind
        return Row([field.part(self.builder, x) for x in range(1 + kind.ndim)], kind)

    def _range(self, kind: Any, call: ir.Expr) -> Any:
        """A `range`, if its step is a constant."""
        if call.kws or call.vararg or not kind.dtype.signed or kind.dtype.bitwidth < 64:
            return None
        given = [self._cast_var(one, kind.dtype) for one in call.args]
        step = _constant(given[2]) if len(given) == 3 else 1
        if not step:
            return None
        zero = llvm.Constant(given[0].type, 0)
        return Range(zero if len(given) == 1 else given[0], given[len(given) > 1], step)

    def _iterator(self, numbers: Range) -> Range:
        """Begin a loop over a `range`."""
        with self.builder.goto_entry_block():
            at = self.builder.alloca(numbers.start.type)
        self.builder.store(numbers.start, at)
        return Range(numbers.start, numbers.stop, numbers.step, at)

    def _next(self, numbers: Range) -> Tuple:
        """The next number, and whether there is one."""
        value = self.builder.load(numbers.at)
        valid = self.builder.icmp_signed("<" if numbers.step > 0 else ">", value, numbers.stop)
        branch = self._cur_ir_block.terminator
        body = self.blocks[branch.truebr]
        if len(list(self.func_ir.variable_lifetime.cfg.predecessors(branch.truebr))) == 1:
            self.rounds[body] = numbers, value
        else:
            self._count(numbers, value)
        return Tuple([value, valid], None)

    def _count(self, numbers: Range, value: Any) -> None:
        """Go on to the next number: in the body, so that LLVM sees one variable that counts."""
        step = llvm.Constant(value.type, numbers.step)
        self.builder.store(self.builder.add(value, step, flags=["nsw"]), numbers.at)

    def _whole(self, parts: Any) -> Any:
        """Value, as numba has it, of what is known by its parts."""
        if isinstance(parts, Range):
            at: Any = self.loc
            raise errors.UnsupportedError("a range that is not looped over at once", at)
        if isinstance(parts, Tuple):
            return self.context.make_tuple(self.builder, parts.kind, parts.values)
        data, *shape = (parts.part(self.builder, x) for x in range(1 + parts.kind.ndim))
        return array_of(self.context, self.builder, parts.kind, data, shape)

    def _array(self, name: str) -> Any:
        """Parts of an array."""
        return self.parts.get(name) or Struct(self.loadvar(name), self.typeof(name))

    def _item(self, name: str, index: str) -> tuple[Any, list[Any]] | None:
        """Address of an item of an array, or of a row, and the lengths of the row."""
        kind: Any = self.typeof(name)
        index_kind: Any = self.typeof(index)
        kinds: list[Any]
        if not _is_simple(kind):
            return None
        if isinstance(index_kind, types.Integer):
            values, kinds = [self.loadvar(index)], [index_kind]
        elif _all_integers(index_kind):
            known = self.parts.get(index)
            kinds = list(index_kind)
            values = (
                known.values
                if known
                else [self.builder.extract_value(self.loadvar(index), x) for x in range(len(kinds))]
            )
        else:
            return None
        if len(values) > kind.ndim or not all(one.signed for one in kinds):
            return None
        array, builder = self._array(name), self.builder
        lengths = [array.part(builder, 1 + axis) for axis in range(kind.ndim)]
        offset = None
        for axis, length in enumerate(lengths):
            if offset is not None:
                offset = builder.mul(offset, length)
            if axis < len(values):
                place = self.context.cast(builder, values[axis], kinds[axis], types.intp)
                place = self._from_front(place, length)
                offset = place if offset is None else builder.add(offset, place)
        return builder.gep(array.part(builder, 0), [offset]), lengths[len(values) :]

    def _from_front(self, place: Any, length: Any) -> Any:
        """An index that counts from the front."""
        number = _constant(place)
        if number is not None and number >= 0:
            return place
        builder = self.builder
        before = builder.icmp_signed("<", place, llvm.Constant(place.type, 0))
        return builder.select(before, builder.add(place, length), place)

    def lower_expr(self, resty: types.Type, expr: ir.Expr) -> Any:
        """Write the code of an expression."""
        found = None
        if expr.op in ("pair_first", "pair_second"):
            parts = self.parts.get(expr.value.name)
            if parts is not None:
                found = parts.values[expr.op == "pair_second"]
        elif expr.op == "getitem":
            found = self._read(resty, expr)
        elif expr.op == "static_getitem":
            found = self._entry(resty, expr.value.name, expr.index)
        elif expr.op == "getattr" and expr.attr == "size":
            found = self._size(expr.value.name)
        elif expr.op == "call":
            found = self._choice(resty, expr)
        return super().lower_expr(resty, expr) if found is None else found

    def _read(self, resty: types.Type, expr: ir.Expr) -> Any:
        """Read an item of an array, or an entry of a tuple."""
        name, index = expr.value.name, expr.index.name
        kind = self.typeof(name)
        if isinstance(kind, TUPLE):
            which = self.typeof(index)
            literal = isinstance(which, types.IntegerLiteral)
            return self._entry(resty, name, which.literal_value) if literal else None
        if isinstance(resty, types.Array):
            return None
        found = self._item(name, index)
        if found is None or found[1]:
            return None
        value = load_item(self.context, self.builder, kind, found[0])
        return self.context.cast(self.builder, value, kind.dtype, resty)

    def _entry(self, resty: types.Type, name: str, index: Any) -> Any:
        """An entry of a tuple."""
        kind: Any = self.typeof(name)
        if not isinstance(kind, TUPLE) or not isinstance(index, int):
            return None
        if not _all_plain(kind):
            return None
        place = index % len(kind)
        parts = self.parts.get(name)
        whole = None if parts else self.loadvar(name)
        value = parts.values[place] if parts else self.builder.extract_value(whole, place)
        return self.context.cast(self.builder, value, kind.types[place], resty)

    def _size(self, name: str) -> Any:
        """The number of items of an array."""
        if not _is_simple(self.typeof(name)):
            return None
        array, builder = self._array(name), self.builder
        size = array.part(builder, 1)
        for axis in range(1, self.typeof(name).ndim):
            size = builder.mul(size, array.part(builder, 1 + axis))
        return size

    def _choice(self, resty: types.Type, expr: ir.Expr) -> Any:
        """The smaller or the larger of two numbers; the first if neither is."""
        kind = self.typeof(expr.func.name)
        if type(kind) is not types.Function or kind.typing_key not in CHOICES:
            return None
        if len(expr.args) != 2 or not isinstance(resty, types.Number):
            return None
        signature, builder = self.fndesc.calltypes[expr], self.builder
        number = signature.return_type
        first, second = (self._cast_var(one, number) for one in expr.args)
        order = CHOICES[kind.typing_key]
        if isinstance(number, types.Float):
            chosen = builder.fcmp_ordered(order, second, first)
        elif number.signed:
            chosen = builder.icmp_signed(order, second, first)
        else:
            chosen = builder.icmp_unsigned(order, second, first)
        value = builder.select(chosen, second, first)
        return self.context.cast(builder, value, number, resty)

    def lower_binop(self, resty: types.Type, expr: ir.Expr, op: Any) -> Any:
        """Write the code of an operator; its signature is known."""
        signature = self.fndesc.calltypes[expr]
        typing = self.context.typing_context
        function = typing.resolve_value_type(op)
        if expr.op == "inplace_binop":  # its signature is that of another operator
            signature = function.get_call_type(typing, signature.args, {})
        write = self.context.get_function(function, signature)
        given = zip((expr.lhs, expr.rhs), signature.args, strict=True)
        value = write(self.builder, [self._cast_var(one, kind) for one, kind in given])
        return self.context.cast(self.builder, value, signature.return_type, resty)

    def lower_setitem(self, target: ir.Var, index: ir.Var, value: ir.Var, signature: Any) -> Any:
        """Write an item of an array."""
        kind = self.typeof(target.name)
        found = self._item(target.name, index.name)
        if found is None or found[1]:
            return super().lower_setitem(target, index, value, signature)
        item = self._cast_var(value, signature.args[2])
        item = self.context.cast(self.builder, item, signature.args[2], kind.dtype)
        store_item(self.context, self.builder, kind, item, found[0])
        return None


def _is_simple(kind: types.Type) -> bool:
    """Whether this is an array of numbers without gaps."""
    return (
        isinstance(kind, types.Array)
        and kind.layout == "C"
        and kind.ndim > 0
        and isinstance(kind.dtype, (types.Number, types.Boolean))
    )


def _all_integers(kind: Any) -> bool:
    """Whether this is a tuple of integers."""
    return isinstance(kind, TUPLE) and all(isinstance(x, types.Integer) for x in kind.types)


def _all_plain(kind: Any) -> bool:
    """Whether this is a tuple of numbers."""
    return all(isinstance(x, (types.Number, types.Boolean)) for x in kind.types)


def _constant(value: Any) -> int | None:
    """The number that a value always is."""
    number = value.constant if isinstance(value, llvm.Constant) else None
    return number if isinstance(number, int) else None


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(BaseNativeLowering):
    """Writes LLVM's code."""

    _name: Any = "coalloc_lowering"
    lowering_class: Any = _Lower
