"""Derivatives as one would write them: no copies, what does not vary outside of its sum, and short names.

before   d_m[i] = d_y[i]                                       after    d_v[i] = -(r[i] * sum(j) d_y[j] * e[i, j])
         d_v[i] = sum(`j?7`) -(d_m[`j?7`] * r[i] * e[i, `j?7`])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.gradient.algebra import is_number, negative, number, product, quotient
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Const, Definition, Dynamic, Expr, Piece, Program, Read, Reduce, Tensor, Unary
from tensorlang.tensor.phases import by_phases, masked, written_out
from tensorlang.tensor.renaming import rename
from tensorlang.tensor.simplify import can_inline, inline
from tensorlang.tensor.unit_binders import drop_unit_binders
from tensorlang.tensor.walk import (
    Fresh,
    bound_names,
    definers,
    fresh_for,
    index_names,
    map_children,
    map_pieces,
    map_values,
    reads,
    reduces,
    substitute_reads,
    tensors,
)


def without_copies(program: Program, made: frozenset[str]) -> Program:
    """Return the program with what reads a copy of a tensor reading that tensor instead, and with what is read in one place alone, outside
    of every reduction, written there; `made` are the tensors that this may be done to."""
    for name in sorted(made - set(program.results)):
        definition = definers(program)[name]
        if _is_copy(definition, program) or (can_inline(definition) and _is_read_once(name, program)):
            program = inline(program, name)
    return program


def _is_read_once(name: str, program: Program) -> bool:
    """Tell whether a tensor is read once in all, for each element of the reader anew, and not in a reduction."""
    pieces = [(d, p.value) for d in program.definitions for p in d.pieces]
    found = [(d, e, r) for d, e in pieces for r in reads(e) if r.tensor == name]
    if len(found) != 1:
        return False
    [(reader, value, read)] = found
    summed = any(r.tensor == name for s in reduces(value) for r in reads(s))
    return not summed and set(reader.axes) <= index_names(read)


def _is_copy(definition: Definition, program: Program) -> bool:
    """Tell whether a definition holds elements of another tensor as they are."""
    match definition.pieces:
        case (piece,) if piece.guard == TRUE:
            value = piece.value.value if isinstance(piece.value, Unary) and piece.value.op == "neg" else piece.value
            dtype = definition.tensors[0].dtype
            types = {t.name: t.dtype for t in tensors(program)}
            plain = isinstance(value, Read) and not any(isinstance(s, Dynamic) for s in value.index)
            return plain and isinstance(value, Read) and compute_dtype(types[value.tensor]) == dtype
    return False


def outside_of_sum(e: Reduce) -> Expr:
    """Return a sum with the factors of its body that none of its indices is in outside of it."""
    sign, factors, divisors = _factors(e.body[0])
    bound = {b.name for b in e.binders}
    outer = [f for f in factors if not index_names(f) & bound]
    below = [f for f in divisors if not index_names(f) & bound]
    if e.init is not None or not (outer or below or sign < 0):
        return e
    inner = [f for f in factors if f not in outer]
    within = [f for f in divisors if f not in below]
    if not inner:
        if len(outer) == 1 and not within:
            inner, outer = outer, []
        else:
            return e
    body = inner[0]
    for factor in inner[1:]:
        body = product(body, factor)
    for factor in within:
        body = quotient(body, factor)
    out: Expr = replace(e, body=(body,))
    for factor in outer:
        out = product(factor, out)
    for factor in below:
        out = quotient(out, factor)
    return negative(out) if sign < 0 else out


def _factors(e: Expr) -> tuple[int, list[Expr], list[Expr]]:
    """Return the sign of a product, its factors, and what it is divided by."""
    match e:
        case Unary("neg", value):
            sign, factors, divisors = _factors(value)
            return -sign, factors, divisors
        case Binary("*", lhs, rhs):
            left, right = _factors(lhs), _factors(rhs)
            return left[0] * right[0], [*left[1], *right[1]], [*left[2], *right[2]]
        case Binary("/", lhs, rhs) if not is_number(lhs, 1):
            sign, factors, divisors = _factors(lhs)
            return sign, factors, [*divisors, rhs]
        case _:
            return 1, [e], []


def divided_once(program: Program, made: frozenset[str]) -> Program:
    """Return the program with one division for all elements of `made` that the same element of a tensor divides.

    d_x[i, j] = d_y[i, j] / s[i]     ->     s_reciprocal[i] = 1 / s[i]     d_x[i, j] = d_y[i, j] * s_reciprocal[i]"""
    table, fresh = {t.name: t for t in tensors(program)}, fresh_for(program)
    reciprocal: dict[str, Definition] = {}

    def multiplied(e: Expr, around: frozenset[str]) -> Expr:
        inside = around | {b.name for b in e.binders} if isinstance(e, Reduce) else around
        match map_children(lambda child: multiplied(child, inside), e):
            case Binary("/", lhs, Read() as read) if not isinstance(lhs, Const) and _serves_many(read, inside):
                if read.tensor not in reciprocal:
                    reciprocal[read.tensor] = _reciprocal(table[read.tensor], fresh)
                return product(lhs, replace(read, tensor=reciprocal[read.tensor].tensors[0].name))
            case other:
                return other

    def on_definition(d: Definition) -> Definition:
        return map_pieces(d, lambda e: multiplied(e, frozenset(d.axes))) if d.tensors[0].name in made else d

    changed = tuple(map(on_definition, program.definitions))
    if not reciprocal:
        return program
    of_params = [reciprocal[p.name] for p in program.params if p.name in reciprocal]
    beside = ((d, *(reciprocal[t.name] for t in d.tensors if t.name in reciprocal)) for d in changed)
    return redefined(program, (*of_params, *(d for group in beside for d in group)))


def _serves_many(read: Read, around: frozenset[str]) -> bool:
    """Tell whether the same element is read for many values of the indices around, at a place that these say."""
    return len(read.index) < len(around) and index_names(read) < around and not any(isinstance(s, Dynamic) for s in read.index)


def _reciprocal(tensor: Tensor, fresh: Fresh) -> Definition:
    """Return the definition of one divided by every element of a tensor."""
    axes, dtype = tuple(fresh("i") for _ in tensor.shape), compute_dtype(tensor.dtype)
    own = Tensor(fresh(f"{tensor.name}_reciprocal"), dtype, tensor.shape)
    return Definition((own,), axes, (Piece(quotient(number(1, dtype), Read(tensor.name, tuple(map(AffineName, axes))))),))


def with_phases(program: Program) -> Program:
    """Return the program with strided sums as sums over one class of residues each (`tensorlang.tensor.phases`), with what they read at
    places of a class in the order of classes, and zeros for the terms that conditions leave out at the edges."""
    if program.sizes:
        return program
    cut = by_phases(program)
    if cut is program:
        return masked(program, {t.name for t in tensors(program)})
    cut = drop_unit_binders(cut)
    copies = written_out(cut)
    fresh, out = fresh_for(cut), list[Definition]()
    to: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, copy in copies.items():
        [definition] = copy.definitions
        tensor = replace(definition.tensors[0], name=fresh(f"{name}_phases"))
        out.append(replace(definition, tensors=(tensor,)))
        to[name] = tensor.name, definition.axes

    def on_read(read: Read) -> Expr:
        if read.tensor not in to or not any(not isinstance(s, AffineName) for s in read.index):
            return read
        name, axes = to[read.tensor]
        return Read(name, tuple(map(AffineName, axes)), span=read.span)

    read_so = map_values(cut, lambda e: substitute_reads(e, on_read))
    made = redefined(read_so, (*out, *read_so.definitions))
    return masked(made, {t.name for t in tensors(made)})


def with_plain_names(program: Program) -> Program:
    """Return the program with the indices that are called `i?7` called `i`, or `i_1` where that is taken."""
    taken = {*program.sizes, *(t.name for t in tensors(program))}
    return replace(program, definitions=tuple(_renamed(d, taken) for d in program.definitions))


def _renamed(definition: Definition, taken: set[str]) -> Definition:
    names = list(dict.fromkeys((*definition.axes, *_bound(definition))))
    long = [n for n in names if "?" in n]
    if not long:
        return definition
    fresh = Fresh({*taken, *(n for n in names if "?" not in n)})
    to = {n: fresh(n.partition("?")[0]) for n in long}
    at = {n: AffineName(m) for n, m in to.items()}
    pieces = tuple(replace(p, value=rename(p.value, to), guard=affine.substitute_cond(p.guard, at)) for p in definition.pieces)
    return replace(definition, axes=tuple(to.get(a, a) for a in definition.axes), pieces=pieces)


def _bound(definition: Definition) -> Iterator[str]:
    for piece in definition.pieces:
        yield from bound_names(piece.value)
