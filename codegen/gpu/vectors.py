"""Which loops over lanes are loads and stores of neighbours at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from codegen.gpu.expressions import Printer, is_half_byte
from codegen.loops.indices import Algebra, affine
from codegen.loops.nodes import Add, Binary, Buffer, Const, Expr, For, Index, Int, Let, Load, Mul, Select, Stmt, Store, Unary, Var
from codegen.loops.walk import children, free_vars, loads, names

BYTES = 16
"""What one thread loads or stores at once at most."""
COPIED = (4, 8, 16)
"""Bytes that a device copies into shared memory at once, by itself."""


def width(loop: For, lanes: int, p: Printer, buffers: Mapping[str, Buffer]) -> int:
    """Return how many neighbours an access of `loop` takes at once; 1: there is none."""
    if loop.lo != Int(0) or p.algebra.simplify(loop.hi) != Int(lanes) or not all(isinstance(s, Store | Let) for s in loop.body):
        return 1
    if loop.kind == "unroll" and not _apart(loop, buffers):
        return 1
    homes = {buffers[s.buffer].space in ("registers", "stack") for s in loop.body if isinstance(s, Store)}
    if len(homes) != 1:
        return 1
    moving = moving_names(loop)
    found = [n for n in steady_loads(loop, moving) if n.buffer in buffers]
    groups = [[(buffers[n.buffer], n.index)] for n in found]
    groups += [[(buffers[s.buffer], s.index)] for s in loop.body if isinstance(s, Store) and not s.later and not names(*s.index) & moving]
    groups += [_ends(s, buffers) for s in loop.body if isinstance(s, Store) and s.later]
    return max((_together(accesses, loop, lanes, p.algebra) for accesses in groups), default=1)


def moving_names(loop: For) -> frozenset[str]:
    """Return the names of values that differ from iteration to iteration."""
    found: frozenset[str] = frozenset()
    for s in loop.body:
        if isinstance(s, Let) and (loop.var in free_vars(s.value) or names(s.value) & found):
            found |= {s.name}
    return found


def steady_loads(loop: For, moving: frozenset[str]) -> dict[Load, Expr | None]:
    """Return the loads that all iterations do, or none, at places that no value in `moving` decides; each with the condition under which
    they do, None: always."""
    paths: dict[Load, set[tuple[Expr, ...]]] = {}
    for s in loop.body:
        match s:
            case Store(later=False, value=value) | Let(value=value):
                for load, path in _asked(value, ()):
                    paths.setdefault(load, set()).add(path)
            case _:
                pass
    out: dict[Load, Expr | None] = {}
    for load, found in paths.items():
        way: tuple[Expr, ...] = () if () in found else next(iter(found))
        if names(*load.index) & moving or (way and len(found) > 1):
            continue
        if not any(loop.var in free_vars(cond) or names(cond) & moving for cond in way):
            out[load] = reduce(lambda a, b: Binary("and", a, b), way) if way else None
    return out


def _asked(e: Expr | Index | Stmt, path: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """Yield the loads in `e`, each with what has to hold for it to be evaluated."""
    match e:
        case Select(cond, then, orelse):
            yield from _asked(cond, path)
            yield from _asked(then, (*path, cond))
            yield from _asked(orelse, (*path, Unary("not", cond)))
        case Binary("and" | "or" as op, lhs, rhs):
            yield from _asked(lhs, path)
            yield from _asked(rhs, (*path, lhs if op == "and" else Unary("not", lhs)))
        case _:
            if isinstance(e, Load):
                yield e, path
            for part in children(e):
                yield from _asked(part, path)


def _apart(loop: For, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether no iteration reads memory that another writes, so that what all of them read can be read first."""
    written = {s.buffer for s in loop.body if isinstance(s, Store)}
    return not any(load.buffer in written and buffers[load.buffer].space not in ("registers", "stack") for load in loads(*loop.body))


def _is_later(s: Stmt) -> bool:
    return isinstance(s, Store) and s.later


def _ends(copy: Store, buffers: Mapping[str, Buffer]) -> list[tuple[Buffer, tuple[Index, ...]]]:
    return [(buffers[copy.buffer], copy.index), *((buffers[n.buffer], n.index) for n in loads(copy.value))]


def _together(accesses: list[tuple[Buffer, tuple[Index, ...]]], loop: For, lanes: int, algebra: Algebra) -> int:
    """Return how many neighbours all of `accesses` take at once."""
    n = BYTES // max(buffer.dtype.size_bytes for buffer, _ in accesses)
    while n > 1 and (lanes % n or not all(contiguous(b, index, loop.var, n, algebra) for b, index in accesses)):
        n //= 2
    return max(n, 1)


def source(copy: Store) -> tuple[Expr | None, Load] | None:
    """Return what a store copies as it is, and when it does rather than store zero (None: always); None where it is no such copy."""
    match copy.value:
        case Load() as load:
            return None, load
        case Select(cond, Load() as load, Const(value)) if value == 0 and str(value)[0] != "-":
            return cond, load
        case _:
            return None


def copied_at_once(copy: Store, around: For | None, buffers: Mapping[str, Buffer], algebra: Algebra) -> bool:
    """Tell whether the device can copy by itself what `copy`, innermost in the loop `around`, copies: 4, 8 or 16 bytes that lie together in
    its memory and go to shared memory together. What lies together, and goes elsewhere one by one, is better read together."""
    found = source(copy)
    if found is None or found[1].buffer not in buffers or buffers[found[1].buffer].dtype != buffers[copy.buffer].dtype:
        return False
    bytes_ = buffers[copy.buffer].dtype.size_bytes
    if around is None or around.kind != "vector" or around.extent is None or around.hi != Int(around.extent):
        return bytes_ in COPIED
    to, *of = _ends(copy, buffers)
    read, both = (_together(a, around, around.extent, algebra) for a in (of[-1:], [to, *of[-1:]]))
    return both == read and bytes_ * both in COPIED


def contiguous(buffer: Buffer, index: tuple[Index, ...], var: str, lanes: int, algebra: Algebra) -> bool:
    """Tell whether `lanes` iterations of `var` touch neighbours from a multiple of `lanes` on."""
    if is_half_byte(buffer.dtype) or buffer.space in ("registers", "stack") or lanes * buffer.dtype.size_bytes > BYTES or not index:
        return False
    if any(var in free_vars(e) for e in index[:-1]):
        return False
    form = affine(algebra.simplify(offset(buffer, index)))
    if form is None:
        return False
    terms = dict(form[0])
    if terms.pop(Var(var), 0) != 1 or any(var in free_vars(atom) for atom in terms):
        return False
    return form[1] % lanes == 0 and all(scale % lanes == 0 for scale in terms.values())


def offset(buffer: Buffer, index: tuple[Index, ...]) -> Index:
    """Return the number of an element in memory."""
    total: Index = Int(0)
    for extent, at in zip(buffer.shape, index, strict=True):
        total = Add(Mul(total, extent), at)
    return total
