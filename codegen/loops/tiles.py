"""Products of whole tiles: loops that an instruction for tiles can take the place of, and what they are without one.

    before   for m in 0 .. 16 unroll 16 { for n in 0 .. 16 vector 16 { for p in 0 .. 16 tensor 16 {
                 c[m, n] = dot(2, a[i + m, k + 2*p], b[k + p, n, 0], c[m, n])
    after    the same loops, marked `tile`; c, when it was in registers, on the stack

`tiled` marks them: three loops over the whole of their extents, of at most 16 iterations, around one dot product of which c has rows m, a
has rows m and groups p, b has groups p and columns n; groups and columns lie next to each other. All products of a function have one size,
since a processor is told the size of its tiles once. What is left alone is unrolled or becomes vectors, as before.

`without_tiles` undoes the marks, for processors that have no such instruction. The two forms mean the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.dtypes import bf16, i8, u8
from codegen.loops.indices import coefficients
from codegen.loops.nodes import Alloc, Buffer, Dot, For, Function, If, Index, Int, Load, Stmt, Store, Var
from codegen.loops.verify import Env
from codegen.loops.walk import free_vars, map_stmt

SIDE = 16
"""Rows, columns and groups that a tile has at most."""
PAIRS = frozenset({(bf16, bf16), *((a, b) for a in (i8, u8) for b in (i8, u8))})
"""Elements of which processors multiply tiles: those of rows, those of columns."""


@dataclass(frozen=True, slots=True)
class Product:
    """`sums += rows x columns`, of `shape` (rows, columns, groups) and `count` elements a group; `loops` are the variables of the shape.
    Each element of an operand is the first of its group."""

    shape: tuple[int, int, int]
    loops: tuple[str, str, str]
    count: int
    sums: Load
    rows: Load
    columns: Load


@dataclass(frozen=True, slots=True)
class Move:
    """A tile of `shape` that is copied from one buffer to another, one of which is in tiles."""

    shape: tuple[int, int]
    loops: tuple[str, str]
    target: Load
    source: Load


def product_of(loop: For) -> Product | None:
    """Return what three loops around a dot product multiply, whatever their marks, or None when it is no product of tiles by its form."""
    match loop:
        case For(var=m, lo=Int(0), hi=Int(rows), body=(For(var=n, lo=Int(0), hi=Int(columns), body=(For() as inner,)),)) if inner.lo == Int(
            0
        ):
            pass
        case _:
            return None
    match inner:
        case For(var=p, hi=Int(groups), body=(Store(buffer, index, Dot(count, a, b, Load() as old)),)) if old == Load(buffer, index):
            shape, used = (rows, columns, groups), free_vars(*a.index)
            first, second = (a, b) if m in used else (b, a)
            return Product(shape, (m, n, p), count, old, first, second)
        case _:
            return None


def move_of(loop: For) -> Move | None:
    """Return what two loops copy, or None when it is no tile by its form."""
    match loop:
        case For(
            var=m,
            lo=Int(0),
            hi=Int(rows),
            body=(For(var=n, lo=Int(0), hi=Int(columns), body=(Store(buffer, index, Load() as source),)),),
        ):
            return Move((rows, columns), (m, n), Load(buffer, index), source)
        case _:
            return None


# ---------------------------------------------------------------- marking


def tiled(function: Function) -> Function:
    """Return `function` with products of tiles marked."""
    env = Env.of(function)
    sizes = [p.shape for p in _products(function.body, env)]
    if not sizes:
        return function
    wanted = max(sizes, key=lambda s: (s[0] * s[1] * s[2], s))
    sums = {p.sums.buffer for p in _products(function.body, env) if p.shape == wanted}
    return replace(function, body=_marked(function.body, env, wanted, sums))


def _products(block: tuple[Stmt, ...], env: Env) -> Iterator[Product]:
    for s in block:
        match s:
            case For():
                found = _product(s, env)
                if found is not None:
                    yield found
                else:
                    yield from _products(s.body, env.with_loop(s))
            case If(_, then, orelse):
                yield from _products(then, env)
                yield from _products(orelse, env)
            case Alloc(buffer):
                env = env.with_buffer(buffer)
            case _:
                pass


def _marked(block: tuple[Stmt, ...], env: Env, shape: tuple[int, int, int], sums: set[str]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        match s:
            case For():
                found = _product(s, env)
                fits = found is not None and found.shape == shape
                out.append(_with_kinds(s, "tile", 3) if fits else replace(s, body=_marked(s.body, env.with_loop(s), shape, sums)))
            case If(cond, then, orelse):
                out.append(If(cond, _marked(then, env, shape, sums), _marked(orelse, env, shape, sums)))
            case Alloc(buffer):
                if buffer.name in sums and buffer.space == "registers":
                    buffer = replace(buffer, space="stack", align=64)
                env = env.with_buffer(buffer)
                out.append(Alloc(buffer))
            case _:
                out.append(s)
    return tuple(out)


def _with_kinds(loop: For, kind: str, depth: int) -> For:
    [inner] = loop.body
    body = (_with_kinds(inner, kind, depth - 1),) if depth > 1 and isinstance(inner, For) else loop.body
    return replace(loop, kind=kind, body=body)  # type: ignore[arg-type]


def _product(loop: For, env: Env) -> Product | None:
    """Return the product that the loops compute, if a processor may have an instruction for it."""
    found = product_of(loop)
    kinds = (loop.kind, *(s.kind for s in _inside(loop)))
    if found is None or kinds[:3] != ("unroll", "vector", "tensor") or max(found.shape) > SIDE:
        return None
    buffers = [env.buffers.get(x.buffer) for x in (found.sums, found.rows, found.columns)]
    sums, rows, columns = buffers
    if sums is None or rows is None or columns is None or sums.name in (rows.name, columns.name) or rows.space == "registers":
        return None
    m, n, p = found.loops
    fits = (
        columns.space != "registers"
        and (rows.dtype, columns.dtype) in PAIRS
        and _stride(found.sums, sums, n) == 1
        and _is_outside(found.sums, m, n, found.shape[1])
        and _stride(found.rows, rows, p) == _stride(found.columns, columns, n) == found.count
        and not {n} & free_vars(*found.rows.index)
        and not {m} & free_vars(*found.columns.index)
        and p not in free_vars(*found.sums.index)
        and all(is_linear(x, v) for x in (found.sums, found.rows, found.columns) for v in found.loops)
    )
    return found if fits else None


def _inside(loop: For) -> Iterator[For]:
    match loop.body:
        case (For() as inner,):
            yield inner
            yield from _inside(inner)
        case _:
            pass


def is_linear(load: Load, var: str) -> bool:
    """Tell whether equal steps of the variable are equal distances."""
    for e in load.index:
        form = coefficients(e)
        if form is None or any(var in free_vars(atom) for atom in form[0] if atom != Var(var)):
            return False
    return True


def _stride(load: Load, buffer: Buffer, var: str) -> int | None:
    """Return by how many elements a step of the variable moves, or None where that depends on a size or does not stay the same."""
    if not is_linear(load, var):
        return None
    total, pitch = 0, 1
    for e, extent in reversed(list(zip(load.index, buffer.shape, strict=True))):
        form = coefficients(e)
        step = form[0].get(Var(var), 0) if form is not None else 0
        if step and pitch < 0:
            return None
        total += step * pitch
        pitch = pitch * extent.value if isinstance(extent, Int) and pitch > 0 else -1
    return total


def _is_outside(load: Load, row: str, column: str, columns: int) -> bool:
    """Tell whether steps of `row` lead to other elements than steps of `column`, which has so many."""
    for e in load.index:
        form = coefficients(e)
        if form is None:
            return False
        step = abs(form[0].get(Var(row), 0))
        if step:
            return step >= columns or not form[0].get(Var(column), 0)
    return False


# ---------------------------------------------------------------- without them


def without_tiles(function: Function) -> Function:
    """Return `function` with tiles in memory, and the loops over them as vectors."""
    return replace(function, body=tuple(_plain(s) for s in function.body))


def _plain(s: Stmt) -> Stmt:
    match s:
        case Alloc(buffer) if buffer.space == "tiles":
            return Alloc(replace(buffer, space="stack", align=64))
        case For(kind="tile"):
            return plain(s)
        case For() | If():
            return map_stmt(s, _same, lambda e: e, _plain)
        case _:
            return s


def plain(loop: For) -> For:
    """Return loops over a tile as rows of vectors."""
    match loop.body:
        case (For() as columns,):
            inner = tuple(replace(p, kind="unroll") if isinstance(p, For) else p for p in columns.body)
            return replace(loop, kind="serial", body=(replace(columns, kind="vector", body=inner),))
        case _:
            return replace(loop, kind="serial")


def _same(e: Index) -> Index:
    return e
