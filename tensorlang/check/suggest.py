"""What a program should say instead, with the names and ranks that it has: help texts and the edits that make them."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.problems import counted, labelled
from tensorlang.check.scope import Scope
from tensorlang.check.types import FOLDS, holding
from tensorlang.check.values import Idx, Num, Tensor, Val, Value
from tensorlang.check.walk import bound_name, children, descendants
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Edit, Label, Span, exception
from tensorlang.syntax import nodes as sx

LETTERS = "ijklmnpqrst"


def written(span: Span) -> str:
    """Return the text of a span."""
    return span.source.text[span.start : span.end]


def edited(span: Span, edits: Iterable[Edit]) -> str:
    """Return the text of a span with edits inside of it made."""
    text = written(span)
    for edit in sorted(edits, key=lambda e: e.span.start, reverse=True):
        text = text[: edit.span.start - span.start] + edit.text + text[edit.span.end - span.start :]
    return text


def fresh_letters(count: int, taken: Iterable[str]) -> list[str] | None:
    """Return names of indices that mean nothing yet, as people call them, or None where there are not enough."""
    free = [letter for letter in LETTERS if letter not in set(taken)]
    return free[:count] if len(free) >= count else None


def _is_plain(tensor: Tensor) -> bool:
    return not any(dim.composite for dim in tensor.dims)


def aligned(tensor: Tensor, indices: Sequence[tuple[str, px.Expr]]) -> list[str] | None:
    """Return which of `indices` (names and extents) index the dimensions of a tensor: those of equal extents, in their order, or
    the last ones, as NumPy takes them. None where there are too few."""
    extents = [dim.sizes[0] for dim in tensor.dims]
    if not _is_plain(tensor) or len(extents) > len(indices):
        return None
    chosen: list[str] = []
    for extent in extents:
        found = next((name for name, size in indices if size == extent and name not in chosen), None)
        if found is None:
            return [name for name, _ in indices[len(indices) - len(extents) :]]
        chosen.append(found)
    return chosen


def in_scope(scope: Scope, tensor: Tensor) -> str:
    """Return a tensor with the indices at hand that run over its dimensions, `b[i]`; `…` where there is none."""
    free = {name: v.expr for name, v in scope.values.items() if isinstance(v, Idx) and not v.size and v.expr in _ranged(scope)}
    out: list[str] = []
    for dim in tensor.dims:
        extent = None if dim.composite else dim.sizes[0]
        out.append(next((name for name, at in free.items() if _ranged(scope)[at] == (affine.ZERO, extent) and name not in out), "…"))
    return f"{tensor.name}[{', '.join(out)}]"


def _ranged(scope: Scope) -> Mapping[px.Expr, tuple[px.Expr, px.Expr]]:
    return {px.Name(name): range_ for name, range_ in scope.ranges.items()}


# ---------------------------------------------------------------- whole tensors on the left, and folded


def equation_of_elements(
    clause: sx.Clause, target: sx.Target, tensor: Tensor, shape: str, tensors: Mapping[str, Value], operators: Container[str]
) -> CompileError:
    """Return T0132 for `y = x + b` of tensors that have dimensions, with the equation of their elements."""
    taken = {n.name for n in descendants(clause) if isinstance(n, sx.Id | sx.Index | sx.Apply)} | tensors.keys()
    edits = _indexed(clause, target, tensor, tensors, taken)
    calls = [n for n in descendants(clause.value) if isinstance(n, sx.Apply) and n.name in operators and n.span.end]
    if calls:
        names = ", ".join(fresh_letters(len(tensor.dims), taken) or "…")
        said = edited(clause.value.span, [Edit(calls[0].span, f"t[{names}]")])
        help = f"a call has an equation of its own: `t = {written(calls[0].span)}`, then `{target.name}[{names}]` from it, as in `{said}`"
        title = f"`{target.name}` has {counted(len(tensor.dims), 'dimension')}, and this names none of its elements"
        return labelled("T0132", title, [(target.span, f"declared with the shape [{shape}]"), (calls[0].span, "a whole tensor")], help=help)
    help = f"an equation says what one element is: `{edited(clause.span, edits) if edits else f'{target.name}[…] = …'}`"
    title = f"`{target.name}` has {counted(len(tensor.dims), 'dimension')}, and this names none of its elements"
    return labelled("T0132", title, [(target.span, f"declared with the shape [{shape}]")], help=help, edits=edits)


def _indexed(clause: sx.Clause, target: sx.Target, tensor: Tensor, tensors: Mapping[str, Value], taken: set[str]) -> tuple[Edit, ...]:
    """Return the edits that put indices behind the names of whole tensors in a clause; () where it is not plain which."""
    used = [n.name for n in descendants(clause.value) if isinstance(n, sx.Id) and n.name not in tensors]
    names = list(dict.fromkeys(used)) if len(dict.fromkeys(used)) == len(tensor.dims) else fresh_letters(len(tensor.dims), taken)
    folded = any(isinstance(n, sx.Apply) and n.name in FOLDS for n in descendants(clause.value))
    if names is None or folded or not _is_plain(tensor):
        return ()
    indices = list(zip(names, (dim.sizes[0] for dim in tensor.dims), strict=True))
    end = target.span.start + len(target.name)
    edits = [Edit(Span(target.span.source, end, target.span.end if target.type is not None else end), f"[{', '.join(names)}]")]
    for node in descendants(clause.value):
        found = tensors.get(node.name) if isinstance(node, sx.Id) else None
        if isinstance(found, Tensor) and found.dims:
            mine = aligned(found, indices)
            if mine is None:
                return ()
            edits.append(Edit(Span(node.span.source, node.span.end, node.span.end), f"[{', '.join(mine)}]"))
    return tuple(edits)


def fold_of_a_tensor(node: sx.Apply, tensor: Tensor, scope: Scope) -> CompileError:
    """Return T0116 for `sum(x)`, with the reduction over all elements of `x`."""
    names = fresh_letters(len(tensor.dims), scope.values)
    (argument,) = node.args
    listed = ", ".join(names or ["…"])
    edits = (Edit(node.span, f"{node.name}({listed}) {tensor.name}[{listed}]"),) if names and _is_plain(tensor) else ()
    return labelled(
        "T0116",
        f"`{node.name}` of a whole tensor says not what it runs over",
        [(argument.span, f"`{tensor.name}` has {counted(len(tensor.dims), 'dimension')}")],
        help=f"a reduction names its indices: `{node.name}({listed}) {tensor.name}[{listed}]`",
        edits=edits,
    )


def fold_of_element(node: sx.Apply, scope: Scope) -> CompileError:
    """Return T0116 for `sum(x[i])` where `i` is the index of an element already: nothing is added up."""
    (argument,) = node.args
    mentioned = list(dict.fromkeys(n.name for n in descendants(argument) if isinstance(n, sx.Id) and _is_index(scope, n.name)))
    letters = fresh_letters(1, {*scope.values, *mentioned})
    text, meant = written(argument.span) if argument.span.end else "", f"{node.name}(k) …"
    if mentioned and letters and 0 < len(text) <= 60:
        body = re.sub(rf"\b{re.escape(mentioned[-1])}\b", letters[0], text)
        meant = f"{node.name}({letters[0]}) {body if isinstance(argument, sx.Index | sx.Apply) else f'({body})'}"
    help = f"a reduction names the index that it runs over: `{meant}`"
    return labelled("T0116", f"`{node.name}` of one value is that value", [(argument.span, "one element")], help=help)


def _is_index(scope: Scope, name: str) -> bool:
    value = scope.values.get(name)
    return isinstance(value, Idx) and not value.size


def binder_as_argument(node: sx.Apply, scope: Scope) -> CompileError | None:
    """Return T0105 for `sum(k, x[k])`, whose first argument is the index of a reduction; None where it is something else."""
    if len(node.args) != 2 or not isinstance(first := node.args[0], sx.Id) or first.name in scope.values:
        return None
    body = written(node.args[1].span) if node.args[1].span.end else ""
    mentioned = {n.name for n in descendants(node.args[1]) if isinstance(n, sx.Id)}
    if not body or first.name not in mentioned:
        return None
    meant = f"{node.name}({first.name}) {body if isinstance(node.args[1], sx.Index | sx.Apply) else f'({body})'}"
    title, help = f"the index of `{node.name}` stands in parentheses by itself", f"write `{meant}`"
    return labelled("T0105", title, [(first.span, "an index that nothing binds")], help=help, edits=(Edit(node.span, meant),))


# ---------------------------------------------------------------- operands


def within_reductions(*operands: sx.Node) -> None:
    """Raise T0105 where an operand after a reduction reads what that binds: `sum(k) x[k] / y[k]` is `(sum(k) x[k]) / y[k]`."""
    ended: dict[str, sx.Reduction] = {}
    operands = (*_from_left(operands[0]), *operands[1:])
    for position, operand in enumerate(operands):
        found = next(_free(operand, ended), None)
        if found is not None:
            raise _read_outside(ended[found.name], found, operands[position:])
        reduction = _last(operand)
        if reduction is not None:
            ended |= {name: reduction for binder in reduction.binders if (name := bound_name(binder)) is not None}


def _read_outside(reduction: sx.Reduction, at: sx.Id, operands: Sequence[sx.Node]) -> CompileError:
    """Return that `at` is bound in a reduction alone, with the parentheses that take in all of `operands` that read what it binds."""
    bound = {bound_name(binder): reduction for binder in reduction.binders}
    last = [operand for operand in operands if any(_free(operand, bound))][-1]
    head = replace(reduction.span, end=reduction.body.span.start)
    body = replace(reduction.body.span, end=last.span.end)
    return labelled(
        "T0105",
        f"`{at.name}` is not bound here: `{reduction.reducer}` ends before this",
        ((at.span, f"`{at.name}` means nothing out here"), (reduction.span, "the reduction ends with its product")),
        help=f"put all that is reduced in parentheses: `{written(head)}({written(body)})`",
        edits=(Edit(replace(body, end=body.start), "("), Edit(replace(body, start=body.end), ")")),
    )


def reduction_in_comparison(node: sx.Node, dtype: DType) -> CompileError | None:
    """Return T0150 for `sum(k) x[k] > 0` where a number is needed: the reduction ends before the comparison. None for anything else."""
    if not isinstance(node, sx.Compare) or not isinstance(reduction := node.items[0], sx.Reduction) or _encloses(reduction.span):
        return None
    binders = written(Span(reduction.span.source, reduction.span.start, reduction.body.span.start)).rstrip()
    compared = written(Span(node.span.source, reduction.body.span.start, node.span.end))
    counted_ = f"count where it holds: `{binders[:-1]}, {compared}) {dtype}(1)`; or "
    return labelled(
        "T0150",
        f"`{dtype}` is needed, and the whole is a comparison: `{reduction.reducer}` ends before `{node.ops[0]}`",
        ((node.span, "true or false"), (reduction.span, "the reduction ends with its product")),
        help=f"{counted_ if reduction.reducer == 'sum' else ''}cast it: `{dtype}({written(node.span)})`",
    )


def _from_left(operand: sx.Node) -> list[sx.Node]:
    """Return the operands of operators that bind from left to right: `a`, `b` and `c` of `a / b * c`."""
    after: list[sx.Node] = []
    while isinstance(operand, sx.Binary) and not _encloses(operand.span):
        after.append(operand.rhs)
        operand = operand.lhs
    return [operand, *reversed(after)]


def _last(operand: sx.Node) -> sx.Reduction | None:
    """Return the reduction that an operand ends with, which parentheses would end."""
    while isinstance(operand, sx.Binary | sx.Unary) and not _encloses(operand.span):
        operand = operand.rhs if isinstance(operand, sx.Binary) else operand.value
    return operand if isinstance(operand, sx.Reduction) and not _encloses(operand.span) else None


def _encloses(span: Span) -> bool:
    """Tell whether a node's text stands in parentheses of its own."""
    return span is not NOWHERE and span.source.text.startswith("(", span.start)


def _free(node: sx.Node, names: Collection[str | None]) -> Iterator[sx.Id]:
    """Yield where one of `names` is read and no reduction inside binds it."""
    if not names:
        return
    if isinstance(node, sx.Reduction):
        names = {*names} - {bound_name(binder) for binder in node.binders}
    if isinstance(node, sx.Id) and node.name in names:
        yield node
    for child in children(node):
        yield from _free(child, names)


def at_operands(problem: CompileError, scope: Scope, op: str, span: Span, *operands: tuple[Span, Value]) -> CompileError:
    """Return what is wrong with an operation as said of the operand that is at fault; `span` is that of the whole operation."""
    if len(problem.diagnostics) != 1:
        return problem
    (found,) = problem.diagnostics
    if not found.labels or found.labels[0].span != span:
        return problem
    match found.code:
        case "T0116":
            made = _whole_tensor(found, scope, operands)
        case "T0112":
            made = _index_as_float(found, op, operands)
        case "T0110":
            made = _mixed(found, operands)
        case "T0111":
            made = _unfit(found, op, span, operands)
        case _:
            made = found
    return problem if made is found else exception(made)


def _whole_tensor(found: Diagnostic, scope: Scope, operands: Sequence[tuple[Span, Value]]) -> Diagnostic:
    for span, value in operands:
        if isinstance(value, Tensor) and span is not NOWHERE:
            indexed = in_scope(scope, value)
            edits = () if "…" in indexed else (Edit(span, indexed),)
            labels = (Label(span, f"all of `{value.name}`, {counted(len(value.dims), 'dimension')}"),)
            return replace(found, labels=labels, help=f"name an element: `{indexed}`", edits=edits)
    return found


def _index_as_float(found: Diagnostic, op: str, operands: Sequence[tuple[Span, Value]]) -> Diagnostic:
    index = next(((s, v) for s, v in operands if isinstance(v, Idx)), None)
    other = next(((s, v.dtype) for s, v in operands if isinstance(v, Val) and v.dtype is not None), None)
    if index is None or index[0] is NOWHERE:
        return found
    if other is None or other[0] is NOWHERE:
        return replace(found, help=f"cast it: `f32({written(index[0])})`")
    cast = f"{other[1]}({written(index[0])})"
    what = "size" if isinstance(index[1], Idx) and index[1].size else "index"
    help = f"cast it: `{cast}`"
    if op == "/" and what == "size" and other[1].is_float:
        summed = written(other[0])
        mean = f"mean{summed.removeprefix('sum')}" if summed.startswith("sum(") else "mean(k) …"
        help += f"; a mean is a reduction of its own: `{mean}`"
    labels = (Label(index[0], f"the {what} is an `i64`"), Label(other[0], f"this is `{other[1]}`"))
    title = f"{'an' if what == 'index' else 'a'} {what} is an `i64` and meets `{other[1]}`: nothing is promoted"
    return replace(found, title=title, labels=labels, help=help, edits=(Edit(index[0], cast),))


def _unfit(found: Diagnostic, op: str, span: Span, operands: Sequence[tuple[Span, Value]]) -> Diagnostic:
    """Return T0111 as said of the number that is no value of the type that it meets."""
    number = next(((s, v.value) for s, v in operands if isinstance(v, Num)), None)
    other = next(((s, v.dtype) for s, v in operands if isinstance(v, Val) and v.dtype is not None), None)
    if number is None or other is None or NOWHERE in (number[0], other[0]) or found.labels[0].text == "overflows a float":
        return found
    help = found.help
    if isinstance(number[1], float) and not number[1].is_integer():
        cast = Edit(other[0], f"f32({written(other[0])})")
        help = f"compute in floats, and cast what comes out: `{other[1]}({edited(span, [cast])})`; or round the number"
    labels = (Label(number[0], found.labels[0].text), Label(other[0], f"this is `{other[1]}`"))
    return replace(found, labels=labels, help=help)


def _mixed(found: Diagnostic, operands: Sequence[tuple[Span, Value]]) -> Diagnostic:
    typed = [(s, v.dtype) for s, v in operands if isinstance(v, Val) and v.dtype is not None]
    if len(typed) != 2 or NOWHERE in (typed[0][0], typed[1][0]):
        return found
    labels = tuple(Label(s, f"this is `{dtype}`") for s, dtype in typed)
    (first, a), (second, b) = typed
    common = holding(a, b)
    if common not in (a, b) and a.is_float == b.is_float:
        return replace(found, labels=labels)
    wanted = common if common in (a, b) and common is not None else a if a.is_float else b
    at = second if wanted == a else first
    text = written(at)
    cast = f"{wanted}{text}" if text.startswith("(") and text.endswith(")") and "(" not in text[1:-1] else f"{wanted}({text})"
    if wanted == common:
        return replace(found, labels=labels, help=f"cast it: `{cast}`", edits=(Edit(at, cast),))
    exact = f"; `{common}(…)` of both sides is exact" if common is not None else ""
    return replace(found, labels=labels, help=f"cast it, which may round: `{cast}`{exact}")
