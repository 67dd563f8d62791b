"""Attention in one pass over the keys, a block of them at a time: no score and no weight is ever stored.

    before   s[h, i, j] = f(sum(c) q[h, i, c] * k[h, j, c])
             m[h, i]    = max(j) s[h, i, j]
             e[h, i, j] = exp(s[h, i, j] - m[h, i])
             r[h, i]    = 1 / sum(j) e[h, i, j]
             y[h, i, d] = g(sum(j) e[h, i, j] * r[h, i] * v[h, j, d])
    after    s[h, i, t, u] = f(…) for key B*t + u, -inf for one that does not exist
             b[h, i, t]    = max(u) s[h, i, t, u]
             m[h, i, t]    = max(m[h, i, t - 1], b[h, i, t])               c[h, i, t] = exp(m[h, i, t - 1] - m[h, i, t])
             p[h, i, t, u] = exp(s[h, i, t, u] - m[h, i, t])
             l[h, i, t]    = l[h, i, t - 1] * c[h, i, t] + sum(u) p[h, i, t, u]
             o[h, i, t, d] = o[h, i, t - 1, d] * c[h, i, t] + sum(u) p[h, i, t, u] * v[h, B*t + u, d]
             y[h, i, d]    = g(o[h, i, last, d] / l[h, i, last])

`last` is the last block with a key that a row of the block of rows around i sees (`tensorlang.tensor.attention_mask`), and a pass begins
at the first such block, where m[h, i, t - 1] is -inf. What lies beyond is defined, too, and read by nobody: a schedule leaves it out
(`trim`).

Why it is the same, as real numbers. Let M(t) be the largest score of the blocks 0..t. By induction on t

    m[t] = M(t)        l[t] = sum(j < B*(t + 1)) exp(s[j] - M(t))        o[t] = sum(j < B*(t + 1)) exp(s[j] - M(t)) * v[j]

because a maximum and a sum over blocks are the maximum and the sum of those of the blocks, because exp(s - a) * exp(a - b) = exp(s - b),
and because a factor that no j has can be taken out of a sum: o[t - 1] * exp(M(t - 1) - M(t)) = sum exp(s[j] - M(t)) * v[j]. In the end M
is m, and 1/l is taken out of the last sum. That is checked of the equations of every program that is rewritten, by these laws alone
(`tensorlang.tensor.online_proof`). The same algebra makes (m, l, o) a reducer: docs/language-checking.md has it as an operator.

As floats the sums round in another order, and every term at most once more a block, when its factor c is not 1. Exceptions stay what
they are: a row of -inf alone has l = 0, and 0/0 is the NaN of a plain softmax; a score that is inf or NaN makes its row NaN, where the
row sees its key. Before a row's first score above -inf m is -inf, and -inf - -inf would be NaN where nothing is to be counted: there p
is 0, and c is 1 wherever m does not change.

Rows come in blocks, too: there are as many as whole blocks have, and those that do not exist are computed from zeros and never read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from codegen.dtypes import compute_dtype, f32, f64
from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.attention_mask import AttendedKeys, Line, attended_keys, hidden
from tensorlang.tensor.contraction import multiplied
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Call,
    Compare,
    Const,
    Definition,
    Dynamic,
    Expr,
    Holds,
    Let,
    Name,
    OnlineAttention,
    Piece,
    Program,
    Read,
    Reduce,
    Reducer,
    Select,
    Tensor,
    TupleOf,
)
from tensorlang.tensor.online_proof import Plain, Running, are_masked, refusal
from tensorlang.tensor.walk import (
    Fresh,
    definers,
    definition_reads,
    fresh_for,
    index_names,
    map_children,
    nodes,
    reads,
    reduces,
    replaced,
    substitute,
    substitute_reads,
)

_INF = float("inf")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of attention: how many queries a head has, how many keys, elements of a key, and columns of the result."""

    rows: int
    keys: int
    depth: int
    width: int
    element_bytes: int


Choice: TypeAlias = Callable[[Sizes], tuple[int, int] | None]
"""How many rows and keys make a block, or None where attention of such sizes stays as it is."""


@dataclass(frozen=True, slots=True)
class _Softmax:
    """`made` is the softmax of the last axis of `scores`; `masked`: zeros for a row of -inf alone. `through`: the tensors between."""

    scores: str
    made: str
    masked: bool
    through: frozenset[str]
    largest: Reducer


@dataclass(frozen=True, slots=True)
class _Plain:
    """Attention as it is usually written. `heads` and `row` are axes of the result that index the weights, `columns` its others; the values
    have no `row`, and where several heads share them they do without some of `heads`, too."""

    program: Program
    scores: Definition
    product: Reduce
    softmax: _Softmax
    result: Definition
    sum: Reduce
    weights: Read
    heads: tuple[str, ...]
    row: str
    columns: tuple[str, ...]

    def extent(self, axis: str) -> int:
        return _integer(dict(zip(self.result.axes, self.result.tensors[0].shape, strict=True))[axis])

    @property
    def keys(self) -> int:
        return _integer(self.scores.tensors[0].shape[-1])

    @property
    def sizes(self) -> Sizes:
        depth, width = (prod(n) for n in ([_integer(b.hi) for b in self.product.binders], [self.extent(a) for a in self.columns]))
        return Sizes(self.extent(self.row), self.keys, depth, width, self.product.reducer.dtypes[0].size_bytes)


def online(program: Program, choose: Choice) -> Program | None:
    """Return the program in one pass over blocks of keys, for whole blocks of rows, as large as `choose` says; None where it is no
    attention, or not shown to stay what it is. Programs in `strict` mode are not rewritten."""
    found = _plain(program)
    chosen = choose(found.sizes) if found is not None else None
    return _rewritten(found, *chosen) if found is not None and chosen is not None else None


# ---------------------------------------------------------------- what is rewritten


def _plain(program: Program) -> _Plain | None:
    if program.mode == "strict" or program.sizes or len(program.results) != 1:
        return None
    made = definers(program)
    if not all(len(d.tensors) == 1 and len(d.pieces) == 1 and d.pieces[0].guard == TRUE for d in program.definitions):
        return None
    result = made[program.results[0]]
    total = _only_sum(result)
    if total is None or len(total.binders) != 1:
        return None
    pair = multiplied(total) or ()
    weights = next((side for side in pair if isinstance(side, Read) and side.tensor in made), None)
    if weights is None:
        return None
    softmax = _softmax(program, weights.tensor)
    if softmax is None or softmax.scores not in made:
        return None
    scores = made[softmax.scores]
    product = _only_sum(scores)
    *outer, last = weights.index
    names = [slot.name if isinstance(slot, AffineName) else "" for slot in outer]
    whole = last == AffineName(total.binders[0].name) and set(names) <= set(result.axes) and len(set(names)) == len(names)
    if product is None or not whole or not _between(program, softmax, result):
        return None
    if any(isinstance(slot, Dynamic) for d in (scores, result) for r in reads(d.pieces[0].value) for slot in r.index):
        return None
    values = next(part for part in pair if part != weights)
    free = [n for n in names if n not in index_names(values)]
    extents = [affine.constant(e) for t in (scores.tensors[0], result.tensors[0]) for e in t.shape]
    whole = whole and all(affine.constant(b.hi) is not None for b in product.binders)
    if not whole or not free or softmax.made in {r.tensor for r in reads(values)} or any(e is None or e < 1 for e in extents):
        return None
    heads = tuple(n for n in names if n != free[-1])
    columns = tuple(a for a in result.axes if a not in names)
    if len(columns) != 1:
        return None
    return _Plain(program, scores, product, softmax, result, total, weights, heads, free[-1], columns)


def _only_sum(definition: Definition) -> Reduce | None:
    """Return the one reduction of a definition where it is a plain sum of floats over all of its ranges."""
    found = dict.fromkeys(e for e in nodes(definition.pieces[0].value) if isinstance(e, Reduce))
    reduce = next(iter(found)) if len(found) == 1 else None
    if reduce is None or reduce.reducer.kind != "sum" or reduce.reducer.dtypes[0] not in (f32, f64):
        return None
    plain = reduce.where == TRUE and reduce.filter is None and reduce.init is None and all(b.lo == affine.ZERO for b in reduce.binders)
    return reduce if plain else None


def _between(program: Program, softmax: _Softmax, result: Definition) -> bool:
    """Tell whether nobody but the softmax reads the scores, and nobody but the result what comes of them."""
    inside = softmax.through | {softmax.made}
    for definition in program.definitions:
        name = definition.tensors[0].name
        found = definition_reads(definition)
        if softmax.scores in found and name not in inside:
            return False
        if softmax.made in found and definition is not result:
            return False
        if found & softmax.through and name not in inside:
            return False
    return not inside & set(program.results)


def _softmax(program: Program, name: str) -> _Softmax | None:
    """Return tensor `name` as a softmax along its last axis, or None."""
    made = definers(program)
    final = made[name]
    here = tuple(AffineName(a) for a in final.axes)
    value, masked, tops = final.pieces[0].value, False, ""
    match value:
        case Select(Compare("==", Read(tops, index), Const(low)), Const(0), inner) if low == -_INF and index == here[:-1]:
            value, masked = inner, True
        case _:
            pass
    match value:
        case Binary("*" | "/" as op, Read(weights, at), Read(factor, of)) if at == here and of == here[:-1]:
            pass
        case _:
            return None
    scores = _exponential(made, weights, masked)
    if scores is None or (masked and tops != scores[1]) or not _is_sum(made, factor, weights, inverse=op == "*"):
        return None
    through = frozenset({weights, scores[1], factor} | _locals(made, factor))
    top = made[scores[1]].pieces[0].value
    assert isinstance(top, Reduce)
    return _Softmax(scores[0], name, masked, through - {scores[0]}, top.reducer)


def _locals(made: dict[str, Definition], name: str) -> set[str]:
    return {n for n in definition_reads(made[name]) if n in made}


def _exponential(made: dict[str, Definition], name: str, masked: bool) -> tuple[str, str] | None:
    """Return (s, m) where tensor `name` is exp(s - m), with m the largest of s along the last axis."""
    definition = made.get(name)
    if definition is None:
        return None
    here = tuple(AffineName(a) for a in definition.axes)
    value = definition.pieces[0].value
    match value:
        case Select(Compare("==", Read(tops, index), Const(low)), Const(0), inner) if masked and low == -_INF and index == here[:-1]:
            value = inner
        case _:
            pass
    match value:
        case Call("exp", (Binary("-", Read(scores, at), Read(tops, of)),)) if at == here and of == here[:-1]:
            return (scores, tops) if _is_reduction(made, tops, scores, "max") else None
        case _:
            return None


def _is_sum(made: dict[str, Definition], name: str, of: str, *, inverse: bool) -> bool:
    """Tell whether tensor `name` is the sum of `of` along its last axis, or one divided by it."""
    definition = made.get(name)
    if definition is None:
        return False
    match definition.pieces[0].value:
        case Binary("/", Const(1), Reduce() as reduce) if inverse:
            return _along(definition, reduce, of, "sum")
        case Binary("/", Const(1), Read(total, at)) if inverse:
            return at == tuple(AffineName(a) for a in definition.axes) and _is_reduction(made, total, of, "sum")
        case _:
            return not inverse and _is_reduction(made, name, of, "sum")


def _is_reduction(made: dict[str, Definition], name: str, of: str, kind: str) -> bool:
    definition = made.get(name)
    value = definition.pieces[0].value if definition is not None else None
    return definition is not None and isinstance(value, Reduce) and of in made and _along(definition, value, of, kind)


def _along(definition: Definition, reduce: Reduce, of: str, kind: str) -> bool:
    if (
        reduce.reducer.kind != kind
        or len(reduce.binders) != 1
        or reduce.where != TRUE
        or reduce.filter is not None
        or reduce.init is not None
    ):
        return False
    [binder] = reduce.binders
    index = tuple(AffineName(a) for a in (*definition.axes, binder.name))
    return reduce.body == (Read(of, index),) and binder.lo == affine.ZERO


# ---------------------------------------------------------------- what it becomes


@dataclass(slots=True)
class _Blocks:
    """The new tensors: over `lead` (heads, row, block), with `u` the key within its block."""

    plain: _Plain
    rows: int
    keys: int
    fresh: Fresh
    t: str
    u: str
    attended: AttendedKeys

    @property
    def lead(self) -> tuple[str, ...]:
        return (*self.plain.heads, self.plain.row, self.t)

    @property
    def count(self) -> int:
        return -(-self.plain.keys // self.keys)

    @property
    def key(self) -> Affine:
        return affine.add(affine.scale(self.keys, self.t), self.u)

    @property
    def exists(self) -> Cond:
        """Where there is such a key."""
        return TRUE if self.plain.keys % self.keys == 0 else affine.compare("<", self.key, self.plain.keys)

    @property
    def first(self) -> Expr:
        """Whether no row of the block of rows sees a key of a block before this one: there its pass begins."""
        begin = self._end(self.attended.low, affine.maximum)
        return Holds(affine.compare("==", self.t, 0) if begin is None else affine.compare("<=", self.t, begin))

    @property
    def last(self) -> Affine:
        """The last block with a key that some row of the block of rows sees."""
        end = self._end(self.attended.high, affine.minimum)
        return affine.to_expr(self.count - 1) if end is None else end

    def left_out(self, row: str, key: str) -> Cond:
        """Where a key is in no block that its row visits, in terms of other names for both."""
        block = affine.floor(affine.to_expr(key), self.keys)
        ends = [affine.compare(">", block, self.last)]
        begin = self._end(self.attended.low, affine.maximum)
        ends += [affine.compare("<", block, begin)] if begin is not None else []
        return affine.substitute_cond(affine.disj(*ends), {self.plain.row: AffineName(row)})

    def _end(self, lines: tuple[Line, ...], chosen: Callable[..., Affine]) -> Affine | None:
        """Return the block of keys where the rows of a block, all of them together, meet the first or the last of `lines`."""
        if not lines:
            return None
        upper = chosen is affine.minimum
        begin = affine.scale(self.rows, affine.floor(affine.to_expr(self.plain.row), self.rows))
        places, reached = [], []
        for line in lines:
            within = self.rows - 1 if (line.slope > 0) == upper else 0
            places.append(affine.floor(line.of(affine.add(begin, within)), self.keys))
            rows = -(-self.plain.extent(self.plain.row) // self.rows) * self.rows
            reached += [line(row + within) // self.keys for row in (0, rows - self.rows)]
        block = chosen(*places)
        block = affine.maximum(affine.ZERO, block) if min(reached) < 0 else block
        return affine.minimum(affine.to_expr(self.count - 1), block) if max(reached) >= self.count else block

    def shape(self, *more: int) -> tuple[Affine, ...]:
        heads = [self.plain.extent(a) for a in self.plain.heads]
        rows = -(-self.plain.extent(self.plain.row) // self.rows) * self.rows
        return tuple(affine.to_expr(n) for n in (*heads, rows, self.count, *more))

    def here(self, tensor: Tensor, *more: str) -> Read:
        return Read(tensor.name, tuple(AffineName(a) for a in (*self.lead, *more)))

    def before(self, tensor: Tensor, *more: str) -> Read:
        lead = (*(AffineName(a) for a in self.lead[:-1]), affine.sub(self.t, 1))
        return Read(tensor.name, (*lead, *(AffineName(a) for a in more)))

    def there(self, e: Expr) -> Expr:
        """Return `e` with zeros for what is read at rows and keys that do not exist."""
        rows = self.plain.extent(self.plain.row)
        row = TRUE if rows % self.rows == 0 else affine.compare("<", self.plain.row, rows)
        table = {t.name: t for t in self.plain.program.params} | {d.tensors[0].name: d.tensors[0] for d in self.plain.program.definitions}

        def guarded(inner: Expr) -> Expr:
            inner = map_children(guarded, inner)
            if not isinstance(inner, Read) or inner.tensor == self.plain.weights.tensor:
                return inner
            used = index_names(inner)
            asked = affine.conj(*([row] if self.plain.row in used else []), *([self.exists] if {self.t, self.u} & used else []))
            dtype = compute_dtype(table[inner.tensor].dtype)
            nothing = Const(dtype.zero, dtype)
            return inner if asked == TRUE else Select(Holds(asked), inner, nothing)

        return guarded(e)


def _rewritten(plain: _Plain, rows: int, keys: int) -> Program | None:
    fresh = fresh_for(plain.program)
    blocks = _Blocks(plain, rows, keys, fresh, fresh("t"), fresh("u"), _attended_keys(plain))
    dtype = plain.product.reducer.dtypes[0]

    def tensor(name: str, *more: int) -> Tensor:
        return Tensor(fresh(name), dtype, blocks.shape(*more))

    def define(made: Tensor | tuple[Tensor, ...], value: Expr, *more: str) -> Definition:
        return Definition(made if isinstance(made, tuple) else (made,), (*blocks.lead, *more), (Piece(value),))

    wide = [plain.extent(a) for a in plain.columns]
    x, s, b, p = tensor("x", keys), tensor("s", keys), tensor("b"), tensor("p", keys)
    m, c, l, o = tensor("m"), tensor("c"), tensor("l"), tensor("o", *wide)
    product, scores = _scores(blocks, x)
    old, new = fresh("old"), fresh("new")
    grown = Select(Compare("==", Name(old), Name(new)), _number(1, m), Call("exp", (Binary("-", Name(old), Name(new)),)))
    top = Let(new, Binary("max", Name(old), blocks.here(b)), TupleOf((Name(new), grown)))
    lowest = _number(-_INF, m)
    top = Let(old, Select(blocks.first, lowest, blocks.before(m)), top)
    weight = Call("exp", (Binary("-", blocks.here(s, blocks.u), blocks.here(m)),))
    k = plain.sum.binders[0].name

    def reduction(reducer: Reducer, body: Expr, init: Expr | None = None) -> Reduce:
        binder = fresh(blocks.u)
        body = substitute(body, {blocks.u: AffineName(binder)})
        start = None if init is None else (init,)
        return Reduce(reducer, (Binder(binder, affine.ZERO, affine.to_expr(keys)),), (body,), init=start)

    def kept(made: Tensor, *more: str) -> Expr:
        return Select(blocks.first, _number(0, made), Binary("*", blocks.before(made, *more), blocks.here(c)))

    values = blocks.there(substitute(plain.sum.body[0], {k: blocks.key}))
    values = substitute_reads(values, lambda r: blocks.here(p, blocks.u) if r.tensor == plain.weights.tensor else r)
    definitions = (
        define(x, product, blocks.u),
        define(s, scores, blocks.u),
        define(b, reduction(plain.softmax.largest, blocks.here(s, blocks.u))),
        define((m, c), top),
        define(p, Select(Compare("==", blocks.here(m), lowest), _number(0, p), weight), blocks.u),
        define(l, reduction(plain.product.reducer, blocks.here(p, blocks.u), kept(l))),
        define(o, reduction(plain.product.reducer, values, kept(o, *plain.columns)), *plain.columns),
        _last(blocks, m, l, o),
    )
    others = {d.tensors[0].name for d in plain.program.definitions} - plain.softmax.through - {plain.softmax.scores, plain.softmax.made}
    before = tuple(d for d in plain.program.definitions if d.tensors[0].name in others and d is not plain.result)
    if not _is_proven(plain, blocks, definitions):
        return None
    idiom = OnlineAttention(*(d.tensors[0].name for d in definitions))
    return replace(plain.program, definitions=(*before, *definitions), idioms=(idiom,))


def _is_proven(plain: _Plain, blocks: _Blocks, definitions: tuple[Definition, ...]) -> bool:
    """Tell whether the definitions of a pass are shown to be what the operator says (`tensorlang.tensor.online_proof`)."""
    _, scores, tops, largest, weights, totals, sums, result = definitions
    name = weights.tensors[0].name
    [(first, second)] = [_factors(e) for p in sums.pieces for r in reduces(p.value) for e in r.body]
    running = Running(scores.tensors[0].name, tops, largest, weights, totals, sums, second if _reads(first, name) else first)
    first, second = _factors(plain.sum.body[0])
    written = Plain(plain.softmax.scores, definers(plain.program), plain.sum, second if first == plain.weights else first)
    [before], [after] = plain.result.pieces, result.pieces
    row, key = _row_and_key(plain)
    inside = affine.conj(affine.within(row, 0, plain.extent(plain.row)), affine.within(key, 0, plain.keys))
    outside = affine.conj(inside, blocks.left_out(row, key))
    same = not refusal(written, running, before.value, after.value)
    return same and are_masked((row, key), outside, hidden(plain.scores.pieces[0].value))


def _factors(e: Expr) -> tuple[Expr, Expr]:
    assert isinstance(e, Binary) and e.op == "*"
    return e.lhs, e.rhs


def _reads(e: Expr, tensor: str) -> bool:
    return isinstance(e, Read) and e.tensor == tensor


def _row_and_key(plain: _Plain) -> tuple[str, str]:
    """Return the axes of the scores that are the row and the key."""
    row = next(a for a, slot in zip(plain.scores.axes, plain.weights.index, strict=True) if slot == AffineName(plain.row))
    return row, plain.scores.axes[-1]


def _attended_keys(plain: _Plain) -> AttendedKeys:
    """Return which keys a row sees, in terms of the axes of the scores."""
    return attended_keys(plain.scores.pieces[0].value, *_row_and_key(plain), plain.extent(plain.row), plain.keys)


def _scores(blocks: _Blocks, x: Tensor) -> tuple[Expr, Expr]:
    """Return the product of queries and keys, and the scores made of its element in `x`: read for every key, whether it exists or not,
    so that nobody has to ask before multiplying."""
    plain = blocks.plain
    leading = [slot for slot in plain.weights.index[:-1] if isinstance(slot, AffineName)]
    here = dict(zip(plain.scores.axes, (*leading, blocks.key), strict=True))
    product = substitute(plain.product, here)
    name = blocks.fresh("product")
    scores = blocks.there(replaced(substitute(plain.scores.pieces[0].value, here), product, Name(name)))
    element = blocks.here(x, blocks.u)
    if blocks.exists == TRUE:
        return blocks.there(product), replaced(scores, Name(name), element)
    return blocks.there(product), Let(name, element, Select(Holds(blocks.exists), scores, _number(-_INF, x)))


def _last(blocks: _Blocks, m: Tensor, l: Tensor, o: Tensor) -> Definition:
    """Return the result, made of what the last block left."""
    plain = blocks.plain
    lead = (*(AffineName(a) for a in blocks.lead[:-1]), blocks.last)
    columns = tuple(AffineName(a) for a in plain.columns)
    total: Expr = Binary("/", Read(o.name, (*lead, *columns)), Read(l.name, lead))
    if plain.softmax.masked:
        total = Select(Compare("==", Read(m.name, lead), _number(-_INF, m)), _number(0, o), total)
    [piece] = plain.result.pieces
    return replace(plain.result, pieces=(replace(piece, value=replaced(piece.value, plain.sum, total)),))


def _number(value: float, of: Tensor) -> Const:
    return Const(float(value), of.dtype)


def _integer(e: Affine) -> int:
    found = affine.constant(e)
    assert found is not None
    return found
