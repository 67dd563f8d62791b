"""The instructions that a module declares, ready to be compared with the loops of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from tensorlang.check.definition import check_operator, representative_program
from tensorlang.check.module import Module, load_module
from tensorlang.check.places import spread_of
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, error
from tensorlang.schedule.schedule import Instruction
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import Program


def named(module: Module, directives: Sequence[sx.Directive]) -> tuple[Instruction, ...]:
    """Return the instructions that `directives` may mean: none where nothing is tensorized, those of the file before a library's.

    Raises CompileError S0216 for an operator that is named and is no instruction, and what is wrong with an instruction that is named."""
    wanted = [d for d in directives if d.name == "tensorize"]
    if not wanted:
        return ()
    found = declared(module)
    for directive in wanted:
        _check_named(module, directive, {i.name for i in found})
    return found


def declared(module: Module) -> tuple[Instruction, ...]:
    """Return the instructions of a module that have no mistakes, those of the file before a library's."""
    ordered = sorted(module.instructions.values(), key=lambda o: o.name not in module.declared)
    return tuple(i for o in ordered if (i := _instruction(module, o)) is not None)


def _check_named(module: Module, directive: sx.Directive, usable: set[str]) -> None:
    asked = [p.operands for p in directive.phrases if p.preposition == "with"]
    match asked:
        case [(sx.Id(name),)] if name not in usable and name in module.operators:
            pass
        case _:
            return
    if name not in module.instructions:
        help = f"declare it so: `instruction {name}(…) -> (…) for avx512bf16 {{ … }}`"
        raise error("S0216", f"`{name}` is an operator, not an instruction", directive.span, help=help)
    mistakes = check_operator(module, name)
    if mistakes:
        raise CompileError(*mistakes)
    raise error("S0216", f"not supported yet: instruction `{name}`, whose attributes have no values to try", directive.span)


def _instruction(module: Module, operator: sx.Operator) -> Instruction | None:
    """Return the instruction that an operator, one of the module's or a library's, declares."""
    called, defining = {n.name for n in descendants(operator) if isinstance(n, sx.Apply)}, module.defining_module(operator.name)
    if operator.name not in module.operators or not called & (defining.functions.keys() | defining.operators.keys()):
        return instruction(operator)
    program = representative_program(module, operator.name)
    return _made(None if program is None else replace(program, name=operator.name), operator)


@cache
def instruction(operator: sx.Operator) -> Instruction | None:
    """Return the instruction that `operator`, which calls no other, declares, or None when its equations have mistakes."""
    return _made(representative_program(load_module(sx.File((operator,))), operator.name), operator)


def _made(program: Program | None, operator: sx.Operator) -> Instruction | None:
    return None if program is None else Instruction(program, operator.needs, spread_of(operator), operator.llvm)
