"""One operator for given argument types: from syntax to tensor IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.dtypes import DType
from polyhedral import expr as px
from tensorlang.check.binder import Given, TensorArg
from tensorlang.check.bindings import Arg, Binding
from tensorlang.check.body import elaborate
from tensorlang.check.depth import too_deep
from tensorlang.check.inline import inline
from tensorlang.check.module import Module
from tensorlang.check.problems import NeedsStatic, did_you_mean, error
from tensorlang.check.signature import bind
from tensorlang.check.values import Value
from tensorlang.diagnostics import CompileError
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.dead_code import without_dead_calls


@dataclass(frozen=True, slots=True)
class ArgType:
    """The type of a tensor argument. A dimension given by name, or as an expression over names, is a size that the caller knows only at run
    time."""

    dtype: DType
    shape: tuple[int | str | px.Expr, ...]


def instantiate(
    module: Module,
    operator: str,
    args: Sequence[ArgType | tuple[ArgType, ...] | None],
    attrs: Mapping[str, object] | None = None,
    sizes: Mapping[str, int | str | tuple[int | str, ...]] | None = None,
    *,
    symbolic: bool = False,
    static: frozenset[str] = frozenset(),
) -> ir.Program:
    """Return `operator` for arguments of these types, in the order of its tensor parameters (a tuple for an `each` parameter, None for
    an optional one left out). With `symbolic`, sizes stay named after the operator's size variables, except those in `static` (elements of
    packs as `D.0`) and those that must be numbers (rule P8). Nothing is proven here: see `tensorlang.tensor.prove`.

    Raises CompileError: R02xx where the call does not fit the operator, T01xx where the operator itself is wrong."""
    declaration, given = _given(module, operator, args, attrs, sizes)
    program = specialise(
        _in_mode(module.defining_module(operator), module.mode), declaration, replace(given, named=symbolic, static=static)
    )
    for call in program.externs:
        if call.kernel is None:
            raise no_kernel(call)
    return program


def bound(
    module: Module,
    operator: str,
    args: Sequence[ArgType | tuple[ArgType, ...] | None],
    attrs: Mapping[str, object] | None = None,
    sizes: Mapping[str, int | str | tuple[int | str, ...]] | None = None,
) -> Mapping[str, Value]:
    """Return what the sizes and attributes of `operator` are for such arguments. Raises CompileError R02xx as `instantiate` does."""
    declaration, given = _given(module, operator, args, attrs, sizes)
    return bind(module.defining_module(operator), declaration, given).values


def signature(
    module: Module,
    operator: str,
    args: Sequence[ArgType | tuple[ArgType, ...] | None],
    attrs: Mapping[str, object] | None = None,
    sizes: Mapping[str, int | str | tuple[int | str, ...]] | None = None,
) -> Binding:
    """Return the parameters and the results of `operator` for such arguments, its sizes named, as far as they need not be numbers. Nothing
    is asked of its body. Raises CompileError R02xx as `instantiate` does."""
    declaration, given = _given(module, operator, args, attrs, sizes)
    given, static = replace(given, named=True), frozenset[str]()
    while True:
        try:
            return bind(module.defining_module(operator), declaration, _with_static(given, static))
        except NeedsStatic as need:
            if need.sizes <= static:
                raise not_static(declaration, need) from None
            static |= need.sizes


def _in_mode(defining: Module, mode: sx.Mode) -> Module:
    return defining if defining.mode == mode else replace(defining, mode=mode)


def _given(
    module: Module,
    operator: str,
    args: Sequence[ArgType | tuple[ArgType, ...] | None],
    attrs: Mapping[str, object] | None,
    sizes: Mapping[str, int | str | tuple[int | str, ...]] | None,
) -> tuple[sx.Operator, Given]:
    declaration = module.operators.get(operator)
    if declaration is None:
        raise error("R0205", f"there is no operator `{operator}`", help=did_you_mean(operator, module.operators, None))
    return declaration, Given(_tensors(declaration, args), dict(attrs or {}), {n: _size(s) for n, s in (sizes or {}).items()})


def specialise(module: Module, operator: sx.Operator, given: Given) -> ir.Program:
    """Return the operator for a binding; sizes that must be numbers become numbers where the arguments tell them."""
    static = given.static
    while True:
        try:
            return without_dead_calls(elaborate(module, bind(module, operator, _with_static(given, static)), inline))
        except NeedsStatic as need:
            if not given.named or need.sizes <= static:
                raise not_static(operator, need) from None
            static |= need.sizes
        except RecursionError:
            raise too_deep(operator) from None


def _with_static(given: Given, static: frozenset[str]) -> Given:
    return Given(given.tensors, given.attrs, given.sizes, given.named, static, given.checks_ranges)


def no_kernel(call: ir.ExternCall) -> CompileError:
    """Return T0143 for a call of an operator that has neither a body nor a kernel."""
    return error(
        "T0143",
        f"`{call.operator}` has no body, and no kernel stands for it on this target",
        call.span,
        "declared here",
        help=f'give a kernel, `externs={{"{call.operator}": tl.c_symbol("lib.so", "{call.operator}")}}`, or write its body',
    )


def not_static(operator: sx.Operator, need: NeedsStatic) -> CompileError:
    names = ", ".join(f"`{n}`" for n in sorted(need.sizes))
    return error(
        "R0212",
        f"`{operator.name}`: {names} must be known when compiling",
        need.span,
        f"{need.what}, so no index expression says it",
        help="pass arguments of known size, or make it an `attr`",
    )


def _tensors(operator: sx.Operator, args: Sequence[ArgType | tuple[ArgType, ...] | None]) -> dict[str, TensorArg]:
    params = [p for p in operator.params if p.kind == "tensor"]
    if len(args) > len(params):
        raise error(
            "R0205",
            f"`{operator.name}` takes {len(params)} tensor{'s' * (len(params) != 1)} and is given {len(args)}",
            operator.name_span,
            "declared here",
            help=f"they are {', '.join(p.name for p in params) or 'none'}",
        )
    out: dict[str, TensorArg] = {}
    for param, arg in zip(params, args, strict=False):
        if param.each != isinstance(arg, tuple):
            wanted = "takes any number of tensors: pass a tuple" if param.each else "is one tensor, not several"
            if arg is None and not param.each:
                continue
            raise error(
                "R0205",
                f"`{operator.name}`: `{param.name}` {wanted}",
                param.span,
                "declared here",
                help="pass `(a, b)`" if param.each else "pass one tensor",
            )
        out[param.name] = tuple(_arg(a) for a in arg) if isinstance(arg, tuple) else None if arg is None else _arg(arg)
    return out


def _arg(arg: ArgType) -> Arg:
    return Arg(arg.dtype, tuple((_extent(d),) for d in arg.shape))


def _extent(dim: int | str | px.Expr) -> px.Expr:
    match dim:
        case str():
            return px.Name(dim)
        case px.Int() | px.Name() | px.Add() | px.Scale() | px.Floor() | px.Mod() | px.Min() | px.Max():
            return dim
        case _:
            return px.Int(int(dim))


def _size(given: int | str | tuple[int | str, ...] | list[int | str]) -> px.Expr | tuple[px.Expr, ...]:
    return tuple(_extent(d) for d in given) if isinstance(given, tuple | list) else _extent(given)


__all__ = ["ArgType", "instantiate", "specialise"]
