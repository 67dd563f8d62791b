"""What an equation looks like to a schedule: which names each operand is indexed by, and which of them walk memory in unit steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from polyhedral import affine
from polyhedral.expr import Add, Floor, Max, Min, Mod, Scale
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.ranges import Range, range_of
from tensorlang.schedule.plan import Storage
from tensorlang.tensor.contraction import Factor, NoContraction
from tensorlang.tensor.contraction import contraction as products_of
from tensorlang.tensor.nodes import Binary, Definition, Dynamic, Expr, IndexValue, Program, Read, Reduce
from tensorlang.tensor.walk import index_names, reads, reduces

OPEN_EXTENT = 64
"""Iterations of a loop whose extent is known only at run time, or depends on other loops."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """`y[batch, rows, columns] = f(sum(inner) x[batch, rows, inner] * w[batch, columns, inner])`.

    `x` and `w` are the names of tensors; a name is in `rows` when only x is indexed by it, and so on. The last of `rows`, of which register
    tiles take several, is one with more than one element if there is any. `padded`: x is read with padding."""

    x: str
    w: str
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    inner: tuple[str, ...]
    x_read: Read
    w_read: Read
    padded: bool
    reduce: Reduce


def contraction(definition: Definition, vector_axis: str, *, chunked: bool = False) -> Contraction | None:
    """Return the definition as a contraction whose `columns` hold `vector_axis`, or None when it has another shape. `chunked`: w may be
    read at sums of names that x is read by, too, as where a reduction is cut into stretches."""
    if len(definition.pieces) != 1 or len(definition.tensors) != 1:
        return None
    found = list(reduces(definition.pieces[0].value))
    if len(found) != 1:
        return None
    reduce = found[0]
    product = products_of(reduce)
    if isinstance(product, NoContraction) or reduce.filter is not None or not all(map(_is_operand, product.factors)):
        return None
    a, b = product.factors
    (x, x_padded), (w, w_padded) = ((f.read, f.mask is not None) for f in ((a, b) if vector_axis in index_names(b.read) else (b, a)))
    in_x, in_w = index_names(x), index_names(w)
    if vector_axis not in in_w or vector_axis in in_x or w_padded:
        return None
    if not all(_is_plain(s) or (chunked and not isinstance(s, Dynamic) and set(affine.names(s)) <= in_x) for s in w.index):
        return None
    axes = definition.axes
    binders = tuple(b.name for b in reduce.binders)
    single = {a for a, s in zip(axes, definition.tensors[0].shape, strict=True) if affine.constant(s) == 1}
    rows = [n for n in axes if n in in_x and n not in in_w]
    return Contraction(
        x.tensor,
        w.tensor,
        tuple(n for n in axes if (n in in_x) == (n in in_w)),
        tuple(sorted(rows, key=lambda n: n not in single)),
        tuple(n for n in axes if n in in_w and n not in in_x),
        binders,
        x,
        w,
        x_padded,
        reduce,
    )


def summing(definition: Definition) -> Definition:
    """Return the definition with the one piece alone that sums, where it has others."""
    found = tuple(p for p in definition.pieces if any(True for _ in reduces(p.value)))
    return replace(definition, pieces=found) if len(found) == 1 else definition


def is_product(definition: Definition) -> bool:
    """Tell whether a reduction in the definition multiplies two tensors that vary along different axes: work for a register tile."""
    return any(contraction(definition, axis) is not None for axis in definition.axes)


def _is_plain(slot: Affine | Dynamic) -> bool:
    return isinstance(slot, AffineName) or (not isinstance(slot, Dynamic) and affine.constant(slot) is not None)


def _is_operand(f: Factor) -> bool:
    """Tell whether a factor is an element, perhaps padded, widened or rounded to tf32."""
    return f.is_padding and f.zero is None and f.rounding in ("", "round_tf32") and not f.is_indexed_by_data


def extents(definition: Definition) -> dict[str, int | None]:
    """Return the constant extents of axes and binders (None where they are not constant or do not start at 0)."""
    out = {a: affine.constant(s) for a, s in zip(definition.axes, definition.tensors[0].shape, strict=True)}
    for piece in definition.pieces:
        for reduce in reduces(piece.value):
            for b in reduce.binders:
                out[b.name] = affine.difference(b.hi, b.lo) if affine.constant(b.lo) == 0 else None
    return out


def bounded_extents(definition: Definition) -> dict[str, int | None]:
    """Return how many values axes and binders have at most, as the extents of axes bound those of the binders that depend on them; None
    where no constant does."""
    out, ranges = dict(extents(definition)), dict[str, Range]()
    for axis in definition.axes:
        extent = out[axis]
        ranges[axis] = 0, None if extent is None else extent - 1
    for reduce in (r for piece in definition.pieces for r in reduces(piece.value)):
        for b in reduce.binders:
            (low, _), (_, high), (_, width) = (range_of(e, ranges) for e in (b.lo, b.hi, affine.sub(b.hi, b.lo)))
            ranges[b.name] = low, None if high is None else high - 1
            out[b.name] = None if width is None else max(0, width)
    return out


def unit_stride(read_index: tuple[Affine | Dynamic, ...], storage: Storage | None, axes: tuple[str, ...] | None, name: str) -> bool:
    """Tell whether stepping `name` by one steps the address by one: it is the last storage dimension's only index, with factor one."""
    if not read_index:
        return False
    if storage is None or axes is None:
        *others, last = read_index
        return step_of_slot(last, name) == 1 and not any(name in names_of_slot(o) for o in others)
    axis = innermost_axis(storage)
    if axis is None or axis not in axes:
        return False
    slot = read_index[axes.index(axis)]
    return isinstance(slot, AffineName) and slot.name == name


LEAST_PERIOD = 64
"""Of a remainder, to count as one that is seldom met."""


def step_inside(index: Affine, name: str) -> int | None:
    """Return how far `index` goes for each step of `name` away from edges, where no minimum, maximum or remainder changes sides. None where
    that is no constant."""
    rate = rate_inside(index, name)
    return rate if isinstance(rate, int) else None


def rate_inside(index: Affine, name: str) -> int | Fraction | None:
    """Return how far `index` goes for each step of `name` on the average, as `step_inside` does: a fraction where quotients
    go on every few steps only."""
    match index:
        case Floor(value, divisor):
            rate = rate_inside(value, name)
            return None if rate is None else Fraction(rate) / divisor if rate else 0
        case Scale(factor, value):
            rate = rate_inside(value, name)
            return None if rate is None else factor * rate
        case Add(lhs, rhs):
            rates = rate_inside(lhs, name), rate_inside(rhs, name)
            return None if rates[0] is None or rates[1] is None else rates[0] + rates[1]
        case Min(lhs, rhs) | Max(lhs, rhs):
            moving = [rate_inside(side, name) for side in (lhs, rhs) if name in affine.name_set(side)]
            known = [rate for rate in moving if rate is not None]
            largest = max(known, default=0)
            fraction = any(isinstance(rate, Fraction) for rate in known)
            return None if len(known) < len(moving) else Fraction(largest) if fraction else largest
        case Mod(value, divisor) if name in affine.name_set(value):
            return rate_inside(value, name) if divisor >= LEAST_PERIOD else None
        case AffineName(found):
            return int(found == name)
        case _:
            return None if name in affine.name_set(index) else 0


def step_of_slot(slot: Affine | Dynamic, name: str) -> int | None:
    """Return how far a slot goes for each step of `name`, as `step_inside` does; of one that begins where data say, `x[start[i] + k]`,
    too."""
    return _step_of_value(slot.value, name) if isinstance(slot, Dynamic) else step_inside(slot, name)


def step_in_memory(index: Sequence[Affine | Dynamic], shape: Sequence[Affine], name: str) -> int | None:
    """Return how many elements of a row-major tensor a read goes on for each step of `name`, away from edges; None where that is no
    constant. Extents that are open count as long."""
    steps = [step_inside(slot, name) for slot in index if not isinstance(slot, Dynamic)]
    if len(steps) < len(index) or None in steps:
        return None
    pitches = [prod(affine.constant(extent) or OPEN_EXTENT for extent in shape[k + 1 :]) for k in range(len(index))]
    return sum((step or 0) * pitch for step, pitch in zip(steps, pitches, strict=True))


def names_of_slot(slot: Affine | Dynamic) -> Collection[str]:
    """Return the names that a slot depends on, by itself and by the indices of its data."""
    return index_names(slot.value) if isinstance(slot, Dynamic) else affine.name_set(slot)


def _step_of_value(e: Expr, name: str) -> int | None:
    if name not in index_names(e):
        return 0
    match e:
        case IndexValue(index):
            return step_inside(index, name)
        case Binary("+" | "-" | "min" | "max" as op, lhs, rhs):
            left, right = _step_of_value(lhs, name), _step_of_value(rhs, name)
            if left is None or right is None:
                return None
            return left + right if op == "+" else left - right if op == "-" else max(left, right)
        case _:
            return None


def innermost_axis(storage: Storage) -> str | None:
    """Return the axis that the last storage dimension walks along (`c` in `[…, c % 16]` and `[…, 8 * (k % 2) + c]`), or None where there is
    none."""
    match storage.dims[-1:]:
        case (AffineName(name) | Mod(AffineName(name), _),):
            return name
        case (Add(AffineName(name), others) | Add(others, AffineName(name)),) if name not in affine.name_set(others):
            return name
        case _:
            return None


def block_of(storage: Storage | None, axis: str) -> int | None:
    """Return 16 where the layout ends in `axis % 16`."""
    if storage is None:
        return None
    match storage.dims[-1]:
        case Mod(AffineName(name), divisor) if name == axis:
            return divisor
        case _:
            return None


def work(program: Program) -> int:
    """Return about how many scalar operations the program takes; a name without constant extent counts as `OPEN_EXTENT`."""
    return sum(map(work_of_definition, program.definitions))


def work_of_definition(definition: Definition) -> int:
    """Return about how many scalar operations the elements of a definition take."""
    sizes = extents(definition)
    points = prod(sizes[axis] or OPEN_EXTENT for axis in definition.axes)
    return sum(
        points * (1 + sum(prod(sizes.get(b.name) or OPEN_EXTENT for b in r.binders) for r in reduces(piece.value)))
        for piece in definition.pieces
    )


def readers(program: Program) -> Mapping[str, list[str]]:
    """Return, per tensor, the definitions (by first tensor) that read it."""
    out: dict[str, list[str]] = {}
    for definition in program.definitions:
        for piece in definition.pieces:
            for read in reads(piece.value):
                names = out.setdefault(read.tensor, [])
                if definition.tensors[0].name not in names:
                    names.append(definition.tensors[0].name)
    return out
