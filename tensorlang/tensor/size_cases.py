"""Programs for the sizes on one side of a condition on sizes alone, which decides what is computed.

    at = if 8*k > N then all else few          of `all` and `few` one is computed, for any N:
                                               the program for 8*k > N lacks `few`, the one for 8*k <= N lacks `all`

Where sizes are open both would be computed, and one of them thrown away. A condition is decided only where a definition or a call of a
kernel is not needed then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Cond
from tensorlang.tensor.dead_code import eliminate_dead, without_dead_calls
from tensorlang.tensor.nodes import Expr, Holds, Program, Select
from tensorlang.tensor.walk import map_children, map_values, nodes


def decided_by_sizes(program: Program, holds: Callable[[Cond], bool]) -> tuple[Program, tuple[Cond, ...]]:
    """Return a program with such conditions decided, and what that takes for granted; `holds` tells of one whether it does. The program
    is as it was, and nothing is taken for granted, where nothing that it computes depends on one."""
    assumed: list[Cond] = []
    for condition in dict.fromkeys(_conditions(program)):
        needed = _parts(_alive(program))
        if not any(_parts(_with(program, condition, held)) < needed for held in (True, False)):
            continue
        is_met = holds(condition)
        program = _with(program, condition, is_met)
        assumed.append(condition if is_met else affine.negate(condition))
    return program, tuple(assumed)


def _conditions(program: Program) -> Iterator[Cond]:
    """Yield the conditions of choices that name sizes and nothing else."""
    sizes = frozenset(program.sizes)
    for definition in program.definitions:
        for piece in definition.pieces:
            for node in nodes(piece.value):
                match node:
                    case Select(Holds(cond)) if (names := affine.name_set(cond)) and names <= sizes:
                        yield cond
                    case _:
                        pass


def _with(program: Program, condition: Cond, held: bool) -> Program:
    """Return a program for the sizes for which a condition holds, or does not."""

    def chosen(e: Expr) -> Expr:
        match e:
            case Select(Holds(cond), then, orelse) if cond == condition:
                return chosen(then if held else orelse)
            case _:
                return map_children(chosen, e)

    context = affine.conj(program.context, condition if held else affine.negate(condition))
    return _alive(replace(map_values(program, chosen), context=context))


def _alive(program: Program) -> Program:
    return without_dead_calls(eliminate_dead(program))


def _parts(program: Program) -> frozenset[str]:
    """Return the names of what a program computes."""
    made = {t.name for d in program.definitions for t in d.tensors}
    return frozenset(made | {t.name for call in program.externs for t in call.results})
