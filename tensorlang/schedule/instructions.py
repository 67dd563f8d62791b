"""The instructions that a module declares, ready to be compared with the loops of a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tensorlang.check.definition import sample_program
from tensorlang.check.module import Module, load_module
from tensorlang.schedule.schedule import Instruction
from tensorlang.syntax import nodes as sx


def named(module: Module, directives: Iterable[sx.Directive]) -> tuple[Instruction, ...]:
    """Return the instructions that `directives` may mean: none where nothing is tensorized, those of the file before a library's."""
    if not any(d.name == "tensorize" for d in directives):
        return ()
    ordered = sorted(module.instructions.values(), key=lambda o: o.name not in module.own)
    found = (instruction(operator) for operator in ordered)
    return tuple(i for i in found if i is not None)


@cache
def instruction(operator: sx.Operator) -> Instruction | None:
    """Return the instruction that `operator` declares, or None when its equations are not those of one: the checker says what is wrong."""
    program = sample_program(load_module(sx.File((operator,))), operator.name)
    return None if program is None else Instruction(program, operator.needs)
