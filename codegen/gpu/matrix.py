"""The instructions of a warp that multiply small matrices, and which of its lanes holds what of them.

Lane l is in row g = l // 4 and at place t = l % 4 of it; e elements fill 32 bits:

    sums      d[16, 8]      register r is d[g + 8*(r // 2), 2*t + r % 2]
    rows      a[16, 8*e]    element i of register r is a[g + 8*(r % 2), e*t + i + 4*e*(r // 2)]
    columns   b[8, 8*e]     element i of register r is b[g, e*t + i + 4*e*r]

Four warps (a warpgroup) multiply 64 rows with any multiple of 8 columns, both in shared memory; of the sums, warp w of them has in register
4*j + r of lane l `d[16*w + g + 8*(r // 2), 8*j + 2*t + r % 2]`.

The product is `d[m, n] += sum(k) a[m, k] * b[n, k]`. These are facts of the hardware (PTX ISA, "Matrix fragments for mma"); the maps that
instructions are declared with have to agree with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from codegen.dtypes import DType, bf16, f16, f32, i8, i32, u8
from codegen.gpu.geometry import WARP
from codegen.loops.indices import range_of
from codegen.loops.nodes import Add, Index, Int, Mul


@dataclass(frozen=True, slots=True)
class Instruction:
    """`tl_mma_NAME` of the prelude. `shape` is that of rows, columns and sum; `rounded`: operands are f32, and rounded to tf32."""

    name: str
    shape: tuple[int, int, int]
    rows: DType
    columns: DType
    sums: DType
    rounded: bool = False
    since: tuple[int, int] = (8, 0)
    """The least compute capability that has it."""
    warps: int = 1
    """How many multiply together; four take rows and columns from shared memory (`tl_wgmma_NAME`)."""
    across: tuple[bool, bool] = (False, False)
    """Of rows and columns in shared memory: whether they lie across the sum, and not along it."""

    @property
    def architectures(self) -> tuple[str, ...]:
        """Return the names under which a declaration may ask for it: the oldest that has it."""
        major, minor = self.since
        return (f"sm_{major}{minor}{'a' * (self.warps > 1)}",)

    @property
    def elements_per_register(self) -> int:
        """Return how many elements of an operand fill 32 bits."""
        return 4 // self.rows.size_bytes


MATRIX_ROW = 16
"""Bytes of a row of what `ldmatrix` brings into registers."""
SUMS, ROWS, COLUMNS = 4, 4, 2
"""How many registers a lane has of each operand."""

INSTRUCTIONS = (
    Instruction("m16n8k16_bf16", (16, 8, 16), bf16, bf16, f32),
    Instruction("m16n8k16_f16", (16, 8, 16), f16, f16, f32),
    Instruction("m16n8k8_tf32", (16, 8, 8), f32, f32, f32, rounded=True),
    Instruction("m16n8k32_s8", (16, 8, 32), i8, i8, i32),
    Instruction("m16n8k32_u8", (16, 8, 32), u8, u8, i32),
    Instruction("m16n8k32_u8_s8", (16, 8, 32), u8, i8, i32),
    Instruction("m16n8k32_s8_u8", (16, 8, 32), i8, u8, i32),
    *(
        Instruction(f"m64n{n}k16_{dtype}", (64, n, 16), dtype, dtype, f32, since=(9, 0), warps=4)
        for dtype in (bf16, f16)
        for n in range(8, 257, 8)
    ),
    *(
        Instruction(f"m64n{n}k32_{name}", (64, n, 32), dtype, dtype, i32, since=(9, 0), warps=4)
        for name, dtype in (("s8", i8), ("u8", u8))
        for n in (8, 16, 24, *range(32, 257, 16))
    ),
)
_BY_NAME = {i.name: i for i in INSTRUCTIONS}


_ACROSS = ("_transposed_a", "_transposed_b")
"""Ends of the names of products of four warps whose rows, or columns, lie across the sum."""


def named(name: str) -> Instruction:
    """Return the instruction of that name."""
    plain = name
    for end in _ACROSS:
        plain = plain.replace(end, "")
    return lying(_BY_NAME[plain], (_ACROSS[0] in name, _ACROSS[1] in name))


def lying(instruction: Instruction, across: tuple[bool, bool]) -> Instruction:
    """Return the same product of rows and columns that lie across the sum, or along it."""
    if across == instruction.across:
        return instruction
    ends = (end for end, turned in zip(_ACROSS, across, strict=True) if turned)
    return replace(instruction, name=instruction.name + "".join(ends), across=across)


def may_lie_across(instruction: Instruction) -> bool:
    """Tell whether there is the same product of operands that lie across the sum: of those of 16 bits, by four warps."""
    return instruction.warps > 1 and instruction.rows.size_bytes == 2


def instruction_of(shape: tuple[int, int, int], rows: DType, columns: DType, sums: DType, *, rounded: bool) -> Instruction | None:
    """Return the instruction that multiplies matrices of this shape and these types, or None."""
    wanted = (shape, rows, columns, sums, rounded)
    return next((i for i in INSTRUCTIONS if (i.shape, i.rows, i.columns, i.sums, i.rounded) == wanted), None)


Placement = dict[tuple[int, int], tuple[int, int]]
"""(lane, number of the element among those that it has) → element of a matrix."""


def sum_placement(instruction: Instruction) -> Placement:
    """Return which lane, of four warps which thread, holds which of the sums."""
    return {
        (WARP * w + lane, SUMS * j + r): (16 * w + lane // 4 + 8 * (r // 2), 8 * j + 2 * (lane % 4) + r % 2)
        for w, lane, j, r in product(range(instruction.warps), range(WARP), range(instruction.shape[1] // 8), range(SUMS))
    }


def row_placement(instruction: Instruction) -> Placement:
    """Return which lane holds which elements of the rows."""
    return _placement(instruction, ROWS, row_at)


def column_placement(instruction: Instruction) -> Placement:
    """Return which lane holds which elements of the columns."""
    return _placement(instruction, COLUMNS, column_at)


def _placement(instruction: Instruction, registers: int, at: Callable[[Index, Index, int, int, int], Place]) -> Placement:
    out: Placement = {}
    for lane, r, i in product(range(WARP), range(registers), range(instruction.elements_per_register)):
        row, along = (range_of(e, {})[0] for e in at(Int(lane // 4), Int(lane % 4), r, i, instruction.elements_per_register))
        assert row is not None and along is not None, "places of numbers are numbers"
        out[lane, instruction.elements_per_register * r + i] = (row, along)
    return out


Place = tuple[Index, Index]


def sum_at(row: Index, place: Index, high: Index, low: Index) -> Place:
    """Return which of the sums register `2*high + low` of the lane at `place` of `row` holds."""
    return Add(row, Mul(Int(8), high)), Add(Mul(Int(2), place), low)


def row_at(row: Index, place: Index, register: int, element: int, elements_per_register: int) -> Place:
    """Return which of the rows, and of its elements, a lane holds."""
    return Add(row, Int(8 * (register % 2))), _along(place, register // 2, element, elements_per_register)


def column_at(row: Index, place: Index, register: int, element: int, elements_per_register: int) -> Place:
    """Return which of the columns, and of its elements, a lane holds."""
    return row, _along(place, register, element, elements_per_register)


def _along(place: Index, half: int, element: int, elements_per_register: int) -> Index:
    return Add(Mul(Int(elements_per_register), place), Int(element + 4 * elements_per_register * half))
