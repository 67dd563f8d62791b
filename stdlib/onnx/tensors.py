"""Tensors of a model file, read without trusting them.

A tensor says its type, its shape, and its elements, the latter in one of several fields or in a file beside the model. All of it may lie:
shapes may be negative or huge, the number of elements may differ from the shape, a path may lead out of the model's folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np
from onnx import SparseTensorProto, TensorProto, numpy_helper

from codegen.dtypes import DTYPES, DType, from_numpy
from stdlib.onnx.external import inside
from stdlib.onnx.model import Array
from stdlib.onnx.problems import Refusal, Unsupported, quoted
from tensorlang.graph.sizes import is_open
from tensorlang.memory_map import contents

LIMIT_BYTES = 1 << 36
"""No single value may be larger: 64 GiB."""
LIMIT_OF_SPARSE = 1 << 31
"""Nor one that is stored without its zeros, as it is kept with them: 2 GiB."""

ELEMENT_TYPES: dict[int, DType] = {
    TensorProto.DOUBLE: DTYPES["f64"],
    TensorProto.FLOAT: DTYPES["f32"],
    TensorProto.FLOAT16: DTYPES["f16"],
    TensorProto.BFLOAT16: DTYPES["bf16"],
    TensorProto.FLOAT8E4M3FN: DTYPES["f8e4m3"],
    TensorProto.FLOAT8E5M2: DTYPES["f8e5m2"],
    TensorProto.FLOAT8E4M3FNUZ: DTYPES["f8e4m3fnuz"],
    TensorProto.FLOAT8E5M2FNUZ: DTYPES["f8e5m2fnuz"],
    TensorProto.FLOAT4E2M1: DTYPES["f4e2m1"],
    TensorProto.INT64: DTYPES["i64"],
    TensorProto.INT32: DTYPES["i32"],
    TensorProto.INT16: DTYPES["i16"],
    TensorProto.INT8: DTYPES["i8"],
    TensorProto.INT4: DTYPES["i4"],
    TensorProto.INT2: DTYPES["i2"],
    TensorProto.UINT64: DTYPES["u64"],
    TensorProto.UINT32: DTYPES["u32"],
    TensorProto.UINT16: DTYPES["u16"],
    TensorProto.UINT8: DTYPES["u8"],
    TensorProto.UINT4: DTYPES["u4"],
    TensorProto.UINT2: DTYPES["u2"],
    TensorProto.BOOL: DTYPES["bool"],
}
STRING = int(TensorProto.STRING)
"""How ONNX numbers strings among the element types."""
TEXT = DTYPES["i64"]
"""What strings are in graphs: numbers that follow from them."""
TYPE_NUMBERS: dict[str, int] = dict(TensorProto.DataType.items())
"""How ONNX numbers element types, by their names in it."""
_NAMES = {number: name for name, number in TYPE_NUMBERS.items()}
_TYPED_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_FIELD = {
    "f64": "double_data",
    "f32": "float_data",
    "i64": "int64_data",
    "u64": "uint64_data",
    "u32": "uint64_data",
}


def element_type(number: int, what: str) -> DType:
    """Return the element type that ONNX numbers so. Raises Refusal when there is none, Unsupported when the language has none."""
    if number in ELEMENT_TYPES:
        return ELEMENT_TYPES[number]
    if number in (0, None) or number not in _NAMES:
        raise Refusal("O003", f"{what} has the element type number {number}, which ONNX does not define")
    raise Unsupported(f"{what} has elements of type {_NAMES[number].lower()}")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the files beside a model lie. Each is mapped once, however many tensors it holds."""

    path: Path
    mapped: dict[Path, memoryview] = field(default_factory=dict, repr=False)

    def contents(self, path: Path) -> memoryview:
        if path not in self.mapped:
            self.mapped[path] = contents(path)
        return self.mapped[path]


def read_tensor(tensor: TensorProto, folder: Folder | None, what: str, raw: memoryview | None = None) -> Array:
    """Return the elements of a tensor, those in a mapped file as a view of it. `folder` is where external data may lie; None forbids it.
    `raw` are its `raw_data` where they have been taken out of the message. Strings come as objects."""
    text = tensor.data_type == TensorProto.STRING
    dtype = TEXT if text else element_type(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if any(extent < 0 for extent in shape):
        raise Refusal("O003", f"{what} has the negative dimension {min(shape)}", f"its shape is {list(shape)}")
    check_size(dtype, shape, what)
    if tensor.HasField("segment"):
        raise Unsupported(f"{what} is stored in segments")
    fields = [name for name in _TYPED_FIELDS if len(getattr(tensor, name))]
    if text:
        return _strings(tensor, shape, fields, what)
    if tensor.data_location == TensorProto.EXTERNAL:
        if fields or tensor.HasField("raw_data"):
            raise Refusal("O003", f"{what} stores elements both inside and outside of the model file")
        return _from_bytes(_external(tensor, dtype, shape, folder, what), dtype, shape, what)
    if tensor.external_data:
        raise Refusal("O004", f"{what} names external data but is not marked as external")
    if tensor.HasField("raw_data"):
        if fields:
            raise Refusal("O003", f"{what} stores its elements twice, in raw_data and in {fields[0]}")
        return _from_bytes(tensor.raw_data if raw is None else raw, dtype, shape, what)
    return _from_fields(tensor, dtype, shape, fields, what)


def read_sparse(tensor: SparseTensorProto, folder: Folder | None, what: str) -> Array:
    """Return all elements of a tensor that stores those which are not zero, with their places: one number each, or one an axis."""
    values, places = read_tensor(tensor.values, folder, what), read_tensor(tensor.indices, folder, f"the places of {what}")
    shape, dtype = tuple(tensor.dims), from_numpy(values.dtype)
    if dtype is None or values.ndim != 1 or places.dtype != np.int64:
        raise Refusal("O003", f"{what} stores {values.dtype}{list(values.shape)} at the places {places.dtype}{list(places.shape)}")
    if any(extent < 0 for extent in shape):
        raise Refusal("O003", f"{what} has the negative dimension {min(shape)}", f"its shape is {list(shape)}")
    check_size(dtype, shape, what)
    if prod(shape) * dtype.size_bytes > LIMIT_OF_SPARSE:
        raise Refusal("O014", f"{what} is too large", f"with its zeros {dtype}{list(shape)} takes more than {LIMIT_OF_SPARSE >> 30} GiB")
    of_axes = places.ndim == 2 and places.shape == (len(values), len(shape))
    if not of_axes and places.shape != values.shape:
        raise Refusal("O003", f"{what} stores {len(values)} elements at places of the shape {list(places.shape)}")
    limits = np.array(shape if of_axes else [prod(shape)], np.int64)
    if np.any((places.reshape(len(values), -1) < 0) | (places.reshape(len(values), -1) >= limits)):
        raise Refusal("O003", f"{what} stores elements outside of its shape {list(shape)}")
    made = np.zeros(shape, values.dtype)
    if of_axes:
        made[tuple(places.T)] = values
    else:
        made.reshape(-1)[places] = values
    return made


def _strings(tensor: TensorProto, shape: tuple[int, ...], fields: list[str], what: str) -> Array:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.HasField("raw_data") or fields not in ([], ["string_data"]):
        raise Refusal("O003", f"{what} is declared string and stores its elements elsewhere than in string_data")
    if len(tensor.string_data) != prod(shape):
        raise Refusal("O003", f"{what} stores {len(tensor.string_data)} elements where its shape {list(shape)} has {prod(shape)}")
    try:
        found = [item.decode("utf-8") for item in tensor.string_data]
    except UnicodeDecodeError as problem:
        raise Refusal("O003", f"{what} holds strings that are not UTF-8") from problem
    made = np.empty(len(found), object)
    made[:] = found
    return made.reshape(shape)


MOST_DIMENSIONS = 64
"""What NumPy's arrays have at most."""


def check_size(dtype: DType, shape: tuple[int, ...], what: str) -> None:
    """Raise O014 when a value of this shape is too large to exist, or has more dimensions than arrays have."""
    if len(shape) > MOST_DIMENSIONS:
        raise Refusal("O014", f"{what} has {len(shape)} dimensions", f"arrays have {MOST_DIMENSIONS} at most")
    if is_open(shape):  # which is checked when it is known
        return
    if prod(shape) * dtype.size_bytes > LIMIT_BYTES or any(extent >= 1 << 48 for extent in shape):
        raise Refusal("O014", f"{what} is too large", f"{dtype}{list(shape)} takes more than {LIMIT_BYTES >> 30} GiB")


def _from_bytes(data: bytes | memoryview, dtype: DType, shape: tuple[int, ...], what: str) -> Array:
    count = prod(shape)
    packed = dtype.bits < 8
    expected = (count * dtype.bits + 7) // 8 if packed else count * dtype.size_bytes
    if len(data) != expected:
        raise Refusal("O003", f"{what} stores {len(data)} bytes where {dtype}{list(shape)} takes {expected}")
    if packed:
        return unpacked(np.frombuffer(data, np.uint8), dtype, count).reshape(shape)
    if dtype.kind == "bool":
        return np.asarray(np.frombuffer(data, np.uint8) != 0).reshape(shape)
    stored = dtype.numpy.newbyteorder("<") if dtype.numpy.kind in "iuf" else dtype.numpy
    return np.frombuffer(data, stored).astype(dtype.numpy, copy=False).reshape(shape)


def unpacked(data: Array, dtype: DType, count: int) -> Array:
    """Return elements of fewer than eight bits, of which bytes hold several, the first in their low bits."""
    mask = (1 << dtype.bits) - 1
    parts = np.stack([data >> shift & mask for shift in range(0, 8, dtype.bits)], axis=-1).reshape(-1)[:count].astype(np.uint8)
    if dtype.is_float:
        return parts.view(dtype.numpy)
    numbers = parts.astype(np.int8)
    signed = np.where(numbers > mask >> 1, numbers - (mask + 1), numbers) if dtype.kind == "int" else numbers
    return np.asarray(signed, dtype.numpy)


def _from_fields(tensor: TensorProto, dtype: DType, shape: tuple[int, ...], fields: list[str], what: str) -> Array:
    wanted = _FIELD.get(dtype.name, "int32_data")
    if any(name != wanted for name in fields):
        raise Refusal("O003", f"{what} is declared {dtype} and stores its elements in {next(n for n in fields if n != wanted)}")
    stored, count = len(getattr(tensor, wanted)), prod(shape)
    expected = -(-count * dtype.bits // 8) if dtype.bits < 8 else count
    if stored != expected:
        raise Refusal("O003", f"{what} stores {stored} elements where its shape {list(shape)} has {count}")
    limits = _limits(dtype)
    if limits is not None:
        numbers = np.array(getattr(tensor, wanted), np.uint64 if wanted == "uint64_data" else np.int64)
        beyond = numbers[(numbers < limits[0]) | (numbers > limits[1])]
        if beyond.size:
            raise Refusal("O003", f"{what} stores {beyond[0]} in {wanted}, where {dtype} takes {limits[0]} to {limits[1]}")
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as problem:
        raise Refusal("O003", f"{what} cannot be read", str(problem)) from problem
    return np.asarray(array, dtype.numpy).reshape(shape)


def _limits(dtype: DType) -> tuple[int, int] | None:
    """Return between which numbers an element lies in a field of wider integers: numbers of its type, the bits of a float, or a byte that
    holds several. None where the field has the type itself, or only says what is not zero."""
    if dtype.kind == "bool" or dtype.size_bytes > 4 or dtype.name in ("f32", "i32"):
        return None
    bits = 8 * dtype.size_bytes
    low = -(1 << bits - 1) if dtype.kind == "int" and dtype.bits == bits else 0
    return low, low + (1 << bits) - 1


def _external(tensor: TensorProto, dtype: DType, shape: tuple[int, ...], folder: Folder | None, what: str) -> memoryview:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise Refusal(
            "O004", f"{what} is stored in {quoted(location)}, and the model was not read from a folder", help="load the model by its path"
        )
    data = folder.contents(_inside(folder.path, location, what))
    size = len(data)
    offset = _number(entries.get("offset", "0"), "offset", what)
    expected = (prod(shape) * dtype.bits + 7) // 8 if dtype.bits < 8 else prod(shape) * dtype.size_bytes
    length = _number(entries["length"], "length", what) if "length" in entries else expected
    if length != expected:
        raise Refusal("O003", f"{what} has {length} bytes of external data where {dtype}{list(shape)} takes {expected}")
    if offset + length > size:
        raise Refusal(
            "O004", f"{what} lies past the end of {quoted(location)}", f"it needs {offset + length} bytes and the file has {size}"
        )
    return data[offset : offset + length]


def _inside(folder: Path, location: str, what: str) -> Path:
    """Return the file that `location` names, which must be a regular file in `folder`, links resolved."""
    if not location or "\0" in location:
        raise Refusal("O004", f"{what} has external data without a location")
    path = inside(folder, location)
    if path is None:
        raise Refusal("O004", f"{what} is stored in {quoted(location)}, outside of the model's folder")
    if not os.path.isfile(path):  # that of `Path` raises for names that are too long
        raise Refusal("O004", f"{what} is stored in {quoted(location)}, which is not a file")
    return path


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refusal("O004", f"{what} has external data with the {key} {quoted(text)}", help=f"the {key} is a count of bytes")
    return int(text)
