"""Sums over the terms that a congruence leaves, one class of residues (a phase) at a time: the rewriting behind transposed convolutions.

    before   y[p]     = sum(k in 0..4, i in 0..7, 2*i + k == p + 1) x[i] * w[k]                  a test for every term
    after    s[a, q]  = sum(t in 0..2, 0 <= q - t < 7) x[q - t] * w[2*t + a]
             y[p]     = s[(p + 1) % 2, (p + 1) // 2]

The axis p is cut into q and a, p + 1 = 2*q + a. In one class, the terms are those whose k is of one residue; k steps from one to the next,
and i is known. The terms that are left are added in the same order, so that no bit of a result changes.

The sum has a tensor of its own, which begins and ends with whole classes. Vectors run along its last axis: that is q, or else an axis of
many elements that are sums over the same x (`COLUMNS`). Where an axis of a result comes out even it is cut itself, into q and a, which lie
in memory as p did, if it may be stored in blocks of such elements, or if no class has two terms along k.

Filters of the form `(p - k) % 2 == 0` are the same without i. With a factor of one for i there is one class alone, and i is what is left
over. Where both factors have a divisor in common, only every so many elements have terms: a tensor holds the sums of these alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import copysign, gcd, prod

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import TRUE, Compare, Cond, Mod, Scale
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.sets import implies
from polyhedral.verdict import Proven
from tensorlang.tensor.contraction import contractions
from tensorlang.tensor.facts import binder_cond, box
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Binder, Const, Definition, Dynamic, Expr, Holds, Piece, Program, Read, Reduce, Select, Tensor
from tensorlang.tensor.simplify import inline_all, without_guard
from tensorlang.tensor.walk import (
    Fresh,
    components,
    definition_reads,
    fresh_for,
    index_names,
    map_values,
    nodes,
    reads,
    reduces,
    replaced,
    substitute,
    substitute_reads,
    tensor_table,
    value_names,
)

COLUMNS = 16
"""So many sums over the same elements are worth vectors of their own; with fewer, vectors run along rows, where edges in the middle of a
vector cost more as conditions than as zeros."""


@dataclass(frozen=True, slots=True)
class StridedFilter:
    """`axis + offset == factor * binder + direction * stride * other`, where `other` is a binder, or None for any integer, and `binder` may
    be None for zero. `cond` says so in the sum."""

    cond: Cond
    axis: str
    offset: int
    binder: str | None
    factor: int
    stride: int
    other: str | None = None
    direction: int = 1


def by_phases(program: Program) -> Program:
    """Return the program with every such sum cut into phases; one without is returned itself."""
    cut = _in_phases(program, fresh_for(program))
    return program if cut is program else inline_all(cut, lambda definition, _: isinstance(_value(definition), Read))


def _in_phases(program: Program, fresh: Fresh) -> Program:
    for given in program.definitions:
        definition = without_guard(given, program.sizes) if any(True for p in given.pieces for _ in reduces(p.value)) else given
        for reduce, found in _strided_filters(definition, program.sizes):
            whole = program if definition is given else _with(program, given, definition)
            cut = _cut(whole, definition, reduce, found, fresh)
            if cut is not None:
                return _in_phases(cut, fresh)
    return program


def _strided_filters(definition: Definition, sizes: Sequence[str]) -> Iterator[tuple[Reduce, StridedFilter]]:
    if len(definition.tensors) != 1 or len(definition.pieces) != 1 or definition.pieces[0].guard != TRUE:
        return
    for reduce in dict.fromkeys(reduces(definition.pieces[0].value)):
        scope = {*sizes, *definition.axes, *(b.name for b in reduce.binders)}
        if not {*affine.names(binder_cond(reduce))} <= scope or (reduce.reducer.identity is None and reduce.init is None):
            continue  # a sum in another one, or one that has to be proven not to be empty
        for cond in affine.conjuncts(reduce.where):
            found = _strided_filter(cond, definition.axes, reduce)
            if found is not None:
                yield reduce, found


def _strided_filter(cond: Cond, axes: Sequence[str], reduce: Reduce) -> StridedFilter | None:
    """Return what a condition of a sum says, where it is a congruence of one axis and one binder, or an equality of an axis and one
    or two."""
    if not isinstance(cond, Compare) or cond.op != "==":
        return None
    difference = affine.sub(cond.lhs, cond.rhs)
    stride: int | None = None
    match affine.terms(difference):
        case ({**terms}, 0) if len(terms) == 1 and isinstance(of := next(iter(terms)), Mod):
            form, stride = affine.affine_form(of.value), of.divisor
        case _:
            form = affine.affine_form(difference)
    if form is None:
        return None
    names, offset = form
    binders = {b.name: b.extent for b in reduce.binders if affine.constant(b.lo) is not None}
    along = [n for n in names if n in axes]
    over = [n for n in names if n in binders]
    if len(along) != 1 or len(over) not in ((1, 2) if stride is None else (1,)) or len(names) != len(over) + 1 or abs(names[along[0]]) != 1:
        return None
    if any({*over} & {*affine.names(b.lo), *affine.names(b.hi)} for b in reduce.binders):
        return None
    unit = names[along[0]]
    if stride is None and len(over) == 1:  # a window of one element, which nothing steps through
        factor = -unit * names[over[0]]
        return StridedFilter(cond, along[0], unit * offset, None, 0, abs(factor), over[0], 1 if factor > 0 else -1)
    known = [n for n in over if binders[n] is not None]
    if not known:
        return None
    if stride is not None:
        return StridedFilter(cond, along[0], unit * offset, over[0], -unit * names[over[0]], stride)
    steps = gcd(*(names[n] for n in over))
    # One of them, of known extent, steps, the other is what is left over: the fewest steps are taken.
    pairs = [pair for pair in (over, over[::-1]) if pair[0] in known]
    stepped, rest = min(pairs, key=lambda pair: (binders[pair[0]] or 0) * steps / abs(names[pair[1]]))
    last = -unit * names[rest]
    return StridedFilter(cond, along[0], unit * offset, stepped, -unit * names[stepped], abs(last), rest, 1 if last > 0 else -1)


# ---------------------------------------------------------------- one axis


@dataclass(frozen=True, slots=True)
class _Cut:
    """`definition` with one axis cut by a congruence: `at` is the axis in terms of `whole` and `phase`, which has `stride` values."""

    definition: Definition
    reduce: Reduce
    found: StridedFilter
    whole: Affine
    phase: Affine
    at: Affine


def _cut(program: Program, definition: Definition, reduce: Reduce, found: StridedFilter, fresh: Fresh) -> Program | None:
    axis, stride = found.axis, found.stride
    common = gcd(found.factor, stride)
    thinned = _thinned(program, definition, reduce, found, common, fresh) if common > 1 and found.other is not None else None
    if thinned is not None:
        return thinned
    if stride == 1:
        name = AffineName(axis)
        cut = _Cut(definition, reduce, found, name, affine.ZERO, name)
        in_class = _in_class(cut, fresh, definition, program.sizes)
        return _with(program, definition, _rewritten(definition, replaced(_value(definition), reduce, in_class)))
    whole, phase = fresh(axis), fresh(f"{axis}.phase")
    at = affine.add(affine.scale(stride, AffineName(whole)), phase)
    cut = _Cut(definition, reduce, found, AffineName(whole), AffineName(phase), at)
    extent = definition.tensors[0].shape[definition.axes.index(axis)]
    even = _parts(extent, stride)
    columns = _columns(definition, reduce, found)
    if even is not None and _is_last(program, definition) and (columns or _has_one_term(reduce, found)):
        shaped = _axes_cut(definition, axis, (whole, phase), (even, affine.to_expr(stride)))
        value = replaced(_value(definition), reduce, _in_class(cut, fresh, shaped, program.sizes))
        return _with(program, definition, _rewritten(shaped, substitute(value, {axis: at})))
    # Its first class is the one of the first term, so that all classes are summed at the same places.
    start = found.offset % stride
    parts = affine.floor(affine.add(extent, start + stride - 1), stride)
    moved = replace(cut, found=replace(found, offset=found.offset - start), at=affine.sub(at, start))
    shaped = _axes_cut(definition, axis, (phase, whole), (affine.to_expr(stride), parts))
    return _outlined(program, moved, start, _axes_last(shaped, columns), fresh)


def _columns(definition: Definition, reduce: Reduce, found: StridedFilter) -> tuple[str, ...]:
    """Return the axes along which all elements are sums over the same elements of what `found.other` steps through, where they are long
    enough for vectors."""
    met = {n for e in reduce.body for r in reads(e) if found.other in index_names(r) for n in index_names(r)}
    own = {n for e in reduce.body for n in index_names(e)}
    sizes = zip(definition.axes, definition.tensors[0].shape, strict=True)
    return tuple(a for a, n in sizes if a in own - met and (affine.constant(n) or 0) >= COLUMNS)


def _axes_last(definition: Definition, names: tuple[str, ...]) -> Definition:
    """Return a definition of a tensor of its own with some axes after all others."""
    [tensor], order = definition.tensors, sorted(range(len(definition.axes)), key=lambda k: definition.axes[k] in names)
    shape = tuple(tensor.shape[k] for k in order)
    return replace(definition, tensors=(replace(tensor, shape=shape, grouping=()),), axes=tuple(definition.axes[k] for k in order))


def _thinned(program: Program, definition: Definition, reduce: Reduce, found: StridedFilter, common: int, fresh: Fresh) -> Program | None:
    """Return the program with a tensor for the sum at every `common`-th place alone, where all terms are; None where the sum has none
    of its own."""
    identities = reduce.reducer.identity
    if identities is None or reduce.init is not None or not _may_be_outlined(definition, reduce, found):
        return None
    [identity], start, whole = identities, found.offset % common, fresh(found.axis)
    extent = definition.tensors[0].shape[definition.axes.index(found.axis)]
    at = affine.sub(affine.scale(common, AffineName(whole)), start)
    terms = affine.scale(found.direction * found.stride // common, AffineName(found.other or ""))
    if found.binder is not None:
        terms = affine.add(terms, affine.scale(found.factor // common, AffineName(found.binder)))
    kept = [c for c in affine.conjuncts(reduce.where) if c != found.cond]
    inside = substitute(replace(reduce, where=affine.conj(*kept)), {found.axis: at})
    assert isinstance(inside, Reduce)
    left = affine.compare("==", affine.add(AffineName(whole), (found.offset - start) // common), terms)
    inside = replace(inside, where=affine.conj(inside.where, left, _in_range(reduce, found, at, extent)))
    shape = affine.floor(affine.add(extent, start + common - 1), common)
    shaped = _axes_cut(definition, found.axis, (whole,), (shape,))
    moved = affine.add(AffineName(found.axis), start)
    read = _read_of(shaped, reduce, fresh, {AffineName(whole): affine.floor(moved, common)})
    summed = _sum_alone(shaped, reduce, read.tensor, inside)
    value = Select(Holds(affine.compare("==", affine.mod(moved, common), 0)), read, identity)
    return _with(program, definition, summed, _rewritten(definition, replaced(_value(definition), reduce, value)))


def _has_one_term(reduce: Reduce, found: StridedFilter) -> bool:
    """Tell whether no class has two values of the binder."""
    binder = next((b for b in reduce.binders if b.name == found.binder), None)
    steps = found.stride // gcd(found.factor, found.stride)
    return binder is None or _integer(binder.hi) - _integer(binder.lo) <= steps


def _parts(extent: Affine, stride: int) -> Affine | None:
    """Return an extent divided by a number, None where it may leave a remainder."""
    if isinstance(extent, Scale) and extent.factor % stride == 0:
        return affine.scale(extent.factor // stride, extent.value)
    terms, offset = affine.terms(extent)
    if offset % stride or any(factor % stride for factor in terms.values()):
        return None
    return affine.from_terms({name: factor // stride for name, factor in terms.items()}, offset // stride)


def _outlined(program: Program, cut: _Cut, start: int, shaped: Definition, fresh: Fresh) -> Program | None:
    """Return the program with a tensor for the sum alone, whose axis is cut and may reach further than that of the result: `start` elements
    before its first, and until the last class is whole."""
    definition, reduce, found = cut.definition, cut.reduce, cut.found
    if not _may_be_outlined(definition, reduce, found):
        return None
    inside = _in_class(cut, fresh, shaped, program.sizes)
    extent = definition.tensors[0].shape[definition.axes.index(found.axis)]
    inside = replace(inside, where=affine.conj(inside.where, _in_range(reduce, found, cut.at, extent)))
    axis = affine.add(AffineName(found.axis), start)
    read = _read_of(shaped, reduce, fresh, {cut.whole: affine.floor(axis, found.stride), cut.phase: affine.mod(axis, found.stride)})
    summed = _sum_alone(shaped, reduce, read.tensor, inside)
    return _with(program, definition, summed, _rewritten(definition, replaced(_value(definition), reduce, read)))


def _may_be_outlined(definition: Definition, reduce: Reduce, found: StridedFilter) -> bool:
    """Tell whether a tensor of its own may hold the sum: it starts alike everywhere and needs nothing but tensors, at every element."""
    started = {n for e in reduce.init or () for n in index_names(e)}
    if found.axis in started or value_names(reduce) or len(reduce.body) != 1:
        return False
    return not _may_be_left_out(_value(definition), reduce)


def _in_range(reduce: Reduce, found: StridedFilter, at: Affine, extent: Affine) -> Cond:
    """Return what has to hold of a place for the terms of a sum to be there, where they or their conditions speak of it."""
    used = {n for e in (*reduce.body, *((reduce.filter,) if reduce.filter else ())) for n in index_names(e)}
    others = (c for c in affine.conjuncts(reduce.where) if c != found.cond)
    return affine.within(at, 0, extent) if found.axis in used.union(*map(affine.names, others)) else TRUE


def _read_of(shaped: Definition, reduce: Reduce, fresh: Fresh, to: Mapping[Affine, Affine]) -> Read:
    """Return the read of a new tensor for a sum, over the axes of `shaped`, some of them digits of another."""
    name = fresh(f"{shaped.tensors[0].name}.{reduce.reducer.name}")
    return Read(name, tuple(to.get(AffineName(a), AffineName(a)) for a in shaped.axes), span=reduce.span)


def _sum_alone(shaped: Definition, reduce: Reduce, name: str, value: Reduce) -> Definition:
    tensor = replace(shaped.tensors[0], name=name, dtype=reduce.reducer.dtypes[0], grouping=())
    return Definition((tensor,), shaped.axes, (Piece(value),), span=shaped.span)


def _in_class(cut: _Cut, fresh: Fresh, around: Definition, sizes: Sequence[str]) -> Reduce:
    """Return the sum over the terms of one class; `around` has the axes that it stands in, `sizes` are those of the program."""
    reduce, found = cut.reduce, cut.found
    binders = {b.name: b for b in reduce.binders}
    order = [b.name for b in reduce.binders if b.name in (found.binder, found.other)]
    lo, hi = (0, 1) if found.binder is None else (_integer(e) for e in (binders[found.binder].lo, binders[found.binder].hi))
    common = gcd(found.factor, found.stride)
    step, factor, offset = found.stride // common, found.factor // common, found.offset - found.factor * lo
    # The first of a class: factor * first == (phase + offset) / common, up to multiples of `step`.
    whole, start = divmod(offset, found.stride)
    at = affine.add(cut.phase, start)
    first = affine.scale(pow(factor, -1, step), affine.floor(at, common))
    first = first if first == cut.phase and step == found.stride else affine.mod(first, step)
    count, name = -(-max(hi - lo, 0) // step), fresh(order[0])
    number: Affine = AffineName(name)
    if order[0] != found.binder and factor * found.direction > 0:
        number = affine.sub(count - 1, number)
    taken = affine.add(lo, first, affine.scale(step, number))
    values: dict[str, Affine] = {found.axis: cut.at}
    if found.binder is not None:
        values[found.binder] = taken
    asked = [affine.compare("<", taken, hi)]
    if common > 1:
        asked.append(affine.compare("==", affine.mod(at, common), 0))
    if found.other is not None:
        rest = affine.add(whole, _divided(affine.sub(at, affine.scale(found.factor, first)), at, found, start))
        value = affine.scale(found.direction, affine.add(cut.whole, rest, affine.scale(-factor, number)))
        values[found.other] = value
        other = binders[found.other]
        asked += [affine.compare(">=", value, other.lo), affine.compare("<", value, other.hi)]
    made = Binder(name, affine.ZERO, affine.to_expr(count))
    left = tuple(made if b.name == order[0] else b for b in reduce.binders if b.name not in order[1:])
    kept = [affine.substitute_cond(c, values) for c in affine.conjuncts(reduce.where) if c != found.cond]
    out = replace(
        reduce,
        binders=left,
        body=tuple(substitute(e, values) for e in reduce.body),
        where=affine.conj(*kept),
        filter=None if reduce.filter is None else substitute(reduce.filter, values),
        init=None if reduce.init is None else tuple(substitute(e, values) for e in reduce.init),
    )
    known = affine.conj(box(around), binder_cond(out))
    scope = (*around.axes, *(b.name for b in left))
    needed = [c for c in asked if not isinstance(implies(sizes, scope, known, c), Proven)]
    return replace(out, where=affine.conj(*kept, *needed))


def _divided(e: Affine, at: Affine, found: StridedFilter, start: int) -> Affine:
    """Return `e / stride`, where `e` is `at`, the phase and `start`, without what the first of a class takes off."""
    if found.factor != 1:
        return affine.floor(e, found.stride)
    # What is taken off is the remainder. Without `start` there is nothing but that.
    return affine.floor(at, found.stride) if start else affine.ZERO


def _axes_cut(definition: Definition, axis: str, names: tuple[str, ...], extents: tuple[Affine, ...]) -> Definition:
    """Return the definition over two axes in place of one; whoever calls the operator sees one dimension as before."""
    k, tensor = definition.axes.index(axis), definition.tensors[0]
    dimension = tensor.dimension_of(k)
    grouping = tuple(len(group) + (n == dimension) * (len(names) - 1) for n, group in enumerate(tensor.groups))
    shape = (*tensor.shape[:k], *extents, *tensor.shape[k + 1 :])
    axes = (*definition.axes[:k], *names, *definition.axes[k + 1 :])
    return replace(definition, tensors=(replace(tensor, shape=shape, grouping=grouping),), axes=axes)


def _is_last(program: Program, definition: Definition) -> bool:
    """Tell whether nothing in the program reads the definition."""
    name = definition.tensors[0].name
    return name in program.results and not any(name in definition_reads(d) for d in program.definitions)


def _may_be_left_out(e: Expr, inside: Expr) -> bool:
    """Tell whether `inside` stands in `e` where a condition decides if it is computed, or in another sum."""
    holders = (n for n in nodes(e) if isinstance(n, Select | Reduce) or (isinstance(n, Binary) and n.op in ("and", "or")))
    return any(inside in list(nodes(n))[1:] for n in holders)


# ---------------------------------------------------------------- operands in the order of phases


def written_out(program: Program) -> dict[str, Program]:
    """Return, for the parameters that a sum of products reads at places of a class, the program that writes such an operand out: `w` at
    `2*t + a` becomes an array with axes for t and a, zero where there is none."""
    table, out = tensor_table(program), dict[str, Program]()
    everywhere = [r.tensor for d in program.definitions for p in d.pieces for r in reads(p.value)]
    for definition, found in contractions(program):
        known = dict(zip(definition.axes, definition.tensors[0].shape, strict=True)) | {b.name: b.hi for b in found.reduce.binders}
        for read, other in (found.reads, found.reads[::-1]):
            source = table[read.tensor]
            if source not in program.params or everywhere.count(read.tensor) != 1 or any(isinstance(s, Dynamic) for s in read.index):
                continue
            slots = [s for s in read.index if not isinstance(s, Dynamic)]
            computed = [s for s in slots if not isinstance(s, AffineName)]
            names = tuple(dict.fromkeys(n for s in slots for n in affine.names(s)))
            if any(affine.constant(n) is None for n in (*source.shape, *(known.get(name, affine.ZERO) for name in names))):
                continue
            binders = {b.name for b in found.reduce.binders}
            shared = {n for s in computed for n in affine.names(s)} <= index_names(other)
            pairs = [(s, n) for s, n in zip(slots, source.shape, strict=False) if s in computed]
            if not computed or not (shared or all(_are_classes(s, n, binders, known) for s, n in pairs)):
                continue
            if _starts_at_zero(found.reduce, names):
                out[read.tensor] = _copy(source, read, names, known)
    return out


def reading(program: Program, copies: Mapping[str, Program]) -> Program:
    """Return the program with such parameters replaced by what these programs make of them."""

    def on_read(read: Read) -> Expr:
        copy = copies.get(read.tensor)
        return read if copy is None else replace(read, index=tuple(map(AffineName, copy.definitions[0].axes)))

    shapes = {name: copy.definitions[0].tensors[0].shape for name, copy in copies.items()}
    params = tuple(replace(p, shape=shapes[p.name], grouping=()) if p.name in shapes else p for p in program.params)
    return map_values(replace(program, params=params), lambda e: substitute_reads(e, on_read))


def masked(program: Program, constants: Container[str]) -> Program:
    """Return the program with terms that conditions leave out of a sum of products multiplied by zero instead, where the other factor is of
    `constants`, tensors whose every element is a finite number: what is added then is zero, and no sum from zero changes by it.

    That is not done in a result that may be stored in blocks of `COLUMNS` elements for each of the masked factor, nor where the other
    factor depends on the result, as the condition says which of its elements are there by then."""
    table = tensor_table(program)
    to: dict[Expr, Expr] = {}
    together = {t.name: {t.name for d in group for t in d.tensors} for group in components(program) for d in group for t in d.tensors}
    for definition, found in contractions(program):
        for k, (x, w) in enumerate((found.factors, found.factors[::-1])):
            if w.read.tensor not in constants or not (x.is_plain and w.is_plain):
                continue
            if w.read.tensor in together[definition.tensors[0].name]:
                continue
            numbers = [_extent(definition, a) for a in found.axes_of(1 - k)]
            in_blocks = definition.tensors[0].name in program.results and max((n or COLUMNS for n in numbers), default=0) >= COLUMNS
            if None in numbers or in_blocks or not _may_be_masked(found.reduce, x.read, definition, table):
                continue
            # Conditions that speak of what both are read at say which terms a class has.
            own = index_names(x.read) - index_names(w.read)
            conds = affine.conjuncts(found.reduce.where)
            inside = affine.conj(*(c for c in conds if set(affine.names(c)) & own))
            left = affine.conj(*(c for c in conds if not set(affine.names(c)) & own))
            zero = Const(found.dtype.zero, found.dtype)
            body = replaced(found.reduce.body[0], x.read, Select(Holds(inside), x.read, zero))
            if inside != TRUE:
                to[found.reduce] = replace(found.reduce, where=left, body=(body,))
    return map_values(program, lambda e: _with_reductions(e, to)) if to else program


def _may_be_masked(reduce: Reduce, x: Read, definition: Definition, table: Mapping[str, Tensor]) -> bool:
    """Tell whether the sum starts from zero, filters its terms, and reads its other factor in range without being filtered."""
    [identity] = reduce.reducer.identity or (None,)
    if reduce.where == TRUE or reduce.filter is not None or reduce.init is not None or identity is None:
        return False
    if not isinstance(identity, Const) or identity.value != 0 or copysign(1.0, identity.value) < 0:
        return False
    ranges = affine.conj(box(definition), *(affine.within(b.name, b.lo, b.hi) for b in reduce.binders))
    scope = (*definition.axes, *(b.name for b in reduce.binders))
    others = [r for e in reduce.body for r in reads(e) if r != x]
    asked = [
        affine.within(s, 0, n) for r in others for s, n in zip(r.index, table[r.tensor].shape, strict=True) if not isinstance(s, Dynamic)
    ]
    inside = {n for c in (ranges, *asked) for n in affine.names(c)} <= {*scope}
    return inside and all(isinstance(implies((), scope, ranges, c), Proven) for c in asked)


def _with_reductions(e: Expr, to: Mapping[Expr, Expr]) -> Expr:
    for old, new in to.items():
        e = replaced(e, old, new)
    return e


def _starts_at_zero(reduce: Reduce, names: Sequence[str]) -> bool:
    return all(b.lo == affine.ZERO and affine.constant(b.hi) is not None for b in reduce.binders if b.name in names)


def _are_classes(slot: Affine, extent: Affine, binders: Container[str], extents: Mapping[str, Affine]) -> bool:
    """Tell whether places are classes, perhaps with a binder that steps through each: they are hardly more than there are elements."""
    steps = [abs(factor) for of, factor in affine.terms(slot)[0].items() if isinstance(of, AffineName) and of.name in binders] or [1]
    names = affine.name_set(slot)
    places = prod(affine.constant(extents[n]) or 0 for n in names)
    is_stepped = len(steps) == 1 and (steps[0] > 1 or not any(n in binders for n in names))
    return is_stepped and places < (affine.constant(extent) or 0) + steps[0]


def _copy(source: Tensor, read: Read, names: tuple[str, ...], extents: Mapping[str, Affine]) -> Program:
    shape = tuple(extents[n] for n in names)
    result = Tensor(f"{source.name}.phases", source.dtype, shape)
    asked = affine.conj(
        *(
            c
            for s, e in zip(read.index, source.shape, strict=True)
            if not isinstance(s, Dynamic)
            for c in affine.conjuncts(affine.within(s, 0, e))
        )
    )
    known = affine.conj(*(affine.within(n, 0, e) for n, e in zip(names, shape, strict=True)))
    zero = Const(source.dtype.zero, compute_dtype(source.dtype))
    value = read if isinstance(implies((), names, known, asked), Proven) else Select(Holds(asked), read, zero)
    definition = Definition((result,), names, (Piece(value),))
    return Program("phases", (), (source,), (result.name,), (definition,))


def _value(definition: Definition) -> Expr:
    return definition.pieces[0].value


def _rewritten(definition: Definition, value: Expr) -> Definition:
    return replace(definition, pieces=(replace(definition.pieces[0], value=value),))


def _with(program: Program, old: Definition, *new: Definition) -> Program:
    return redefined(program, [made for d in program.definitions for made in (new if d is old else (d,))])


def _extent(definition: Definition, axis: str) -> int | None:
    """Return the extent of an axis, None where it is open."""
    return affine.constant(definition.tensors[0].shape[definition.axes.index(axis)])


def _integer(e: Affine) -> int:
    value = affine.constant(e)
    assert value is not None, "what steps has a known extent"
    return value
