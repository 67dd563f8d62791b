"""Programs without the definitions that no result needs (dead code elimination)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import definers, definition_reads


def eliminate_dead(program: Program) -> Program:
    """Return `program` without the definitions that no result needs; the parameters stay, being the caller's."""
    needed = _needed(program)
    return redefined(program, (d for d in program.definitions if d.tensors[0].name in needed))


def without_dead_calls(program: Program) -> Program:
    """Return `program` without what operators that it calls define, `p.m` of `p = f(x)`, and `p` itself, where no result needs it: on one
    side of a condition that is decided, say; nor kernels of extern operators that nothing needs. Other definitions stay, needed or not."""
    made = {t.name for d in program.definitions for t in d.tensors}
    called = {name[:k] for name in made for k, c in enumerate(name) if c == "."} & made
    needed = _needed(program, [name for name in sorted(made - called) if "." not in name])
    dead = {name for name in made - needed if "." in name or name in called}
    if any(call.results[0].name not in needed for call in program.externs):
        program = replace(program, externs=tuple(call for call in program.externs if call.results[0].name in needed))
    return redefined(program, (d for d in program.definitions if d.tensors[0].name not in dead)) if dead else program


def _needed(program: Program, kept: Sequence[str] = ()) -> set[str]:
    """Return the tensors that results, and those that are kept, are made from, and all that are defined together with one of these."""
    defined_by = definers(program)
    called_for = {t.name: call for call in program.externs for t in call.results}
    needed: set[str] = set()
    pending = [*program.results, *kept]
    while pending:
        name = pending.pop()
        if name in defined_by and name not in needed:
            needed |= {t.name for t in defined_by[name].tensors}
            pending += sorted(definition_reads(defined_by[name]))
        elif name in called_for and name not in needed:
            needed |= {t.name for t in called_for[name].results}
            pending += called_for[name].reads
    return needed
