"""Elements that are asked for: of which tensors sums and maps ask for few, as data say, so that each is made where it is asked for.

w[i, k] = exp(v[k] - m[i])
t[i]    = sum(k, start[i] <= k, k < start[i + 1]) w[i, k]     `k` goes through each term once, for one `i`: not all of `w` is asked for
y[k]    = w[ids[k], k] / t[ids[k]]                            nor here
"""

from __future__ import annotations

from math import prod

from tensorlang.policy.scatters import ranges_of_data, scattered_axes
from tensorlang.schedule.shape import OPEN_EXTENT, extents, readers
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.simplify import can_inline, can_repeat, inline
from tensorlang.tensor.walk import definers, definition_reads, index_names, reads, reduces, tensor_names

ELEMENTS_PER_ASKED = 16
"""One of so many elements: as many as vectors hold at most, so that all of them take no less time than those that are asked for."""


def with_asked_terms(program: Program, *, sums: bool) -> tuple[Program, str] | None:
    """Return a lifted program with a map of which few elements are asked for written where these are, and its name; None where there is
    none. `sums`: so are those of which several others ask for few, for whoever computes each in the loops that ask."""
    readers_of, by_name = readers(program), definers(program)
    for definition in program.definitions:
        name = definition.tensors[0].name
        read_by = [by_name[reader] for reader in readers_of.get(name, ())]
        repeats = sums and len(read_by) > 1 and can_repeat(program, definition)
        several = repeats and all(asks_in_one_sum(reader, name) for reader in read_by)
        if (several or can_inline(definition)) and is_sparse(program, definition):
            made = lift(eliminate_dead(inline(program, name)))
            if not any(name in definition_reads(x) for x in made.definitions):
                return made, name
    return None


def is_sparse(program: Program, definition: Definition) -> bool:
    """Tell whether few elements of a tensor of its own are asked for, by sums over terms that data say, or at places of data."""
    name = definition.tensors[0].name
    if name in program.results or len(definition.axes) < 2:
        return False
    asked = [n for x in program.definitions if name in definition_reads(x) for n in _asked(x, name)]
    return bool(asked) and ELEMENTS_PER_ASKED * sum(asked) <= prod(n or OPEN_EXTENT for n in extents(definition).values())


def asks_in_one_sum(reader: Definition, name: str) -> bool:
    """Tell whether a definition is one piece with one sum, which asks for elements of a tensor under a condition that needs none of these:
    in its loops they can be made once for each term."""
    sums = [e for p in reader.pieces for e in reduces(p.value)]
    asks = sums[0].filter if len(reader.pieces) == len(sums) == 1 else None
    return asks is not None and name not in tensor_names(asks)


def _asked(reader: Definition, name: str) -> list[int]:
    """Return how many elements each read of a tensor asks for at most: none is asked for along axes that data name for each term, or that
    the range of a term is of."""
    sizes = extents(reader)
    scattered = scattered_axes(reader)
    apart = frozenset(scattered[0] if scattered is not None else ()).union(*ranges_of_data(reader).values())
    in_sums = {r for p in reader.pieces for e in reduces(p.value) for r in reads(e) if r.tensor == name}
    every = {r for p in reader.pieces for r in reads(p.value) if r.tensor == name}
    names = [index_names(r) & sizes.keys() - (apart if r in in_sums else frozenset()) for r in every]
    return [prod(sizes[n] or OPEN_EXTENT for n in of_read) for of_read in names]
