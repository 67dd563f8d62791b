"""Convolutions by minimal filtering: fewer multiplications for the same sums.

    before   y[n, f, h, w] = e(sum(c, r, s) x[n, c, h + r - 1, w + s - 1 | 0] * k[f, c, r, s])                    3 x 3 taps, stride 1
    after    x.rows[n, i, j, a, s, c]  = (B (p * x[n, c, 4*i + . - 1, 4*j + s - 1 | 0]))[a]                       tiles of 6 x 6 points,
             x.tiles[n, a, b, i, j, c] = (B x.rows[n, i, j, a, ., c])[b]                                          along both axes
             y.tiles[n, a, b, i, j, f] = sum(c) x.tiles[n, a, b, i, j, c] * u[f, c, a, b]                         36 products of matrices
             y.rows[n, i, j, p, b, f]  = (A y.tiles[n, ., b, i, j, f])[p]
             y[n, f, h, w]             = e(q * (A y.rows[n, h // 4, w // 4, h % 4, ., f])[w % 4])                 tiles of 4 x 4 results

A and B are the small matrices of `toom.filtering`, written out as sums whose choice among rows stands in a `Select` on an index; u,
the transformed weights, takes the place of the weights among the parameters. Sums are regrouped, so results differ by rounding; whoever
rewrites must be allowed to. The new program is `fast`: a product and the sum it stands in round once.

p and q are powers of two, 2^-7 and 2^10 here, and u holds 1 / (p q) of what it would be otherwise. So no transformed input is larger
than the largest input, and nothing on the way to a result is larger than sum(c) max |x| * sum |k|, the bound of plain sums: where that is
finite, results are. p and q are no part of B and A, where what is scaled back could be infinite before it cancels.

A convolution here is one reduction over one channel and windows of consecutive points, stride and dilation one, around which any expression
may stand; what lies outside is zero or never read. Groups are axes that both operands have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, prod
from typing import Any

import numpy as np

from codegen.dtypes import DType, f32, f64
from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.combine import combined
from tensorlang.tensor.contraction import Contraction, Factor, contraction
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Const,
    Definition,
    Dynamic,
    Expr,
    Holds,
    Let,
    MinimalFiltering,
    Name,
    Piece,
    Program,
    Read,
    Reduce,
    Select,
    Tensor,
)
from tensorlang.tensor.padding import in_range
from tensorlang.tensor.toom_cook import Filtering, Matrix, filtering
from tensorlang.tensor.walk import Fresh, fresh_for, map_children, reduces, replaced, tensor_table

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """`x` is read at `axis + binder + offset` along its axis `position`; `size` is the extent of the result's axis."""

    axis: str
    binder: str
    taps: int
    offset: int
    position: int
    size: Affine

    @property
    def extent(self) -> int:
        """Return the extent of the result's axis, which is known."""
        return _integer(self.size)

    def tiles(self, outputs: int) -> Affine:
        """Return how many tiles of so many results it takes."""
        return affine.ceil_div(self.size, outputs)


@dataclass(frozen=True, slots=True)
class Convolution:
    """`sum(channel, windows) x[…] * w[…]` in the only definition of a program. `shared` are the result's axes that index both operands or
    x alone, or have one value, `column` the one that indexes w alone."""

    program: Program
    reduce: Reduce
    x: Read
    w: Read
    windows: tuple[Window, ...]
    shared: tuple[str, ...]
    column: str
    channel: str
    dtype: DType

    def size(self, axis: str) -> Affine:
        """Return the extent of an axis of the result."""
        definition = self.program.definitions[0]
        return dict(zip(definition.axes, definition.tensors[0].shape, strict=True))[axis]

    def extent(self, axis: str) -> int:
        """Return the extent of an axis of the result, which is known."""
        return _integer(self.size(axis))

    @property
    def channels(self) -> int:
        binder = next(b for b in self.reduce.binders if b.name == self.channel)
        assert binder.extent is not None, "channels are counted when compiling"
        return binder.extent

    @property
    def groups(self) -> int:
        """Return how many convolutions with weights of their own there are."""
        in_w = {s.name for s in self.w.index if isinstance(s, AffineName)}
        return prod(self.extent(axis) for axis in self.shared if axis in in_w)

    @property
    def batch(self) -> int:
        in_w = {s.name for s in self.w.index if isinstance(s, AffineName)}
        return prod(self.extent(axis) for axis in self.shared if axis not in in_w)


def convolution(program: Program) -> Convolution | None:
    """Return the program as a convolution that can be rewritten, or None. Programs in `strict` mode cannot. Images may be of any number and
    size; channels are counted when compiling."""
    if program.mode == "strict" or len(program.definitions) != 1 or len(program.results) != 1:
        return None
    [definition] = program.definitions
    if len(definition.pieces) != 1 or definition.pieces[0].guard != TRUE or len(definition.tensors) != 1:
        return None
    found = dict.fromkeys(reduces(definition.pieces[0].value))
    return _of_reduction(program, definition, next(iter(found))) if len(found) == 1 else None


def _of_reduction(program: Program, definition: Definition, e: Reduce) -> Convolution | None:
    table = tensor_table(program)
    found = contraction(e)
    if not isinstance(found, Contraction) or found.is_guarded:
        return None
    operands = ((a.read, b.read) for a, b in (found.factors, found.factors[::-1]) if b.is_plain and _is_operand(a, table))
    x, w = next(operands, (None, None))
    if x is None or w is None:
        return None
    dtypes = {table[x.tensor].dtype, table[w.tensor].dtype, e.reducer.dtypes[0]}
    params = {p.name for p in program.params}
    if len(dtypes) != 1 or not dtypes <= {f32, f64} or x.tensor == w.tensor or not {x.tensor, w.tensor} <= params:
        return None
    axes = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    binders = {b.name: b for b in e.binders}
    if not all(_plain(s) for s in w.index) or not all(b.lo == affine.ZERO for b in e.binders):
        return None
    in_w = [s.name for s in w.index if isinstance(s, AffineName)]
    windows: list[Window] = []
    in_x: list[str] = []
    for k, slot in enumerate(x.index):
        if _plain(slot):
            in_x += [slot.name] if isinstance(slot, AffineName) else []
            continue
        window = _window(slot, k, axes, binders)
        if window is None:
            return None
        windows.append(window)
    walked = {n for w_ in windows for n in (w_.axis, w_.binder)}
    channels = [b for b in binders if b not in walked]
    units = [a for a, extent in axes.items() if a not in {*in_x, *walked} and affine.constant(extent) == 1]
    of_w_alone = [a for a in axes if a in in_w and a not in in_x]
    columns = [a for a in of_w_alone if a not in units] or of_w_alone
    names = (*in_x, *(n for w_ in windows for n in (w_.axis, w_.binder)))
    distinct = len(set(names)) == len(names) and len(set(in_w)) == len(in_w)
    if not windows or len(channels) != 1 or len(columns) != 1 or not distinct or walked & set(axes) & set(in_w):
        return None
    if channels[0] not in in_x or any(b not in in_w for b in binders) or set(axes) != {*in_x, *in_w, *walked, *units} - set(binders):
        return None
    others = [r for p in definition.pieces for r in _reads_outside(p.value, e) if r.tensor == w.tensor]
    if others or binders[channels[0]].extent is None or affine.constant(axes[columns[0]]) is None:
        return None
    if any(affine.constant(n) is None for n in table[w.tensor].shape):
        return None
    shared = tuple(a for a in axes if a in in_x or (a in units and a not in columns))
    return Convolution(program, e, x, w, tuple(windows), shared, columns[0], channels[0], dtypes.pop())


def _is_operand(f: Factor, table: dict[str, Tensor]) -> bool:
    """Tell whether a factor is an element with zeros around its tensor, or one that is read nowhere outside."""
    match f.value:
        case Read():
            return True
        case Select(Holds(cond), Read() as read, Const(value=0)):
            return in_range(cond, read.index, table[read.tensor])
        case _:
            return False


def _plain(slot: Affine | Dynamic) -> bool:
    return not isinstance(slot, Dynamic) and (isinstance(slot, AffineName) or affine.constant(slot) is not None)


def _window(slot: Affine | Dynamic, position: int, axes: dict[str, Affine], binders: dict[str, Binder]) -> Window | None:
    form = None if isinstance(slot, Dynamic) else affine.affine_form(slot)
    if form is None:
        return None
    names, offset = form
    along = [n for n in names if n in axes]
    over = [n for n in names if n in binders]
    if len(names) != 2 or len(along) != 1 or len(over) != 1 or set(names.values()) != {1}:
        return None
    taps = affine.constant(binders[over[0]].hi)
    return None if taps is None else Window(along[0], over[0], taps, offset, position, axes[along[0]])


def _reads_outside(e: Expr, inside: Reduce) -> list[Read]:
    """Return the reads of `e` that are not in `inside`."""
    if e == inside:
        return []
    out = [e] if isinstance(e, Read) else []

    def visit(child: Expr) -> Expr:
        out.extend(_reads_outside(child, inside))
        return child

    map_children(visit, e)
    return out


def _integer(e: Affine) -> int:
    value = affine.constant(e)
    assert value is not None, "a size that is open has no number"
    return value


# ---------------------------------------------------------------- the program


def by_filtering(found: Convolution, outputs: Sequence[int]) -> Program:
    """Return the program of a convolution with tiles of `outputs[k]` results along window k; its parameter of weights holds what
    `filtered_weights` makes of them."""
    algorithms = tuple(filtering(m, w.taps) for m, w in zip(outputs, found.windows, strict=True))
    return _Rewriting(found, algorithms, fresh_for(found.program)).program()


def scales(algorithms: Sequence[Filtering]) -> tuple[Fraction, Fraction]:
    """Return by what inputs and, on the way back, results are multiplied, powers of two, so that values in between stay in the range of
    inputs and of plain sums. Weights are multiplied by what is left."""
    inside, outside = (prod(grown) for grown in zip(*(f.growth for f in algorithms), strict=True))
    return 1 / _power(inside), _power(outside)


def _power(e: Fraction) -> Fraction:
    """Return the smallest power of two that is no less than `e`, or one."""
    return Fraction(1 << (ceil(e) - 1).bit_length())


def filtered_weights(found: Convolution, outputs: Sequence[int], weights: Array) -> Array:
    """Return the weights with their taps turned into the points of the algorithms, scaled, computed in f64."""
    tensor = tensor_table(found.program)[found.w.tensor]
    shape = tuple(_integer(e) for e in tensor.shape)
    array = weights.reshape(shape)
    binders = {w.binder: k for k, w in enumerate(found.windows)}
    places = [(position, binders[s.name]) for position, s in enumerate(found.w.index) if isinstance(s, AffineName) and s.name in binders]
    algorithms = [filtering(m, w.taps) for m, w in zip(outputs, found.windows, strict=True)]
    matrices = [np.array(f.kernel, np.float64) for f in algorithms]
    matrices[0] /= float(prod(scales(algorithms)))
    parts = [_transformed(part, [(p, matrices[k]) for p, k in places]).astype(weights.dtype) for part in _pieces(array)]
    result = np.concatenate(parts, axis=_longest(shape))
    grown = {position: matrices[k].shape[0] for position, k in places}
    return result.reshape([prod(grown.get(k, shape[k]) for k in group) for group in tensor.groups])


_PIECE = 64
"""Rows of weights that are held in f64 at once."""


def _longest(shape: tuple[int, ...]) -> int:
    return max(range(len(shape)), key=lambda k: shape[k])


def _pieces(array: Array) -> list[Array]:
    axis = _longest(array.shape)
    return np.array_split(array, max(1, -(-array.shape[axis] // _PIECE)), axis=axis)


def _transformed(array: Array, places: list[tuple[int, Array]]) -> Array:
    for position, matrix in places:
        array = np.moveaxis(np.tensordot(matrix, array, axes=(1, position)), 0, position)
    return array


@dataclass(slots=True)
class _Rewriting:
    found: Convolution
    algorithms: tuple[Filtering, ...]
    fresh: Fresh

    def program(self) -> Program:
        found = self.found
        tiles, points = self._names("ijk"), self._names("abd")
        channel = self.fresh("c")
        before = self._input(tiles, points, channel)
        product = self._product(before[-1], tiles, points)
        after = self._output(product, tiles, points)
        definition = found.program.definitions[0]
        value = replaced(definition.pieces[0].value, found.reduce, self._result(after[-1] if after else product, not after))
        final = replace(definition, pieces=(replace(definition.pieces[0], value=value),))
        params = tuple(self._filtered(p) if p.name == found.w.tensor else p for p in found.program.params)
        made = (*before, product, *after, final)
        return replace(found.program, params=params, definitions=made, mode="fast", idioms=(self._idiom(made, tiles, channel),))

    def _idiom(self, made: tuple[Definition, ...], tiles: list[str], channel: str) -> MinimalFiltering:
        """Return what the definitions are: as many transform the input as there are windows, and one fewer the products."""
        found, depth = self.found, len(self.found.windows)
        names = tuple(d.tensors[0].name for d in made)
        others = {*found.shared, *tiles, channel, found.column}
        return MinimalFiltering(
            before=names[: depth - 1],
            tiles=names[depth - 1],
            product=names[depth],
            after=names[depth + 1 : -1],
            result=names[-1],
            spatial=tuple(w.axis for w in found.windows),
            tile_sizes=tuple(f.outputs for f in self.algorithms),
            column=found.column,
            tile_axes=tuple(tiles),
            point_axes=tuple(dict.fromkeys(a for d in made[:-1] for a in d.axes if a not in others)),
        )

    def _names(self, letters: str) -> list[str]:
        return [self.fresh(letter) for letter in letters[: len(self.found.windows)]]

    def _filtered(self, weights: Tensor) -> Tensor:
        shape = list(weights.shape)
        for position, slot in enumerate(self.found.w.index):
            for window, algorithm in zip(self.found.windows, self.algorithms, strict=True):
                if slot == AffineName(window.binder):
                    shape[position] = affine.to_expr(algorithm.products)
        return replace(weights, shape=tuple(shape))

    def _extents(self, tiles: list[str], points: list[str]) -> dict[str, Affine]:
        """Return the extents of the axes of tensors in between."""
        out = {a: self.found.size(a) for a in (*self.found.shared, self.found.column)}
        for tile, point, w, f in zip(tiles, points, self.found.windows, self.algorithms, strict=True):
            out |= {tile: w.tiles(f.outputs), point: affine.to_expr(f.products)}
        return out

    def _input(self, tiles: list[str], points: list[str], channel: str) -> list[Definition]:
        """Return the definitions that transform x along one window after the other; the last has the points outside the tiles."""
        found, out = self.found, list[Definition]()
        extents = {**self._extents(tiles, points), channel: affine.to_expr(found.channels)}
        places = self._names("stu")
        extents |= {p: affine.to_expr(f.products) for p, f in zip(places, self.algorithms, strict=True)}
        for k, algorithm in enumerate(self.algorithms):
            last = k == len(self.algorithms) - 1
            values: list[Expr] = []
            for number in range(algorithm.products):
                inside: list[str | int] = [*points[:k], number, *places[k + 1 :]]
                if out:
                    values.append(_read(out[-1], (*found.shared, *tiles, *inside, channel)))
                else:
                    values.append(self._scaled(scales(self.algorithms)[0], self._point(tiles, inside, channel)))
            value = self._row(AffineName(points[k]), algorithm.input, values)
            axes = (
                (*found.shared, *points, *tiles, channel) if last else (*found.shared, *tiles, *points[: k + 1], *places[k + 1 :], channel)
            )
            name = self.fresh(f"{found.x.tensor}.{'tiles' if last else 'rows'}")
            out.append(_definition(name, found.dtype, axes, extents, value))
        return out

    def _point(self, tiles: list[str], inside: Sequence[str | int], channel: str) -> Expr:
        """Return x at a place inside a tile of each window, zero where that is outside of x."""
        found = self.found
        to = {found.channel: AffineName(channel)}
        index: list[Affine] = [affine.substitute(s, to) for s in found.x.index if not isinstance(s, Dynamic)]
        source = tensor_table(found.program)[found.x.tensor]
        conds = []
        for w, f, tile, place in zip(found.windows, self.algorithms, tiles, inside, strict=True):
            at = affine.add(affine.scale(f.outputs, AffineName(tile)), place, w.offset)
            index[w.position] = at
            extent = source.shape[w.position]
            last = affine.add(affine.scale(f.outputs, affine.sub(w.tiles(f.outputs), 1)), w.offset + f.products - 1)
            beyond = affine.constant(affine.sub(last, extent))
            conds += [affine.compare(">=", at, 0)] if w.offset < 0 else []
            conds += [affine.compare("<", at, extent)] if beyond is None or beyond >= 0 else []
        read = Read(found.x.tensor, tuple(index))
        return Select(Holds(affine.conj(*conds)), read, Const(0.0, found.dtype)) if conds else read

    def _product(self, operand: Definition, tiles: list[str], points: list[str]) -> Definition:
        found = self.found
        binder = self.fresh(found.channel)
        to: dict[str, Affine] = {found.channel: AffineName(binder)}
        to |= {w.binder: AffineName(p) for w, p in zip(found.windows, points, strict=True)}
        weight = Read(found.w.tensor, tuple(s if isinstance(s, Dynamic) else affine.substitute(s, to) for s in found.w.index))
        left = _read(operand, (*found.shared, *points, *tiles, binder))
        total = replace(
            found.reduce, binders=(Binder(binder, affine.ZERO, affine.to_expr(found.channels)),), body=(Binary("*", left, weight),)
        )
        axes = (*found.shared, *points, *tiles, found.column)
        return _definition(self.fresh("tiles"), found.dtype, axes, self._extents(tiles, points), total)

    def _output(self, product: Definition, tiles: list[str], points: list[str]) -> list[Definition]:
        """Return the definitions that transform the products along all windows but the last."""
        found, out = self.found, list[Definition]()
        extents = self._extents(tiles, points)
        places = self._names("opq")
        extents |= {p: affine.to_expr(f.outputs) for p, f in zip(places, self.algorithms, strict=True)}
        for k, algorithm in enumerate(self.algorithms[:-1]):
            source = out[-1] if out else product
            values = [self._inner(source, not out, tiles, [*places[:k], n, *points[k + 1 :]]) for n in range(algorithm.products)]
            value = self._row(AffineName(places[k]), algorithm.output, values)
            axes = (*found.shared, *tiles, *places[: k + 1], *points[k + 1 :], found.column)
            out.append(_definition(self.fresh("rows"), found.dtype, axes, extents, value))
        return out

    def _inner(self, source: Definition, whole: bool, tiles: Sequence[Affine | str], inside: Sequence[Affine | str | int]) -> Expr:
        """Return an element of the product (`whole`), which has its points outside the tiles, or of what was made of it, which has them
        inside."""
        middle = (*inside, *tiles) if whole else (*tiles, *inside)
        return _read(source, (*self.found.shared, *middle, self.found.column))

    def _result(self, source: Definition, whole: bool) -> Expr:
        """Return the sum at a point of the result, transformed along the last window."""
        windows, algorithms = self.found.windows, self.algorithms
        tiles = [affine.floor(AffineName(w.axis), f.outputs) for w, f in zip(windows, algorithms, strict=True)]
        places = [affine.mod(AffineName(w.axis), f.outputs) for w, f in zip(windows, algorithms, strict=True)]
        values = [self._inner(source, whole, tiles, [*places[:-1], n]) for n in range(algorithms[-1].products)]
        total = self._row(places[-1], algorithms[-1].output, values)
        return self._scaled(scales(algorithms)[1], total)

    def _scaled(self, factor: Fraction, value: Expr) -> Expr:
        return Binary("*", Const(float(factor), self.found.dtype), value)

    def _row(self, index: Affine, matrix: Matrix, values: Sequence[Expr]) -> Expr:
        """Return row number `index` of `matrix · values`. Every value has a name, so that it is written once."""
        names = [self.fresh(f"v{k}") for k in range(len(values))]
        out = _chosen(index, combined(matrix, [Name(n) for n in names], self.found.dtype))
        for name, value in zip(reversed(names), reversed(values), strict=True):
            out = Let(name, value, out)
        return out


def _read(source: Definition, index: Sequence[Affine | str | int]) -> Read:
    return Read(source.tensors[0].name, tuple(affine.to_expr(i) for i in index))


def _definition(name: str, dtype: DType, axes: tuple[str, ...], extents: dict[str, Affine], value: Expr) -> Definition:
    tensor = Tensor(name, dtype, tuple(extents[a] for a in axes))
    return Definition((tensor,), axes, (Piece(value),))


def _chosen(index: Affine, rows: Sequence[Expr]) -> Expr:
    """Return row number `index`."""
    out = rows[-1]
    for k in range(len(rows) - 2, -1, -1):
        out = Select(Holds(affine.compare("==", index, k)), rows[k], out)
    return out


__all__ = ["Convolution", "Window", "by_filtering", "convolution", "filtered_weights", "scales"]
