"""Products of tiles in tile registers (AMX).

    alloc t: f32[2, 2, 16, 16] tiles                   t[iu, ju, ., .] is tile register 2*iu + ju
    t[iu, ju, ii, jv] = c[…]     (two loops)           tileloadd      rows any distance apart
    t[..] = dot(2, a, b, t[..])  (three loops)         tileloadd a, tileloadd b, tdpbf16ps; not loaded is what a register has already
    c[…] = t[..]                                       tilestored

Registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns, so that a function has one configuration, which it loads where it begins. A
function that also hands work to the pool loads it before each product: the same thread runs parts of the work, and these release the
tiles. LLVM is given register numbers, so there is nothing to spill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from codegen.dtypes import DType
from codegen.llvm.addresses import pointer_to
from codegen.llvm.expressions import address
from codegen.llvm.facts import Poly
from codegen.llvm.frame import Emitter
from codegen.llvm.state import Memory, Scope, Tiles
from codegen.llvm.tile_forms import form, tile_pairs
from codegen.loops.nodes import Alloc, For, Function, If, Int, Load, Prefetch, Stmt, Store
from codegen.loops.tiles import Move, Product, move_of, product_of
from codegen.loops.walk import walk
from codegen.polynomials import ZERO, number

SUMS, ROWS, COLUMNS = (0, 1, 2, 3), (4, 5), (6, 7)
"""Which tile registers are for what."""


def has_all(function: Function, features: str) -> bool:
    """Tell whether a processor with `features` has the instructions for every product of tiles in the function."""
    pairs = tile_pairs(features)
    return all(pair in pairs for pair in _pairs(function.body, {p.name: p.dtype for p in function.params}))


def _pairs(block: tuple[Stmt, ...], buffers: dict[str, DType]) -> Iterator[tuple[DType, DType]]:
    """Yield the types of rows and columns of the products of tiles in a block."""
    for s in block:
        match s:
            case For(kind="tile"):
                found = product_of(s)
                if found is not None:
                    yield buffers[found.rows.buffer], buffers[found.columns.buffer]
            case For(body=body):
                yield from _pairs(body, buffers)
            case If(_, then, orelse):
                yield from _pairs(then, buffers)
                yield from _pairs(orelse, buffers)
            case Alloc(buffer):
                buffers = {**buffers, buffer.name: buffer.dtype}
            case _:
                pass


# ---------------------------------------------------------------- statements


def allocate(e: Emitter, stmt: Alloc, rest: tuple[Stmt, ...], allocated: frozenset[str], scope: Scope) -> Tiles | None:
    """Return free registers for a buffer, or None when there are not enough. `allocated`: buffers that the block of the statement allocated
    before, which are free again when the `rest` of it does not mention them."""
    buffer = stmt.buffer
    used = {n.buffer for n in walk(*rest) if isinstance(n, Load | Store | Prefetch)}
    live = {n for name, s in scope.buffers.items() if isinstance(s, Tiles) and (name in used or name not in allocated) for n in s.numbers}
    extents = [extent.value for extent in buffer.shape if isinstance(extent, Int)]
    count = prod(extents[:-2])
    free = tuple(n for n in SUMS if n not in live)[:count]
    if len(extents) != len(buffer.shape) or len(free) < count:
        return None
    pitches = [prod(extents[k + 1 :]) for k in range(len(extents))]
    return Tiles(e.state.new_uid(), buffer, free, tuple(number(p) for p in pitches))


def nest(e: Emitter, loop: For, scope: Scope) -> bool:
    """Write a product of tiles, or a copy of one. Return whether that could be done in registers."""
    product = product_of(loop)
    if product is not None:
        return _product(e, product, scope)
    move = move_of(loop)
    return move is not None and _move(e, move, scope)


def release(e: Emitter) -> None:
    """Write the end of a function: the tiles, if it used any, are free."""
    if e.tiles is not None:
        e.b.write(f"call void {e.b.declare('llvm.x86.tilerelease', 'void @()')}()")


def _product(e: Emitter, found: Product, scope: Scope) -> bool:
    b = e.b
    sums, rows, columns = (scope.buffers[x.buffer] for x in (found.sums, found.rows, found.columns))
    instruction = form(b.target.features, rows.dtype, columns.dtype)
    if instruction is None or not isinstance(rows, Memory) or not isinstance(columns, Memory):
        return False
    m, n, p = found.loops
    live = {k for s in scope.buffers.values() if isinstance(s, Tiles) for k in s.numbers}
    scratch = next((k for k in SUMS if k not in live), None)
    target = _register(e, sums, found.sums, scope, (m, n)) if isinstance(sums, Tiles) else scratch
    if target is None or not _configured(e, found.shape, scope):
        return False
    if isinstance(sums, Memory):
        _transfer(e, "tileloadd64", target, sums, found.sums, (m, n), scope)
    first = _operand(e, rows, found.rows, (m, p), scope, ROWS)
    second = _operand(e, columns, found.columns, (p, n), scope, COLUMNS)
    fn = b.declare(instruction.intrinsic, "void @(i8, i8, i8)")
    b.write(f"call void {fn}(i8 {target}, i8 {first}, i8 {second})")
    if isinstance(sums, Memory):
        _transfer(e, "tilestored64", target, sums, found.sums, (m, n), scope)
        e.state.note_change(sums.uid)
    return True


def _move(e: Emitter, found: Move, scope: Scope) -> bool:
    target, source = scope.buffers[found.target.buffer], scope.buffers[found.source.buffer]
    if isinstance(target, Tiles) and isinstance(source, Memory):
        _transfer(e, "tileloadd64", _register(e, target, found.target, scope, found.loops), source, found.source, found.loops, scope)
        return True
    if isinstance(target, Memory) and isinstance(source, Tiles):
        _transfer(e, "tilestored64", _register(e, source, found.source, scope, found.loops), target, found.target, found.loops, scope)
        e.state.note_change(target.uid)
        return True
    return False


def _register(e: Emitter, tiles: Tiles, load: Load, scope: Scope, loops: tuple[str, str]) -> int:
    """Return which register holds the tile."""
    offset = address(e.state, tiles, load.index, _at(scope, dict.fromkeys(loops, 0))).constant
    assert offset is not None, "verified: constant once unrolled"
    return tiles.numbers[offset // tiles.size]


def _operand(e: Emitter, storage: Memory, load: Load, loops: tuple[str, str], scope: Scope, registers: tuple[int, ...]) -> int:
    """Return a register that has the operand, loaded now or before in this stretch of code."""
    b, state = e.b, e.state
    pointer, stride = _place(e, storage, load, loops, scope)
    moment = f"{b.label} {state.version}"
    if state.tile_moment != moment:
        state.tile_moment, state.tiles_held = moment, {}
    key = f"{registers} {pointer} {stride}"
    if key in state.tiles_held:
        return state.tiles_held[key]
    held = {n: k for k, n in state.tiles_held.items()}
    chosen = next((n for n in registers if n not in held), None)
    if chosen is None:
        oldest = next(k for k, n in state.tiles_held.items() if n in registers)
        chosen = state.tiles_held.pop(oldest)
    _write(e, "tileloadd64", chosen, pointer, stride)
    state.tiles_held[key] = chosen
    return chosen


def _transfer(e: Emitter, what: str, register: int, storage: Memory, load: Load, loops: tuple[str, str], scope: Scope) -> None:
    _write(e, what, register, *_place(e, storage, load, loops, scope))


def _write(e: Emitter, what: str, register: int, pointer: str, stride: str) -> None:
    fn = e.b.declare(f"llvm.x86.{what}", "void @(i8, ptr, i64)")
    e.b.write(f"call void {fn}(i8 {register}, ptr {pointer}, i64 {stride})")


def _place(e: Emitter, storage: Memory, load: Load, loops: tuple[str, str], scope: Scope) -> tuple[str, str]:
    """Return where the first row of a tile is, and how many bytes lie between rows."""
    first, second = (address(e.state, storage, load.index, _at(scope, {loops[0]: row, loops[1]: 0})) for row in (0, 1))
    return pointer_to(e.b, storage, first), e.b.index((second - first).scaled(storage.dtype.size_bytes))


def _at(scope: Scope, values: dict[str, int]) -> Scope:
    known: dict[str, Poly] = {name: number(v) if v else ZERO for name, v in values.items()}
    return replace(scope, vars={**scope.vars, **known})


# ---------------------------------------------------------------- the configuration


def _configured(e: Emitter, shape: tuple[int, int, int], scope: Scope) -> bool:
    """See to it that the tiles have the sizes of a product. Return whether they can: a function has one configuration."""
    if e.tiles is not None and e.tiles != shape:
        return False
    if e.tiles is None or e.shares_work:
        text = f"call void {e.b.declare('llvm.x86.ldtilecfg', 'void @(ptr)')}(ptr {_constant(e, shape)})"
        if e.shares_work:
            e.b.write(text)
        else:
            e.b.prologue.append(f"  {text}")
    e.tiles = shape
    return True


def _constant(e: Emitter, shape: tuple[int, int, int]) -> str:
    """Return the name of the 64 bytes that describe the tiles: palette 1, bytes in a row of each from 16 on, rows of each from 48 on."""
    rows, columns, groups = shape
    sides = {**dict.fromkeys(SUMS, (rows, columns)), **dict.fromkeys(ROWS, (rows, groups)), **dict.fromkeys(COLUMNS, (groups, columns))}
    data = bytearray(64)
    data[0] = 1
    for register, (height, width) in sides.items():
        data[16 + 2 * register] = 4 * width
        data[48 + register] = height
    name = f"@tl_tiles_{rows}_{columns}_{groups}"
    text = "".join(f"\\{byte:02x}" for byte in data)
    e.module.declarations.setdefault(name, f'{name} = private unnamed_addr constant [64 x i8] c"{text}", align 64')
    return name
