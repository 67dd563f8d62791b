"""The weights of a model file, told apart from the rest of it before protobuf makes objects of anything.

    file     ModelProto { graph: GraphProto { initializer: TensorProto { dims, name, raw_data: 400 MB } … } … }
    result   the same message with that raw_data empty, and where in the file the bytes are

Protobuf copies every byte that it reads. A model is weights and a little more: what stays in the file is read once, when it is laid out.
The encoding (protobuf.dev/programming-guides/encoding): a message is fields, a field is a key (number << 3 | wire type) and its content, a
nested message is a field of known length. What is not well-formed is left to protobuf, which says what is wrong with it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Bytes: TypeAlias = bytes | memoryview | mmap.mmap

NESTED = 2
"""The wire type of texts, bytes and nested messages: a length, then as many bytes."""
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""The numbers of `ModelProto.graph`, `GraphProto.initializer` and `TensorProto.raw_data`."""

LARGE_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class Separated:
    """`message` is the model without the weights; `weights[k]` the `raw_data` that initializer `k` of its graph has."""

    message: bytes
    weights: Mapping[int, memoryview]


def separated(data: memoryview) -> Separated:
    """Return the large weights of a serialised model apart from the rest; none of them when the message is not well-formed."""
    found = _Split(data)
    try:
        message = found.model()
    except WireError:
        return Separated(bytes(data), {})
    return Separated(message, found.weights)


class WireError(Exception):
    """The bytes are no message."""


@dataclass(frozen=True, slots=True)
class Field:
    """Bytes `start` to `end` of the file: a key, and from `content` on what it holds."""

    number: int
    wire: int
    start: int
    content: int
    end: int


@dataclass(slots=True)
class _Split:
    data: memoryview
    weights: dict[int, memoryview] = field(default_factory=dict)
    tensors: int = 0

    def model(self) -> bytes:
        parts: list[bytes | memoryview] = []
        for f in fields(self.data, 0, len(self.data)):
            parts += self._nested(_GRAPH, self._graph(f)) if (f.number, f.wire) == (_GRAPH, NESTED) else [self.data[f.start : f.end]]
        return b"".join(parts)

    def _graph(self, graph: Field) -> list[bytes | memoryview]:
        parts: list[bytes | memoryview] = []
        for f in fields(self.data, graph.content, graph.end):
            if (f.number, f.wire) == (_INITIALIZER, NESTED):
                parts += self._nested(_INITIALIZER, self._tensor(f))
                self.tensors += 1
            else:
                parts.append(self.data[f.start : f.end])
        return parts

    def _tensor(self, tensor: Field) -> list[bytes | memoryview]:
        if tensor.end - tensor.content < LARGE_BYTES:
            return [self.data[tensor.content : tensor.end]]
        parts: list[bytes | memoryview] = []
        for f in fields(self.data, tensor.content, tensor.end):
            if (f.number, f.wire) == (_RAW_DATA, NESTED):
                self.weights[self.tensors] = self.data[f.content : f.end]  # of several, the last counts
                parts.append(_key(_RAW_DATA) + b"\0")
            else:
                parts.append(self.data[f.start : f.end])
        return parts

    def _nested(self, number: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
        return [_key(number) + _varint(sum(len(p) for p in parts)), *parts]


def fields(data: Bytes, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in `data[start:end]`. Raises WireError when it is none."""
    at = start
    while at < end:
        key, content = _number(data, at, end)
        number, wire = key >> 3, key & 7
        match wire:
            case 0:  # a number
                _, after = _number(data, content, end)
            case 1:  # eight bytes
                after = content + 8
            case 2:  # NESTED
                length, content = _number(data, content, end)
                after = content + length
            case 5:  # four bytes
                after = content + 4
            case _:
                raise WireError
        if after > end or number == 0:
            raise WireError
        yield Field(number, wire, at, content, after)
        at = after


def _number(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number that is written from `at` on, seven bits a byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise WireError


def _key(number: int) -> bytes:
    return _varint(number << 3 | NESTED)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
