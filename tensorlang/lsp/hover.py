"""What an editor shows beside a word: types, shapes and ranges that the checker inferred, comments, and why a directive is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from codegen.dtypes import DTYPES
from polyhedral.expr import TRUE
from tensorlang.check.extern_header import c_header
from tensorlang.check.types import ARITY, BITS, BUILTINS, CLASSES, ELEMENTARY
from tensorlang.diagnostics import CompileError, Diagnostic, Label
from tensorlang.lsp.analysis import Analysis, comment_above
from tensorlang.lsp.names import Meaning, Word, directive_at, meaning
from tensorlang.schedule.directives.table import TABLE
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show as show_syntax
from tensorlang.tensor.nodes import Binder, Definition, Program, Reduce, Tensor
from tensorlang.tensor.notation import show, show_cond
from tensorlang.tensor.walk import nodes, tensor_table

Refusals = Callable[[sx.Schedule], list[Diagnostic]]
"""Why a schedule is refused, with what it would have computed."""


def hover(analysis: Analysis, word: Word, refusals: Refusals) -> str | None:
    """Return what there is to say of a word, as Markdown, or None. `refusals` is asked about the schedule of a refused directive only."""
    found = meaning(analysis, word)
    parts = [_said(analysis, found) if found is not None else _builtin(word.text), _witness(analysis, word, refusals)]
    return "\n\n".join(p for p in parts if p) or None


def _said(analysis: Analysis, found: Meaning) -> str:
    match found.kind:
        case "operator" | "function" | "reducer" | "tactic":
            return _declared(analysis, found)
        case "file":
            return _file(analysis, found)
        case "tensor":
            return _tensor(analysis, found)
        case "index" | "binder":
            return _index(analysis, found)
        case "attribute" | "size" | "type" | "local":
            return _written(found)
        case "directive":
            return code(found.name) + f"\n{TABLE[found.name].shape if found.name in TABLE else ''}"
        case "loop":
            assert isinstance(found.node, sx.Directive)
            return f"loop `{found.name}`, made by `{show_syntax(found.node)}`"


def code(text: str) -> str:
    """Return a block of the language."""
    return f"```tensorlang\n{text}\n```"


def _declared(analysis: Analysis, found: Meaning) -> str:
    declaration = found.node
    assert isinstance(declaration, (sx.Operator, sx.ScalarFunction, sx.Reducer, sx.Tactic))
    source = declaration.span.source
    parts = [code(_head(declaration)), comment_above(analysis.tree(source), declaration)]
    if isinstance(declaration, sx.Operator) and declaration.extern:
        parts.append(_extern(declaration))
    if source.name != analysis.source.name:
        parts.append(f"{found.kind} of `{source.name}`")
    elif isinstance(declaration, sx.Operator):
        program = analysis.program_of(declaration)
        if program is not None:
            parts.append(_tensors(program))
    return "\n\n".join(p for p in parts if p)


def _extern(operator: sx.Operator) -> str:
    """Return what stands for an extern operator, and how a kernel for it is declared in C, where one can be."""
    if operator.clauses:
        text = "extern: a kernel that is given takes the place of its body, which says what that has to compute"
    else:
        text = "extern: it has no body, so a kernel has to be given where it is called"
    try:
        return f"{text}\n\n```c\n{c_header(operator).rstrip()}\n```"
    except CompileError:
        return text


def _file(analysis: Analysis, found: Meaning) -> str:
    """Return what a used file or module has to offer."""
    assert isinstance(found.node, sx.Use)
    offered = analysis.reader.offered(found.node.place)
    names = ", ".join(f"`{name}`" for name in sorted(offered))
    return "\n\n".join([code(show_syntax(found.node)), *([f"offers {names}"] if names else [])])


def _head(declaration: sx.Declaration) -> str:
    text = declaration.span.source.text[declaration.span.start : declaration.span.end]
    if isinstance(declaration, (sx.Operator, sx.Tactic)):
        text = text.split("{", 1)[0] if "{" in text else text
    return text.rstrip()


def _tensors(program: Program) -> str:
    """Return the shapes of the tensors that an operator computes on the way, which its header does not say."""
    inner = [t for d in program.definitions for t in d.tensors if t.name not in program.results]
    return code("\n".join(map(_typed, inner))) if inner else ""


def _typed(tensor: Tensor) -> str:
    shape = f"[{', '.join(map(show, tensor.shape))}]" if tensor.shape else ""
    within = f" in {show(tensor.declared_range[0])}..{show(tensor.declared_range[1])}" if tensor.declared_range else ""
    return f"{tensor.name}: {tensor.dtype}{shape}{within}"


def _tensor(analysis: Analysis, found: Meaning) -> str:
    assert isinstance(found.owner, sx.Operator)
    program = analysis.program_of(found.owner)
    table = tensor_table(program) if program is not None else {}
    kind = "parameter" if found.name in {p.name for p in found.owner.params} else "tensor"
    if found.name in {p.name for p in found.owner.results}:
        kind = "result"
    if found.name not in table:
        return _written(found)
    lines = [code(_typed(table[found.name])), f"{kind} of `{found.owner.name}`{_assumption(found.owner)}"]
    return "\n\n".join(lines)


def _assumption(operator: sx.Operator) -> str:
    """Return for which of its types and ranks an operator's shapes are shown."""
    classes = [g.name for g in operator.generics]
    packs = [p for p in operator.params if isinstance(p.type, sx.TensorType) and any(isinstance(d, sx.Pack) for d in p.type.dims or ())]
    said = [f"one type for {', '.join(f'`{c}`' for c in classes)}"] * bool(classes) + ["packs of one dimension"] * bool(packs)
    return f", shown for {' and '.join(said)}" if said else ""


def _index(analysis: Analysis, found: Meaning) -> str:
    """Return between which bounds an index of a clause or of a reduction goes, and under which condition the clause holds."""
    assert isinstance(found.owner, sx.Operator)
    program = analysis.program_of(found.owner)
    said = _range(program, found) if program is not None else None
    what = "index of a clause" if found.kind == "index" else "index of a reduction"
    return f"{code(said or found.name)}\n\n{what} of `{found.owner.name}`"


def _range(program: Program, found: Meaning) -> str | None:
    if isinstance(found.node, sx.Clause):
        target = found.node.targets[0]
        definition = _definition(program, target.name)
        own = [c for c in _owner_clauses(found) if c.targets[0].name == target.name]
        if definition is None or any(isinstance(s, sx.Pack) for s in target.slots or ()):
            return None
        for position, slot in enumerate(target.slots or ()):
            if isinstance(slot, sx.Id) and slot.name == found.name and position < len(definition.axes):
                extent = definition.tensors[0].shape[position]
                piece = definition.pieces[own.index(found.node)] if len(own) == len(definition.pieces) else None
                guard = f", where {show_cond(piece.guard)}" if piece is not None and piece.guard != TRUE else ""
                return f"{found.name} in 0..{show(extent)}{guard}"
        return None
    binders = [b for b in _binders(program) if re.sub(r"_\d+$", "", b.name) == found.name]
    ranges = list(dict.fromkeys(f"{show(b.lo)}..{show(b.hi)}" for b in binders))
    return f"{found.name} in {' or '.join(ranges)}" if ranges else None


def _owner_clauses(found: Meaning) -> tuple[sx.Clause, ...]:
    return found.owner.clauses if isinstance(found.owner, sx.Operator) else ()


def _definition(program: Program, tensor: str) -> Definition | None:
    return next((d for d in program.definitions if any(t.name == tensor for t in d.tensors)), None)


def _binders(program: Program) -> Iterator[Binder]:
    for definition in program.definitions:
        for piece in definition.pieces:
            for node in nodes(piece.value):
                if isinstance(node, Reduce):
                    yield from node.binders


def _written(found: Meaning) -> str:
    """Return what the text says of a name where it introduces it."""
    node = found.node
    if isinstance(node, (sx.Param, sx.Generic)) and found.kind != "size":
        return f"{code(show_syntax(node))}\n\n{found.kind} of `{getattr(found.owner, 'name', '')}`"
    if isinstance(node, sx.LetIn):
        return code(f"{node.name} = {show_syntax(node.value)}")
    return f"{found.kind} `{found.name}`"


def _builtin(name: str) -> str:
    """Return what the language itself has by a name."""
    if name in DTYPES:
        dtype = DTYPES[name]
        return f"{code(name)}\n\nelement type of {dtype.bits} bits"
    if name in CLASSES:
        return f"{code(name)}\n\nclass of element types: {', '.join(sorted(CLASSES[name]))}"
    if name in ELEMENTARY:
        return f"{code(f'{name}(x, y)' if ARITY.get(name) == 2 else f'{name}(x)')}\n\nelementary function of floats"
    if name in BITS:
        return f"{code(f'{name}(a, b)')}\n\nfunction of the bits of integers"
    return f"`{name}`: built into the language" if name in BUILTINS else ""


def _witness(analysis: Analysis, word: Word, refusals: Refusals) -> str:
    """Return why the directive around a word is refused, with the instances that show it and what comes out wrong."""
    declaration = analysis.declaration_at(word.span.start)
    directive = directive_at(declaration, word.span.start)
    if directive is None:
        return ""
    here = [d for d in analysis.covering(word.span.start) if _begins_in(analysis, d, directive)]
    if here and isinstance(declaration, sx.Schedule) and any(d.code.startswith("S03") for d in here):
        replayed = [d for d in refusals(declaration) if _begins_in(analysis, d, directive)]
        here = [d for d in replayed if d.code in {h.code for h in here}] or here
    return "\n\n".join(map(explained, here))


def _begins_in(analysis: Analysis, diagnostic: Diagnostic, directive: sx.Directive) -> bool:
    place = analysis.place(diagnostic)
    return place is not None and place.start >= directive.span.start


def explained(diagnostic: Diagnostic) -> str:
    """Return a diagnostic as Markdown: the title, what it says of other places, notes and help."""
    places = [_place(label) for label in diagnostic.labels[1:]]
    said = "refused" if diagnostic.severity == "error" else diagnostic.severity
    lines = [f"**{said}, {diagnostic.code}**: {diagnostic.title}", "", *places, *(f"- {note}" for note in diagnostic.notes)]
    return "\n".join([*lines, *([f"- help: {diagnostic.help}"] if diagnostic.help else [])])


def _place(label: Label) -> str:
    number, _ = label.span.source.location(label.span.start)
    text = label.span.source.line(number).strip().replace("`", "'")
    return f"- line {number}: `{text}` {label.text}"
