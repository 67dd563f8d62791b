"""Element types and attributes of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from codegen.dtypes import DTYPES, DType
from polyhedral import expr as px
from tensorlang.check.binder import Binder, args_of, tensor_params
from tensorlang.check.foreign import native_name
from tensorlang.check.problems import did_you_mean, error
from tensorlang.check.scalar import value
from tensorlang.check.scope import Scope
from tensorlang.check.types import CLASSES, PASSABLE, REPRESENTATIVE, belongs
from tensorlang.check.uses import lines_for
from tensorlang.check.values import Fn, Idx, Num, Packed, Str, Value
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.notation import bare


def bind_element_types(b: Binder) -> None:
    bounds = {g.name: g.bound for g in b.operator.generics}
    for name, bound in bounds.items():
        wanted = b.given.attrs.get(name)
        if wanted is not None:
            dtype = wanted if isinstance(wanted, DType) else DTYPES.get(str(wanted))
            if dtype is None or not belongs(dtype, bound):
                raise error(
                    "R0204",
                    f"`{b.operator.name}`: {wanted!r} is no type for `{name}`",
                    b.operator.name_span,
                    help=f"`{name}` is {bound or 'any element type'}",
                )
            b.dtypes[name] = dtype
    for param in tensor_params(b.operator):
        for arg in args_of(b, param):
            assert isinstance(param.type, sx.TensorType)
            _element_type(b, param, param.type.dtype, arg.dtype, bounds)
    for name in bounds:
        if name not in b.dtypes:
            default = next(
                (p.default for p in tensor_params(b.operator) if isinstance(p.type, sx.TensorType) and p.type.dtype == name), None
            )
            if default is None:
                raise error(
                    "R0204",
                    f"`{b.operator.name}`: no argument tells the type `{name}`",
                    b.operator.name_span,
                    "in this operator",
                    help=f'pass it as an attribute: `{name}="f32"`',
                )
            b.dtypes[name] = DTYPES["f32"]


def _converted(name: str, dtype: DType | None) -> str:
    return f"convert it to `{dtype}`: `{name}.astype('{dtype.numpy.name}')`" if dtype is not None else "convert the argument"


def _element_type(b: Binder, param: sx.Param, wanted: str, have: DType, bounds: Mapping[str, str | None]) -> None:
    if wanted in bounds:
        if not belongs(have, bounds[wanted]):
            raise error(
                "R0204",
                f"`{b.operator.name}`: `{param.name}` is `{have}`, but `{wanted}` is {bounds[wanted]}",
                param.span,
                f"declared `{wanted}: {bounds[wanted]}`",
                help=_converted(param.name, DTYPES.get(REPRESENTATIVE.get(bounds[wanted] or "", ""))),
            )
        known = b.dtypes.setdefault(wanted, have)
        if known != have:
            raise error(
                "R0204",
                f"`{b.operator.name}`: `{param.name}` is `{have}`, but `{wanted}` is `{known}` already",
                param.span,
                f"all `{wanted}` are one type",
                help=_converted(param.name, known),
            )
    elif wanted in CLASSES and wanted not in DTYPES:
        if not belongs(have, wanted):
            raise error(
                "R0204",
                f"`{b.operator.name}`: `{param.name}` is `{have}`, but must be {wanted}",
                param.span,
                "declared here",
                help=_converted(param.name, DTYPES.get(REPRESENTATIVE.get(wanted, ""))),
            )
    elif DTYPES.get(wanted) != have:
        raise error(
            "R0204",
            f"`{b.operator.name}`: `{param.name}` is `{have}`, but must be `{wanted}`",
            param.span,
            "declared here",
            help=_converted(param.name, DTYPES.get(wanted)),
        )


def bind_attributes(b: Binder) -> None:
    declared = {p.name: p for p in b.operator.params if p.kind == "attr"}
    known = {*declared, *(g.name for g in b.operator.generics)}
    for name in b.given.attrs:
        if name not in known:
            raise error(
                "R0206",
                f"`{b.operator.name}` has no attribute `{name}`",
                b.operator.name_span,
                "declared here",
                help=did_you_mean(name, known, f"its attributes are {', '.join(sorted(declared)) or 'none'}"),
            )
    for name, param in declared.items():
        if name in b.given.attrs:
            b.attrs[name] = _attribute(b, param, b.given.attrs[name])
        elif param.default is not None:
            b.attrs[name] = _default(b, param)
        else:
            raise error(
                "R0205",
                f"`{b.operator.name}` needs attribute `{name}`",
                param.span,
                "declared without a default",
                help=f"pass it: `{name}=…`",
            )
        found = b.attrs[name]
        if param.pack and isinstance(found, Packed):
            b.lengths.fix(name, len(found.items), param.span)


def _default(b: Binder, param: sx.Param) -> Value:
    assert param.default is not None
    scope = Scope(dict(b.attrs))
    if param.type == sx.Id("fn") and isinstance(param.default, sx.Id):
        return _attribute(b, param, param.default.name)
    items = param.default.items if isinstance(param.default, sx.TupleOf) else None
    if items is not None and param.pack:
        return Packed(tuple(value(b.ctx(), scope, item) for item in items))
    found = value(b.ctx(), scope, param.default)
    return Num(bool(found.value)) if param.type == sx.Id("bool") and isinstance(found, Num) else found


def _attribute(b: Binder, param: sx.Param, given: object) -> Value:
    if param.pack and isinstance(given, list | tuple):
        return Packed(tuple(_scalar_attribute(b, param, item) for item in given))
    return _scalar_attribute(b, param, given)


def _scalar_attribute(b: Binder, param: sx.Param, given: object) -> Value:
    kind = param.type.name if isinstance(param.type, sx.Id) else "int"
    item = given.item() if getattr(given, "size", 0) == 1 and hasattr(given, "item") else given
    match kind, item:
        case _, Num() | Fn() | Str():
            return item
        case "bool", bool() | 0 | 1:
            return Num(bool(item))
        case "int", int() if not isinstance(item, bool):
            return Num(item)
        case "int", size if isinstance(size, get_args(px.Expr)):  # of a caller whose sizes are open
            return Idx(size, True)
        case "str", str():
            return Str(item)
        case "fn", str():
            if item in b.module.functions or item in PASSABLE:
                return Fn(item, b.module)
            raise error(
                "R0207",
                f"`{b.operator.name}`: there is no function `{item}` for `{param.name}`",
                param.span,
                "declared here",
                help=lines_for(item) or did_you_mean(item, [*b.module.functions, *PASSABLE], "name a scalar function"),
            )
        case ("float", int() | float()) if not isinstance(item, bool) and not _beyond_floats(item):
            return Num(float(item))
        case (dtype, int() | float()) if dtype in b.dtypes or (dtype in DTYPES and dtype != "bool"):
            return Num(item)
        case _:
            what = type(item).__name__
            raise error(
                "R0207",
                f"`{b.operator.name}`: attribute `{param.name}` is {kind}, and {given!r} is {what}",
                param.span,
                f"declared `{kind}`",
                help=_by_its_name(b, param.name, item) or f"pass {_example(kind)}",
            )


def _by_its_name(b: Binder, name: str, given: object) -> str | None:
    """Return how a function of elements is passed that is given as one of Python; None where it is none."""
    called = native_name(getattr(given, "__name__", ""), [*b.module.functions, *PASSABLE]) if callable(given) else None
    return f'a function of elements is passed by its name: `{name}="{called}"`' if called is not None else None


def _beyond_floats(number: int | float) -> bool:
    """Tell whether a whole number is larger than every float."""
    return isinstance(number, int) and abs(number) >= 2**1024


def _example(kind: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "True or False", "str": "a text", "fn": "the name of a function"}.get(
        kind, f"a {kind}"
    )


def repeat_defaults(b: Binder) -> None:
    """A single number for a pack attribute stands in every position."""
    for param in b.operator.params:
        if param.kind == "attr" and param.pack and not isinstance(b.attrs[param.name], Packed):
            b.attrs[param.name] = Packed((b.attrs[param.name],) * b.length(param.name))


def check_attribute_ranges(b: Binder) -> None:
    for param in b.operator.params:
        if param.kind != "attr" or param.range is None:
            continue
        inside = sx.Compare((param.range.lo, sx.Id(param.name), param.range.hi), ("<=", "<"))
        found = b.attrs[param.name]
        for item in found.items if isinstance(found, Packed) else (found,):
            held = value(b.ctx(), b.scope().bind({param.name: item}), inside)
            if isinstance(held, Num) and not held.value:
                lo, hi = (_text(value(b.ctx(), b.scope(), side)) for side in (param.range.lo, param.range.hi))
                raise error(
                    "R0208",
                    f"`{b.operator.name}`: attribute `{param.name}` is outside {lo}..{hi}",
                    param.span,
                    f"here {param.name} = {_text(item)}",
                    help=f"pass a value from {lo} on and below {hi}",
                )


def _text(found: Value) -> str:
    return bare(found.expr) if isinstance(found, Idx) else str(found.value) if isinstance(found, Num) else "?"
