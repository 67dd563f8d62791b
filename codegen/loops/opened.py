"""Loops for a few sizes that are numbers, as part of a function of which all sizes are open.

    func f(M)(x: f32[3*M], out y: f32[3*M]) { … y[i] = x[i] … }
    func f(M, D)(x: f32[M, D], out y: f32[M, D]) { if index(D) == 3_i64 { … y[i // 3, i % 3] = x[i // 3, i % 3] … } }

Where a size is a number more axes can be merged, and an axis of one element goes. The memory is the same, so an element is named by its
place along the axes of the whole function. Rows of the same memory of which the whole function knows less begin in no parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from codegen.loops.indices import Algebra, Poly
from codegen.loops.nodes import Buffer, Expr, FloorDiv, Function, Index, Int, Load, Mod, Mul, Prefetch, Stmt, Store
from codegen.loops.notes import Begins
from codegen.loops.walk import map_expr, map_index, map_stmt, substitute_index, without
from codegen.polynomials import ONE

Places = tuple[tuple[int, ...], ...]
"""Of each axis of a buffer, the axes of another that it consists of: none for one of one element."""


def opened(function: Function, whole: Function, known: Mapping[str, int]) -> tuple[Stmt, ...] | None:
    """Return the body of `function` over the parameters of `whole`, of which its own are the same memory where the sizes in `known` have
    these values; None where they are not."""
    named_so = {p.name: p for p in whole.params}
    if not {p.name for p in function.params} <= named_so.keys() or function.sizes != tuple(s for s in whole.sizes if s not in known):
        return None
    algebra, env = Algebra.of({}), {name: Int(n) for name, n in known.items()}
    named: dict[str, tuple[Places, tuple[Index, ...]]] = {}
    pairs = [(part, named_so[part.name]) for part in function.params]
    for part, buffer in pairs:
        shape = tuple(substitute_index(e, env) for e in buffer.shape)
        places = _places(algebra, part.shape, shape)
        if places is None or not _is_alike(part, buffer):
            return None
        if part.shape != shape:
            named[part.name] = places, shape
    alike = all(part.shape == buffer.shape for part, buffer in pairs)
    made = function if alike else without(function, Begins)
    return _renamed(made, named) if named else made.body


def _is_alike(a: Buffer, b: Buffer) -> bool:
    return replace(a, shape=b.shape) == b


def _places(algebra: Algebra, shape: Sequence[Index], whole: Sequence[Index]) -> Places | None:
    """Return which axes of `whole` make up each of `shape`, in row-major order."""
    axes = iter([(k, n) for k, n in enumerate(map(algebra.poly, whole)) if n != ONE])
    found = [_product(axes, algebra.poly(extent)) for extent in shape]
    return None if any(f is None for f in found) or next(axes, None) is not None else tuple(f for f in found if f is not None)


def _product(axes: Iterator[tuple[int, Poly]], extent: Poly) -> tuple[int, ...] | None:
    """Return the next axes, whose extents have this product."""
    found, product = list[int](), ONE
    while product != extent:
        axis = next(axes, None)
        if axis is None:
            return None
        found.append(axis[0])
        product = product * axis[1]
    return tuple(found)


def _renamed(function: Function, named: Mapping[str, tuple[Places, tuple[Index, ...]]]) -> tuple[Stmt, ...]:
    """Return the body of a function that names elements of buffers by their places along other axes."""

    def place(buffer: str, at: tuple[Index, ...]) -> tuple[Index, ...]:
        return _along(at, *named[buffer]) if buffer in named else at

    def index(e: Index) -> Index:
        return map_index(e, index, expr)

    def expr(e: Expr) -> Expr:
        made = map_expr(e, index, expr)
        return replace(made, index=place(made.buffer, made.index)) if isinstance(made, Load) else made

    def stmt(s: Stmt) -> Stmt:
        made = map_stmt(s, index, expr, stmt)
        return replace(made, index=place(made.buffer, made.index)) if isinstance(made, Store | Prefetch) else made

    return tuple(map(stmt, function.body))


def _along(at: tuple[Index, ...], places: Places, shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """Return the place along the axes of `shape` of an element that is `at` along axes that these make up."""
    made: list[Index] = [Int(0)] * len(shape)
    for e, axes in zip(at, places, strict=True):
        inside: Index = Int(1)
        for k in reversed(axes):
            above = e if inside == Int(1) else FloorDiv(e, inside)
            made[k] = above if k == axes[0] else Mod(above, shape[k])
            inside = shape[k] if inside == Int(1) else Mul(inside, shape[k])
    return tuple(made)
