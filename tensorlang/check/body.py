"""The body of one operator: boxes and types of its tensors, then one piece an equation.

Order of work: packs and ranges give boxes of locals, boxes of arguments let callees be inlined, boxes and callees let types be inferred,
and only then is every right-hand side turned into tensor IR.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import DType, bool_, compute_dtype, holds
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import typed
from tensorlang.check.bindings import Binding, Call
from tensorlang.check.boxes import find_boxes
from tensorlang.check.depth import check_depth
from tensorlang.check.equations import Body, Equation, axis_sizes, called, check_results, declare_locals, equations_of, open_equation
from tensorlang.check.extern_calls import extern_program, ir_tensor, is_opaque
from tensorlang.check.modes import mode_of
from tensorlang.check.module import Module, prelude
from tensorlang.check.parts import parts, projected
from tensorlang.check.pieces import element_type_of, foreign, slots_of, solve_equation
from tensorlang.check.problems import error, labelled
from tensorlang.check.scalar import value
from tensorlang.check.scope import Context, Scope
from tensorlang.check.suggest import reduction_in_comparison, written
from tensorlang.check.values import Idx, Num, Tensor, Tup, Value
from tensorlang.check.walk import bound_name
from tensorlang.diagnostics import CompileError, Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.clauses_apart import clauses_apart
from tensorlang.tensor.walk import Fresh


def elaborate(module: Module, binding: Binding, call: Call) -> ir.Program:
    """Return the tensor IR of an operator whose parameters are bound. `call` inlines another operator."""
    if is_opaque(module, binding.operator):
        return extern_program(module, binding)
    body = _start(module, binding)
    find_boxes(body, call)
    definitions = _definitions(body)
    if body.problems:
        raise CompileError(*dict.fromkeys(body.problems))
    for definition in definitions:
        check_depth(binding.operator, definition)
    program = ir.Program(
        binding.operator.name,
        binding.sizes,
        binding.parameters,
        binding.result_names,
        (*body.inlined, *definitions),
        affine.conj(binding.context, body.context),
        mode_of(module, binding.operator),
        span=binding.operator.span,
        externs=tuple(body.externs),
    )
    return clauses_apart(program)


def _start(module: Module, binding: Binding) -> Body:
    operator = binding.operator
    declared = {t.name: t for t in binding.all_tensors()}
    singles = {name: t for name, t in {**binding.params, **binding.results}.items() if isinstance(t, Tensor)}
    base = Scope({**binding.values, **singles})
    written = {t.name for c in operator.clauses for t in c.targets} - {"_"}
    local = written - binding.params.keys() - binding.results.keys()
    ctx = Context(
        module, operator, dict(binding.dtypes), Fresh(), value, dict(declared), local_names=frozenset(local), sizes=frozenset(binding.sizes)
    )
    body = Body(ctx, binding, [], dict(binding.patterns))
    ctx.element_type = lambda name: element_type_of(body, name)
    for number, clause in enumerate(operator.clauses):
        for equation in equations_of(body, base, number, clause):
            body.equations.append(equation)
            for target, name in zip(clause.targets, equation.tensors, strict=True):
                if name in local and target.slots is not None and name not in body.patterns:
                    pattern = equation.packs.pattern(target.slots)
                    if pattern is not None:
                        body.patterns[name] = pattern
    declare_locals(body, base)
    check_results(body)
    return body


def _definitions(body: Body) -> list[ir.Definition]:
    """Return one definition a group of tensors that share equations, in the order in which they are first written."""
    out: list[ir.Definition] = []
    done: set[str] = set()
    for equation in body.equations:
        if called(body, equation):
            continue
        if equation.tensors[0] in done and equation.tensors[0]:
            continue
        try:
            out += _defined_together(body, equation)
        except CompileError as problem:
            body.problems += problem.diagnostics
            done |= {name for other in body.equations if set(other.tensors) & set(equation.tensors) for name in other.tensors}
        done |= set(equation.tensors)
    return out


def _defined_together(body: Body, first: Equation) -> list[ir.Definition]:
    if "" in first.tensors:
        raise error(
            "T0148",
            "`_` discards a result of an operator, not of an expression",
            first.clause.targets[0].span,
            "here",
            help="give it a name",
        )
    group = first.tensors
    equations = [e for e in body.equations if set(e.tensors) & set(group)]
    for equation in equations:
        if equation.tensors != group or called(body, equation):
            raise _partly_together(first, equation)
    found = parts(body, first)
    return [_definition(body, equations, part, apart=len(found) > 1) for part in found]


def _partly_together(first: Equation, second: Equation) -> CompileError:
    """Return T0148 for tensors that one equation defines together and another apart."""
    together, apart = (first, second) if len(first.tensors) >= len(second.tensors) else (second, first)
    names = " and ".join(f"`{t}`" for t in together.tensors if t)
    one = apart.clause.targets[0]
    indices = written(one.span)[len(one.name) :] if one.span.end else "[…]"
    targets = ", ".join(f"{name}{indices}" for name in together.tensors)
    return labelled(
        "T0148",
        f"{names} are defined together in one equation and apart in another",
        [(first.span, _defines(first)), (second.span, _defines(second))],
        help=f"define them together in every equation, `{targets} = ({', '.join('…' for _ in together.tensors)})`, or apart in every one",
    )


def _defines(equation: Equation) -> str:
    names = " and ".join(f"`{t}`" for t in equation.tensors if t)
    return f"defines {names}{' together' if len(equation.tensors) > 1 else ' alone'}"


def _definition(body: Body, equations: list[Equation], group: tuple[str, ...], *, apart: bool) -> ir.Definition:
    """Return the definition of tensors of one shape; `apart`: the equations define others of other ranks, too."""
    first = equations[0]
    tensors = [body.ctx.tensors[name] for name in group]
    _check_same_shape(first, tensors)
    axes = _axes(body, equations, tensors[0])
    body.ctx.names = Fresh(
        {*body.binding.sizes, *body.ctx.tensors, *body.ctx.local_names, *axes, *(d.name for x in body.inlined for d in x.tensors)}
    )
    plain = [_piece(body, e, group, axes, apart=apart) if e.is_plain else None for e in equations]
    guards = [p.guard for p in plain if p is not None]
    pieces = []
    rest = [e for e in equations if not e.is_plain]
    if len(rest) > 1:
        raise labelled(
            "T0149",
            f"`{group[0]}` has two `otherwise`",
            [(rest[0].span, "one"), (rest[1].span, "another")],
            help="give one of them a guard",
        )
    for equation, made in zip(equations, plain, strict=True):
        if made is None:
            written = _piece(body, equation, group, axes, apart=apart)
            made = replace(written, guard=affine.conj(written.guard, affine.negate(affine.disj(*guards))), otherwise=True)
        pieces.append(made)
    return ir.Definition(tuple(ir_tensor(t, _stored(body, t)) for t in tensors), axes, tuple(pieces), span=first.span)


def _check_same_shape(first: Equation, tensors: list[Tensor]) -> None:
    for tensor in tensors[1:]:
        if axis_sizes(tensor) != axis_sizes(tensors[0]):
            raise error(
                "T0148",
                f"`{tensors[0].name}` and `{tensor.name}` are defined together but have different shapes",
                first.span,
                "defined together",
                help="define them in equations of their own",
            )


def _stored(body: Body, tensor: Tensor) -> DType:
    if tensor.dtype is not None:
        return tensor.dtype
    found = element_type_of(body, tensor.name)
    assert found is not None
    return compute_dtype(found)


def _axes(body: Body, equations: list[Equation], tensor: Tensor) -> tuple[str, ...]:
    """Name the axes after the first equation that has a plain index, or one with a shift, in each place (rule L1)."""
    taken = Fresh({*body.binding.sizes, *body.ctx.tensors, *body.ctx.local_names, *(t.name for d in body.inlined for t in d.tensors)})
    wishes: list[str | None] = [None] * tensor.rank
    for equation in equations:
        opened = open_equation(body, equation)
        if opened is None:
            continue
        placeholder = tuple(str(k) for k in range(tensor.rank))
        for slot in slots_of(body, equation, opened, tensor, placeholder):
            factors, _ = affine.terms(slot.at)
            match list(factors.items()):
                case [(px.Name(name), 1)] if name.startswith("?") and wishes[int(slot.axis)] is None and name[1:] not in wishes:
                    wishes[int(slot.axis)] = name[1:]
                case _:
                    pass
    return tuple(taken(w if w is not None else f"a{k}") for k, w in enumerate(wishes))


def _piece(body: Body, equation: Equation, group: tuple[str, ...], axes: tuple[str, ...], *, apart: bool) -> ir.Piece:
    solved = solve_equation(body, equation, group[0], axes)
    for other in group[1:]:
        if solve_equation(body, equation, other, axes) != solved:
            raise error(
                "T0148",
                "tensors defined together must have the same indices on the left",
                equation.span,
                "here",
                help="define them in equations of their own",
            )
    computed = value(body.ctx, replace(solved.scope, owner=group[0]), equation.clause.value)
    items = _items(body.ctx.module, equation, computed)
    if not apart:
        return ir.Piece(_stored_value(body, equation, group, items, computed), solved.guard, span=equation.span)
    mine = tuple(items[equation.tensors.index(name)] for name in group)
    made = _stored_value(body, equation, group, mine, Num(0))
    return ir.Piece(projected(made, foreign(body, equation, group[0]), solved.guard, equation, group), solved.guard, span=equation.span)


def _items(module: Module, equation: Equation, computed: Value) -> tuple[Value, ...]:
    """Return one value for each tensor that an equation defines."""
    items = computed.items if isinstance(computed, Tup) else (computed,)
    count = len(equation.tensors)
    _refuse_pair_of_position(module, equation, count)
    if len(items) != count:
        raise error(
            "T0115",
            f"{count} tensor{'s are' if count != 1 else ' is'} defined by {len(items)} value{'s' * (len(items) != 1)}",
            equation.span,
            "here",
            help="give as many names on the left as there are values on the right",
        )
    return items


def _refuse_pair_of_position(module: Module, equation: Equation, count: int) -> None:
    """Raise T0115 for `v, p = argmax(i) (x[i], i)` and its like: `argmax` takes a value, and yields its position alone."""
    node = equation.clause.value
    pairs = {"argmax": "first_max", "argmin": "first_min"}
    if not isinstance(node, sx.Reduction) or node.reducer not in pairs or not (isinstance(node.body, sx.TupleOf) or count == 2):
        return
    if module.reducers.get(node.reducer) != prelude().reducers[node.reducer]:
        return  # another one of this name
    head = written(Span(node.span.source, node.span.start, node.body.span.start)).strip() if node.body.span.end else ""
    body = written(node.body.span) if node.body.span.end else ""
    binders = [bound_name(binder) for binder in node.binders if not isinstance(binder, sx.From)]
    first = written(node.body.items[0].span) if isinstance(node.body, sx.TupleOf) and node.body.items[0].span.end else body
    both = body if isinstance(node.body, sx.TupleOf) else f"({body}, {binders[0] if binders else '…'})"
    help = f"for the value and its position write `{head.replace(node.reducer, pairs[node.reducer], 1)} {both}`"
    if count == 1:
        help = f"write `{head} {first}`"
    title = f"`{node.reducer}` takes one value and yields one, the position"
    label = "a value and its position" if isinstance(node.body, sx.TupleOf) else "the position alone"
    raise labelled("T0115", title, [((node.body if isinstance(node.body, sx.TupleOf) else node).span, label)], help=help)


def _stored_value(body: Body, equation: Equation, group: tuple[str, ...], items: tuple[Value, ...], computed: Value) -> ir.Expr:
    stored = []
    for name, item in zip(group, items, strict=True):
        tensor = body.ctx.tensors[name]
        wanted = tensor.dtype if tensor.dtype is not None else element_type_of(body, name)
        stored.append(_assigned(name, wanted, item, equation))
    if len(stored) == 1:
        return stored[0]
    return computed.whole if isinstance(computed, Tup) and computed.whole is not None else ir.TupleOf(tuple(stored), span=equation.span)


def _assigned(name: str, wanted: DType | None, item: Value, equation: Equation) -> ir.Expr:
    have = typed.dtype_of(item)
    right = equation.clause.value.span
    if have is not None and wanted is not None and have != wanted and not isinstance(item, Idx):
        text = written(right) if right.end else ""
        cast = f"{wanted}({text if 0 < len(text) <= 40 and chr(10) not in text else '…'})"
        if have == bool_ and (ended := reduction_in_comparison(equation.clause.value, wanted)) is not None:
            raise ended
        raise error(
            "T0150",
            f"`{name}` holds `{wanted}` and is given `{have}`",
            right if right.end else equation.span,
            f"this is `{have}`",
            help=f"cast it: `{cast}`" if holds(wanted, have) else f"let `{name}` be `{have}`, or cast it, which may lose digits: `{cast}`",
        )
    return typed.coerce(item, wanted, equation.clause.value.span if equation.clause.value.span.end else equation.span)
