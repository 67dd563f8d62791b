"""Reading the operands of directives: numbers, names, tile sizes, layouts, with a diagnostic for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, cast

from polyhedral import affine
from polyhedral.expr import Cond, Name
from polyhedral.expr import Expr as Affine
from tensorlang.diagnostics import CompileError, Diagnostic, Label
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.widths import LARGEST


class Unreadable(CompileError):
    """S0102: a directive is not written as its shape demands, which its help says where it is not there."""


def bad(directive: syntax.Directive, why: str, help: str | None = None) -> NoReturn:
    """Raise Unreadable."""
    raise Unreadable(Diagnostic("S0102", f"`{directive.name}` cannot be read: {why}", (Label(directive.span),), (), help))


def phrase(directive: syntax.Directive, preposition: str) -> tuple[syntax.Expr | syntax.Layout, ...] | None:
    """Return the operands after `preposition`, or None when the directive has no such phrase."""
    found = [p for p in directive.phrases if p.preposition == preposition]
    if len(found) > 1:
        bad(directive, f"`{preposition}` stands in it twice")
    return found[0].operands if found else None


def the(directive: syntax.Directive, preposition: str) -> syntax.Expr | syntax.Layout:
    """Return the one operand after `preposition`."""
    operands = phrase(directive, preposition)
    if operands is None or len(operands) != 1:
        bad(directive, f"it needs one operand after `{preposition}`")
    return operands[0]


def name(directive: syntax.Directive, operand: syntax.Expr | syntax.Layout) -> str:
    match operand:
        case syntax.Id(text):
            return text
        case _:
            bad(directive, f"`{show(operand)}` is not a name")


def names(directive: syntax.Directive, operands: Sequence[syntax.Expr | syntax.Layout], at_least: int = 1) -> list[str]:
    if len(operands) < at_least:
        bad(directive, f"it needs at least {at_least} operand{'s' if at_least > 1 else ''}")
    return [name(directive, o) for o in operands]


def only_name(directive: syntax.Directive) -> str:
    """Return the name that is all a directive is about."""
    found = names(directive, directive.operands)
    if len(found) > 1:
        bad(directive, f"it is about one, and names {len(found)}")
    return found[0]


def number(directive: syntax.Directive, operand: syntax.Expr | syntax.Layout, knobs: Mapping[str, int]) -> int:
    """Return the value of an integer expression over the knobs."""
    value = _number(directive, operand, knobs)
    if abs(value) > LARGEST:
        bad(directive, f"`{show(operand)}` is too large", "numbers in schedules stay below 2**48")
    return value


def _number(directive: syntax.Directive, operand: syntax.Expr | syntax.Layout, knobs: Mapping[str, int]) -> int:
    match operand:
        case syntax.Number(text) if not operand.is_float:
            return int(text)
        case syntax.Id(text) if text in knobs:
            return knobs[text]
        case syntax.Unary("-", value):
            return -number(directive, value, knobs)
        case syntax.Binary(("+" | "-" | "*" | "//" | "%") as op, lhs, rhs):
            a, b = number(directive, lhs, knobs), number(directive, rhs, knobs)
            if op in ("//", "%") and b == 0:
                bad(directive, f"`{show(operand)}` divides by zero")
            return {"+": a + b, "-": a - b, "*": a * b, "//": a // b if b else 0, "%": a % b if b else 0}[op]
        case syntax.Id(text):
            help = f"write a number, or declare it with its choices: `knobs {text} in {{8, 16}}`; sizes are no factors"
            bad(directive, f"`{text}` is neither a number nor a knob", help)
        case _:
            bad(directive, f"`{show(operand)}` is not an integer")


def positive(directive: syntax.Directive, operand: syntax.Expr | syntax.Layout, knobs: Mapping[str, int]) -> int:
    value = number(directive, operand, knobs)
    if value < 1:
        bad(directive, f"{value} is not positive")
    return value


def items(operand: syntax.Expr | syntax.Layout) -> tuple[syntax.Expr, ...]:
    """Return the elements of a tuple, or the operand itself as the only one."""
    match operand:
        case syntax.TupleOf(parts):
            return parts
        case syntax.Layout(dims):
            return dims
        case _:
            return (operand,)


@dataclass(frozen=True, slots=True)
class _About:
    """How messages call the names in an expression, and the expression."""

    names: str
    whole: str
    unknown: str
    axes: tuple[str, ...] = ()
    """Those of the tensor that the expression is about, in order."""

    def known(self, env: Mapping[str, Affine]) -> str:
        """Return which names of `env` an expression may have."""
        others = ", ".join(sorted({*env} - {*self.axes}))
        if not self.axes:
            return f"known names: {others or 'none'}"
        numbered = next((axis for k, axis in enumerate(self.axes) if axis == f"a{k}"), None)
        why = f", where {numbered} is axis {numbered[1:]}, which no read has by a name alone" if numbered is not None else ""
        return f"its axes are {', '.join(self.axes)}{why}{f'; other names here: {others}' if others else ''}"


_AXES = _About("axes", "a layout dimension", "neither an axis nor a loop here")
_SIZES = _About("sizes", "an expression over sizes", "no size of this operator")
_LOOPS = _About("loops or sizes", "an expression over loops and sizes", "neither a size nor a loop that is around the same statements")


def condition(directive: syntax.Directive, operand: syntax.Expr | syntax.Layout, sizes: Sequence[str], knobs: Mapping[str, int]) -> Cond:
    """Return a comparison of sizes, `N % 8 == 0` or `16 <= N < M`, as a condition over them. What is known when compiling is a number."""
    match operand:
        case syntax.Compare(items, ops):
            sides = [_expression(directive, e, {size: Name(size) for size in sizes}, knobs, _SIZES) for e in items]
            return affine.conj(*(affine.compare(cast(affine.Relation, op), a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False)))
        case _:
            bad(directive, f"`{show(operand)}` compares no sizes")


def dimensions(
    directive: syntax.Directive, axes: tuple[str, ...], env: Mapping[str, Affine], knobs: Mapping[str, int]
) -> tuple[Affine, ...]:
    """Return the dimensions of the layout that a directive gives a tensor of these axes, as expressions over them; `env` gives the meaning
    of axis and loop names."""
    about = replace(_AXES, axes=axes)
    return tuple(_expression(directive, e, env, knobs, about) for e in items(the(directive, "as")))


def position(directive: syntax.Directive, e: syntax.Expr, env: Mapping[str, Affine], knobs: Mapping[str, int]) -> Affine:
    """Return an expression over loops and sizes; `env` gives the meaning of their names."""
    return _expression(directive, e, env, knobs, _LOOPS)


def _expression(directive: syntax.Directive, e: syntax.Expr, env: Mapping[str, Affine], knobs: Mapping[str, int], about: _About) -> Affine:
    def again(part: syntax.Expr) -> Affine:
        return _expression(directive, part, env, knobs, about)

    match e:
        case syntax.Number():
            return affine.to_expr(number(directive, e, knobs))
        case syntax.Id(text) if text in env:
            return env[text]
        case syntax.Id(text) if text in knobs:
            return affine.to_expr(knobs[text])
        case syntax.Id(text):
            bad(directive, f"`{text}` is {about.unknown}", about.known(env))
        case syntax.Unary("-", value):
            return affine.neg(again(value))
        case syntax.Binary("+", lhs, rhs):
            return affine.add(again(lhs), again(rhs))
        case syntax.Binary("-", lhs, rhs):
            return affine.sub(again(lhs), again(rhs))
        case syntax.Binary("//", lhs, rhs):
            return affine.floor(again(lhs), positive(directive, rhs, knobs))
        case syntax.Binary("%", lhs, rhs):
            return affine.mod(again(lhs), positive(directive, rhs, knobs))
        case syntax.Binary("*", lhs, rhs):
            product = affine.mul(again(lhs), again(rhs))
            if product is None:
                bad(directive, f"`{show(e)}` multiplies two {about.names}")
            return product
        case _:
            bad(directive, f"`{show(e)}` is not {about.whole}")
