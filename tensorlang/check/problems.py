"""Building the diagnostics of the checker, and the control signals that never reach the user."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tensorlang.check.foreign import SAID, native_name, nearest
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Edit, Label, Span, counted, error, exception
from tensorlang.syntax import einsum
from tensorlang.syntax.foreign_idioms import explain_dots

__all__ = ["Diagnostic", "Label", "NeedsStatic", "counted", "did_you_mean", "error", "labelled", "uncallable", "used_at"]


class NeedsStatic(Exception):
    """These sizes must be numbers for the program to have index expressions (rule P8)."""

    def __init__(self, sizes: frozenset[str], span: Span, what: str) -> None:
        super().__init__(sorted(sizes), what)
        self.sizes, self.span, self.what = sizes, span, what


def did_you_mean(name: str, choices: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return a help text that names the closest known name."""
    close = nearest(name, choices)
    return f"did you mean `{close}`?" if close else otherwise


def named(span: Span, name: str) -> Span:
    """Return where a name stands at the beginning of what it names: `f32` of `f32[N]`, `exp` of `exp(x)`."""
    return Span(span.source, span.start, min(span.end, span.start + len(name))) if span is not NOWHERE else span


def renamed(
    span: Span, name: str, choices: Iterable[str], otherwise: str | None = None, elsewhere: str | None = None
) -> tuple[str | None, tuple[Edit, ...]]:
    """Return help for a name that is none of `choices`, and the edit where another language's name is meant. `elsewhere` tells how to
    come by something of just that name."""
    called = native_name(name, choices)
    if called is not None:
        return f"it is called `{called}` here", (Edit(span, called),)
    if elsewhere is not None:
        return elsewhere, ()
    return SAID[name] if name in SAID else did_you_mean(name, choices, otherwise), ()


def labelled(
    code: str,
    title: str,
    labels: Iterable[tuple[Span, str]],
    *,
    notes: tuple[str, ...] = (),
    help: str | None = None,
    edits: tuple[Edit, ...] = (),
) -> CompileError:
    """Return a `CompileError` with one diagnostic and several labels."""
    kept = tuple(Label(span, text) for span, text in labels if span is not NOWHERE)
    return exception(Diagnostic(code, title, kept, notes, help, edits))


def uncallable(
    name: str,
    span: Span,
    choices: Iterable[str],
    reducers: Container[str],
    elsewhere: str | None = None,
    tensors: Container[str] = (),
) -> CompileError:
    """Return that nothing of a name can be called; `choices` are those that can, and `elsewhere` tells how to come by one of that name.
    `tensors` are those at hand."""
    member = name.rpartition(".")[2]
    if "." in name and member in reducers and elsewhere is None and explain_dots(name)[1] is not None:
        name = member
    if name in reducers:
        told = re.search(
            rf"{re.escape(name)}\(\s*(\w+)(?:\[[^\]]*\])?\s*,?.*(?:axis|dim|keepdims)", span.source.text[span.start : span.end]
        )
        how = f"write what it combines, in parentheses unless it is a product: `{name}(k) (…)`"
        whole = re.fullmatch(r"[\w.]+\(\s*(\w+)(?:\[([^\[\]]*)\])?\s*\)", span.source.text[span.start : span.end])
        if whole is not None and (whole[2] or whole[1] in tensors):
            how = f"a reduction names the index that it runs over: `{name}(k) {whole[1]}[{whole[2] + ', ' if whole[2] else ''}k]`"
        if told is not None:
            how = f"the axis is the index that it names, and the others stand on the left: `y[i] = {name}(k) {told[1]}[i, k]`"
        return error("T0101", f"`{name}` is a reducer, and nothing is reduced here", span, "its binders, and no body", help=how)
    at, choices = named(span, name), list(choices)
    otherwise = f"declare `fn {name}(…) = …` or `op {name}(…)`"
    dotted = _meant_by_dots(at, name, choices) if "." in name and elsewhere is None else None
    help, edits = dotted or renamed(at, name, choices, otherwise, elsewhere)
    if member in einsum.CALLS and (meant := einsum.equation(span.source.line(span.source.location(span.start)[0]))) is not None:
        help, edits = f"write the equation: `{meant}`", ()
    return error("T0101", f"there is no operator or function `{name}`", at, "called here", help=help, edits=edits)


def _meant_by_dots(at: Span, name: str, choices: list[str]) -> tuple[str, tuple[Edit, ...]] | None:
    """Return help for a function of a module or a method of a tensor, and the edit where the same function is one of `choices`."""
    help, undotted = explain_dots(name)
    member = name.rpartition(".")[2]
    if undotted is None and help is None and member in choices and not member[:1].isupper():
        prefix = name.rpartition(".")[0]
        return f"names that `use` brings have no prefix: write `{member}`; `use … as {prefix}` gives them one", (Edit(at, member),)
    if undotted is None:
        help = help or SAID.get(member)
        return (help, ()) if help is not None else None
    called = undotted if undotted in choices else native_name(undotted, choices)
    if called is not None:
        return f"leave the module out: `{called}`", (Edit(at, called),)
    return (SAID[member], ()) if member in SAID else None


@contextmanager
def used_at(use: Span, declared: Span, text: str, note: str = "") -> Iterator[None]:
    """Let what is wrong inside of something that another file declares be said of its `use`, with a label and a note."""
    try:
        yield
    except CompileError as problem:
        if use.source == declared.source:
            raise
        raise exception(*(_seen_from(use, declared, text, note, d) for d in problem.diagnostics)) from None


def _seen_from(use: Span, declared: Span, text: str, note: str, diagnostic: Diagnostic) -> Diagnostic:
    if not diagnostic.labels or diagnostic.labels[0].span.source != declared.source:
        return diagnostic
    return replace(diagnostic, labels=(Label(use, text), *diagnostic.labels), notes=(*diagnostic.notes, note) if note else diagnostic.notes)
