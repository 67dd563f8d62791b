"""A result stored where another one is computed.

    before   s[i, j] = x[i, j] + r[i, j]      m[i] = sum(j) s[i, j]                  y[i, j] = s[i, j] - m[i]
    after    m[i] = sum(j) (x[i, j] + r[i, j])       y[i, j], s[i, j] = (x[i, j] + r[i, j] - m[i], x[i, j] + r[i, j])

What reads the result computes it again, with the same roundings, so every bit stays; one pass over the rows of x and r may then do all of
it.
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral.expr import TRUE, Name
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Program, TupleOf
from tensorlang.tensor.simplify import can_inline, inline
from tensorlang.tensor.walk import Fresh, definers, definition_reads, fresh_for, refresh, substitute


def store_together(program: Program, tensor: str, other: str) -> Program | str:
    """Return `program` with the result `tensor` stored where `other` is computed, or the reason why it cannot be."""
    table = definers(program)
    if tensor not in table or other not in table or table[tensor] is table[other]:
        return f"`{other if tensor in table else tensor}` is no other tensor defined here"
    own, host = table[tensor], table[other]
    if tensor not in program.results:
        return "it is no result"
    if not can_inline(own) or not _is_whole(own):
        return "it is a reduction, a recurrence, one of several results, or computed in pieces"
    if not _is_whole(host) or own.tensors[0].shape != host.tensors[0].shape:
        return f"`{other}` is computed in pieces, or has another shape"
    if program.definitions.index(own) > program.definitions.index(host):
        return f"`{other}` is computed before"
    inlined = inline(program, tensor)
    if any(tensor in definition_reads(d) for d in inlined.definitions):
        return "it is read at an index from data"
    fresh, own = fresh_for(inlined), definers(inlined)[tensor]
    kept = tuple(d for d in inlined.definitions if d is not own)
    return redefined(inlined, (_joined(d, own, fresh) if other in {t.name for t in d.tensors} else d for d in kept))


def _is_whole(definition: Definition) -> bool:
    return len(definition.pieces) == 1 and definition.pieces[0].guard == TRUE


def _joined(host: Definition, own: Definition, fresh: Fresh) -> Definition:
    """Return `host` with the tensor of `own` beside its own."""
    [here], [there] = host.pieces, own.pieces
    at = dict(zip(own.axes, map(Name, host.axes), strict=True))
    value = substitute(refresh(there.value, fresh), at)
    items = here.value.items if isinstance(here.value, TupleOf) else (here.value,)
    return replace(
        host, tensors=(*host.tensors, *own.tensors), pieces=(replace(here, value=TupleOf((*items, value), span=here.value.span)),)
    )
