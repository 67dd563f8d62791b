"""Whether the rows of a batch depend on each other: proven of a graph, node by node, for every batch size.

    rows_of(graph)     inputs begin with one open size, the batch: is row b of the outputs made of row b of the inputs alone, and in the
                       same way whatever b and the batch size are?

A value either belongs to rows or is the same for all of them. Of one with rows, the element at place L in row-major order is of row
`(L // stride) % batch`: that is what a view keeps, so rows are followed into products of sizes (b*s) and under other axes (s, b, d).
In a program rows lie along one axis of each tensor, at index i in row `(i // inner) % batch`. A definition keeps rows apart when some
axis of it does so for all it reads; what else it says mentions neither that axis, but where a step from row to row changes nothing, nor
the batch size. Where no axis does, an element that reads two rows is looked for and named.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from math import prod
from typing import TypeAlias

from codegen.polynomials import Poly, atom_poly, number
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Max, Min, Name
from tensorlang.graph.edit import reads as values_read
from tensorlang.graph.edit import writes as values_written
from tensorlang.graph.nodes import Graph, Kernel, View
from tensorlang.graph.sizes import Extent, Formula, Quotient, Size, Symbols, evaluate, formula_of, names_in, range_of
from tensorlang.saved.package import Rows
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Program, Read, Slot, Tensor

_BATCH = 2
"""The batch size at which an element that reads two rows is looked for."""
_POINTS = 4096
"""How many elements and terms are looked at for that."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Elements `stride` apart in row-major order are of neighbouring rows."""

    stride: Formula


@dataclass(frozen=True, slots=True)
class _Same:
    """No input with rows is read. Of the place L, `(L // after) % extent` changes nothing, for each pair `(after, extent)`."""

    unused: frozenset[tuple[Formula, Formula]] = frozenset()


_State: TypeAlias = _Rows | _Same


@dataclass(frozen=True, slots=True)
class _Axis:
    """Index i along axis number `place` is of row `(i // inner) % batch`."""

    place: int
    inner: Formula


class _Mixes(Exception):
    """A definition keeps rows apart along no axis that was tried."""

    def __init__(self, verdict: str, why: str) -> None:
        super().__init__(why)
        self.verdict = verdict


def rows_of(graph: Graph) -> Rows:
    """Return whether the rows of the graph's inputs stay apart up to its outputs, which both begin with the batch."""
    shapes = [graph.values[name].shape for name in (*graph.inputs, *graph.outputs)]
    batch = _batch(shapes)
    if graph.symbols is None or batch is None:
        return Rows("unknown", "the inputs and outputs do not begin with one open size")
    symbols = Symbols(dict(graph.symbols.samples), dict(graph.symbols.products))  # of which nothing is assumed for this
    states: dict[str, _State] = {name: _Same() for name in graph.constants}
    states |= {name: _Rows(_volume(graph.values[name].shape[1:])) for name in graph.inputs}
    for node in graph.nodes:
        try:
            if isinstance(node, View):
                states[node.output] = states[node.input]
            elif isinstance(node, Kernel):
                given = {p.name: states[value] for p, value in zip(node.program.params, node.inputs, strict=True)}
                made = _program_rows(node.program, given, symbols, batch)
                states |= {value: made[name] for name, value in zip(node.program.results, node.outputs, strict=True)}
            elif any(isinstance(states[name], _Rows) for name in values_read(node)):
                raise _Mixes("unknown", "nothing is known of what it computes")
            else:
                states |= dict.fromkeys(values_written(node), _Same())
        except _Mixes as problem:
            kind = f" ({node.operator})" if isinstance(node, Kernel) and node.operator else ""
            return Rows(problem.verdict, f"node `{node.name}`{kind}: {problem}")
    for name in graph.outputs:
        state, shape = states[name], graph.values[name].shape
        whole = (_volume(shape[1:]), formula_of(shape[0]))
        if not (state.stride == whole[0] if isinstance(state, _Rows) else _covers(state.unused, *whole)):
            return Rows("unknown", f"the rows of output `{name}` do not lie along its first dimension")
    return Rows("independent", "")


def rows_of_program(program: Program) -> Rows:
    """Return whether the rows of an operator's arrays, which begin with one open size, stay apart."""
    symbols = Symbols(dict.fromkeys(program.sizes, _BATCH + 1))
    table = walk.tensor_table(program)
    shapes = {name: symbols.shape(table[name]) for name in (*(p.name for p in program.params), *program.results)}
    batch = _batch([*shapes.values()])
    if batch is None:
        return Rows("unknown", "the arrays do not begin with one open size")
    if program.externs:
        return Rows("unknown", f"`{program.name}` calls `{program.externs[0].operator}`, of which nothing is known")
    try:
        made = _program_rows(program, {p.name: _Rows(_volume(shapes[p.name][1:])) for p in program.params}, symbols, batch)
    except _Mixes as problem:
        return Rows(problem.verdict, f"`{program.name}`: {problem}")
    for name in program.results:
        state, stride = made[name], _volume(shapes[name][1:])
        if not (state.stride == stride if isinstance(state, _Rows) else _covers(state.unused, stride, atom_poly(batch))):
            return Rows("unknown", f"the rows of `{name}` do not lie along its first dimension")
    return Rows("independent", "")


def _batch(shapes: Sequence[Sequence[Extent]]) -> str | None:
    """Return the symbol with which all shapes begin and which is in no other place of them."""
    first = {shape[0].formula if shape and isinstance(shape[0], Size) else None for shape in shapes}
    formula = first.pop() if len(first) == 1 else None
    if formula is None or len(formula.terms) != 1:
        return None
    [(monomial, factor)] = formula.terms.items()
    [*atoms] = monomial
    if factor != 1 or len(atoms) != 1 or not isinstance(atoms[0], str):
        return None
    name = atoms[0]
    return name if all(name not in names_in(formula_of(n)) for shape in shapes for n in shape[1:]) else None


def _volume(shape: Sequence[Extent]) -> Formula:
    return formula_of(prod(shape))


def _times(a: Formula, b: Formula) -> Formula:
    return a.times(b, repr)


def _over(a: Formula, b: Formula) -> Formula | None:
    """Return a / b where that is a formula for all sizes."""
    if b.constant is not None:
        n = b.constant
        return Poly({m: c // n for m, c in a.terms.items()}) if n and all(c % n == 0 for c in a.terms.values()) else None
    return a.exactly(b, repr)


def _covers(unused: frozenset[tuple[Formula, Formula]], after: Formula, extent: Formula) -> bool:
    """Tell whether some digit of a place that changes nothing has `(L // after) % extent` as a part."""
    end = _times(after, extent)
    return any(_over(after, a) is not None and _over(_times(a, e), end) is not None for a, e in unused)


# ---------------------------------------------------------------- one program


def _program_rows(program: Program, given: Mapping[str, _State], symbols: Symbols, batch: str) -> dict[str, _State]:
    """Return what the results of a program are, for what its parameters are. Raises _Mixes."""
    if program.externs and any(isinstance(state, _Rows) for state in given.values()):
        raise _Mixes("unknown", f"it calls `{program.externs[0].operator}`, of which nothing is known")
    found = _Program(symbols, batch, walk.tensor_table(program), program)
    for name, state in given.items():
        found.enter(name, state)
    for group in walk.components(program):
        found.follow(group)
    return {name: found.state(name) for name in program.results}


@dataclass(slots=True)
class _Program:
    """What is known of the tensors of a program: the axis of their rows, or, of those that have none, the axes that change nothing."""

    symbols: Symbols
    batch: str
    tensors: Mapping[str, Tensor]
    program: Program
    rows: dict[str, _Axis] = field(default_factory=dict)
    unused: dict[str, frozenset[int]] = field(default_factory=dict)
    sizes: frozenset[str] = frozenset()
    """The names of the program that depend on the batch size."""

    def __post_init__(self) -> None:
        self.sizes = frozenset(name for name in self.program.sizes if self.batch in names_in(self.symbols.formula(name)))

    def extents(self, name: str) -> list[Formula]:
        return [formula_of(self.symbols.size(n)) for n in self.tensors[name].shape]

    def after(self, name: str, place: int) -> Formula:
        """Return how many elements a step along an axis passes."""
        out: Formula = number(1)
        for extent in self.extents(name)[place + 1 :]:
            out = _times(out, extent)
        return out

    def enter(self, name: str, state: _State) -> None:
        """Note what a parameter is. Raises _Mixes where rows lie along none of its axes."""
        shape = self.extents(name)
        if isinstance(state, _Same):
            self.unused[name] = frozenset(k for k in range(len(shape)) if _covers(state.unused, self.after(name, k), shape[k]))
            return
        for k, extent in enumerate(shape):
            inner = _over(state.stride, self.after(name, k))
            if inner is not None and self._holds_rows(extent, inner):
                self.rows[name] = _Axis(k, inner)
                return
        raise _Mixes("unknown", f"the rows of `{name}` lie along none of its axes")

    def state(self, name: str) -> _State:
        if name in self.rows:
            at = self.rows[name]
            return _Rows(_times(self.after(name, at.place), at.inner))
        shape = self.extents(name)
        return _Same(frozenset((self.after(name, k), shape[k]) for k in self.unused[name]))

    def _holds_rows(self, extent: Formula, inner: Formula) -> bool:
        return bool(inner.terms) and _over(extent, _times(atom_poly(self.batch), inner)) is not None

    # ------------------------------------------------------------ definitions

    def follow(self, group: Sequence[Definition]) -> None:
        """Note what the tensors of definitions are that depend on each other. Raises _Mixes."""
        rest = list(group)
        while rest:
            definition = next((d for d in rest if self._reads_rows(d)), None)
            if definition is None:
                self._same(rest)
                return
            rest.remove(definition)
            self._choose(definition, {t.name for d in rest for t in d.tensors})
        for definition in group:
            at = self.rows.get(definition.tensors[0].name)
            if at is None or not self._keeps(definition, at):
                raise self._problem(definition, at)

    def _reads_rows(self, definition: Definition) -> bool:
        return any(name in self.rows for name in walk.definition_reads(definition))

    def _choose(self, definition: Definition, later: Container[str]) -> None:
        """Note along which axis rows lie in a definition. Reads of definitions that are looked at `later` are left until then."""
        shape = self.extents(definition.tensors[0].name)
        candidates = list(dict.fromkeys(self._candidates(definition, shape)))
        own = [t.name for t in definition.tensors]
        for at in candidates:
            self.rows |= dict.fromkeys(own, at)
            if self._holds_rows(shape[at.place], at.inner) and self._keeps(definition, at, later):
                return
        for name in own:
            self.rows.pop(name, None)
        raise self._problem(definition, candidates[0] if candidates else None)

    def _candidates(self, definition: Definition, shape: Sequence[Formula]) -> Iterator[_Axis]:
        """Yield the axes along which what is read has rows, with the ways in which rows could lie there."""
        for r in (r for piece in definition.pieces for r in walk.reads(piece.value) if r.tensor in self.rows):
            at = self.rows[r.tensor]
            names = _slot_names(r.index[at.place])
            for k in (k for k, axis in enumerate(definition.axes) if axis in names):
                whole = _over(shape[k], atom_poly(self.batch))
                yield from (_Axis(k, inner) for inner in (at.inner, number(1), whole) if inner is not None)

    def _same(self, group: Sequence[Definition]) -> None:
        """Note which axes change nothing in definitions that read no rows: all of them, but what turns out to matter."""
        self.unused |= {t.name: frozenset(range(len(d.axes))) for d in group for t in d.tensors}
        changed = True
        while changed:
            changed = False
            for definition in group:
                used = frozenset[str]().union(*(self._used(piece.value) | affine.name_set(piece.guard) for piece in definition.pieces))
                left = frozenset(k for k, axis in enumerate(definition.axes) if axis not in used)
                before = self.unused[definition.tensors[0].name]
                if used & self.sizes:
                    raise _Mixes("unknown", f"`{definition.tensors[0].name}` depends on the batch size")
                changed |= left & before != before
                self.unused |= {t.name: left & before for t in definition.tensors}

    def _used(self, value: Expr) -> frozenset[str]:
        """Return the axes, binders and sizes that a value depends on which reads no rows."""
        names = walk.index_names(_without_indices(value))
        for r in walk.reads(value):
            free = self.unused.get(r.tensor, frozenset())
            names |= frozenset[str]().union(*(_slot_names(s) for k, s in enumerate(r.index) if k not in free))
        return names

    def _keeps(self, definition: Definition, at: _Axis, later: Container[str] = ()) -> bool:
        """Tell whether the definition, with rows where `at` says, reads its own row alone, in the same way in each. Reads of the tensors
        `later` are not looked at."""
        axis = definition.axes[at.place]
        own = self._row(atom_poly(axis), at.inner)
        for piece in definition.pieces:
            elsewhere = affine.name_set(piece.guard) | walk.index_names(_without_indices(piece.value))
            if elsewhere & {axis, *self.sizes}:
                return False
            for r in (r for r in walk.reads(piece.value) if r.tensor not in later):
                there = self.rows.get(r.tensor)
                free = self.unused.get(r.tensor, frozenset())
                if there is not None and not self._in_step(r.index[there.place], axis, at.inner, there.inner, own):
                    return False
                others = [s for k, s in enumerate(r.index) if k not in free and (there is None or k != there.place)]
                if not all(self._is_unmoved(slot, axis, at.inner) for slot in others):
                    return False
        return True

    def _in_step(self, slot: Slot, axis: str, inner: Formula, there: Formula, own: Formula) -> bool:
        """Tell whether an index is of the same row as the axis, and at the same place in each row."""
        before, after = self._formula(slot), self._moved(slot, axis, inner)
        if before is None or after is None:
            return False
        return (after - before) == there and self._is_none(self._row(before, there) - own)

    def _is_unmoved(self, slot: Slot, axis: str, inner: Formula) -> bool:
        """Tell whether an index is the same in each row, and for each batch size."""
        names = _slot_names(slot)
        if names & self.sizes:
            return False
        return axis not in names or ((now := self._formula(slot)) is not None and now == self._moved(slot, axis, inner))

    def _formula(self, slot: Slot) -> Formula | None:
        if isinstance(slot, Dynamic) or any(isinstance(part, (Min, Max)) for part in _parts(slot)):
            return None
        return formula_of(self.symbols.size(slot))

    def _moved(self, slot: Slot, axis: str, inner: Formula) -> Formula | None:
        """Return an index one row further."""
        if isinstance(slot, Dynamic):
            return None
        return self._formula(affine.substitute(slot, {axis: affine.add(Name(axis), self.symbols.expression(inner))}))

    def _row(self, index: Formula, inner: Formula) -> Formula:
        """Return `index // inner`, where that can be told in whole terms."""
        if inner == number(1):
            return index
        whole, rest = index.divided(inner)
        if not rest.terms:
            return whole
        lo, hi = self._range(rest)
        if lo is not None and hi is not None and lo >= 0 and range_of(hi - inner)[1] < 0:
            return whole
        return whole + atom_poly(Quotient(rest, inner))

    def _range(self, index: Formula) -> tuple[int | None, Formula | None]:
        """Return between which numbers an index over axes and binders of known extents lies; None where that is not told."""
        low, high = index.offset, number(index.offset)
        for monomial, factor in index.without(()).terms.items():
            [*atoms] = monomial
            extent = self._extent(atoms[0]) if len(atoms) == 1 and isinstance(atoms[0], str) else None
            if extent is None or factor < 0:
                return None, None
            high = high + (extent - number(1)).scaled(factor)
        return low, high

    def _extent(self, name: str) -> Formula | None:
        """Return how many values an axis or a binder takes, which begin with 0; None where that differs."""
        found = {e for d in self.program.definitions if name in d.axes for e in (self.extents(d.tensors[0].name)[d.axes.index(name)],)}
        for b in (
            b for d in self.program.definitions for p in d.pieces for e in walk.reduces(p.value) for b in e.binders if b.name == name
        ):
            known = affine.constant(b.lo) == 0 and affine.name_set(b.hi) <= set(self.program.sizes)
            found.add(formula_of(self.symbols.size(b.hi)) if known else number(0))
        return found.pop() if len(found) == 1 else None

    def _is_none(self, row: Formula) -> bool:
        """Tell whether a difference of rows is a multiple of the batch size, whatever that is."""
        if not row.terms:
            return True
        times = _over(row, atom_poly(self.batch))
        return times is not None and self.batch not in names_in(times)

    # ------------------------------------------------------------ instances

    def _problem(self, definition: Definition, at: _Axis | None) -> _Mixes:
        """Return what is to be said of a definition: an element that reads two rows, or reads another row than its own."""
        name = definition.tensors[0].name
        known = self.rows if at is None else {**self.rows, **{t.name: at for t in definition.tensors}}
        astray = ""
        for element, found in self._instances(definition, known):
            (row, first), *others = found.items()
            if others:
                return _Mixes("mixed", f"`{element}` reads `{first}` and `{others[0][1]}`, which are of rows {row} and {others[0][0]}")
            own = None if at is None else self._row_at(element.index, at)
            if own is not None and own != row and not astray:
                astray = f"`{element}`, of row {own}, reads `{first}`, of row {row}"
        return _Mixes("unknown", astray or f"it is not proven that `{name}` keeps rows apart")

    def _row_at(self, index: tuple[int, ...], at: _Axis) -> int:
        return index[at.place] // max(1, self._number(at.inner)) % _BATCH

    def _number(self, formula: Formula) -> int:
        return evaluate(formula, {**self.symbols.samples, self.batch: _BATCH})

    def _instances(self, definition: Definition, known: Mapping[str, _Axis]) -> Iterator[tuple[_Element, dict[int, _Element]]]:
        """Yield elements of a definition, with one element that each reads of each row."""
        env = {name: self._number(self.symbols.formula(name)) for name in self.program.sizes}
        shape = [self._number(n) for n in self.extents(definition.tensors[0].name)]
        for piece in definition.pieces:
            read = [r for r in walk.reads(piece.value) if r.tensor in known]
            sums = list(walk.reduces(piece.value))
            for index in islice(product(*(_few(0, n) for n in shape)), _POINTS):
                here = {**env, **dict(zip(definition.axes, index, strict=True))}
                if not affine.holds(piece.guard, here):
                    continue
                found: dict[int, _Element] = {}
                for there in islice(_terms([b for e in sums for b in e.binders], here), _POINTS):
                    if all(affine.holds(e.where, there) for e in sums):
                        for element, row in self._elements(read, known, there):
                            found.setdefault(row, element)
                if found:
                    yield _Element(definition.tensors[0].name, index), found

    def _elements(self, read: Sequence[Read], known: Mapping[str, _Axis], env: Mapping[str, int]) -> Iterator[tuple[_Element, int]]:
        for r in read:
            at, shape = known[r.tensor], [self._number(n) for n in self.extents(r.tensor)]
            index = tuple(0 if isinstance(s, Dynamic) else int(affine.evaluate(s, env)) for s in r.index)
            inside = all(0 <= i < n for i, n in zip(index, shape, strict=True))
            if inside and not isinstance(r.index[at.place], Dynamic):
                yield _Element(r.tensor, index), self._row_at(index, at)


@dataclass(frozen=True, slots=True)
class _Element:
    tensor: str
    index: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"


def _few(lo: int, hi: int) -> list[int]:
    """Return some numbers of a range: the first, the second and the last."""
    return sorted({n for n in (lo, lo + 1, hi - 1) if lo <= n < hi})


def _terms(binders: Sequence[object], env: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield values of binders, each of which may depend on those before it, with `env`."""
    if not binders:
        yield dict(env)
        return
    first, *others = binders
    lo, hi = (int(affine.evaluate(bound, env)) for bound in (first.lo, first.hi))  # type: ignore[attr-defined]
    for n in _few(lo, hi):
        yield from _terms(others, {**env, first.name: n})  # type: ignore[attr-defined]


# ---------------------------------------------------------------- indices


def _without_indices(value: Expr) -> Expr:
    return walk.substitute_reads(value, lambda r: replace(r, index=()))


def _slot_names(slot: Slot) -> frozenset[str]:
    """Return the axes, binders and sizes in an index; what is read to find it is looked at as a read of its own."""
    return walk.index_names(_without_indices(slot.value)) if isinstance(slot, Dynamic) else affine.name_set(slot)


def _parts(e: Affine) -> Iterator[object]:
    rest: list[object] = [e]
    while rest:
        part = rest.pop()
        yield part
        rest.extend(affine.parts(part))  # type: ignore[arg-type]
