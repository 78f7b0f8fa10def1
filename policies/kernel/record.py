"""Named tuples of arrays that compiled code reads through one pointer.

Numba passes a named tuple by value: every array of it is an argument of every call, and seven
numbers of that argument. The decoders' four tuples would come to some six hundred, which LLVM moves
about at each call and each use of a field. A *record* is passed as the address of a structure on
the stack of the call from Python. Its fields are never assigned, so LLVM may keep what it has read.

A kernel reads fields of a record, and passes it on; no more. Fields are arrays and plain numbers.
"""

from __future__ import annotations

from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.core.typing.typeof import typeof
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Counts = NDArray[np.int32]
"""Free units: short, so that vector instructions take more of them."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Class = TypeVar("Class", bound=type)


class RecordType(types.Type):
    """A named tuple by its address."""

    def __init__(self, title: str, fields: tuple[tuple[str, types.Type], ...]) -> None:
        self.title, self.fields = title, fields
        self.place = {name: place for place, (name, _) in enumerate(fields)}
        kinds = crc32(" ".join(str(kind) for _, kind in fields).encode())
        super().__init__(name=f"{title}({kinds:08x})")

    @property
    def key(self) -> Any:
        """Tells two types apart."""
        return self.title, self.fields


def record(cls: Class) -> Class:
    """Let kernels take a class of named tuples by its address."""
    names = cls._fields  # type: ignore[attr-defined]

    @typeof_impl.register(cls)
    def _(value: Any, context: Any) -> RecordType:
        kinds = [typeof(entry, context.purpose) for entry in value]
        return RecordType(cls.__qualname__, tuple(zip(names, kinds, strict=True)))

    return cls


@register_model(RecordType)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: RecordType) -> None:
        members = [manager[field].get_data_type() for _, field in kind.fields]
        super().__init__(manager, kind, ir.LiteralStructType(members).as_pointer())


@unbox(RecordType)
def _unbox(kind: RecordType, value: Any, c: Any) -> NativeValue:
    """Lay the fields on the stack."""
    struct = c.context.get_value_type(kind).pointee
    place = cgutils.alloca_once(c.builder, struct)
    failed = cgutils.alloca_once_value(c.builder, cgutils.false_bit)
    for number, (_, field) in enumerate(kind.fields):
        entry = c.pyapi.tuple_getitem(value, number)
        native = c.unbox(field, entry)
        with c.builder.if_then(native.is_error, likely=False):
            c.builder.store(cgutils.true_bit, failed)
        data = c.context.data_model_manager[field].as_data(c.builder, native.value)
        c.builder.store(data, cgutils.gep_inbounds(c.builder, place, 0, number))
    return NativeValue(place, is_error=c.builder.load(failed))


@infer_getattr
class _Fields(AttributeTemplate):
    key = RecordType

    def generic_resolve(self, kind: RecordType, name: str) -> Any:  # type: ignore[override]
        place = kind.place.get(name)
        return None if place is None else kind.fields[place][1]


@lower_getattr_generic(RecordType)
def _field(context: Any, builder: Any, kind: RecordType, value: Any, name: str) -> Any:
    place = kind.place[name]
    field = kind.fields[place][1]
    data = _loaded(builder, cgutils.gep_inbounds(builder, value, 0, place))
    native = context.data_model_manager[field].from_data(builder, data)
    return impl_ret_borrowed(context, builder, field, native)


def _loaded(builder: Any, pointer: Any) -> Any:
    """Load number by number: LLVM forgets that nothing is written where it splits a load."""
    kind = pointer.type.pointee
    if not isinstance(kind, ir.Aggregate):
        loaded = builder.load(pointer)
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded
    count = kind.count if isinstance(kind, ir.ArrayType) else len(kind.elements)
    whole = ir.Constant(kind, ir.Undefined)
    for place in range(count):
        part = _loaded(builder, cgutils.gep_inbounds(builder, pointer, 0, place))
        whole = builder.insert_value(whole, part, place)
    return whole
