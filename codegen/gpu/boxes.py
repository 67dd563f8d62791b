"""Copies into shared memory as boxes of tensors, which one thread asks for: what `stages n boxes` on a loop wants.

    for k in 0 .. K stages 3 boxes {                     alloc a_s: bf16[3, 128, 64] shared;  alloc full: u64[3] shared
        alloc a_s: bf16[128, 64] shared                  boxes full[0] a_s[0, 0, 0] = a[…, 0] by [128, 64]
        for i in 0 .. 128 { for c in 0 .. 64 {           boxes full[1] a_s[1, 0, 0] = a[…, 64] by [128, 64]
            a_s[i, c] = select(…, a[…], 0)          →    for k in 0 .. K {
        }}                                                   landed full[k]
        … a_s[…] …                                           if k + 2 < K { boxes full[k + 2] a_s[(k + 2) % 3, 0, 0] = … }
    }                                                        … a_s[k % 3, …] …

A nest is a box where it fills its buffer, element by element along axes of a tensor in their order, and with zeros exactly outside of the
tensor. Group g of boxes is the one of iteration g, and counts at barrier g % n; `tensorlang.lower.barriers` proves that it has landed where
it is read, and that nobody reads what the next one overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from codegen.dtypes import u64
from codegen.errors import Unfit
from codegen.gpu.vectors import source
from codegen.loops.indices import Algebra, affine
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Box,
    Boxes,
    Buffer,
    Compare,
    Expr,
    For,
    If,
    Index,
    IndexValue,
    Int,
    Landed,
    Load,
    Min,
    Mod,
    Mul,
    Stmt,
    Store,
    Var,
)
from codegen.loops.walk import Fresh, children, free_vars, substitute_index, walk

AXES = 5
"""Of a tensor that boxes are copied of, at most."""
LONGEST = 256
"""Elements along an axis of a box, at most."""
UNIT = 16
"""Bytes that rows of boxes and the strides of tensors are multiples of."""


def boxed(body: tuple[Stmt, ...], device: Mapping[str, Buffer]) -> tuple[Stmt, ...]:
    """Return `body` with the copies of loops that ask for boxes as such. Raises Unfit for copies that are none."""
    return tuple(_stmt(s, device, repeated=False) for s in body)


def _stmt(s: Stmt, device: Mapping[str, Buffer], *, repeated: bool) -> Stmt:
    match s:
        case For(boxes=True):
            if repeated:
                raise Unfit(f"not supported yet: boxes of tensors in `{s.var}`, which runs more than once in a block", s.var)
            return _copied(s, device)
        case For():
            return replace(s, body=tuple(_stmt(inner, device, repeated=True) for inner in s.body))
        case If(_, then, orelse):
            parts = (tuple(_stmt(inner, device, repeated=True) for inner in part) for part in (then, orelse))
            return If(s.cond, *parts)
        case _:
            return s


def _copied(loop: For, device: Mapping[str, Buffer]) -> For:
    """Return a loop with its copies as boxes."""
    homes = {s.buffer.name: s.buffer for s in loop.body if isinstance(s, Alloc) and s.buffer.space == "shared"}
    written = {n.buffer for n in walk(loop) if isinstance(n, Store)}
    out: list[Stmt] = []
    for s in loop.body:
        stores = [n for n in walk(s) if isinstance(n, Store)]
        if isinstance(s, For) and len(stores) == 1 and stores[0].buffer in homes:
            out.append(Boxes("", Int(0), (_box(s, homes, device, written),)))
        else:
            out.append(s)
    if not any(isinstance(s, Boxes) for s in out):
        raise Unfit(f"`{loop.var}` copies nothing into shared memory that could be boxes of tensors", loop.var)
    return replace(loop, body=tuple(out))


def _box(nest: For, homes: Mapping[str, Buffer], device: Mapping[str, Buffer], written: set[str]) -> Box:
    """Return the box that a nest of loops copies. Raises Unfit that says why it is none."""
    loops: list[For] = []
    inner: Stmt = nest
    while isinstance(inner, For) and len(inner.body) == 1:
        loops.append(inner)
        inner = inner.body[0]
    store = next(n for n in walk(nest) if isinstance(n, Store))
    name = store.buffer

    def no(why: str) -> Unfit:
        return Unfit(f"the copy in `{name}` is no box of a tensor: {why}", name)

    found = source(store) if isinstance(inner, Store) else None
    if found is None:
        raise no("it copies other than elements as they are, with zeros beyond")
    when, load = found
    tensor, home = device.get(load.buffer), homes[name]
    if tensor is None or load.buffer in written or tensor.dtype != home.dtype:
        raise no(f"`{load.buffer}` is no tensor in the device's memory of the same type that nobody writes meanwhile")
    by = {loop.var: loop for loop in loops}
    if any(loop.lo != Int(0) or not isinstance(loop.hi, Int) for loop in loops):
        raise no("its loops have no constant extents")
    if [(Var(loop.var), loop.hi) for loop in _along(store.index, by)] != list(zip(store.index, home.shape, strict=True)):
        raise no("it does not fill the buffer")
    order = _along(load.index, by)
    if order != _along(store.index, by) or len(order) != len(by):
        raise no(f"axes of `{load.buffer}` come in another order")
    extents, first = [], []
    for e in load.index:
        var = next((v for v in by if v in free_vars(e)), None)
        if var is not None and not _steps(e, var, by):
            raise no(f"elements of `{load.buffer}` are skipped")
        extents.append(1 if var is None else _extent(by[var]))
        first.append(substitute_index(e, {} if var is None else {var: Int(0)}))
    _check_form(tensor, home, tuple(extents), no)
    left = _not_outside(when, load, tensor, by)
    if left is not None:
        raise no("it has zeros elsewhere than outside of the tensor")
    return Box(Load(name, tuple(Int(0) for _ in home.shape)), Load(load.buffer, tuple(first)), tuple(extents))


def _check_form(tensor: Buffer, home: Buffer, extents: tuple[int, ...], no: object) -> None:
    """Raise Unfit for what the hardware does not take."""
    assert callable(no)
    size = tensor.dtype.size_bytes
    shape = [e.value for e in tensor.shape if isinstance(e, Int)]
    if len(shape) < len(tensor.shape):
        raise no("not supported yet: a tensor of which sizes are known only when it runs")
    if not 1 <= len(shape) <= AXES:
        raise no(f"the tensor has {len(shape)} axes, more than {AXES}")
    if max(extents) > LONGEST:
        raise no(f"it has {max(extents)} elements along an axis, more than {LONGEST}")
    pitch = size
    for extent in reversed(shape[1:]):
        pitch *= extent
        if pitch % UNIT:
            raise no(f"`{tensor.name}` has rows of {pitch} bytes, no multiple of {UNIT}")
    row = extents[-1] * size
    if row % UNIT or (home.swizzle and row != home.swizzle):
        exchanged = f"columns are exchanged within {home.swizzle}" if home.swizzle else f"that is no multiple of {UNIT}"
        raise no(f"its rows have {row} bytes, and {exchanged}")


def _steps(e: Index, var: str, by: Mapping[str, For]) -> bool:
    """Tell whether a subscript goes one further with `var`, and not at all with other loops."""
    form = affine(e)
    if form is None or form[0].get(Var(var)) != 1:
        return False
    return not any(free_vars(atom) & by.keys() for atom in form[0] if atom != Var(var))


def _extent(loop: For) -> int:
    assert isinstance(loop.hi, Int)
    return loop.hi.value


def _along(index: tuple[Index, ...], by: Mapping[str, For]) -> list[For]:
    """Return the loops that move an access, axis by axis."""
    return [by[v] for e in index for v in by if v in free_vars(e)]


def _not_outside(when: Expr | None, load: Load, tensor: Buffer, by: Mapping[str, For]) -> Expr | None:
    """Return a part of a condition that says something else than that an index is inside of the tensor; None when there is none."""
    algebra = Algebra.of({})
    for part in _parts(when):
        match part:
            case Compare("<", IndexValue(lhs), IndexValue(bound)):
                pass
            case Compare("<", IndexValue(lhs), _) if (number := _number(part)) is not None:
                bound = Int(number)
            case _:
                return part
        for least in _least(bound):
            if isinstance(lhs, Var) and lhs.name in by and isinstance(least, Int) and least.value >= _extent(by[lhs.name]):
                continue
            beyond = [Add(e, Add(least, Mul(Int(-1), lhs))) for e in load.index]
            if not any(algebra.simplify(b) == n for b, n in zip(beyond, tensor.shape, strict=True)):
                return part
    return None


def _number(part: Compare) -> int | None:
    value = getattr(part.rhs, "value", None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parts(when: Expr | None) -> Iterator[Expr]:
    match when:
        case None:
            return
        case Binary("and", lhs, rhs):
            yield from _parts(lhs)
            yield from _parts(rhs)
        case _:
            yield when


def _least(e: Index) -> Iterator[Index]:
    match e:
        case Min(lhs, rhs):
            yield from _least(lhs)
            yield from _least(rhs)
        case _:
            yield e


# ---------------------------------------------------------------- in stages


@dataclass(frozen=True, slots=True)
class Ahead:
    """What stands before a loop, in the beginning of each of its iterations, and what is left of it."""

    before: tuple[Stmt, ...]
    begin: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]
    landing: frozenset[str]


def staged(loop: For, fresh: Fresh) -> Ahead:
    """Return the boxes of a loop some iterations ahead. Where they land, and what reads it, does not say which stage yet."""
    boxes = tuple(box for s in loop.body if isinstance(s, Boxes) for box in s.boxes)
    landing = frozenset(box.target.buffer for box in boxes)
    rest = tuple(s for s in loop.body if not isinstance(s, Boxes) and not _is_home(s, landing))
    stores = {n.buffer for s in rest for n in walk(s) if isinstance(n, Store)}
    if stores & landing:
        raise Unfit(f"not supported yet: `{min(stores & landing)}`, a box of a tensor, is written by threads too", loop.var)
    barriers = Buffer(fresh("full"), u64, (Int(loop.stages),), "shared", 8)
    homes = [s.buffer for s in loop.body if _is_home(s, landing)]
    allocs = tuple(Alloc(replace(b, shape=(Int(loop.stages), *b.shape))) for b in homes)
    number = Add(Var(loop.var), Mul(Int(-1), loop.lo))
    before: list[Stmt] = [*allocs, Alloc(barriers)]
    for ahead in range(loop.stages - 1):
        at = Add(loop.lo, Int(ahead))
        before.append(_if(at, loop, _at(Boxes(barriers.name, Int(ahead), boxes), loop, at, Int(ahead))))
    later = Add(Var(loop.var), Int(loop.stages - 1))
    group = Add(number, Int(loop.stages - 1))
    more = _at(Boxes(barriers.name, group, boxes), loop, later, Mod(group, Int(loop.stages)))
    return Ahead(tuple(before), (Landed(barriers.name, number), _if(later, loop, more)), rest, landing)


def _is_home(s: Stmt, landing: frozenset[str]) -> TypeGuard[Alloc]:
    return isinstance(s, Alloc) and s.buffer.name in landing


def _if(at: Index, loop: For, boxes: Boxes) -> Stmt:
    return If(Compare("<", IndexValue(at), IndexValue(loop.hi)), (boxes,))


def _at(boxes: Boxes, loop: For, at: Index, stage: Index) -> Boxes:
    """Return boxes as iteration `at` copies them, to `stage`."""
    moved = (
        Box(
            Load(b.target.buffer, (stage, *b.target.index)),
            Load(b.source.buffer, tuple(substitute_index(e, {loop.var: at}) for e in b.source.index)),
            b.extents,
        )
        for b in boxes.boxes
    )
    return Boxes(boxes.barriers, boxes.group, tuple(moved))


def touched_otherwise(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Return the buffers in `body` that are loaded or stored other than as boxes."""
    found: set[str] = set()
    pending: list[object] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, Boxes):
            continue
        if isinstance(node, Load | Store):
            found.add(node.buffer)
        pending.extend(children(node))  # type: ignore[arg-type]
    return frozenset(found)
