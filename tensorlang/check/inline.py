"""Calls of operators on whole tensors: the callee's definitions join the caller's under prefixed names.

    p = softmax(s)      defines p, p.m, p.e        (rule L2)

The callee is checked for exactly these arguments, its parameters are replaced by the caller's tensors, and names that would clash with
the caller's get the prefix as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.bounded_cache import BoundedCache
from tensorlang.check import typed
from tensorlang.check.binder import Given
from tensorlang.check.bindings import Arg, Binding, Inlined
from tensorlang.check.body import elaborate
from tensorlang.check.equations import Body, Equation
from tensorlang.check.extern_calls import with_copied_arguments
from tensorlang.check.module import Module, reached_from
from tensorlang.check.problems import NeedsStatic, counted, did_you_mean, error, labelled
from tensorlang.check.reads import show_dims
from tensorlang.check.scalar import value
from tensorlang.check.scope import Scope, expand
from tensorlang.check.signature import bind
from tensorlang.check.suggest import written
from tensorlang.check.types import PASSABLE
from tensorlang.check.uses import lines_for
from tensorlang.check.values import Dim, Fn, Idx, Num, Packed, Str, Tensor, Value
from tensorlang.diagnostics import CompileError, Diagnostic, Label, Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.renaming import rename_program
from tensorlang.tensor.walk import program_names, substitute_reads
from tensorlang.tensor.walk import tensors as all_tensors


def inline(body: Body, equation: Equation, node: sx.Apply) -> Inlined:
    """Return the definitions of a call that is an equation by itself, and enter its results into the body's tensors."""
    targets = [(t.name, name) for t, name in zip(equation.clause.targets, equation.tensors, strict=True)]
    prefix = next((name for _, name in targets if name), "_")
    before = _Before()
    program, contexts = _callee(body, equation, node, prefix, before)
    results = _result_names(body, equation, node, program, prefix)
    definitions, externs = _renamed(body, program, results, prefix)
    for (_, name), tensor in zip(targets, _result_tensors(program, results), strict=True):
        if name:
            _enter(body, equation, name, tensor)
    contexts.append(program.program.context)
    return Inlined((*before.definitions, *definitions), affine.conj(*contexts), (*before.externs, *externs))


@dataclass(slots=True)
class _Before:
    """What computes the arguments of a call."""

    definitions: list[ir.Definition] = field(default_factory=list)
    externs: list[ir.ExternCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Callee:
    """A checked callee; `arguments` maps its parameters to the caller's tensors."""

    program: ir.Program
    arguments: Mapping[str, Tensor]
    results: tuple[Tensor, ...]


def _callee(body: Body, equation: Equation, node: sx.Apply, prefix: str, before: _Before) -> tuple[Callee, list[px.Cond]]:
    defining, operator = body.ctx.module.defining_module(node.name), body.ctx.module.operators[node.name]
    contexts: list[px.Cond] = []
    if node.slots:
        opening = node.span.source.text.index("[", node.span.start)
        brackets = Span(node.span.source, opening, node.span.source.text.index("(", opening)) if node.span.end else node.span
        help = f"sizes and types follow from what is passed: `{node.name}(…)`"
        raise error("T0161", f"a call of `{node.name}` takes nothing in brackets", brackets, "given here", help=help)
    given = _arguments(body, equation, node, operator, prefix, before, contexts)
    try:
        binding, program = _elaborated(defining, operator, given)
    except CompileError as problem:
        raise CompileError(*(_at_call(d, node, operator) for d in problem.diagnostics)) from None
    results = [t for g in binding.results.values() for t in (g if isinstance(g, tuple) else (g,))]
    return Callee(program, given.tensors, tuple(results)), contexts


def _elaborated(defining: Module, operator: sx.Operator, given: Arguments) -> tuple[Binding, ir.Program]:
    """Return an operator for such arguments, the same for all callers: names are the callee's own."""

    def make() -> tuple[Binding, ir.Program]:
        binding = bind(defining, operator, Given(given.args, given.attrs, given.sizes, checks_ranges=False))
        return binding, elaborate(defining, binding, inline)

    if any(isinstance(v, Fn) for v in given.attrs.values()):  # which are equal where their names are
        return make()
    meaning, kept = _meaning(defining, operator)
    attrs = tuple((name, type(v), repr(v)) for name, v in given.attrs.items())
    key = meaning, tuple(given.args.items()), attrs, tuple(given.sizes.items())
    with _LOCK:
        found = _ELABORATED.get(key)
    if found is None:
        found = kept, *make()
        with _LOCK:
            _ELABORATED.enter(key, found)
    return found[1:]


def _meaning(defining: Module, operator: sx.Operator) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return what tells an operator from others: which declarations it depends on, and what their modules say of these. A module that is
    made anew of the same declarations means the same. The second result has to be kept for as long as the first is used."""
    with _LOCK:
        known = _MEANINGS.get((id(defining), id(operator)))
    if known is None:
        parts = reached_from(defining, operator)
        found = tuple((id(d), m.mode, id(m.externs.get(d.name)) if isinstance(d, sx.Operator) else None) for m, d in parts)
        known = found, (defining, operator, parts)
        with _LOCK:
            _MEANINGS.enter((id(defining), id(operator)), known)
    return known


_ELABORATED: BoundedCache[tuple[object, ...], tuple[tuple[object, ...], Binding, ir.Program]] = BoundedCache(512)
"""Callees by what they mean and are given; the first of a value keeps the identities in its key from being another's."""
_MEANINGS: BoundedCache[tuple[int, int], tuple[tuple[object, ...], tuple[object, ...]]] = BoundedCache(512)
_LOCK = Lock()


def _at_call(problem: Diagnostic, node: sx.Apply, operator: sx.Operator) -> Diagnostic:
    """Return the problem of a callee as one of the call."""
    code = "T0160" if problem.code.startswith("R") else problem.code
    help = "cast its elements first, in an equation of their own" if problem.code == "R0204" else problem.help
    if problem.code == "R0205" and not any(p.kind == "attr" and f"`{p.name}`" in problem.title for p in operator.params):
        tensors = ", ".join(p.name for p in operator.params if p.kind == "tensor" and p.default is None)
        help = f"it is called `{node.name}({tensors})`"
    return replace(problem, code=code, help=help, labels=(Label(node.span, f"in this call of `{operator.name}`"), *problem.labels))


@dataclass
class Arguments:
    args: dict[str, Arg | tuple[Arg, ...] | None]
    attrs: dict[str, object]
    sizes: dict[str, px.Expr | tuple[px.Expr, ...]]
    tensors: dict[str, Tensor]


def _arguments(
    body: Body,
    equation: Equation,
    node: sx.Apply,
    operator: sx.Operator,
    prefix: str,
    before: _Before,
    contexts: list[px.Cond],
) -> Arguments:
    out = Arguments({}, {}, {}, {})
    params = {p.name: p for p in operator.params}
    positional = [a for a in node.args if not isinstance(a, sx.Keyword)]
    order = list(operator.params)
    pairs: list[tuple[sx.Param, sx.Node]] = []
    while positional and order:
        param = order.pop(0)
        if param.each:
            pairs += [(param, a) for a in positional]
            positional = []
        else:
            pairs.append((param, positional.pop(0)))
    if positional:
        raise error(
            "T0161",
            f"`{operator.name}` takes {counted(len(operator.params), 'argument')} and is given {len(node.args)}",
            node.span,
            "called here",
            help=_told_parameters(params),
        )
    for keyword in (a for a in node.args if isinstance(a, sx.Keyword)):
        if keyword.name not in params:
            raise error(
                "T0161",
                f"`{operator.name}` has no parameter `{keyword.name}`",
                keyword.span,
                "given here",
                help=did_you_mean(keyword.name, params, _told_parameters(params)),
            )
        if any(p.name == keyword.name for p, _ in pairs):
            raise error("T0161", f"`{keyword.name}` is given twice", keyword.span, "again here", help="delete one")
        pairs.append((params[keyword.name], keyword.value))
    for param, argument in pairs:
        _argument(body, equation, param, argument, prefix, before, contexts, out)
    return out


def _told_parameters(params: Mapping[str, sx.Param]) -> str:
    only = len(params) == 1
    return f"its parameter{' is' if only else 's are'} {', '.join(f'`{name}`' for name in params)}" if params else "it has no parameters"


def _argument(
    body: Body,
    equation: Equation,
    param: sx.Param,
    node: sx.Node,
    prefix: str,
    before: _Before,
    contexts: list[px.Cond],
    out: Arguments,
) -> None:
    if param.kind == "attr":
        out.attrs[param.name] = _constant(body, equation.scope, param, node)
    elif param.kind == "size":
        out.sizes[param.name] = _sizes(body, equation.scope, param, node)
    else:
        tensor = _tensor(body, equation, node, f"{prefix}.{param.name}", before, contexts)
        if tensor.constant is not None:
            return
        arg = Arg(_type(body, tensor), tuple(_actual(d) for d in tensor.dims), tensor.lo, tensor.hi)
        if param.each:
            group = out.args.get(param.name)
            group = group if isinstance(group, tuple) else ()
            out.tensors[f"{param.name}.{len(group)}"] = tensor
            out.args[param.name] = (*group, arg)
        else:
            out.tensors[param.name] = tensor
            out.args[param.name] = arg


def _actual(dim: Dim) -> tuple[px.Expr, ...]:
    """Return the sizes that are stored: a broadcast dimension of size one is one."""
    return tuple(size if axis is not None else affine.ONE for size, axis in zip(dim.sizes, dim.axes, strict=True))


def _type(body: Body, tensor: Tensor) -> DType:
    found = tensor.dtype if tensor.dtype is not None else body.ctx.element_type(tensor.name)
    assert found is not None
    return found


def _tensor(body: Body, equation: Equation, node: sx.Node, name: str, before: _Before, contexts: list[px.Cond]) -> Tensor:
    """Return the tensor that an argument names, or that a nested call computes."""
    match node:
        case sx.Id(own):
            found = equation.scope.values.get(own) or body.ctx.tensors.get(own)
            if isinstance(found, Tensor):
                return found
        case sx.Apply(callee) if callee in body.ctx.module.operators:
            nested, inner = _callee(body, equation, node, name, before)
            if len(nested.results) != 1:
                raise error(
                    "T0161",
                    f"`{callee}` has {len(nested.results)} results; only one can be an argument",
                    node.span,
                    "nested call",
                    help="name its results in an equation of their own: `a, b = …`",
                )
            results = {nested.results[0].name: name}
            contexts += [*inner, nested.program.context]
            definitions, externs = _renamed(body, nested, results, name)
            before.definitions += definitions
            before.externs += externs
            return _result_tensors(nested, results)[0]
        case _:
            pass
    raise error(
        "T0162",
        "an operator's argument is a whole tensor",
        node.span,
        "not a tensor's name",
        help="define a tensor first: `t[i] = …`, then pass `t`",
    )


def _constant(body: Body, scope: Scope, param: sx.Param, node: sx.Node) -> object:
    if isinstance(node, sx.Id) and isinstance(param.type, sx.Id) and param.type.name == "fn":
        found = scope.values.get(node.name)
        if isinstance(found, Fn):
            return found
        module = body.ctx.module
        if node.name in module.functions or node.name in PASSABLE:
            return Fn(node.name, module)
        help = lines_for(node.name) or did_you_mean(node.name, [*module.functions, *PASSABLE], f"declare `fn {node.name}(…) = …`")
        raise error("T0101", f"there is no function `{node.name}`", node.span, f"passed as `{param.name}` here", help=help)
    if isinstance(node, sx.TupleOf | sx.Pack):
        items = node.items if isinstance(node, sx.TupleOf) else (node,)
        return tuple(_known(value(body.ctx, at, item), item.span) for item, at in expand(scope, items))
    if isinstance(node, sx.Id) and isinstance(pack := scope.values.get(node.name), Packed):
        return tuple(_known(item, node.span) for item in pack.items)
    found = value(body.ctx, scope, node)
    if isinstance(found, Idx) and found.size and param.type == sx.Id("int") and param.range is None:
        return found.expr
    return _known(found, node.span)


def _known(found: Value, span: Span) -> object:
    match found:
        case Num(number):
            return number
        case Str(text):
            return text
        case Fn():
            return found
        case Idx(e) if (size := affine.constant(e)) is not None:
            return size
        case Idx(e):
            raise NeedsStatic(affine.name_set(e), span, "is an attribute of a call")
        case _:
            raise error(
                "T0163",
                "an attribute is a constant of the compilation",
                span,
                "computed at run time",
                help="pass a number, an attribute or a size",
            )


def _sizes(body: Body, scope: Scope, param: sx.Param, node: sx.Node) -> px.Expr | tuple[px.Expr, ...]:
    if param.pack:
        items = node.items if isinstance(node, sx.TupleOf) else (node,)
        return tuple(_extent(value(body.ctx, at, item), item.span) for item, at in expand(scope, items))
    return _extent(value(body.ctx, scope, node), node.span)


def _extent(found: Value, span: Span) -> px.Expr:
    match found:
        case Num(number) if isinstance(number, int):
            return typed.whole(number, span)
        case Idx(e):
            return e
        case _:
            raise error(
                "T0163",
                "a size is known when the operator is entered",
                span,
                "computed from data",
                help="pass a number, a size or an expression of sizes",
            )


# ---------------------------------------------------------------- names


def _as_many(names: Sequence[str], count: int) -> list[str]:
    """Return so many names on the left of a call: those that stand there, and `_` for the rest."""
    return [*(name or "_" for name in names[:count]), *("_" for _ in range(count - len(names)))]


def _result_names(body: Body, equation: Equation, node: sx.Apply, found: Callee, prefix: str) -> dict[str, str]:
    if len(found.results) != len(equation.tensors):
        names = ", ".join(_as_many(equation.tensors, len(found.results)))
        raise error(
            "T0161",
            f"`{node.name}` has {counted(len(found.results), 'result')}, but there is {counted(len(equation.tensors), 'name')} on the left",
            equation.span,
            "called here",
            help=f"name every result, `_` for one to discard: `{names} = {written(node.span)}`",
        )
    return {t.name: name or f"{prefix}.{t.name}" for t, name in zip(found.results, equation.tensors, strict=True)}


def _renamed(
    body: Body, callee: Callee, results: Mapping[str, str], prefix: str
) -> tuple[tuple[ir.Definition, ...], tuple[ir.ExternCall, ...]]:
    """Return the callee's definitions, and the kernels that it calls, in the caller's names."""
    viewed = {p.name for p in callee.program.params if p.name in callee.arguments and not _same_axes(callee.arguments[p.name], p)}
    program = with_copied_arguments(callee.program, viewed)
    tensors = {t.name for t in all_tensors(program)}
    taken = {*body.binding.sizes, *body.ctx.tensors, *body.ctx.local_names, *results.values(), *program.sizes}
    to: dict[str, str] = {}
    views = {}
    for name in sorted(program_names(program)):
        if name in program.sizes:
            continue
        if name in callee.arguments:
            to[name] = callee.arguments[name].name
            if name in viewed:
                views[to[name]] = (callee.arguments[name], next(p for p in program.params if p.name == name))
        elif name in results:
            to[name] = results[name]
        elif name in tensors or name in taken:
            to[name] = f"{prefix}.{name}"
    renamed = rename_program(program, to)
    if not views:
        return renamed.definitions, renamed.externs
    definitions = tuple(
        replace(d, pieces=tuple(replace(p, value=substitute_reads(p.value, lambda r: _viewed(r, views))) for p in d.pieces))
        for d in renamed.definitions
    )
    return definitions, renamed.externs


def _stored_axes(tensor: Tensor) -> list[px.Expr]:
    return [s for dim in tensor.dims for s in _actual(dim)]


def _same_axes(tensor: Tensor, param: ir.Tensor) -> bool:
    return tuple(_stored_axes(tensor)) == param.shape and tensor.rank == len(param.shape)


def _viewed(read: ir.Read, views: Mapping[str, tuple[Tensor, ir.Tensor]]) -> ir.Expr:
    """Return a read of a parameter as one of the caller's tensor, whose dimensions are made of other axes."""
    if read.tensor not in views:
        return read
    tensor, param = views[read.tensor]
    groups = param.grouping or (1,) * len(param.shape)
    index: list[ir.Slot] = [px.Int(0)] * tensor.rank
    at = 0
    for dim, count in zip(tensor.dims, groups, strict=True):
        slots, sizes = read.index[at : at + count], param.shape[at : at + count]
        at += count
        stored = [(axis, size) for axis, size in zip(dim.axes, dim.sizes, strict=True) if axis is not None]
        if not stored:
            continue
        if count == len(dim.axes) and sizes == dim.sizes:
            for (axis, _), slot in zip(stored, slots, strict=False):
                index[axis] = slot
            continue
        for (axis, _), slot in zip(stored, _digits(_row_major(slots, sizes, read.span), [s for _, s in stored], read.span), strict=True):
            index[axis] = slot
    return replace(read, index=tuple(index))


def _row_major(slots: Sequence[ir.Slot], sizes: Sequence[px.Expr], span: Span) -> px.Expr:
    out: px.Expr = affine.ZERO
    for slot, size in zip(slots, sizes, strict=True):
        if isinstance(slot, ir.Dynamic):
            raise error(
                "T0164",
                "not supported yet: a data-dependent read of a parameter whose argument has a composite dimension",
                span,
                help="pass a tensor of the declared dimensions",
            )
        product = affine.mul(out, size)
        if product is None:
            raise NeedsStatic(affine.name_set(size), span, "is a factor of a composite dimension")
        out = affine.add(product, slot)
    return out


def _digits(whole: px.Expr, sizes: Sequence[px.Expr], span: Span) -> list[px.Expr]:
    out: list[px.Expr] = []
    for position, size in reversed(list(enumerate(sizes))):
        number = affine.constant(size)
        if position == 0:
            out.insert(0, whole)
        elif number is None:
            raise NeedsStatic(affine.name_set(size), span, "is a factor of a composite dimension")
        else:
            out.insert(0, affine.mod(whole, number) if number else affine.ZERO)
            whole = affine.floor(whole, number) if number else affine.ZERO
    return out


def _result_tensors(callee: Callee, results: Mapping[str, str]) -> list[Tensor]:
    return [replace(t, name=results[t.name]) for t in callee.results]


def _enter(body: Body, equation: Equation, name: str, tensor: Tensor) -> None:
    declared = body.ctx.tensors.get(name)
    if declared is None:
        body.ctx.tensors[name] = tensor
        if tensor.dtype is not None:
            body.types[name] = tensor.dtype
        return
    same = len(declared.dims) == len(tensor.dims) and all(map(_same_extent, declared.dims, tensor.dims))
    if same and declared.dtype == tensor.dtype:
        body.ctx.tensors[name] = tensor  # perhaps with dimensions made of several axes, as the callee has them
        for values in (e.scope.values for e in body.equations):
            if isinstance(values, dict) and name in values:
                values[name] = tensor
        return
    raise labelled(
        "T0165",
        f"`{name}` is declared `{declared.dtype}[{show_dims(declared)}]`, and the call gives `{tensor.dtype}[{show_dims(tensor)}]`",
        [(equation.span, "assigned here")],
        help="change the declaration, or name the call's result otherwise and copy it element by element",
    )


def _same_extent(declared: Dim, found: Dim) -> bool:
    """Whether a dimension is as long as it is declared; one that is declared of several factors has these."""
    return declared.sizes == found.sizes or (len(declared.sizes) == 1 and affine.product(found.sizes) == declared.sizes[0])
