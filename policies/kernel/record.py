"""Named tuples of arrays that compiled code reads through one pointer.

Numba passes a named tuple by value: every array of it is an argument of every call, and seven
numbers of that argument. The tuples of the decoders would come to some six hundred, which LLVM
moves about at each call and each use of a field. A *record* is passed as the address of a structure
on the stack of the call from Python. It holds of each array where the items are, and the shape.

Fields are arrays without gaps, and plain numbers. A kernel reads them and passes records on, no
more; so LLVM is told that a field never changes. References to the arrays are not counted, so a
kernel that makes arrays takes no records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints
from zlib import crc32

import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Counts = NDArray[np.int32]
"""Free units: short, so that vector instructions take more of them."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Class = TypeVar("Class", bound=type)
Record = TypeVar("Record")
WORD = ir.IntType(64)


class RecordType(types.Type):
    """A named tuple by its address."""

    def __init__(self, title: str, fields: tuple[tuple[str, types.Type], ...]) -> None:
        self.title, self.fields = title, fields
        self.place = {name: place for place, (name, _) in enumerate(fields)}
        self.hash = hash((title, fields))  # asked for at each use: some fields are thirty arrays
        kinds = crc32(" ".join(str(kind) for _, kind in fields).encode())
        super().__init__(name=f"{title}({kinds:08x})")

    def __hash__(self) -> int:
        return self.hash

    def __reduce__(self) -> Any:
        """Numba's cache keeps types; the hash of a text is another in each process."""
        return RecordType, (self.title, self.fields)

    @property
    def key(self) -> Any:
        """Tells two types apart."""
        return self.title, self.fields


def record(cls: Class) -> Class:
    """Let kernels take a class of named tuples by its address."""
    names = cls._fields  # type: ignore[attr-defined]

    @typeof_impl.register(cls)
    def _(value: Any, _: Any) -> RecordType:
        kinds = [typeof(entry) for entry in value]
        for name, kind in zip(names, kinds, strict=True):
            if isinstance(kind, types.Array) and kind.layout != "C":
                raise ValueError(f"{cls.__qualname__}.{name} is no array without gaps")
        return RecordType(cls.__qualname__, tuple(zip(names, kinds, strict=True)))

    return cls


def room_for(form: Callable[..., Record], **given: Any) -> Record:
    """A record of arrays of zeros; `given` are sizes by name, and arrays of fields as they are."""
    made = {
        name: given[name]
        if name in given
        else np.zeros([given.get(size, size) for size in shape], item)
        for name, shape, item in _shapes(form)
    }
    return form(**made)


def copy_of(given: Record) -> Record:
    """The same record, in arrays of its own."""
    made: Any = given
    return type(given)(*map(np.array, made))


@cache
def _shapes(form: Any) -> list[tuple[str, tuple[Any, ...], Any]]:
    """Each field with its shape, and what its items are."""
    shapes = []
    for name, hint in get_type_hints(form, include_extras=True).items():
        kind, *shape = get_args(hint) if get_origin(hint) is Annotated else (Any,)
        item = np.int64 if kind is Any else get_args(get_args(kind)[1])[0]
        shapes.append((name, tuple(shape), item))
    return shapes


@register_model(RecordType)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: RecordType) -> None:
        members = [_member(manager, field) for _, field in kind.fields]
        super().__init__(manager, kind, ir.LiteralStructType(members).as_pointer())


def _member(manager: Any, kind: types.Type) -> Any:
    """Type of a field in the structure: of an array the address of its items, and its shape."""
    if not isinstance(kind, types.Array):
        return manager[kind].get_data_type()
    item = manager[kind.dtype].get_data_type()
    return ir.LiteralStructType([item.as_pointer(), *[WORD] * kind.ndim])


@unbox(RecordType)
def _unbox(kind: RecordType, value: Any, c: Any) -> NativeValue:
    """Lay the fields on the stack."""
    builder = c.builder
    record_at = cgutils.alloca_once(builder, c.context.get_value_type(kind).pointee)
    failed = cgutils.false_bit
    for place, (_, field) in enumerate(kind.fields):
        entry = c.pyapi.tuple_getitem(value, place)
        if isinstance(field, types.Array):
            for number, part in enumerate(_parts_of_object(c, field, entry)):
                builder.store(part, cgutils.gep_inbounds(builder, record_at, 0, place, number))
        else:
            native = c.unbox(field, entry)
            failed = builder.or_(failed, native.is_error)
            data = c.context.data_model_manager[field].as_data(builder, native.value)
            builder.store(data, cgutils.gep_inbounds(builder, record_at, 0, place))
    return NativeValue(record_at, is_error=failed)


def _parts_of_object(c: Any, kind: types.Array, entry: Any) -> list[Any]:
    """The address of the items of a NumPy array, and its shape.

    `c.unbox` would also look for an error at each of eighty fields, a tenth of a kernel's code.
    That this is an array of this kind is known before a call, from `typeof_impl`.
    """
    array = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    c.pyapi.numba_array_adaptor(entry, c.builder.bitcast(array._getpointer(), c.pyapi.voidptr))
    return [array.data, *cgutils.unpack_tuple(c.builder, array.shape, kind.ndim)]


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
    if not isinstance(field, types.Array):
        loaded = _part(builder, value, place)
        return context.data_model_manager[field].from_data(builder, loaded)
    data, *shape = (_part(builder, value, place, x) for x in range(1 + field.ndim))
    return _array(context, builder, field, data, shape)


def _array(context: Any, builder: Any, kind: types.Array, data: Any, shape: list[Any]) -> Any:
    """Make an array, as numba knows it, of items in C order; no references are counted."""
    item_bytes = WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides, size = [item_bytes], shape[-1]
    for length in shape[-2::-1]:
        strides.insert(0, builder.mul(strides[0], shape[len(shape) - len(strides)]))
        size = builder.mul(size, length)
    model = context.data_model_manager[kind]
    whole = ir.Constant(model.get_value_type(), None)
    parts = {
        "nitems": size,
        "itemsize": item_bytes,
        "data": data,
        "shape": cgutils.pack_array(builder, shape),
        "strides": cgutils.pack_array(builder, strides),
    }
    for name, part in parts.items():
        whole = model.set(builder, whole, part, name)
    return whole


def _part(builder: Any, pointer: Any, *places: int) -> Any:
    """Load a field of a record, or of an array in it the address of the items or a length."""
    loaded = builder.load(cgutils.gep_inbounds(builder, pointer, 0, *places))
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded
