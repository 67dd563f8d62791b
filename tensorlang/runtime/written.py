"""Schedules that a file states: which one applies to a call, with its knobs and tactics put in their place.

    schedule linear for cpu(M >= 64) { knobs mr in {6, 8}  gemm(y, mr) }        tactic gemm(y, mr) { split y.i by mr -> io, ii }
    for M = 100                       split y.i by 6 -> io, ii

The first schedule of the operator for the target whose guards all hold is taken; guards speak of the sizes and attributes of the operator.
A knob has its first choice unless another is given.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, assert_never

from tensorlang.check.module import Module
from tensorlang.diagnostics import error
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_DEEPEST = 32


def chosen(module: Module, name: str, target: str, known: Mapping[str, int], knobs: Mapping[str, int] | None = None) -> Schedule | None:
    """Return the schedule that the module states for operator `name` with sizes and attributes `known`, or None when none applies.

    Raises CompileError S0601 for a guard that cannot be decided, S0602 for a wrong call of a tactic, S0603 for an unknown knob."""
    for written in module.schedules:
        applies = written.operator == name and written.target == target and written.role is None
        if applies and all(_evaluated(guard, known) for guard in written.guards):
            return resolved(module, written, knobs)
    return None


def resolved(module: Module, written: sx.Schedule, knobs: Mapping[str, int] | None = None) -> Schedule:
    """Return a schedule of directives alone: tactics expanded, knobs replaced by numbers."""
    given = dict(knobs or {})
    values = {k.name: given.pop(k.name, None) for part in written.body if isinstance(part, sx.Knobs) for k in part.knobs}
    if given:
        there = ", ".join(f"`{k}`" for k in values) or "none"
        raise error(
            "S0603",
            f"schedule `{written.operator}` has no knob `{next(iter(given))}`",
            written.span,
            "declared here",
            help=f"its knobs: {there}",
        )
    to: dict[str, sx.Expr] = {}
    directives = _flat(module, written.body, to, values, 0)
    return Schedule(written.operator, written.target, tuple(directives))


def _flat(
    module: Module, body: tuple[sx.Directive | sx.Knobs, ...], to: dict[str, sx.Expr], given: Mapping[str, int | None], depth: int
) -> Iterator[sx.Directive]:
    """Yield the directives of a body with names replaced as `to` says."""
    for part in body:
        match part:
            case sx.Knobs(knobs):
                for knob in knobs:
                    value = given.get(knob.name)
                    to[knob.name] = knob.choices[0] if value is None else sx.Number(str(value))
            case sx.Directive(call=True):
                yield from _expanded(module, _substituted(part, to), depth)
            case sx.Directive():
                yield _substituted(part, to)
            case _:
                assert_never(part)


def _expanded(module: Module, call: sx.Directive, depth: int) -> Iterator[sx.Directive]:
    tactic = module.tactics.get(call.name)
    if tactic is None:
        raise error("S0602", f"there is no tactic `{call.name}`", call.span, "called here")
    if len(tactic.params) != len(call.operands):
        title = f"tactic `{call.name}` takes {len(tactic.params)} arguments, not {len(call.operands)}"
        raise error("S0602", title, call.span, "called here", help=f"its parameters: {', '.join(tactic.params)}")
    if depth >= _DEEPEST:
        raise error("S0602", f"tactic `{call.name}` calls itself", call.span, "called here")
    arguments = {p: a for p, a in zip(tactic.params, call.operands, strict=True) if not isinstance(a, sx.Layout)}
    yield from _flat(module, tactic.body, dict(arguments), {}, depth + 1)


def _substituted(directive: sx.Directive, to: Mapping[str, sx.Expr]) -> sx.Directive:
    phrases = tuple(replace(p, operands=tuple(_operand(o, to) for o in p.operands)) for p in directive.phrases)
    operands = tuple(_operand(o, to) for o in directive.operands)
    return replace(directive, operands=operands, phrases=phrases, results=tuple(_name(r, to) for r in directive.results))


def _operand(e: Any, to: Mapping[str, sx.Expr]) -> Any:
    """Return an operand with names replaced; a dotted name has its first part replaced by a name."""
    match e:
        case sx.Layout(dims):
            return replace(e, dims=tuple(_operand(d, to) for d in dims))
        case sx.Id(name):
            head, dot, rest = name.partition(".")
            if name in to:
                return to[name]
            found = to.get(head)
            return replace(e, name=found.name + dot + rest) if dot and isinstance(found, sx.Id) else e
        case sx.Index(name, slots):
            return replace(e, name=_name(name, to), slots=tuple(_operand(s, to) for s in slots))
        case sx.Apply(name, args):
            return replace(e, name=_name(name, to), args=tuple(_operand(a, to) for a in args))
        case sx.TupleOf(items):
            return replace(e, items=tuple(_operand(i, to) for i in items))
        case sx.Binary(_, lhs, rhs):
            return replace(e, lhs=_operand(lhs, to), rhs=_operand(rhs, to))
        case sx.Unary(_, value) | sx.Pack(value):
            return replace(e, value=_operand(value, to))
        case _:
            return e


def _name(name: str, to: Mapping[str, sx.Expr]) -> str:
    head, dot, rest = name.partition(".")
    found = to.get(head)
    return found.name + dot + rest if isinstance(found, sx.Id) else name


def _evaluated(e: sx.Expr, known: Mapping[str, int]) -> Any:
    match e:
        case sx.Number(text):
            return float(text) if e.is_float else int(text)
        case sx.Id(name) if name in known:
            return known[name]
        case sx.Binary(op, lhs, rhs) if op in _ARITHMETIC:
            return _ARITHMETIC[op](_evaluated(lhs, known), _evaluated(rhs, known))
        case sx.Unary("-", value):
            return -_evaluated(value, known)
        case sx.Unary("not", value):
            return not _evaluated(value, known)
        case sx.Compare(items, ops):
            values = [_evaluated(i, known) for i in items]
            return all(_RELATIONS[op](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case _:
            there = ", ".join(f"`{n}`" for n in known) or "nothing"
            raise error("S0601", f"the guard `{show(e)}` cannot be decided", e.span, "here", notes=(f"known are {there}",))
