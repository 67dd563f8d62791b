"""Which nests of loops copy boxes of tensors: element by element along axes of a tensor into a buffer, with zeros exactly outside of it.

    for h in 0 .. 6 { for v in 0 .. 18 { for c in 0 .. 32 {                             boxes …
        x_s[h, v, c] = select(4*ho + h - 1 >= 0 and … < H …, x[n, 4*ho + h - 1, …], 0)  →   x_s[0, 0, 0] = x[n, 4*ho - 1, …, 32*co]
    }}}                                                                                         by [1, 6, 18, 32]

Axes of the buffer are axes of the tensor, in any order but for the last, whose neighbours are neighbours in the tensor too; axes of one
element do not part them. Along others every second element may be copied, or every n-th. Where two loops go along one axis, the outer one
counts boxes that follow each other in the buffer. A condition may say that an index is inside of the tensor, and nothing else: then what
lies outside is zero, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from codegen.errors import Unfit
from codegen.gpu.vectors import source
from codegen.loops.evaluate import evaluate
from codegen.loops.indices import Algebra, Range, coefficients
from codegen.loops.nodes import (
    Add,
    Binary,
    Box,
    Buffer,
    Compare,
    Expr,
    For,
    Index,
    IndexValue,
    Int,
    Load,
    Max,
    Min,
    Mul,
    Stmt,
    Store,
    Var,
)
from codegen.loops.walk import free_vars, map_expr, map_stmt, substitute_index, substitute_stmt, walk

AXES = 5
"""Of a tensor that boxes are copied of, at most."""
LONGEST = 256
"""Elements along an axis of a box, at most."""
UNIT = 16
"""Bytes that rows of boxes and the strides of tensors are multiples of."""
MOST = 16
"""Boxes that one nest of loops becomes, at most."""
TRIED = 4096
"""Points that are tried one by one, at most."""

_ALGEBRA = Algebra.of({})


def boxes_of(
    nest: For, targets: Mapping[str, Buffer], device: Mapping[str, Buffer], written: set[str], ranges: Mapping[str, Range]
) -> tuple[Box, ...]:
    """Return the boxes that a nest of loops copies; `ranges`: of the loops around. Raises Unfit that says why it copies none."""
    copy = _Copy(next(n for n in walk(nest) if isinstance(n, Store)).buffer)
    by, store = _from_zero(nest, copy)
    found = source(store) if store is not None else None
    if found is None or store is None:
        raise copy.no("it copies other than elements as they are, with zeros beyond")
    when, load = found
    tensor, buffer = device.get(load.buffer), targets[store.buffer]
    if tensor is None or load.buffer in written or tensor.dtype != buffer.dtype:
        raise copy.no(f"`{load.buffer}` is no tensor in the device's memory of the same type that nobody writes meanwhile")
    order = _filled(store, buffer, by)
    if order is None:
        raise copy.no("it does not fill the buffer")
    along = {var: _axis(load, var) for var in order}
    many, one = _apart(order, along, load, copy)
    if one and along[one[-1]] != (_last(tensor), 1):
        raise copy.no(f"axes of `{load.buffer}` come in another order: neighbours in the copy are none there")
    within = Algebra.of({**ranges, **{var: (0, extent - 1) for var, extent in by.items()}})
    if _elsewhere(when, load, tensor, by, within) is not None:
        raise copy.no("it has zeros elsewhere than outside of the tensor")
    _check_form(tensor, buffer, [by[var] for var in one], copy)
    return tuple(
        _box(Load(store.buffer, _at(store.index, place)), Load(load.buffer, _at(load.index, place)), one, along, by, copy)
        for place in ({**dict.fromkeys(one, 0), **dict(zip(many, place, strict=True))} for place in product(*(range(by[v]) for v in many)))
    )


@dataclass(frozen=True, slots=True)
class _Copy:
    buffer: str

    def no(self, why: str) -> Unfit:
        return Unfit(f"the copy in `{self.buffer}` is no box of a tensor: {why}", self.buffer)


def alignment(buffer: Buffer) -> int:
    """Return what the address of a box is a multiple of, in bytes: where the pattern in which columns are exchanged begins again."""
    return 8 * buffer.swizzle or 128


def stepped(e: Index, step: int) -> tuple[Index, int] | None:
    """Return (q, r) with `e == step * q + r` and 0 <= r < step for all values of its variables, or None where there are none."""
    if step == 1:
        return e, 0
    form = coefficients(e)
    if form is None or any(scale % step for scale in form[0].values()):
        return None
    terms, constant = form
    out: Index = Int(constant // step)
    for atom, scale in terms.items():
        out = Add(out, Mul(Int(scale // step), atom))
    return _ALGEBRA.simplify(out), constant % step


def _box(target: Load, first: Load, one: list[str], along: Mapping[str, tuple[int, int] | None], by: Mapping[str, int], copy: _Copy) -> Box:
    """Return the box that the loops of `one` copy from `first` on."""
    rank = len(first.index)
    extents, steps, moved = [1] * rank, [1] * rank, []
    for var in one:
        found = along[var]
        assert found is not None, "each of these loops goes along an axis"
        axis, step = found
        extents[axis], steps[axis] = by[var], step
        moved.append(axis)
        if stepped(first.index[axis], step) is None:
            raise copy.no(f"elements of `{first.buffer}` are skipped, from one on that is not always the same")
    order = (*(axis for axis in range(rank) if axis not in moved), *moved)
    plain = order == tuple(range(rank)) or (moved == sorted(moved) and moved[-1:] in ([], [rank - 1]))
    return Box(target, first, tuple(extents), () if plain else order, tuple(steps) if max(steps) > 1 else ())


def _at(index: tuple[Index, ...], place: Mapping[str, int]) -> tuple[Index, ...]:
    env: dict[str, Index] = {var: Int(value) for var, value in place.items()}
    return tuple(_ALGEBRA.simplify(substitute_index(e, env)) for e in index)


def _from_zero(nest: For, copy: _Copy) -> tuple[dict[str, int], Store | None]:
    """Return the extents of the loops of a nest, all of which begin at 0, with the store in them; None where there is more in them. A loop
    that ends early goes on: what it leaves out of the buffer nobody reads."""
    by: dict[str, int] = {}
    env: dict[str, Index] = {}
    inner: Stmt = nest
    while isinstance(inner, For) and len(inner.body) == 1:
        low = _ALGEBRA.simplify(substitute_index(inner.lo, env))
        ends = (_ALGEBRA.simplify(Add(substitute_index(e, env), _minus(low))) for e in _terms(inner.hi, Min))
        extent = next((e.value for e in ends if isinstance(e, Int)), None)
        if extent is None or extent < 1:
            raise copy.no("its loops have no constant extents")
        by[inner.var] = extent
        if low != Int(0):
            env[inner.var] = Add(low, Var(inner.var))
        inner = inner.body[0]
    if not isinstance(inner, Store):
        return by, None
    return by, _simple(substitute_stmt(inner, env)) if env else inner


def _simple(store: Stmt) -> Store:
    """Return a store with its subscripts, and those of what it loads, in their simplest form."""
    index = _ALGEBRA.simplify

    def expr(e: Expr) -> Expr:
        return map_expr(e, index, expr)

    done = map_stmt(store, index, expr, lambda s: s)
    assert isinstance(done, Store), "a store stays one"
    return done


def _filled(store: Store, buffer: Buffer, by: Mapping[str, int]) -> list[str] | None:
    """Return the loops in the order of the axes of the buffer, each of which one of them fills; None where that is not so."""
    order: list[str] = []
    for e, extent in zip(store.index, buffer.shape, strict=True):
        match e:
            case Var(name) if name in by and name not in order and extent == Int(by[name]):
                order.append(name)
            case Int(0) if extent == Int(1):
                pass
            case _:
                return None
    return order if len(order) == len(by) else None


def _last(tensor: Buffer) -> int:
    """Return the last axis of a tensor along which there is more than one element."""
    return next((k for k in reversed(range(len(tensor.shape))) if tensor.shape[k] != Int(1)), len(tensor.shape) - 1)


def _axis(load: Load, var: str) -> tuple[int, int] | None:
    """Return the only axis of the tensor along which `var` goes, and how far with each iteration; None where there is none."""
    axes = [k for k, e in enumerate(load.index) if var in free_vars(e)]
    form = coefficients(load.index[axes[0]]) if len(axes) == 1 else None
    if form is None or any(var in free_vars(atom) for atom in form[0] if atom != Var(var)):
        return None
    step = form[0].get(Var(var), 0)
    return (axes[0], step) if step > 0 else None


def _apart(order: list[str], along: Mapping[str, tuple[int, int] | None], load: Load, copy: _Copy) -> tuple[tuple[str, ...], list[str]]:
    """Return the loops that count boxes, and those within a box, outermost first."""

    def alone(k: int) -> bool:
        found = along[order[k]]
        return found is not None and all(other is None or other[0] != found[0] for other in (along[v] for v in order[k + 1 :]))

    rest = order[:]
    first = 0
    for k in range(len(order)):
        if not alone(k):
            first = k + 1
    many, rest = tuple(order[:first]), order[first:]
    if not rest or (many and any(along[v] is None for v in rest)):
        raise copy.no(f"elements of `{load.buffer}` are skipped")
    return many, rest


def _check_form(tensor: Buffer, buffer: Buffer, extents: list[int], copy: _Copy) -> None:
    """Raise Unfit for what the hardware does not take."""
    size = tensor.dtype.size_bytes
    shape = [e.value for e in tensor.shape if isinstance(e, Int)]
    if len(shape) < len(tensor.shape):
        raise copy.no("not supported yet: a tensor of which sizes are known only when it runs")
    if not 1 <= len(shape) <= AXES:
        raise copy.no(f"the tensor has {len(shape)} axes, more than {AXES}")
    if max(extents) > LONGEST:
        raise copy.no(f"it has {max(extents)} elements along an axis, more than {LONGEST}")
    boxes = prod(e.value for e in buffer.shape if isinstance(e, Int)) // prod(extents)
    if boxes > MOST:
        raise copy.no(f"it is {boxes} boxes, more than {MOST}")
    pitch = size
    for extent in reversed(shape[1:]):
        pitch *= extent
        if pitch % UNIT and pitch > size:
            raise copy.no(f"`{tensor.name}` has rows of {pitch} bytes, no multiple of {UNIT}")
    row = extents[-1] * size
    if row % UNIT or (buffer.swizzle and row != buffer.swizzle):
        exchanged = f"columns are exchanged within {buffer.swizzle}" if buffer.swizzle else f"that is no multiple of {UNIT}"
        raise copy.no(f"its rows have {row} bytes, and {exchanged}")
    whole, pattern = prod(extents) * size, alignment(buffer)
    if boxes > 1 and whole % pattern:
        raise copy.no(f"its boxes have {whole} bytes, and begin at multiples of {pattern}")


# ---------------------------------------------------------------- zeros


def _elsewhere(when: Expr | None, load: Load, tensor: Buffer, by: Mapping[str, int], within: Algebra) -> Expr | None:
    """Return a part of a condition that may fail for an element inside of the tensor; None when there is none."""
    for part in _parts(when):
        fails = _fails(part, by)
        if fails is None or not all(_is_outside(d, load, tensor, within) for d in fails):
            return part
    return None


def _fails(part: Expr, by: Mapping[str, int]) -> list[Index] | None:
    """Return what is not negative, one or the other, wherever `part` fails; None where nothing is known."""
    match part:
        case Compare(op, IndexValue(lhs), rhs):
            pass
        case _:
            return None
    value = getattr(rhs, "value", None)
    bound = rhs.index if isinstance(rhs, IndexValue) else Int(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if bound is None:
        return None
    match op:
        case "<" | "<=":
            beyond = 0 if op == "<" else -1
            limits = (b for b in _terms(bound, Min) if not _never(lhs, b, by))
            return [Add(Add(lhs, _minus(b)), Int(beyond)) for b in limits]
        case ">=" | ">":
            beyond = -1 if op == ">=" else 0
            return [Add(Add(b, _minus(lhs)), Int(beyond)) for b in _terms(bound, Max)]
        case _:
            return None


def _never(lhs: Index, bound: Index, by: Mapping[str, int]) -> bool:
    """Tell whether an index is below a bound whenever its loop runs."""
    return isinstance(lhs, Var) and lhs.name in by and isinstance(bound, Int) and bound.value >= by[lhs.name]


def _is_outside(fails: Index, load: Load, tensor: Buffer, within: Algebra) -> bool:
    """Tell whether an index of `load` is outside of its axis wherever `fails` is not negative: by no less than a multiple of that."""
    scales = {1} | {step for e in load.index if (form := coefficients(e)) is not None for step in form[0].values() if step > 0}
    for e, extent in zip(load.index, tensor.shape, strict=True):
        for side in (Add(e, _minus(extent)), Add(Int(-1), _minus(e))):
            for scale in scales:
                if _is_never_negative(Add(side, Mul(Int(-scale), fails)), within):
                    return True
    return False


def _is_never_negative(e: Index, within: Algebra) -> bool:
    """Tell whether an index is never negative, from what its loops are known to lie within, or by trying all of that where it is little."""
    simple = within.simplify(e)
    least = within.range_of(simple)[0]
    if least is not None and least >= 0:
        return True
    names = sorted(free_vars(simple))
    ranges = [within.range_of(Var(name)) for name in names]
    known = [range(lo, hi + 1) for lo, hi in ranges if lo is not None and hi is not None]
    if len(known) < len(names) or prod(map(len, known)) > TRIED:
        return False
    return all(evaluate(simple, dict(zip(names, point, strict=True))) >= 0 for point in product(*known))


def _minus(e: Index) -> Index:
    return Mul(Int(-1), e)


def _parts(when: Expr | None) -> Iterator[Expr]:
    match when:
        case None:
            return
        case Binary("and", lhs, rhs):
            yield from _parts(lhs)
            yield from _parts(rhs)
        case _:
            yield when


def _terms(e: Index, of: type[Min] | type[Max]) -> Iterator[Index]:
    if isinstance(e, of):
        yield from _terms(e.lhs, of)
        yield from _terms(e.rhs, of)
    else:
        yield e
