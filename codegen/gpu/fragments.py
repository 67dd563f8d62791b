"""Loops marked `tile` as what the lanes of a warp do together.

    for im in 0 .. 4 unroll 4 { for jn in 0 .. 8 unroll 8 {          alloc a_f: u32[4, 4];  alloc b_f: u32[8, 2]
        for m in 0 .. 16 tile 16 {                                   for im { matrix 4 a_f[im, 0] = a_s[…] of l }
            for n in 0 .. 8 tile 8 {                            →    for jn in 0 .. 4 { matrix 4 b_f[2*jn, 0] = b_s[…] of l }
                for k in 0 .. 16 tile 16 {                           for g lane.y 8 { for t lane.x 4 {
                    c[…, …] = fma(f32(a_s[…]), f32(b_s[…]), c)           for im { for jn { mma m16n8k16_bf16 c[…], a_f[im, 0], b_f[jn, 0]

    for m tile 16 { for n tile 8 { y[…] = c[…] }}               →    for g lane.y 8 { for h 2 { for t lane.x 4 { for p 2 { y[…] = c[…] }}}}

Whoever marked the loops has proven that the product is an instruction's; here it is compared with the table of those (`matrix`) once more.
Each lane keeps its part of the sums in registers (`private` cuts them), its part of the operands is fetched before the unrolled loops that
the sums lie along: by `ldmatrix` where rows of 16 bytes lie in shared memory, element by element elsewhere. A loop over rows (16) or
columns (8) of sums is one over lanes, with what is left in registers.

A product goes over whole tiles. At the edges of matrices it does so where `tensorlang.lower.edge_tiles` has proven that it may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from codegen.dtypes import DType, f32, i32, u32
from codegen.errors import Unfit
from codegen.gpu import matrix, warpgroups
from codegen.gpu.cooperative_copies import is_multiple
from codegen.gpu.geometry import WARPS
from codegen.gpu.vectors import contiguous
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import (
    THREADS,
    Add,
    Alloc,
    Binary,
    Buffer,
    Call,
    Cast,
    Commit,
    Compare,
    Expr,
    FloorDiv,
    Fma,
    For,
    If,
    Index,
    IndexValue,
    Int,
    Load,
    LoadMatrix,
    LoopKind,
    Mma,
    Mod,
    Mul,
    Stmt,
    Store,
    Var,
    Wait,
)
from codegen.loops.tiles import is_linear
from codegen.loops.walk import (
    Fresh,
    children,
    free_vars,
    map_expr,
    map_index,
    map_stmt,
    substitute,
    substitute_expr,
    substitute_index,
    walk,
)

ROWS, COLUMNS = 16, 8
"""Of the sums of every instruction of one warp."""
_LANES: tuple[LoopKind, LoopKind] = ("lane.y", "lane.x")


@dataclass(frozen=True, slots=True)
class Product:
    """`sums += rows x columns`; `loops` are those over rows, columns and the sum. Each operand is an element in their terms."""

    instruction: matrix.Instruction
    loops: tuple[For, For, For]
    sums: Load
    rows: Load
    columns: Load

    @property
    def operands(self) -> tuple[tuple[Load, For], tuple[Load, For]]:
        """Return each operand with the loop over its rows."""
        return (self.rows, self.loops[0]), (self.columns, self.loops[1])


def fragments(body: tuple[Stmt, ...], device: Mapping[str, Buffer], fresh: Fresh) -> tuple[Stmt, ...]:
    """Return `body` with its loops over tiles given to lanes. Raises Unfit for a product that no instruction computes."""
    if not any(isinstance(n, For) and n.kind == "tile" for n in walk(*body)):
        return body
    _check_scope(body)
    buffers = {**device, **{n.buffer.name: n.buffer for n in walk(*body) if isinstance(n, Alloc)}}
    pass_ = _Pass(buffers, fresh, {})
    for product in pass_.products(body):
        pass_.spread(product)
    return pass_.block(body)


def _check_scope(body: tuple[Stmt, ...]) -> None:
    """Raise Unfit where loops marked `tile` are not what a warp as a whole runs."""
    for s in body:
        if isinstance(s, For) and s.kind in THREADS and s.kind != "warpgroup":
            inner = next((n for n in walk(*s.body) if isinstance(n, For) and n.kind == "tile"), None)
            if inner is not None and inner.extent == warpgroups.ROWS:
                why = f"`{inner.var}` is a part of an instruction of four warps, and `{s.var}` is bound to {s.kind}"
                raise Unfit(f"{why}: bind it to warpgroup", s.var)
            if inner is not None and s.kind not in WARPS:
                why = f"`{inner.var}` is a part of an instruction of a warp, and `{s.var}`, bound to {s.kind}, gives parts of a warp to it"
                raise Unfit(f"{why}: bind it to warp, warp.x or warp.y", s.var)
        _check_scope(tuple(c for c in children(s) if isinstance(c, Stmt)))


@dataclass(slots=True)
class _Pass:
    buffers: dict[str, Buffer]
    fresh: Fresh
    split: dict[str, tuple[int, int]]
    """Sums → the axes of their buffer along rows and columns."""
    sides: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Sums → how many rows and columns one tile of them has."""

    def products(self, body: tuple[Stmt, ...]) -> Iterator[Product]:
        """Yield the products in `body`."""
        for node in walk(*body):
            if isinstance(node, For) and node.kind == "tile" and (found := self.product(node)) is not None:
                yield found

    def product(self, loop: For) -> Product | None:
        """Return what three loops marked `tile` multiply, or None where there are no three."""
        match loop:
            case For(kind="tile", body=(For(kind="tile", body=(For(kind="tile") as along,)) as columns,)):
                pass
            case _:
                return None
        match along.body:
            case (Store(name, index, value),):
                pass
            case _:
                raise Unfit("not supported yet: more than one sum in the place of an instruction of a warp", loop.var)
        old = Load(name, index)
        match value:
            case Fma(x, y, c) | Binary("+", c, Binary("*", x, y)) | Binary("+", Binary("*", x, y), c) if c == old:
                operands = [_operand(x), _operand(y)]
            case _:
                raise Unfit(f"`{name}` is no sum of products that a warp computes together", name)
        if None in operands:
            raise Unfit(f"not supported yet: products of other than elements, added to `{name}` by a warp together", name)
        known = [o for o in operands if o is not None]
        of_rows, of_columns = known if loop.var in free_vars(known[0][0]) else known[::-1]
        shape = (loop.extent or 0, columns.extent or 0, along.extent or 0)
        types = (self.buffers[of_rows[0].buffer].dtype, self.buffers[of_columns[0].buffer].dtype, self.buffers[name].dtype)
        found = matrix.instruction_of(shape, *types, rounded=of_rows[1] and of_columns[1])
        if found is None or of_rows[1] != of_columns[1]:
            sizes = "x".join(map(str, shape))
            raise Unfit(f"no warp multiplies {types[0]} with {types[1]} in matrices of {sizes}", loop.var)
        return Product(found, (loop, columns, along), old, of_rows[0], of_columns[0])

    def spread(self, product: Product) -> None:
        """Give the sums of a product a buffer of whole tiles."""
        name = product.sums.buffer
        buffer = self.buffers[name]
        rows, columns = (self._axis(product.sums, loop) for loop in product.loops[:2])
        if name in self.split:
            if (self.split[name], self.sides[name]) != ((rows, columns), product.instruction.shape[:2]):
                raise Unfit(f"not supported yet: `{name}` holds sums of two products that lie in different ways", name)
            return
        self.split[name] = (rows, columns)
        shape = list(buffer.shape)
        sides = self.sides[name] = product.instruction.shape[:2]
        for axis, size in zip((rows, columns), sides, strict=True):
            extent = shape[axis]
            if not isinstance(extent, Int):
                raise Unfit(f"not supported yet: `{name}`, sums of a warp of which there are no constant number", name)
            shape[axis] = Int(-(-extent.value // size))
        self.buffers[name] = replace(buffer, shape=(*shape, *map(Int, sides)), space="registers")

    def _axis(self, sums: Load, loop: For) -> int:
        axes = [k for k, e in enumerate(sums.index) if loop.var in free_vars(e)]
        if len(axes) != 1:
            raise Unfit(f"`{sums.buffer}` does not lie along `{loop.var}` like the sums of an instruction", loop.var)
        return axes[0]

    # ------------------------------------------------------------ statements

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(new for s in body for new in self._stmt(s))

    def _stmt(self, s: Stmt) -> tuple[Stmt, ...]:
        match s:
            case Alloc(buffer):
                return (Alloc(self.buffers[buffer.name]),)
            case For():
                together = self._of_warpgroup(s)
                if together is not None:
                    return together
                chain = self._chain(s)
                if chain is not None:
                    return self._multiplied(*chain)
                if s.kind == "tile":
                    return (self._over_lanes(s),)
                return (replace(s, body=self.block(s.body)),)
            case If(cond, then, orelse):
                return (If(self._expr(cond), self.block(then), self.block(orelse)),)
            case _:
                return (self._tiled(s),)

    def _over_lanes(self, loop: For) -> Stmt:
        """Return a loop over rows or columns as one over lanes, around what is left of it."""
        if loop.extent == warpgroups.ROWS:
            return self._over_warpgroup(loop)
        lane, left = self.fresh(f"{loop.var}_l"), self.fresh(f"{loop.var}_r")
        match loop.extent:
            case 16:
                kind, lanes, number = _LANES[0], 8, matrix.sum_at(Var(lane), Int(0), Var(left), Int(0))[0]
            case 8:
                kind, lanes, number = _LANES[1], 4, matrix.sum_at(Int(0), Var(lane), Int(0), Var(left))[1]
            case _:
                raise Unfit(f"`{loop.var}` goes over {loop.extent} elements, no rows or columns of sums that lanes share", loop.var)
        body = self.block(tuple(substitute(s, {loop.var: number}) for s in loop.body))
        inside = Compare("<", IndexValue(number), IndexValue(loop.hi))
        whole = loop.hi == Int(loop.extent or 0)
        together = not whole and kind == _LANES[1] and is_multiple(loop.hi, 2)
        if not whole and not together:
            body = (If(inside, body),)
        held: tuple[Stmt, ...] = (For(left, Int(0), Int(2), body, "unroll", 2),)
        if together:  # both of a lane's columns are inside, or none
            held = (If(substitute_expr(inside, {left: Int(0)}), held),)
        return For(lane, Int(0), Int(lanes), held, kind, lanes)

    # ------------------------------------------------------------ four warps

    def _of_warpgroup(self, s: For) -> tuple[Stmt, ...] | None:
        """Return what is in the place of unrolled loops around one product of four warps, or None where there is no such."""
        loops: list[For] = []
        inner: Stmt = s
        while isinstance(inner, For) and inner.kind == "unroll" and len(inner.body) == 1:
            loops.append(inner)
            inner = inner.body[0]
        product = self.product(inner) if isinstance(inner, For) and inner.kind == "tile" else None
        if product is None or product.instruction.warps == 1:
            return None
        _check_whole((*loops, *product.loops))
        names = warpgroups.Lanes(*(self.fresh(n) for n in ("w", "g", "t")))
        first = dict(zip((loop.var for loop in product.loops), warpgroups.sum_at(names, Int(0), Int(0), Int(0)), strict=False))
        sums = Load(product.sums.buffer, self._place(product.sums.buffer, tuple(substitute_index(e, first) for e in product.sums.index)))
        (rows, rows_across), (columns, columns_across) = (
            warpgroups.operand(load, self.buffers[load.buffer], side, product.loops[2]) for load, side in product.operands
        )
        mma = Mma(matrix.lying(product.instruction, (rows_across, columns_across)).name, sums, rows, columns)
        group = (*_nest(tuple(loops), (mma,)), Commit("products"), Wait(0, "products"))
        return (warpgroups.over(names, group),)

    def _over_warpgroup(self, rows: For) -> Stmt:
        """Return a loop over the rows of sums of four warps as one over their lanes, with the loop over columns in it."""
        match rows.body:
            case (For(kind="tile", extent=int(count)) as columns,):
                pass
            case _:
                raise Unfit(f"not supported yet: `{rows.var}` goes over rows of sums of four warps, and over no columns", rows.var)
        names = warpgroups.Lanes(*(self.fresh(n) for n in ("w", "g", "t")))
        j, h, p = (self.fresh(f"{loop.var}_r") for loop in (columns, rows, columns))
        at = dict(zip((rows.var, columns.var), warpgroups.sum_at(names, Var(j), Var(h), Var(p)), strict=True))
        body = self.block(tuple(substitute(s, at) for s in columns.body))
        inside = Compare("<", IndexValue(at[columns.var]), IndexValue(columns.hi))
        whole = columns.hi == Int(columns.extent or 0)
        together = not whole and is_multiple(columns.hi, 2)
        if not whole and not together:
            body = (If(inside, body),)
        body = (For(p, Int(0), Int(2), body, "unroll", 2),)
        if together:  # both of a lane's columns are inside, or none
            body = (If(substitute_expr(inside, {p: Int(0)}), body),)
        if rows.hi != Int(rows.extent or 0):
            body = (If(Compare("<", IndexValue(at[rows.var]), IndexValue(rows.hi)), body),)
        for var, extent in ((h, 2), (j, count // 8)):
            body = (For(var, Int(0), Int(extent), body, "unroll", extent),)
        return warpgroups.over(names, body)

    # ------------------------------------------------------------ sums in whole tiles

    def _tiled(self, s: Stmt) -> Stmt:
        match map_stmt(s, self._index, self._expr, self._tiled):
            case Store(buffer, index) as store if buffer in self.split:
                return replace(store, index=self._place(buffer, index))
            case other:
                return other

    def _index(self, e: Index) -> Index:
        return map_index(e, self._index, self._expr)

    def _expr(self, e: Expr) -> Expr:
        match map_expr(e, self._index, self._expr):
            case Load(buffer, index) if buffer in self.split:
                return Load(buffer, self._place(buffer, index))
            case other:
                return other

    def _place(self, buffer: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """Return which tile of the sums an element lies in, and where."""
        out = list(index)
        for axis, size in zip(self.split[buffer], self.sides[buffer], strict=True):
            parted = _parted(index[axis], size)
            if parted is None:
                raise Unfit(f"not supported yet: `{buffer}`, whose sums a warp has together, is used other than in its tiles", buffer)
            out[axis] = parted[0]
            out.append(parted[1])
        return tuple(out)

    # ------------------------------------------------------------ products

    def _chain(self, loop: For) -> tuple[tuple[For, ...], Product] | None:
        """Return the unrolled loops around a product that its sums lie along, and the product."""
        if loop.kind == "tile":
            found = self.product(loop)
            return None if found is None else ((), found)
        match loop:
            case For(lo=Int(0), body=(For() as inner,), kind="unroll", extent=int()):
                below = self._chain(inner)
                if below is None or loop.var not in free_vars(*below[1].sums.index):
                    return None
                return (loop, *below[0]), below[1]
            case _:
                return None

    def _multiplied(self, loops: tuple[For, ...], product: Product) -> tuple[Stmt, ...]:
        g, t = self.fresh("g"), self.fresh("t")
        _check_whole((*loops, *product.loops))
        whole = tuple(replace(loop, hi=Int(loop.extent or 0)) for loop in loops)
        rows, of_rows = self._operand(whole, product, g, t, of_columns=False)
        columns, of_columns = self._operand(whole, product, g, t, of_columns=True)
        first = {loop.var: at for loop, at in zip(product.loops, matrix.sum_at(Var(g), Var(t), Int(0), Int(0)), strict=False)}
        index = self._place(product.sums.buffer, tuple(substitute_index(e, first) for e in product.sums.index))
        mma = Mma(product.instruction.name, Load(product.sums.buffer, index), rows, columns)
        return (*of_rows, *of_columns, _lanes(g, t, _nest(whole, (mma,))))

    def _operand(self, loops: tuple[For, ...], product: Product, g: str, t: str, *, of_columns: bool) -> tuple[Load, tuple[Stmt, ...]]:
        """Return an operand in registers, and what brings it there. Columns of neighbouring tiles lie together in pairs, where they can."""
        source = product.columns if of_columns else product.rows
        own = tuple(loop for loop in loops if loop.var in free_vars(*source.index))
        extents = [loop.extent or 0 for loop in own]
        place: tuple[Index, ...] = tuple(Var(loop.var) for loop in own)
        if of_columns and own and extents[-1] % 2 == 0:
            extents = [*extents[:-1], extents[-1] // 2, 2 * matrix.COLUMNS]
            place = (*place[:-1], FloorDiv(place[-1], Int(2)), Mul(Int(matrix.COLUMNS), Mod(place[-1], Int(2))))
        else:
            extents, place = [*extents, matrix.COLUMNS if of_columns else matrix.ROWS], (*place, Int(0))
        name = self.fresh(f"{source.buffer}_f")
        buffer = self.buffers[name] = Buffer(name, u32, tuple(map(Int, extents)), "tiles", 4)
        target = Load(name, place)
        fetched = self._by_matrix(own, product, target, of_columns=of_columns)
        if fetched is None:
            fetched = _lanes(g, t, _nest(own, self._by_element(product, target, g, t, of_columns=of_columns)))
        elif product.instruction.rounded:
            rounded = _rounded(target, matrix.COLUMNS if of_columns else matrix.ROWS)
            return target, (Alloc(buffer), fetched, _lanes(g, t, _nest(own, rounded)))
        return target, (Alloc(buffer), fetched)

    def _by_matrix(self, own: tuple[For, ...], product: Product, target: Load, *, of_columns: bool) -> Stmt | None:
        """Return how `ldmatrix` brings an operand into registers, or None where its rows of 16 bytes do not lie together."""
        source = product.columns if of_columns else product.rows
        buffer = self.buffers[source.buffer]
        row, along = (product.loops[1 if of_columns else 0].var, product.loops[2].var)
        size = matrix.MATRIX_ROW // buffer.dtype.size_bytes
        algebra = Algebra.of({})
        straight = contiguous(buffer, source.index, along, size, algebra)
        turned = buffer.dtype.size_bytes == 2 and contiguous(buffer, source.index, row, size, algebra)
        if buffer.space != "shared" or not (straight or turned) or not (is_linear(source, row) and is_linear(source, along)):
            return None
        lane = self.fresh("l")
        line, number = Mod(Var(lane), Int(8)), FloorDiv(Var(lane), Int(8))
        odd: Index = Mod(number, Int(2))
        half: Index = FloorDiv(number, Int(2))
        beyond: Index
        pair = own[-1] if of_columns and own and (own[-1].extent or 0) % 2 == 0 and _is_next(source, own[-1].var, row) else None
        further: Index
        if of_columns:  # matrix i: the (i % 2)-th half along the sum, of the columns of the first tile or of the next
            beyond, further = (half if pair is not None else Int(0)), odd
        else:  # matrix i: the (i // 2)-th half along the sum, of the first 8 rows or of the next
            beyond, further = odd, half
        near: Index = Mul(Int(8), beyond)
        far: Index = Mul(Int(size), further)
        where: tuple[Index, Index] = (Add(near, line), far) if straight else (near, Add(far, line))
        at = dict(zip((row, along), where, strict=True))
        count = 4 if pair is not None or not of_columns else 2
        place = Load(source.buffer, tuple(substitute_index(e, at) for e in source.index))
        load: Stmt = LoadMatrix(target.buffer, target.index, lane, place, count, not straight)
        if pair is not None:
            load = substitute(load, {pair.var: Mul(Int(2), Var(pair.var))})
            own = (*own[:-1], replace(pair, hi=Int((pair.extent or 0) // 2), extent=(pair.extent or 0) // 2))
        [out] = _nest(own, (load,))
        return out

    def _by_element(self, product: Product, target: Load, g: str, t: str, *, of_columns: bool) -> tuple[Stmt, ...]:
        """Return how each lane puts together its registers of an operand, one after the other."""
        source = product.columns if of_columns else product.rows
        row, along = (product.loops[1 if of_columns else 0].var, product.loops[2].var)
        together, out = product.instruction.elements_per_register, []
        at = matrix.column_at if of_columns else matrix.row_at
        for register in range(matrix.COLUMNS if of_columns else matrix.ROWS):
            elements: list[Expr] = []
            for element in range(together):
                where = dict(zip((row, along), at(Var(g), Var(t), register, element, together), strict=True))
                elements.append(self._expr(Load(source.buffer, tuple(substitute_index(e, where) for e in source.index))))
            fn = "bits_tf32" if product.instruction.rounded else "pack"
            out.append(Store(target.buffer, (*target.index[:-1], Add(target.index[-1], Int(register))), Call(fn, tuple(elements))))
        return tuple(out)


def _check_whole(loops: tuple[For, ...]) -> None:
    """Raise Unfit where an instruction would compute a part of a tile."""
    part = next((loop for loop in loops if loop.lo != Int(0) or loop.hi != Int(loop.extent or 0)), None)
    if part is not None:
        why = f"not supported yet: an instruction of a warp for a part of `{part.var}`, which is not known to go on over zeros"
        raise Unfit(f"{why}: `cache` both operands in shared memory", part.var)


def is_wide(dtype: DType) -> bool:
    """Tell whether narrow elements become this type as they are."""
    return dtype in (f32, i32)


def _operand(e: Expr) -> tuple[Load, bool] | None:
    """Return the element that a factor is made of, and whether it is rounded to tf32 first."""
    match e:
        case Load():
            return e, False
        case Cast(DType(), Load() as load, False) if is_wide(e.dtype):
            return load, False
        case Cast(dtype, Cast(same) as inner, False) if dtype == same:
            return _operand(inner)
        case Call("round_tf32", (Load() as load,)):
            return load, True
        case _:
            return None


def _rounded(target: Load, registers: int) -> tuple[Stmt, ...]:
    """Return how a lane rounds the f32 numbers in its registers of an operand to tf32."""
    places = [(*target.index[:-1], Add(target.index[-1], Int(register))) for register in range(registers)]
    return tuple(Store(target.buffer, place, Call("bits_tf32", (Load(target.buffer, place),))) for place in places)


def _lanes(g: str, t: str, body: tuple[Stmt, ...]) -> Stmt:
    return For(g, Int(0), Int(8), (For(t, Int(0), Int(4), body, _LANES[1], 4),), _LANES[0], 8)


def _nest(loops: tuple[For, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def _parted(e: Index, size: int) -> tuple[Index, Index] | None:
    """Return an index as a multiple of `size` and the rest, which is less; None where that cannot be read off it."""
    form = coefficients(Algebra.of({}).simplify(e))
    if form is None:
        return None
    whole: Index = Int(form[1] // size)
    rest: Index = Int(form[1] % size)
    for atom, scale in form[0].items():
        if scale % size == 0:
            whole = Add(whole, Mul(Int(scale // size), atom))
        elif 0 < scale < size:
            rest = Add(rest, Mul(Int(scale), atom))
        else:
            return None
    return whole, rest


def _is_next(load: Load, loop: str, row: str) -> bool:
    """Tell whether a step of `loop` leads where so many rows as an instruction has columns do."""
    algebra = Algebra.of({})
    for e in load.index:
        one = algebra.simplify(substitute_index(e, {loop: Add(Var(loop), Int(1))}))
        other = algebra.simplify(substitute_index(e, {row: Add(Var(row), Int(COLUMNS))}))
        if one != other:
            return False
    return True
