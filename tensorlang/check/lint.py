"""What is right and hardly meant: names that nothing uses, a sum that ends earlier than it looks, directives that do nothing.

    W0101  a parameter is not used              W0104  an index, a `let` or a generic is not used
    W0102  a tensor is defined and not read     W0105  a reduction ends before a `-`
    W0103  a function, reducer or tactic is     W0106  a clause never applies (`check.definition` looks, with proofs)
           not used                             W0107  a comparison with `nan`
                                                W0108  a reduction leaves out the last element
                                                W0109  a reduction comes to what it starts from
                                                W0201  a schedule or directive does nothing
                                                W0202  a schedule is not for all sizes (`policy.prove` looks)

A name that begins with `_` is not used on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tensorlang.check.module import Module
from tensorlang.check.suggest import written
from tensorlang.check.used_names import names_used_by_others
from tensorlang.check.walk import bound_name, descendants
from tensorlang.diagnostics import NOWHERE, Diagnostic, Edit, Label, Span
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show

UNUSED_DECLARATION = "W0103"
UNUSED = frozenset(("W0101", "W0102", UNUSED_DECLARATION, "W0104"))
"""Codes of names that nothing uses."""


def warnings_in(file: sx.File) -> list[Diagnostic]:
    """Return what a file says and hardly means, in its order; nothing here needs types."""
    found: list[Diagnostic] = []
    for declaration in file.declarations:
        match declaration:
            case sx.Operator():
                found += _in_operator(declaration)
            case sx.ScalarFunction():
                found += _in_function(declaration)
            case sx.Schedule() | sx.Tactic():
                found += _repeated(declaration)
            case _:
                pass
        found += _in_expressions(declaration)
    found += _unused_declarations(file)
    found += _never_chosen(file)
    return sorted(found, key=lambda d: d.labels[0].span.start if d.labels else 0)


def hidden_terms(file: sx.File, module: Module) -> Iterator[Diagnostic]:
    """Yield W0109 for reductions that come to their start value, `first(i, c[i], from 0) x[i]`, whatever their terms are."""
    for node in (n for declaration in file.declarations for n in descendants(declaration) if isinstance(n, sx.Reduction)):
        start = next((b for b in node.binders if isinstance(b, sx.From)), None)
        if start is None or node.reducer not in module.reducers:
            continue
        from tensorlang.check.laws import keeps_start  # imports NumPy

        if keeps_start(module, node.reducer):
            yield warning(
                "W0109",
                f"`{node.reducer}` always comes to what it starts from",
                start.span,
                "the fold begins with this, and no term changes it",
                help=f"leave out `{written(start.span)}`; a reducer whose later terms win, as `last`, keeps it where there are none",
            )


def warning(code: str, title: str, span: Span, label: str = "", *, help: str | None = None, edits: tuple[Edit, ...] = ()) -> Diagnostic:
    """Return one warning at one place."""
    return Diagnostic(code, title, (Label(span, label),) if span is not NOWHERE else (), (), help, edits, "warning")


def _at_name(span: Span, name: str) -> Span:
    """Return where a name stands in a declaration."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", span.source.text[span.start : span.end])
    return span if found is None else Span(span.source, span.start + found.start(), span.start + found.end())


def _mentioned(*nodes: sx.Node) -> set[str]:
    """Return every name that stands in these for a value, a size, a tensor, a function or a type."""
    out: set[str] = set()
    for node in (inner for outer in nodes for inner in descendants(outer)):
        match node:
            case sx.Id(name) | sx.Index(name) | sx.Apply(name) | sx.Each(name):
                out.add(name)
            case sx.TensorType(dtype):
                out.add(dtype)
            case sx.Reduction(reducer):
                out.add(reducer)
            case _:
                pass
    return out


def _deliberate(name: str) -> bool:
    return name.startswith("_")


# ---------------------------------------------------------------- operators and functions


def _in_operator(operator: sx.Operator) -> Iterator[Diagnostic]:
    if operator.extern or operator.needs or not operator.clauses:
        return
    yield from _unused_parameters(operator)
    yield from _unread_locals(operator)
    yield from _without_last(operator)
    said = _mentioned(*operator.params, *operator.results, *operator.where, *operator.clauses)
    for generic in operator.generics:
        if generic.name not in said and not _deliberate(generic.name):
            yield warning("W0104", f"type `{generic.name}` is not used", generic.span, "declared here", help="delete it")


def _unused_parameters(operator: sx.Operator) -> Iterator[Diagnostic]:
    body = _mentioned(*operator.where, *operator.clauses, *operator.results)
    for param in operator.params:
        others = [p for p in operator.params if p is not param]
        used = body | _mentioned(*others)
        if param.name in used or _deliberate(param.name):
            continue
        sizes = _mentioned(*(param.type.dims or ())) if isinstance(param.type, sx.TensorType) else set()
        if (sizes & body) - _mentioned(*others) - {p.name for p in others}:
            continue  # its shape is what it is there for
        what = {"tensor": "parameter", "attr": "attribute", "size": "size"}[param.kind]
        help = f"delete it, or call it `_{param.name}` where it has to be there"
        yield warning("W0101", f"{what} `{param.name}` is not used", _at_name(param.span, param.name), "no equation reads it", help=help)


def _unread_locals(operator: sx.Operator) -> Iterator[Diagnostic]:
    results = {p.name for p in operator.results}
    first: dict[str, sx.Target] = {}
    for clause in operator.clauses:
        for target in clause.targets:
            first.setdefault(target.name, target)
    unread = {name for name in first if name not in results and not _is_read(operator, name)}
    for name in sorted(unread):
        if _deliberate(name) or any(_is_component(clause, name, unread) for clause in operator.clauses):
            continue
        called = any(len(c.targets) > 1 and any(t.name == name for t in c.targets) for c in operator.clauses)
        help = "write `_` for what is not needed" if called else f"delete its equations, or call it `_{name}`"
        yield warning("W0102", f"`{name}` is defined and never read", _at_name(first[name].span, name), "nothing needs it", help=help)


def _is_read(operator: sx.Operator, name: str) -> bool:
    """Tell whether anything but its own equations mentions a tensor."""
    elsewhere = [c for c in operator.clauses if all(t.name != name for t in c.targets)]
    return name in _mentioned(*elsewhere, *operator.where)


def _is_component(clause: sx.Clause, name: str, unread: Collection[str]) -> bool:
    """Tell whether a clause defines a tensor along with others that are needed, as components of one reduction."""
    names = {t.name for t in clause.targets}
    return name in names and not isinstance(clause.value, sx.Apply) and not names <= {*unread}


def _in_function(function: sx.ScalarFunction) -> Iterator[Diagnostic]:
    used = _mentioned(function.value)
    for name, _ in function.params:
        if name not in used and not _deliberate(name):
            opening = function.span.source.text.find("(", function.span.start)
            at = _at_name(Span(function.span.source, opening, function.span.end), name) if opening >= 0 else function.span
            help = f"delete it, or call it `_{name}` where it has to be there"
            yield warning("W0101", f"parameter `{name}` is not used", at, f"`{function.name}` does not depend on it", help=help)


# ---------------------------------------------------------------- the last element


def _without_last(operator: sx.Operator) -> Iterator[Diagnostic]:
    """`sum(i in 0..N - 1) x[i]` of N elements leaves the last one out, which nothing else reads."""
    for node in (n for clause in operator.clauses for n in descendants(clause)):
        if not isinstance(node, sx.Reduction) or not all(isinstance(b, sx.Id | sx.Member | sx.From) for b in node.binders):
            continue
        for binder in node.binders:
            match binder:
                case sx.Member(sx.Id(name), sx.Range(lo, sx.Binary("-", size, sx.Number("1")))) if not _deliberate(name):
                    tensor = _ending_there(operator, node, name, show(size))
                    if tensor is not None:
                        yield _ends_short(binder, name, tensor, lo, size)
                case _:
                    pass


def _ending_there(operator: sx.Operator, reduction: sx.Reduction, index: str, size: str) -> str | None:
    """Return a parameter that is read at `index` alone along an axis of so many elements; None where there is none, or something else
    tells that the index is to end before them: it is read at an offset, or along another axis."""
    dims = {p.name: p.type.dims or () for p in operator.params if isinstance(p.type, sx.TensorType) and not p.each}
    there = [n for n in descendants(reduction.body) if isinstance(n, sx.Index) and index in _mentioned(*n.slots)]
    for read in there:
        shape = dims.get(read.name, ())
        if len(shape) != len(read.slots) or read.mode is not None or any(isinstance(part, sx.Pack) for part in (*shape, *read.slots)):
            return None
        for slot, extent in zip(read.slots, shape, strict=True):
            if index in _mentioned(slot) and (slot != sx.Id(index) or show(extent) != size):
                return None
    mentions = [n for n in (m for clause in operator.clauses for m in descendants(clause)) if isinstance(n, sx.Id | sx.Index)]
    mine = {read.span for read in there}
    return next((r.name for r in there if all(n.span in mine for n in mentions if n.name == r.name)), None)


def _ends_short(binder: sx.Member, name: str, tensor: str, lo: sx.Expr, size: sx.Expr) -> Diagnostic:
    most = f"`{name}` is at most {show(size)} - 2 here: what `..` ends with is left out"
    title = f"the last element of `{tensor}` is never read"
    help = f"write `{show(lo)}..{show(size)}` for all of them, or call the index `_{name}` if it is to be left out"
    return warning("W0108", title, binder.range.span, most, help=help)


# ---------------------------------------------------------------- expressions


def _in_expressions(declaration: sx.Node) -> Iterator[Diagnostic]:
    for node in descendants(declaration):
        match node:
            case sx.LetIn(name, _, body) if name not in _mentioned(body) and not _deliberate(name):
                edits = (Edit(Span(node.span.source, node.span.start, body.span.start), ""),)
                yield warning(
                    "W0104", f"`{name}` is not used", _at_name(node.span, name), "named here", help="delete this `let`", edits=edits
                )
            case sx.Reduction(reducer, _, binders, body):
                yield from _unused_binders(node, reducer, binders, body)
            case sx.Binary("-", sx.Reduction() as reduction, rhs):
                yield from _ends_early(reduction, rhs, Span(node.span.source, reduction.span.start, rhs.span.end))
            case sx.Chain(sx.Reduction() as reduction, (sx.Link("-", rhs), *_)):
                yield from _ends_early(reduction, rhs, Span(node.span.source, reduction.span.start, rhs.span.end))
            case sx.Compare():
                yield from _with_nan(node)
            case _:
                pass


def _with_nan(node: sx.Compare) -> Iterator[Diagnostic]:
    """`x == nan` never holds, `x != nan` always."""
    for lhs, op, rhs in zip(node.items, node.ops, node.items[1:], strict=False):
        other = rhs if _is_nan(lhs) else lhs if _is_nan(rhs) else None
        if other is None or op not in ("==", "!="):
            continue
        test = f"isnan({other.span.source.text[other.span.start : other.span.end]})"
        meant = test if op == "==" else f"not {test}"
        edits = (Edit(node.span, meant),) if len(node.ops) == 1 and op == "==" else ()
        always = "never holds" if op == "==" else "always holds"
        yield warning("W0107", f"a comparison with `nan` {always}", node.span, "`nan` equals nothing", help=f"write `{meant}`", edits=edits)


def _is_nan(node: sx.Node) -> bool:
    return isinstance(node, sx.Id) and node.name == "nan"


def _unused_binders(node: sx.Reduction, reducer: str, binders: tuple[sx.Node, ...], body: sx.Node) -> Iterator[Diagnostic]:
    if isinstance(body, sx.Number):
        return  # counts
    for binder in binders:
        name = bound_name(binder)
        if name is None:
            continue
        others = [b for b in binders if b is not binder]
        if name not in _mentioned(body, *others) and not _deliberate(name):
            help = f"read it: `x[…, {name}]`; or call it `_{name}`, if the same value is meant to be taken so often"
            yield warning("W0104", f"`{name}` is not used", _at_name(binder.span, name), f"`{reducer}` takes equal terms", help=help)


def _ends_early(reduction: sx.Reduction, rhs: sx.Node, span: Span) -> Iterator[Diagnostic]:
    """`sum(k) x[k] - m` is `(sum(k) x[k]) - m`; parentheses say that this is meant."""
    text = span.source.text
    if text[reduction.span.start] == "(" or isinstance(rhs, sx.Reduction):
        return
    head = text[reduction.span.start : reduction.body.span.start]
    body, rest = (text[s.start : s.end] for s in (reduction.body.span, rhs.span))
    minus = text.index("-", reduction.span.end)
    help = f"write `({head}{body}) - {rest}` if that is meant, or `{head}({body} - {rest})`"
    labels = (
        Label(Span(span.source, minus, minus + 1), "this is subtracted once, from the whole"),
        Label(reduction.span, "the reduction ends here"),
    )
    yield Diagnostic("W0105", f"`{reduction.reducer}` ends before `-`", labels, (), help, (), "warning")


# ---------------------------------------------------------------- declarations, schedules


def _unused_declarations(file: sx.File) -> Iterator[Diagnostic]:
    """Yield functions that no other declaration calls, where the file has operators that could and no file near it uses them, and tactics
    that no schedule calls."""
    declarations = file.declarations
    calls = [(d, _mentioned(d) | {n.name for n in descendants(d) if isinstance(n, sx.Directive) and n.call}) for d in declarations]
    operators = any(isinstance(d, sx.Operator) for d in declarations) and not any(_takes_functions(d) for d in declarations)
    schedules = any(isinstance(d, sx.Schedule) for d in declarations)
    for declaration in declarations:
        if isinstance(declaration, sx.ScalarFunction) and operators:
            kind = "function"
        elif isinstance(declaration, sx.Tactic) and schedules:
            kind = "tactic"
        else:
            continue
        called = any(declaration.name in used for d, used in calls if d is not declaration)
        if not called and not _deliberate(declaration.name) and declaration.name not in names_used_by_others(file):
            at = _at_name(declaration.span, declaration.name)
            yield warning(
                UNUSED_DECLARATION,
                f"{kind} `{declaration.name}` is not used",
                at,
                "nothing calls it",
                help=f"delete it, or call it `_{declaration.name}`",
            )


def _takes_functions(declaration: sx.Node) -> bool:
    """Tell whether a declaration has an attribute that callers set to any function of the file."""
    return isinstance(declaration, sx.Operator) and any(p.kind == "attr" and p.type == sx.Id("fn") for p in declaration.params)


def _repeated(declaration: sx.Schedule | sx.Tactic) -> Iterator[Diagnostic]:
    first: dict[str, sx.Directive] = {}
    for directive in declaration.body:
        if not isinstance(directive, sx.Directive) or directive.call or directive.results:
            continue
        text = show(directive)
        if text in first:
            labels = (Label(directive.span, "said again"), Label(first[text].span, "said here"))
            edits = (Edit(_with_its_line(directive.span), ""),)
            yield Diagnostic("W0201", "this directive does nothing", labels, (), "delete it", edits, "warning")
        first.setdefault(text, directive)


def _with_its_line(span: Span) -> Span:
    """Return a span, with its line where nothing else stands there."""
    text = span.source.text
    start, end = text.rfind("\n", 0, span.start) + 1, text.find("\n", span.end)
    alone = end >= 0 and not text[start : span.start].strip() and not text[span.end : end].strip()
    return Span(span.source, start, end + 1) if alone else span


def _never_chosen(file: sx.File) -> Iterator[Diagnostic]:
    """Yield schedules that follow one of the same operator and target without conditions: the first that applies is taken."""
    always: dict[tuple[str, str], sx.Schedule] = {}
    for schedule in file.declarations:
        if not isinstance(schedule, sx.Schedule) or schedule.role is not None:
            continue
        key = (schedule.operator, schedule.target)
        if key in always:
            heads = [Span(s.span.source, s.span.start, s.span.source.text.index("{", s.span.start)) for s in (schedule, always[key])]
            labels = (Label(heads[0], "never taken"), Label(heads[1], "this one always applies, and comes first"))
            yield Diagnostic(
                "W0201", "this schedule does nothing", labels, (), "give the first one a condition, or delete one", (), "warning"
            )
        elif not schedule.guards:
            always[key] = schedule
