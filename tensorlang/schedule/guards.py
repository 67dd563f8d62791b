"""What the guard of a schedule, `cpu(M >= 64)`, and the condition of a directive, `unroll k if K <= 9`, say of sizes and attributes."""

from __future__ import annotations

import operator as functions
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.check.binder import Given, TensorArg
from tensorlang.check.bindings import Arg
from tensorlang.check.module import Module
from tensorlang.check.problems import did_you_mean
from tensorlang.check.signature import bind
from tensorlang.check.values import Idx, Num, Packed, Str, Value
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import error
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program, Tensor

Fact: TypeAlias = int | float | bool | str | tuple[int | None, ...] | None
"""What a name in a guard is worth, or the items of a pack; None: only known at run time."""


def facts(values: Mapping[str, Value], at: Mapping[str, int]) -> dict[str, Fact]:
    """Return what guards may ask of sizes and attributes, where sizes have the values `at`."""
    return {name: _fact(value, at) for name, value in values.items()}


def plain(guard: sx.Expr) -> str:
    """Return a guard as a schedule's header shows it, where dotted names need no quotes."""
    return show(guard).replace("`", "")


def guard_env(
    module: Module,
    operator: str | None,
    program: Program,
    attrs: Mapping[str, object],
    sizes: Mapping[str, object],
    at: Mapping[str, int],
) -> dict[str, Fact]:
    """Return sizes and attributes of the operator by name, found by matching its parameters' dimensions with the program's."""
    declaration = module.operators.get(operator or "")
    if declaration is None:
        return {}
    table = {p.name: p for p in program.params}
    tensors: dict[str, TensorArg] = {}
    for param in declaration.params:
        if param.kind != "tensor":
            continue
        if param.each:
            several = [t for n, t in table.items() if n.startswith(f"{param.name}.")]
            tensors[param.name] = tuple(_argument(t) for t in several)
        else:
            tensors[param.name] = _argument(table[param.name]) if param.name in table else None
    given = Given(tensors, attrs, {n: _size(s) for n, s in sizes.items()}, checks_ranges=False)
    return facts(bind(module.defining_module(operator or ""), declaration, given).values, at)


def _size(given: Any) -> Affine | tuple[Affine, ...]:
    return tuple(affine.to_expr(s) for s in given) if isinstance(given, tuple | list) else affine.to_expr(given)


def _argument(tensor: Tensor) -> Arg:
    """Return a parameter of the program as the argument it was made for."""
    axes = iter(tensor.shape)
    dims = [tuple(next(axes) for _ in range(n)) for n in tensor.grouping or (1,) * len(tensor.shape)]
    return Arg(tensor.dtype, tuple((_product(d),) for d in dims))


def _product(extents: Sequence[Affine]) -> Affine:
    total: Affine | None = affine.ONE
    for e in extents:
        total = affine.mul(total, e) if total is not None else None
    return total if total is not None else extents[-1]


def _fact(value: Value, at: Mapping[str, int]) -> Fact:
    match value:
        case Num(number):
            return number
        case Idx(e):
            return affine.constant(e) if not set(affine.names(e)) <= at.keys() else int(affine.evaluate(e, at))
        case Str(text):
            return text
        case Packed(items):
            found = (_fact(i, at) for i in items)
            return tuple(f if isinstance(f, int) else None for f in found)
        case _:
            return None


def unmet(schedule: sx.Schedule, env: Mapping[str, Fact]) -> str | None:
    """Return why a guard of the schedule does not hold, or None when all do."""
    for guard in schedule.guards:
        held = evaluate(guard, env)
        if held is None:
            return _undecided(guard, env)
        if not held:
            return _false(guard, env)
    return None


Decide: TypeAlias = Callable[[sx.Expr], bool | None]
"""Says of a comparison that takes sizes of run time whether it holds all the same, or never does."""


def left_out(d: sx.Directive, env: Mapping[str, Fact], *, role: bool = False, decide: Decide = lambda condition: None) -> str | None:
    """Return why the condition of a directive does not hold, or None when it does, or when there is none. In the schedule of a role, it
    does not hold where it takes a size that is only known at run time, unless `decide` knows more.

    Raises CompileError S0505 and S0506 as `evaluate` does, S0515 for such a size in the schedule of an operator."""
    if d.condition is None:
        return None
    held = evaluate(d.condition, env, "a condition", decide)
    if held is None and role:
        return _undecided(d.condition, env)
    if held is None:
        help = "`specialize` makes a kernel for each case; or write a schedule for each, with the condition as its guard"
        raise error("S0515", _undecided(d.condition, env), d.condition.span, help=help)
    return None if held else _false(d.condition, env)


def passed(env: Mapping[str, Fact], params: Sequence[str], arguments: Sequence[sx.Node]) -> dict[str, Fact]:
    """Return what conditions in a tactic may ask for: what those of its caller may, where `a.unit` of a parameter `a` is that of its
    argument, and nothing is known of a parameter whose argument is not asked for by a name."""
    out = {name: fact for name, fact in env.items() if name.partition(".")[0] not in params}
    for param, argument in zip(params, arguments, strict=True):
        match argument:
            case sx.Id(given) | sx.Pack(sx.Id(given)):
                out |= {param + n[len(given) :]: fact for n, fact in env.items() if n == given or n.startswith(f"{given}.")}
            case _:
                pass
    return out


def _undecided(e: sx.Expr, env: Mapping[str, Fact]) -> str:
    unknown = next(n for n in _asked(e, env) if not _is_known(env[n]))
    return f"`{plain(e)}` is not known when compiling: `{unknown}` is a run-time size"


def _false(e: sx.Expr, env: Mapping[str, Fact]) -> str:
    values = ", ".join(f"{n} = {env[n]}" for n in _asked(e, env) if env[n] is not None)
    return f"`{plain(e)}` does not hold" + (f" ({values})" if values else " in this case")


def _asked(e: sx.Expr, env: Mapping[str, Fact]) -> list[str]:
    return sorted({n.name for n in descendants(e) if isinstance(n, sx.Id) and n.name in env})


def _is_known(fact: Fact) -> bool:
    return fact is not None and not (isinstance(fact, tuple) and None in fact)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": functions.add,
    "-": functions.sub,
    "*": functions.mul,
    "/": functions.truediv,
    "//": functions.floordiv,
    "%": functions.mod,
}
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": functions.lt,
    "<=": functions.le,
    ">": functions.gt,
    ">=": functions.ge,
    "==": functions.eq,
    "!=": functions.ne,
}


def evaluate(e: sx.Node, env: Mapping[str, Fact], subject: str = "a guard", decide: Decide = lambda condition: None) -> Any:
    """Return the value of a guard, or None when it takes a size that is only known at run time, and `decide` knows no more of a comparison.
    `subject` is what messages call it.

    Raises CompileError S0505 for a name that is neither a size nor an attribute, S0506 for what is no condition over them."""
    again = partial(evaluate, env=env, subject=subject, decide=decide)
    match e:
        case sx.Number(text):
            return float(text) if e.is_float else int(text)
        case sx.Text(text):
            return text
        case sx.Id("true" | "false" as name) if name not in env:
            return name == "true"
        case sx.Id(name) if name in env:
            return env[name]
        case sx.Id(name):
            names = ", ".join(sorted(env)) or "none"
            raise error("S0505", f"{subject} cannot ask for `{name}`", e.span, help=did_you_mean(name, env, f"known are {names}"))
        case sx.Unary("not", value):
            held = again(value)
            return None if held is None else not held
        case sx.Unary(op, value):
            number = again(value)
            return None if number is None else -number if op == "-" else number
        case sx.Binary("and" | "or" as op, lhs, rhs):
            return _junction(op, again(lhs), again(rhs))
        case sx.Binary(op, lhs, rhs):
            return _combined(e, lambda a, b: _ARITHMETIC[op](a, b), again(lhs), again(rhs))
        case sx.Chain(first, rest):
            held = again(first)
            for op, rhs in ((link.op, link.rhs) for link in rest):
                other = again(rhs)
                held = _junction(op, held, other) if op in ("and", "or") else _combined(rhs, _ARITHMETIC[op], held, other)
            return held
        case sx.Compare(items, ops):
            values = [again(i) for i in items]
            held = _all(_combined(e, _RELATIONS[op], a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
            return decide(e) if held is None else held
        case sx.Apply("rank", (sx.Id(name),)) if name in env:
            return len(_several(e, env[name]))
        case sx.Apply("prod", (sx.Pack(sx.Id(name)),)) if name in env:
            extents = [extent for extent in _several(e, env[name]) if extent is not None]
            return prod(extents) if _is_known(env[name]) else None
        case _:
            raise error(
                "S0506", f"`{show(e)}` is no condition over sizes and attributes", e.span, help="compare sizes with numbers: `M >= 64`"
            )


def _several(e: sx.Node, value: Fact) -> tuple[int | None, ...]:
    if isinstance(value, tuple):
        return value
    raise error("S0506", f"`{show(e)}` takes a pack", e.span, help="write `rank(D)` or `prod(D..)` for a pack `D..`")


def _junction(op: str, a: Any, b: Any) -> Any:
    decided = op == "or"
    if any(x is not None and bool(x) == decided for x in (a, b)):
        return decided
    return None if a is None or b is None else not decided


def _all(values: Iterator[Any]) -> Any:
    found = list(values)
    return False if any(v is False for v in found) else None if any(v is None for v in found) else True


def _combined(e: sx.Node, f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    try:
        return f(a, b)
    except (TypeError, ZeroDivisionError):
        raise error(
            "S0506", f"`{show(e)}` cannot be computed for {a!r} and {b!r}", e.span, help="compare sizes with numbers: `M >= 64`"
        ) from None
