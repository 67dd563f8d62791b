"""Which loops over lanes are loads and stores of neighbours at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeGuard

from codegen.dtypes import bf16, f16, f32
from codegen.gpu.expressions import Printer, is_below_a_byte
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import (
    Add,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    Max,
    Min,
    Mul,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
)
from codegen.loops.walk import Node, children, free_vars, loads, names, substitute

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
    spaces = {buffers[s.buffer].space in ("registers", "stack") for s in loop.body if isinstance(s, Store)}
    if len(spaces) != 1:
        return 1
    moving = moving_names(loop)
    groups: list[_Group] = [
        ([(buffers[n.buffer], n.index)], cond)
        for n, cond in read_when(*(s for s in loop.body if not _is_later(s))).items()
        if n.buffer in buffers and not names(*n.index, *cond) & moving
    ]
    groups += [([(buffers[s.buffer], s.index)], ()) for s in loop.body if _is_plain(s) and not names(*s.index) & moving]
    groups += [_ends(s, buffers) for s in loop.body if isinstance(s, Store) and s.later]
    return max((_together(accesses, cond, loop, lanes, p.algebra) for accesses, cond in groups), default=1)


def read_when(*statements: Stmt) -> dict[Load, tuple[Expr, ...]]:
    """Return what the statements load, and the conditions that all have to hold for that; what is loaded under different conditions is
    left out."""
    found: dict[Load, set[tuple[Expr, ...]]] = {}

    def visit(node: Node, when: tuple[Expr, ...]) -> None:
        match node:
            case Select(cond, then, orelse):
                visit(cond, when)
                visit(then, (*when, cond))
                visit(orelse, (*when, Unary("not", cond)))
                return
            case Binary("and" | "or" as op, lhs, rhs):
                visit(lhs, when)
                visit(rhs, (*when, lhs if op == "and" else Unary("not", lhs)))
                return
            case Load():
                found.setdefault(node, set()).add(when)
            case _:
                pass
        for child in children(node):
            visit(child, when)

    for s in statements:
        visit(s, ())
    always: tuple[Expr, ...] = ()
    return {load: always if always in when else next(iter(when)) for load, when in found.items() if always in when or len(when) == 1}


def moving_names(loop: For) -> frozenset[str]:
    """Return the names of values that differ from iteration to iteration."""
    written = {s.buffer for s in loop.body if isinstance(s, Store)}
    found: frozenset[str] = frozenset()
    for s in loop.body:
        if not isinstance(s, Let):
            continue
        if loop.var in free_vars(s.value) or names(s.value) & found or any(load.buffer in written for load in loads(s.value)):
            found |= {s.name}
    return found


def _apart(loop: For, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether no iteration reads memory that another writes, so that what all of them read can be read first."""
    written = {s.buffer for s in loop.body if isinstance(s, Store)}
    return not any(load.buffer in written and buffers[load.buffer].space not in ("registers", "stack") for load in loads(*loop.body))


def _is_later(s: Stmt) -> bool:
    return isinstance(s, Store) and s.later


def _is_plain(s: Stmt) -> TypeGuard[Store]:
    return isinstance(s, Store) and not s.later


def _ends(copy: Store, buffers: Mapping[str, Buffer]) -> _Group:
    found = source(copy)
    when = (found[0],) if found is not None and found[0] is not None else ()
    return [(buffers[copy.buffer], copy.index), *((buffers[n.buffer], n.index) for n in loads(copy.value))], when


_Group: TypeAlias = tuple[list[tuple[Buffer, tuple[Index, ...]]], tuple[Expr, ...]]
"""Accesses that are made together, and when."""


def _together(accesses: list[tuple[Buffer, tuple[Index, ...]]], when: tuple[Expr, ...], loop: For, lanes: int, algebra: Algebra) -> int:
    """Return how many neighbours all of `accesses` take at once."""

    def fits(n: int) -> bool:
        at_once = all(uniform(cond, loop.var, 0, n, algebra) is not None for cond in when)
        return lanes % n == 0 and at_once and all(contiguous(b, index, loop.var, n, algebra) for b, index in accesses)

    n = BYTES // max(buffer.dtype.size_bytes for buffer, _ in accesses)
    while n > 1 and not fits(n):
        n //= 2
    return max(n, 1)


def uniform(cond: Expr, var: str, start: int, lanes: int, algebra: Algebra) -> Expr | None:
    """Return what `cond` says for each of `lanes` iterations of `var` from `start` on, or None where it may differ between them."""
    if var not in free_vars(cond):
        return cond
    match cond:
        case Binary("and" | "or" as op, lhs, rhs):
            one, two = uniform(lhs, var, start, lanes, algebra), uniform(rhs, var, start, lanes, algebra)
            return None if one is None or two is None else Binary(op, one, two)
        case Unary("not", value):
            inner = uniform(value, var, start, lanes, algebra)
            return None if inner is None else Unary("not", inner)
        case Compare(op, lhs, rhs) if (ends := _ends_of(lhs, rhs)) is not None and op not in ("==", "!="):
            less, more = ends if op in ("<", "<=") else ends[::-1]
            room = Add(Add(more, Mul(Int(-1), less)), Int(op in ("<=", ">=")))
            return substitute(cond, {var: Int(start)}) if _is_even(room, var, lanes, algebra) else None
        case _:
            return None


def _ends_of(lhs: Expr, rhs: Expr) -> tuple[Index, Index] | None:
    match lhs, rhs:
        case IndexValue(one), IndexValue(two):
            return one, two
        case IndexValue(one), Const(int(value)):
            return one, Int(value)
        case _:
            return None


def _is_even(room: Index, var: str, lanes: int, algebra: Algebra) -> bool:
    """Tell whether `room` is positive for all of `lanes` iterations of `var` from a multiple of `lanes` on, or for none."""
    form = coefficients(algebra.simplify(room))
    step = 0 if form is None else form[0].get(Var(var), 0)
    if form is None or abs(step) != 1 or (form[1] - max(step, 0)) % lanes:
        return False
    return all(
        _is_multiple(atom, scale, lanes, algebra) and var not in free_vars(atom) for atom, scale in form[0].items() if atom != Var(var)
    )


def _is_multiple(atom: Index, scale: int, of: int, algebra: Algebra) -> bool:
    """Tell whether `scale` times a term is a multiple of `of`."""
    match atom:
        case Min(a, b) | Max(a, b):
            forms = [coefficients(algebra.simplify(e)) for e in (a, b)]
            return all(
                form is not None and form[1] * scale % of == 0 and all(_is_multiple(e, scale * n, of, algebra) for e, n in form[0].items())
                for form in forms
            )
        case _:
            return scale % of == 0


def source(copy: Store) -> tuple[Expr | None, Load] | None:
    """Return what a store copies as it is, and when it does rather than store zero (None: always); None where it is no such copy. Narrow
    floats that became wide ones and narrow again are what they were."""
    return _source(copy.value)


def _source(e: Expr) -> tuple[Expr | None, Load] | None:
    match e:
        case Load() as load:
            return None, load
        case Select(cond, value, Const(zero)) if zero == 0 and str(zero)[0] != "-":
            found = _source(value)
            if found is None:
                return None
            return (cond if found[0] is None else Binary("and", cond, found[0])), found[1]
        case Cast(dtype, Select(cond, Cast(wide, Load() as load), Const(zero))) if (
            dtype in (bf16, f16) and wide == f32 and zero == 0 and str(zero)[0] != "-"
        ):
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
    (to, *of), when = _ends(copy, buffers)
    read, both = (_together(a, when, around, around.extent, algebra) for a in (of[-1:], [to, *of[-1:]]))
    return both == read and bytes_ * both in COPIED


def contiguous(buffer: Buffer, index: tuple[Index, ...], var: str, lanes: int, algebra: Algebra) -> bool:
    """Tell whether `lanes` iterations of `var` touch neighbours from a multiple of `lanes` on."""
    if is_below_a_byte(buffer.dtype) or buffer.space in ("registers", "stack") or lanes * buffer.dtype.size_bytes > BYTES or not index:
        return False
    if any(var in free_vars(e) for e in index[:-1]):
        return False
    form = coefficients(algebra.simplify(offset(buffer, index)))
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
