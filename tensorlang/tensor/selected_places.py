"""What is read where data choose among few places, read at each of these where the data say so.

    at[i] = place of the least of f(k) for k in 0..2          before   y[i] = x[i + 2 * at[i]]               one element after the other
                                                              after    y[i] = if at[i] == 0 then x[i] else x[i + 2]        neighbours

Of data it is known which few numbers they are where they are the place of a term: of reductions that keep one of their terms, and begin
with the first. All are then read as neighbours, for lanes, and it is known which rows are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from codegen.dtypes import i64
from polyhedral.ranges import range_of
from tensorlang.tensor.chosen_places import settled
from tensorlang.tensor.facts import is_choice
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Compare, Const, Definition, Dynamic, Expr, IndexValue, Let, Program, Read, Reduce, Select
from tensorlang.tensor.prove import reads_in_bounds
from tensorlang.tensor.walk import map_children, map_pieces, reads, value_names

MOST_PLACES = 8
"""Among which data choose: as many neighbours are loaded, and chosen from, in fewer instructions than a vector's elements one by one."""


def with_selected_places(program: Program) -> Program:
    """Return `program` with such reads written out, where they are then proven to be inside of their tensors; every result stays the same,
    bit for bit."""
    known = {name: found for d in program.definitions for name, found in _numbers(d)}
    new = tuple(_definition(program, d, known) for d in program.definitions) if known else program.definitions
    return program if all(a is b for a, b in zip(new, program.definitions, strict=True)) else redefined(program, new)


def _numbers(definition: Definition) -> Iterator[tuple[str, range]]:
    """Yield the tensors of a definition that are places of terms, each with the few numbers that they may be."""
    reduce = definition.pieces[0].value
    if len(definition.pieces) > 1 or not isinstance(reduce, Reduce) or reduce.filter is not None or reduce.init is not None:
        return
    if reduce.reducer.identity is not None or not is_choice(reduce.reducer):
        return
    limits = {b.name: (range_of(b.lo, {})[0], range_of(b.hi, {})[1]) for b in reduce.binders}
    ranges = {name: (low, None if end is None else end - 1) for name, (low, end) in limits.items()}
    for tensor, value in zip(definition.tensors, reduce.body, strict=True):
        if tensor.dtype == i64 and isinstance(value, IndexValue):
            low, high = range_of(value.index, ranges)
            if low is not None and high is not None and high - low < MOST_PLACES:
                yield tensor.name, range(low, high + 1)


def _definition(program: Program, definition: Definition, known: Mapping[str, range]) -> Definition:
    if not any(isinstance(slot, Dynamic) for p in definition.pieces for r in reads(p.value) for slot in r.index):
        return definition
    new = map_pieces(definition, lambda e: _written_out(e, known))
    others = (new if d is definition else d for d in program.definitions)
    return new if new != definition and reads_in_bounds(redefined(program, others), new) else definition


def _written_out(e: Expr, known: Mapping[str, range]) -> Expr:
    e = map_children(lambda x: _written_out(x, known), e)
    chosen = dict.fromkeys(r for value in _said(e) for r in reads(value))
    if not chosen or any(r.tensor not in known for r in chosen) or prod(len(known[r.tensor]) for r in chosen) > MOST_PLACES:
        return e
    return _chosen(e, [*chosen], known) or e


def _said(e: Expr) -> Iterator[Expr]:
    """Yield the values that say at which place an expression reads."""
    match e:
        case Read(_, index):
            yield from (slot.value for slot in index if isinstance(slot, Dynamic))
        case Let(name, value, body) if any(name in value_names(s.value) for r in reads(body) for s in r.index if isinstance(s, Dynamic)):
            yield value
        case _:
            pass


def _chosen(e: Expr, chosen: list[Read], known: Mapping[str, range]) -> Expr | None:
    """Return an expression as a choice between what it is for each number that some reads may be; None where a place is then not plain."""
    if not chosen:
        plain = settled(e)
        return None if any(isinstance(slot, Dynamic) for r in reads(plain) for slot in r.index) else plain
    by, *others = chosen
    cases = [(n, _chosen(_substituted(e, by, n), others, known)) for n in known[by.tensor]]
    result = cases[-1][1]
    for number, case in reversed(cases[:-1]):
        if case is None or result is None:
            return None
        result = Select(Compare("==", by, Const(number, i64)), case, result, span=e.span)
    return result


def _substituted(e: Expr, read: Read, number: int) -> Expr:
    return Const(number, i64) if e == read else map_children(lambda x: _substituted(x, read, number), e)
