"""What emission carries along: the scope of a statement, where buffers live, and the state of one function."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from codegen.dtypes import DType, bool_, i8
from codegen.llvm.builder import Builder
from codegen.llvm.emitted import Emitted
from codegen.llvm.facts import Poly
from codegen.llvm.held import Held
from codegen.llvm.interleave import Interleaved
from codegen.llvm.masks import common, has_mask_registers
from codegen.llvm.register_transpose import Copies
from codegen.llvm.values import Value, of_lanes, scalar_type
from codegen.loops.nodes import Buffer, Index
from codegen.loops.value_ranges import ValueRanges
from codegen.polynomials import ZERO


class EmitError(Exception):
    """The loop IR asks for something that code generation does not do; the message says what."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A buffer at an address. `pointer` is defined at region `depth`; `strides` are row-major, in elements."""

    uid: int
    buffer: Buffer
    pointer: str
    depth: int
    strides: tuple[Poly, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def place(self, index: Sequence[Poly]) -> Poly:
        """Return the position of an element, counted in elements from the start of the buffer."""
        return sum((i * stride for i, stride in zip(index, self.strides, strict=True)), ZERO)


@dataclass(frozen=True, slots=True)
class Registers:
    """A buffer in SSA values, cells: `cell_starts` are their first elements, and the end of the last. Inside a vector loop every
    lane has elements of its own (`private_lanes`). Rows may be longer than their extent, which `strides` tell. Cells may hold the opposite
    of what their elements are (`negated`). Where the same lanes do all that is done with a buffer (`same_lanes`), nobody sees what others
    leave in its cells."""

    uid: int
    buffer: Buffer
    cell_starts: tuple[int, ...]
    strides: tuple[Poly, ...]
    private_lanes: int = 0
    negated: bool = False
    same_lanes: bool = False

    in_bytes: bool = False
    """Whether truth values are kept as bytes, all bits of them alike, which are vectors in a loop where no registers hold masks."""

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def kept(self) -> DType:
        """The type that cells have elements of."""
        return i8 if self.in_bytes else self.dtype

    def has(self, place: int) -> bool:
        """Tell whether any cell has element `place`."""
        return 0 <= place < self.cell_starts[-1]

    def find(self, place: int) -> tuple[int, int]:
        """Return which cell element `place` is in, and where in it."""
        cell = bisect_right(self.cell_starts, place) - 1
        return cell, place - self.cell_starts[cell]

    def size(self, cell: int) -> int:
        return self.cell_starts[cell + 1] - self.cell_starts[cell]

    def type_of(self, cell: int) -> str:
        size = self.size(cell)
        return of_lanes(scalar_type(self.kept), self.private_lanes or (size if size > 1 else 0))


@dataclass(frozen=True, slots=True)
class Tiles:
    """A buffer in tile registers: `numbers` says which, in the order of its tiles, the last two of its dimensions."""

    uid: int
    buffer: Buffer
    numbers: tuple[int, ...]
    strides: tuple[Poly, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def size(self) -> int:
        """Return how many elements a tile has."""
        return (self.strides[-3].constant or 1) if len(self.strides) > 2 else 1 << 30


Storage = Memory | Registers | Tiles


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vector loop being emitted: `atom` stands for the lane number, 0 .. count - 1. `mask`, if there is one, leaves out all but the
    first `length`."""

    atom: str
    count: int
    length: Poly | None = None
    mask: str | None = None

    @property
    def active(self) -> int | None:
        """How many take part, where some do not and it is known how many do."""
        return None if self.length is None else self.length.constant


@dataclass(frozen=True, slots=True)
class Scope:
    """The meaning of names, and under which conditions code runs.

    mask          lanes that take part (a vector of i1), None for all
    guard         a uniform i1: when it is false nothing runs, so what all lanes share must not be read; None for true
    vector_guard  the same for reads that `mask` does not already prevent
    """

    vars: dict[str, Poly] = field(default_factory=dict)
    lets: dict[str, Value] = field(default_factory=dict)
    buffers: dict[str, Storage] = field(default_factory=dict)
    lanes: Lanes | None = None
    mask: str | None = None
    guard: str | None = None
    vector_guard: str | None = None
    parallel: bool = False
    elements: dict[str, tuple[Index, Index]] = field(default_factory=dict)
    """The range [low, high) of all elements of a parameter, where it was checked."""
    ranges: ValueRanges = field(default_factory=ValueRanges)
    """Between which numbers the integers of the function lie."""
    copies: tuple[Copies, ...] = ()
    """The unrolled loops around, the innermost first, where copies may read together what each of them reads, across rows or beside it."""
    interleaved: Interleaved | None = None
    """What copies of the unrolled loop around have stored, where they write rows together."""


class State:
    """One function being written. `cells` are the current values of buffers in registers, `versions` count the writes to memory."""

    def __init__(self, builder: Builder, record: Emitted | None = None) -> None:
        self.builder = builder
        self.record = record
        self.cells: dict[int, list[str]] = {}
        self.register_types: dict[int, tuple[str, ...]] = {}
        self.versions: dict[int, int] = {}
        self.next_uid = 0
        self.version = 0
        self.tile_moment = ""
        self.tiles_held: dict[str, int] = {}
        """Which tile registers hold which operands, oldest first, at the moment that is named: a stretch of code that writes no memory."""

    def new_uid(self) -> int:
        self.next_uid += 1
        return self.next_uid - 1

    def note_change(self, uid: int, written: Held | None = None) -> None:
        """Note that the buffer may have changed: the elements that are `written`, or, None, any."""
        self.version += 1
        self.versions[uid] = self.version
        self.builder.forget(uid, written)

    def snapshot(self) -> dict[int, list[str]]:
        return {uid: list(cells) for uid, cells in self.cells.items()}


def splat(b: Builder, value: Value, lanes: int) -> Value:
    """Return `value` with `lanes` lanes."""
    if value.lanes == lanes:
        return value
    assert value.lanes == 0, "only what all lanes share is copied to them"
    element = scalar_type(value.dtype)
    if not value.text.startswith("%"):
        return Value(value.dtype, "poison" if value.text == "poison" else f"splat ({element} {value.text})", lanes)
    if value.dtype == bool_ and not has_mask_registers(b.target):
        # All bits of a byte, not one of them, are what comparisons of vectors make.
        byte = Value(i8, b.pure(f"sext i1 {value.text} to i8"))
        return Value(bool_, b.pure(f"icmp slt {splat(b, byte, lanes).typed}, zeroinitializer"), lanes)
    vector = of_lanes(element, lanes)
    first = b.pure(f"insertelement {vector} poison, {element} {value.text}, i64 0")
    return Value(value.dtype, b.pure(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer"), lanes)


def same_lanes(b: Builder, *values: Value) -> tuple[Value, ...]:
    """Return the values with as many lanes as the widest of them."""
    lanes = max(v.lanes for v in values)
    return tuple(splat(b, v, lanes) for v in values)


def mask_and(b: Builder, left: str | None, right: str, lanes: int) -> str:
    """Return the conjunction of two masks, None standing for all lanes."""
    return right if left is None else common(b, left, right, lanes)
