"""What people are told of attention that goes through the keys once (`tensorlang.tensor.online`)."""

from __future__ import annotations

from polyhedral import affine
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.walk import definition_reads, reduces


def passes(program: Program) -> tuple[str, ...]:
    """Return that the pass was shown to be the same, and how it rounds; nothing for what is no such pass: it keeps the largest score so far
    together with the factor by which it has grown."""
    found = [d for d in program.definitions if len(d.tensors) == 2 and d.tensors[0].name in definition_reads(d)]
    keys = [
        affine.constant(r.binders[0].hi) for d in program.definitions for p in d.pieces for r in reduces(p.value) if r.reducer.kind == "max"
    ]
    if len(found) != 1 or len(keys) != 1:
        return ()
    count = _blocks(found[0])
    return (
        f"one pass over {count} block{'s' * (count != 1)} of {keys[0]} keys, shown to be the same of real numbers; "
        "a sum is scaled and rounded once more for each block in which the largest score grows",
    )


def _blocks(largest: Definition) -> int:
    return affine.constant(largest.tensors[0].shape[-1]) or 0
