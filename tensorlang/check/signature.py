"""Binding the parameters of an operator: element types, sizes, packs, attributes.

Every tensor parameter states equations between its argument's shape and the sizes of the operator:

    x: T[M, K]              M = shape[0], K = shape[1]
    x: T[A.., N, B..]       len(A) + 1 + len(B) = rank, len(A) from `where rank(A) == axis`
    x: T[N, (G, C)]         G * C = shape[1], one of them known
    b: T[broadcast D..]     missing and size-one dimensions agree with anything
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.dtypes import DTYPES, DType
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import bounds
from tensorlang.check.attributes import bind_attributes, bind_element_types, check_attribute_ranges, repeat_defaults
from tensorlang.check.binder import Binder, Given, args_of, dims_of, pack_names, tensor_params
from tensorlang.check.bindings import Arg, Binding
from tensorlang.check.lengths import find_lengths, signature_patterns
from tensorlang.check.module import Module
from tensorlang.check.packs import Pattern, dimension_names
from tensorlang.check.problems import error
from tensorlang.check.scalar import value
from tensorlang.check.scope import Scope
from tensorlang.check.shapes import Expected, evaluate, expected, match_shapes, parts_of
from tensorlang.check.sizes import check_conditions, name_sizes, size_parameters
from tensorlang.check.types import CLASSES, REPRESENTATIVE
from tensorlang.check.values import Dim, Idx, Num, Packed, Tensor, Value
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import Span
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show
from tensorlang.tensor import nodes as ir


def bind(module: Module, operator: sx.Operator, given: Given) -> Binding:
    """Return what the operator's parameters stand for. Raises CompileError with R02xx codes."""
    binder = Binder(module, operator, given)
    binder.packs = frozenset(n for n, pack in dimension_names(operator) if pack) | {p.name for p in operator.params if p.pack}
    binder.each_sizes = frozenset(
        d.name for p in operator.params if isinstance(p.type, sx.TensorType) for d in p.type.dims or () if isinstance(d, sx.Each)
    )
    binder.each_sizes |= {
        d.name for p in operator.results if isinstance(p.type, sx.TensorType) for d in p.type.dims or () if isinstance(d, sx.Each)
    }
    bind_element_types(binder)
    bind_attributes(binder)
    find_lengths(binder)
    repeat_defaults(binder)
    match_shapes(binder)
    size_parameters(binder)
    name_sizes(binder)
    check_attribute_ranges(binder)
    check_conditions(binder)
    return _binding(binder)


def _binding(b: Binder) -> Binding:
    values = dict(b.scope().values)
    for name in b.packs:
        if name not in values and b.lengths.get(name) == 0:
            values[name] = Packed(())
    parameters: list[ir.Tensor] = []
    params: dict[str, Tensor | tuple[Tensor, ...]] = {}
    for param in tensor_params(b.operator):
        first = len(parameters)
        params[param.name] = _parameter(b, values, param, parameters)
        for tensor in parameters[first:]:
            _check_extents(b, param, tensor.shape)
    results: dict[str, Tensor | tuple[Tensor, ...]] = {}
    names: list[str] = []
    for param in b.operator.results:
        results[param.name] = _result(b, values, param)
        found = results[param.name]
        names += [t.name for t in found] if isinstance(found, tuple) else [found.name]
    sizes = _symbolic(b, values, parameters, [t for r in results.values() for t in (r if isinstance(r, tuple) else (r,))])
    patterns = {n: _fixed(b, p) for n, p in signature_patterns(b.operator, pack_names(b)).items()}
    patterns |= {t.name: patterns[n] for n, g in {**params, **results}.items() if isinstance(g, tuple) and n in patterns for t in g}
    return Binding(b.operator, b.dtypes, values, params, results, tuple(parameters), tuple(names), patterns, b.each_sizes, sizes, b.context)


def _fixed(b: Binder, pattern: Pattern) -> Pattern:
    return tuple(b.lengths.get(p) if isinstance(p, str) else p for p in pattern)


def _symbolic(b: Binder, values: Mapping[str, Value], parameters: Sequence[ir.Tensor], results: Sequence[Tensor]) -> tuple[str, ...]:
    """Return the sizes that are not numbers, in the order in which the parameters mention them."""
    seen: dict[str, None] = {}
    for tensor in parameters:
        for size in tensor.shape:
            seen.update(dict.fromkeys(sorted(affine.name_set(size))))
    for item in values.values():
        for part in item.items if isinstance(item, Packed) else (item,):
            if isinstance(part, Idx):
                seen.update(dict.fromkeys(sorted(affine.name_set(part.expr))))
    for result in results:
        for dim in result.dims:
            for size in dim.sizes:
                seen.update(dict.fromkeys(sorted(affine.name_set(size))))
    return tuple(seen)


def _parameter(b: Binder, values: Mapping[str, Value], param: sx.Param, out: list[ir.Tensor]) -> Tensor | tuple[Tensor, ...]:
    args = args_of(b, param)
    if not args and not param.each:
        if param.default is None:
            raise error(
                "R0205", f"`{b.operator.name}` needs argument `{param.name}`", param.span, "declared without a default", help="pass it"
            )
        constant = value(b.ctx(), Scope(values), param.default)
        if not isinstance(constant, Num):
            raise error("T0152", f"the default of `{param.name}` must be a number", param.span, "declared here", help="`= 0`")
        dims = tuple(
            Dim(_sizes(b, values, e), tuple(None for _ in _sizes(b, values, e)), isinstance(e.node, sx.TupleOf))
            for e in expected(b, param, 0)
        )
        return Tensor(param.name, _dtype(b, param, None), dims, 0, constant)
    tensors = []
    for copy, arg in enumerate(args):
        name = f"{param.name}.{copy}" if param.each else param.name
        tensors.append(_stored(b, values, param, arg, copy, name, out))
    return tuple(tensors) if param.each else tensors[0]


def _dtype(b: Binder, param: sx.Param, arg: Arg | None) -> DType:
    assert isinstance(param.type, sx.TensorType)
    name = param.type.dtype
    if name in b.dtypes:
        return b.dtypes[name]
    if name in DTYPES:
        return DTYPES[name]
    if arg is not None:
        return arg.dtype
    help = "name a type or a generic"
    if name in CLASSES:
        generic = f"op {b.operator.name}[T: {name}](…)"
        if not param.type.dims and name in ("float", "int"):
            default = f" = {show(param.default)}" if param.default is not None else ""
            constant = f"a constant that the caller chooses is an attribute: `attr {param.name}: {name}{default}`"
            help = f"{constant}; a number among the data has a width: `{param.name}: {REPRESENTATIVE[name]}`"
            at = Span(param.span.source, param.type.span.start, param.type.span.start + len(name))
            raise error("T0104", f"the element type of `{param.name}` cannot be told", at, "nothing says which it is", help=help)
        help = f"`{name}` is a class of types: name one, as `{REPRESENTATIVE[name]}`, or declare a generic, `{generic}`, and write `T`"
    at = Span(param.span.source, param.type.span.start, param.type.span.start + len(name))
    raise error("T0104", f"the element type of `{param.name}` cannot be told", at, "nothing says which it is", help=help)


def _sizes(b: Binder, values: Mapping[str, Value], e: Expected) -> tuple[px.Expr, ...]:
    scope = Scope(values)
    if isinstance(e.node, sx.TupleOf):
        parts = parts_of(b, e.node.items)
        return tuple(_size(b, scope, node, position) for node, position in parts)
    return (_size(b, scope, e.node, e.position),)


def _size(b: Binder, scope: Scope, node: sx.Node, position: int | None) -> px.Expr:
    found = evaluate(b, scope, node, position)
    if found is None:
        names = sorted({n.name for n in descendants(node) if isinstance(n, sx.Id) and n.name not in scope.values})
        raise error(
            "R0210",
            f"`{b.operator.name}`: the size `{', '.join(names)}` is not known",
            node.span,
            "no argument tells it",
            help=f"pass an argument that has it, or declare `size {names[0] if names else 'n'}`",
        )
    return found


def _stored(b: Binder, values: Mapping[str, Value], param: sx.Param, arg: Arg, copy: int, name: str, out: list[ir.Tensor]) -> Tensor:
    """Enter one tensor parameter and return how the body sees it."""
    wanted = expected(b, param, copy)
    missing = len(wanted) - len(arg.dims)
    dims: list[Dim] = []
    shape: list[px.Expr] = []
    grouping: list[int] = []
    for k, e in enumerate(wanted):
        sizes = _sizes(b, values, e)
        composite = isinstance(e.node, sx.TupleOf)
        if k < missing:
            dims.append(Dim(sizes, (None,) * len(sizes), composite))
        elif e.broadcast and affine.product(arg.dims[k - missing]) == affine.ONE and sizes != (affine.ONE,):
            dims.append(Dim(sizes, (None,) * len(sizes), composite))
            shape.append(affine.ONE)
            grouping.append(1)
        else:
            dims.append(Dim(sizes, tuple(range(len(shape), len(shape) + len(sizes))), composite))
            shape += sizes
            grouping.append(len(sizes))
    lo = hi = None
    if param.range is not None:
        lo, hi = (_size(b, Scope(values), side, None) for side in (param.range.lo, param.range.hi))
        if not b.given.checks_ranges and (arg.lo, arg.hi) != (lo, hi):
            lo = hi = None
    dtype = _dtype(b, param, arg)
    declared = (lo, hi) if lo is not None and hi is not None else None
    groups = tuple(grouping) if any(g != 1 for g in grouping) else ()
    out.append(ir.Tensor(name, dtype, tuple(shape), groups, declared, span=param.span))
    return Tensor(name, dtype, tuple(dims), len(shape), lo=lo, hi=hi)


def _result(b: Binder, values: Mapping[str, Value], param: sx.Param) -> Tensor | tuple[Tensor, ...]:
    copies = 1
    if param.each:
        each = next((d.name for d in dims_of(param) if isinstance(d, sx.Each)), None)
        if each is None:
            raise error(
                "T0142",
                f"`each {param.name}` needs a dimension `each N`",
                param.span,
                "declared here",
                help="write which dimension differs",
            )
        copies = b.length(each)
    tensors = []
    for copy in range(copies):
        dims, axis = [], 0
        for e in expected(b, param, copy):
            sizes = _sizes(b, values, e)
            _check_extents(b, param, sizes)
            dims.append(Dim(sizes, tuple(range(axis, axis + len(sizes))), isinstance(e.node, sx.TupleOf)))
            axis += len(sizes)
        name = f"{param.name}.{copy}" if param.each else param.name
        tensors.append(Tensor(name, _dtype(b, param, None), tuple(dims), axis))
    return tuple(tensors) if param.each else tensors[0]


def _check_extents(b: Binder, param: sx.Param, sizes: Sequence[px.Expr]) -> None:
    for size in sizes:
        number = affine.constant(size)
        if number is not None and number < 0:
            raise error(
                "R0211",
                f"`{b.operator.name}`: `{param.name}` would have a dimension of {number} elements",
                param.span,
                "declared here",
                help="change the arguments or attributes that its shape depends on",
            )
        if number is None and not bounds.proven_nonnegative(size, {}):
            b.context = affine.conj(b.context, affine.compare(">=", size, affine.ZERO))
