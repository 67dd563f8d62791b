"""Products of four warps (a warpgroup), whose rows and columns the hardware reads from shared memory by itself.

    for kf in 0 .. 4 unroll 4 {                                      for w warp.x 4 { for g lane.y 8 { for t lane.x 4 {
        for m in 0 .. 64 tile 64 {                                       for kf in 0 .. 4 unroll 4 {
            for n in 0 .. 128 tile 128 {                                     mma m64n128k16_bf16 c[…], a_s[…, 16*kf], b_s[…, 16*kf]
                for k in 0 .. 16 tile 16 {                      →        }
                    c[…] = fma(f32(a_s[…]), f32(b_s[…]), c[…])           commit products
                                                                         wait 0 products

Operands lie along the sum, in rows of 32, 64 or 128 bytes whose columns are exchanged within as many (`codegen.loops.swizzle`): so the
hardware numbers them. Eight rows, one after the other, are what it steps by. Elements of 16 bits may lie across the sum, in panels: rows of
as many bytes, one for each element of the sum, and one panel after the other.

    along     a_s[rows, sum]                                across    b_s[columns // 64, sum, columns % 64]
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.errors import Unfit
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import Add, Buffer, For, Index, Int, Load, Mul, Stmt, Var
from codegen.loops.swizzle import SPANS
from codegen.loops.walk import free_vars, substitute_index

ROWS = 64
"""Of the sums of every instruction of four warps."""
GROUP_ROWS = 8
"""Rows of an operand that follow each other before the next step of a descriptor; lines of a panel, where it lies across the sum."""

_ALGEBRA = Algebra.of({})


@dataclass(frozen=True, slots=True)
class Lanes:
    """The loops over a thread's digits: which of the warps, and where in it."""

    warp: str
    row: str
    place: str


def over(names: Lanes, body: tuple[Stmt, ...]) -> Stmt:
    """Return `body` as the threads of four warps run it."""
    lanes = For(names.place, Int(0), Int(4), body, "lane.x", 4)
    return For(names.warp, Int(0), Int(4), (For(names.row, Int(0), Int(8), (lanes,), "lane.y", 8),), "warp.x", 4)


def sum_at(names: Lanes, group: Index, high: Index, low: Index) -> tuple[Index, Index]:
    """Return which of the sums a thread holds in register `4*group + 2*high + low`."""
    row = Add(Add(Mul(Int(16), Var(names.warp)), Var(names.row)), Mul(Int(8), high))
    return row, Add(Add(Mul(Int(8), group), Mul(Int(2), Var(names.place))), low)


def operand(load: Load, buffer: Buffer, rows: For, along: For) -> tuple[Load, bool]:
    """Return the first element of a matrix with rows `rows`, which are summed up along `along`, and whether it lies across the sum. Raises
    Unfit where the hardware cannot read it."""
    name = buffer.name
    row = buffer.shape[-1]
    size = buffer.dtype.size_bytes
    if buffer.space != "shared" or not isinstance(row, Int) or row.value * size not in SPANS or buffer.swizzle != row.value * size:
        spans = ", ".join(map(str, SPANS[:-1]))
        why = f"`{name}` is multiplied by four warps from shared memory, and lies in no rows of {spans} or {SPANS[-1]} bytes"
        raise Unfit(f"{why}: `cache` it along the sum `with swizzle (128)`, where a block has 128 bytes of it", name)
    across = size == 2 and _in_panels(load.index, row.value, rows, along)
    if not across and (len(load.index) < 2 or not _steps(load.index[-1], along.var) or not _steps(load.index[-2], rows.var)):
        raise Unfit(
            f"not supported yet: `{name}`, which is multiplied by four warps, does not lie along `{along.var}` in rows of `{rows.var}`, "
            f"nor in panels of {row.value} of `{rows.var}`",
            name,
        )
    if not across and (
        any(free_vars(e) & {along.var, rows.var} for e in load.index[:-2])
        or along.var in free_vars(load.index[-2])
        or rows.var in free_vars(load.index[-1])
    ):
        raise Unfit(f"not supported yet: rows of `{name}` that are not next to each other, multiplied by four warps", name)
    first = tuple(_ALGEBRA.simplify(substitute_index(e, {along.var: Int(0), rows.var: Int(0)})) for e in load.index)
    form = coefficients(first[-2])
    if form is None or form[1] % GROUP_ROWS or any(scale % GROUP_ROWS for scale in form[0].values()):
        raise Unfit(f"four warps multiply rows of `{name}` from a multiple of {GROUP_ROWS} on", name)
    return Load(name, first), across


def _in_panels(index: tuple[Index, ...], panel: int, rows: For, along: For) -> bool:
    """Tell whether row `panel * q + r` of what `index` reads is element r of panel q, and begins one, in lines along `along`."""
    if len(index) < 3 or rows.extent is None or not _steps(index[-2], along.var):
        return False
    which, place = f"{rows.var} panel", f"{rows.var} place"
    ranges = {which: (0, (rows.extent - 1) // panel), place: (0, min(panel, rows.extent) - 1)}
    number: Index = Add(Mul(Int(panel), Var(which)), Var(place)) if rows.extent > panel else Var(place)
    algebra = Algebra.of(ranges)
    *others, panels, lines, last = (algebra.simplify(substitute_index(e, {rows.var: number})) for e in index)
    apart = {which, place, along.var}
    steps = _steps(panels, which) if rows.extent > panel else which not in free_vars(panels)
    return (
        steps
        and last == Var(place)
        and not any(free_vars(e) & apart for e in others)
        and not free_vars(lines) & {which, place}
        and not free_vars(panels) & {place, along.var}
    )


def _steps(e: Index, var: str) -> bool:
    form = coefficients(e)
    return form is not None and form[0].get(Var(var)) == 1
