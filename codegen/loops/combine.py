"""Put a dot product in the place of a loop that the schedule gave to an instruction.

    before   for r in 0 .. 2 tensor 2 { c[i, j] = fma(f32(a[i, 2*k + r]), f32(b[k, j, r]), c[i, j]) }
    after    c[i, j] = dot(2, a[i, 2*k], b[k, j, 0], c[i, j])

Refused, and unrolled instead, are loops that run a part of their extent, sums of anything but one product of narrow elements, elements that
do not lie next to each other in the order of the loop, and sums that the lanes of a vector share. Expects the indices of `simplify`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from codegen.dtypes import DType
from codegen.loops import dots
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import Binary, Cast, Dot, Expr, Fma, For, Function, If, Int, Load, Stmt, Store, Var
from codegen.loops.verify import Env
from codegen.loops.walk import free_vars, substitute_index


def combine(function: Function) -> Function:
    """Return `function` without `tensor` loops but those around one dot product, which are parts of larger instructions."""
    return replace(function, body=_block(function.body, Env.of(function), frozenset()))


def _block(block: Iterable[Stmt], env: Env, lanes: frozenset[str]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        match s:
            case For(kind="tensor"):
                made = _dot(s, env, lanes)
                out.append(made or _around(replace(s, body=_block(s.body, env.with_loop(s), lanes))))
            case For():
                inner = lanes | {s.var} if s.kind == "vector" else lanes
                out.append(replace(s, body=_block(s.body, env.with_loop(s), inner)))
            case If():
                out.append(replace(s, then=_block(s.then, env, lanes), orelse=_block(s.orelse, env, lanes)))
            case _:
                out.append(s)
        env = env.after(s)
    return tuple(out)


def _around(loop: For) -> For:
    """Return the loop, still part of an instruction when there is a dot product in it."""
    match loop.body:
        case (Store(value=Dot()),):
            return loop
        case _:
            return replace(loop, kind="unroll")


def _dot(loop: For, env: Env, lanes: frozenset[str]) -> Stmt | None:
    match loop.body:
        case (Store(buffer, index, value, stream),):
            pass
        case _:
            return None
    old = Load(buffer, index)
    factors = _product(value, old)
    if factors is None or loop.var in free_vars(*index) or not lanes <= free_vars(*index):
        return None
    a, b = (_operand(x, env.buffers[buffer].dtype) for x in factors)
    if a is None or b is None or buffer in (a.buffer, b.buffer):
        return None
    types = env.buffers[a.buffer].dtype, env.buffers[b.buffer].dtype
    count = dots.group(types[0])
    whole = loop.lo == Int(0) and loop.hi == Int(count)
    if not whole or dots.accumulator(*types) != env.buffers[buffer].dtype:
        return None
    first, second = _first(a, loop.var), _first(b, loop.var)
    return None if first is None or second is None else Store(buffer, index, Dot(count, first, second, old), stream)


def _product(value: Expr, old: Load) -> tuple[Expr, Expr] | None:
    """Return the factors of what is added to the element that is replaced."""
    match value:
        case Fma(x, y, c) | Binary("+", c, Binary("*", x, y)) | Binary("+", Binary("*", x, y), c) if c == old:
            return x, y
        case _:
            return None


def _operand(e: Expr, wide: DType) -> Load | None:
    """Return the element that is widened."""
    match e:
        case Cast(dtype, Load() as load) if dtype == wide:
            return load
        case Cast(dtype, Cast() as inner) if dtype == wide:
            return _operand(inner, wide)
        case _:
            return None


def _first(load: Load, var: str) -> Load | None:
    """Return the first of the elements that `load` is for each value of `var`, or None when they are not neighbours."""
    if not load.index or var in free_vars(*load.index[:-1]):
        return None
    form = coefficients(load.index[-1])
    if form is None or form[0].get(Var(var)) != 1 or any(var in free_vars(atom) for atom in form[0] if atom != Var(var)):
        return None
    last = Algebra.of({}).simplify(substitute_index(load.index[-1], {var: Int(0)}))
    return Load(load.buffer, (*load.index[:-1], last))
