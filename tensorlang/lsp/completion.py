"""What may stand at a place: words of the language and names, by the declaration around it, which need not be readable yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from codegen.dtypes import DTYPES
from tensorlang.check.types import BITS, CASTS, CLASSES, CONSTANTS, ELEMENTARY, FOLDS, INDEX_WORDS
from tensorlang.diagnostics import CompileError, Source, Span
from tensorlang.lsp.analysis import Analysis, Chunk
from tensorlang.lsp.uses import files_after, modules_after
from tensorlang.policy.select import read
from tensorlang.schedule.apply import Outline, outline
from tensorlang.schedule.directives.table import TABLE
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse_parts
from tensorlang.syntax.scanner import DECLARATION_WORDS, NAME, PREPOSITIONS, RESERVED

Sort: TypeAlias = Literal[
    "keyword", "operator", "function", "reducer", "directive", "tactic", "loop", "tensor", "type", "constant", "name", "module", "file"
]


@dataclass(frozen=True, slots=True)
class Item:
    """A word that may be written, and what it is."""

    text: str
    sort: Sort
    detail: str = ""


HEADS = tuple(sorted({*DECLARATION_WORDS, "instruction"}))
_MOST_DROPPED = 6
"""Directives before the cursor that are left out until the others can be read."""


def completions(analysis: Analysis, text: str, offset: int) -> list[Item]:
    """Return what may stand at a character of `text`, a later version of the analysed one, perhaps."""
    in_use = _in_use(analysis, text[:offset])
    if in_use is not None:
        return in_use
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    if _in_comment(line):
        return []
    chunk = analysis.chunk_at(offset)
    start = len(line) - len(re.search(rf"(?:{NAME})?$", line).group())  # type: ignore[union-attr]
    before = line[:start]
    qualified = _qualified(analysis, before)
    if qualified:
        return qualified
    if chunk is not None and chunk.kind in ("schedule", "tactic") and _is_inside(text, chunk, offset):
        return _unique(_in_schedule(analysis, chunk, text, offset, before))
    if chunk is None or not chunk.kind or (chunk.span.end < offset and not _is_inside(text, chunk, offset) and not before.strip()):
        return [Item(word, "keyword") for word in HEADS]
    return _unique(_in_operator(analysis, chunk, text))


_USE = re.compile(
    rf"""(?:^|\n)[ \t]*use[ \t]+(?:
        "(?P<file>[^"\n]*)
      | (?P<path>(?:{NAME}\.)*)(?:{NAME})?
      | (?:"(?P<text>[^"\n]*)"|(?P<module>{NAME}(?:\.{NAME})*))[ \t]*(?:\((?P<names>[^()]*)|(?P<alias>(?:as[ \t]+)?(?:{NAME})?))
    )$""",
    re.VERBOSE,
)
_SORTS: dict[str, Sort] = {"op": "operator", "instruction": "operator", "fn": "function", "reducer": "reducer", "tactic": "tactic"}


def _in_use(analysis: Analysis, before: str) -> list[Item] | None:
    """Return what may stand in a `use` that the text before the cursor has begun: a file, a module, one of its names; else None."""
    found = _USE.search(before)
    if found is None:
        return None
    if found["file"] is not None:
        inside = found["file"].rpartition("/")
        return [Item(name, "file", "file") for name in files_after(analysis.source.folder, "".join(inside[:2]))]
    if found["path"] is not None:
        return [Item(word, "module", title) for word, title in modules_after(found["path"])]
    renamed = re.search(rf"{NAME}[ \t]+(as[ \t]+)?(?:{NAME})?$", found["names"] or "")
    if found["names"] is None or renamed is not None:
        is_named = (found["alias"] or "").startswith("as ") or (renamed is not None and renamed[1] is not None)
        return [] if is_named else [Item("as", "keyword")]
    at = Span(analysis.source, 0, 0)
    place = sx.Text(found["text"], span=at) if found["text"] is not None else sx.Id(found["module"], span=at)
    return [Item(name, _SORTS[kind], kind) for name, kind in analysis.reader.offered(place).items()]


def _qualified(analysis: Analysis, before: str) -> list[Item]:
    """Return what a file offers after the name that a `use` gives it."""
    prefix = re.search(rf"(?:{NAME}\.)+$", before)
    if prefix is None:
        return []
    named = [i for i in analysis.imports.names if i.name.startswith(prefix.group())]
    return [Item(i.name.removeprefix(prefix.group()), *_about(i.declaration)) for i in named]


def _about(declaration: sx.Operator | sx.ScalarFunction | sx.Reducer | sx.Tactic) -> tuple[Sort, str]:
    match declaration:
        case sx.Operator():
            return "operator", _signature(declaration)
        case sx.ScalarFunction():
            return "function", f"fn {declaration.name}({', '.join(n for n, _ in declaration.params)})"
        case sx.Reducer():
            return "reducer", "ordered reducer" if declaration.ordered else "reducer"
        case sx.Tactic():
            return "tactic", f"{declaration.name}({', '.join(declaration.params)})"


def _in_comment(line: str) -> bool:
    return "#" in re.sub(r'"(?:[^"\\]|\\.)*"', "", line)


def _is_inside(text: str, chunk: Chunk, offset: int) -> bool:
    """Tell whether the braces that a declaration opens are still open at a character."""
    inside = text[chunk.span.start : offset]
    return inside.count("{") > inside.count("}")


def _unique(items: Iterator[Item]) -> list[Item]:
    found: dict[str, Item] = {}
    for item in items:
        found.setdefault(item.text, item)
    return list(found.values())


def _in_operator(analysis: Analysis, chunk: Chunk, text: str) -> Iterator[Item]:
    module = analysis.module
    for word in dict.fromkeys(re.findall(NAME, text[chunk.span.start : chunk.span.end])):
        if word not in RESERVED and word not in DTYPES and word not in module.functions and word not in module.operators:
            yield Item(word, "name", f"in `{chunk.name}`")
    for name, operator in module.operators.items():
        if name != chunk.name:
            yield Item(name, *_about(operator))
    for name, reducer in module.reducers.items():
        yield Item(name, *_about(reducer))
    for name, function in module.functions.items():
        yield Item(name, *_about(function))
    for word in sorted(ELEMENTARY | BITS | FOLDS | INDEX_WORDS | CASTS | {"abs", "bitnot", "bits"}):
        yield Item(word, "function", "built into the language")
    for word in DTYPES:
        yield Item(word, "type", "element type")
    for word in sorted(CLASSES):
        yield Item(word, "type", "class of element types")
    for word in CONSTANTS:
        yield Item(word, "constant")
    for word in sorted(RESERVED - {"op", "fn", "extern"}):
        yield Item(word, "keyword")


def _signature(operator: sx.Operator) -> str:
    text = operator.span.source.text[operator.span.start : operator.span.end].split("{", 1)[0]
    return " ".join(text.split())


def _in_schedule(analysis: Analysis, chunk: Chunk, text: str, offset: int, before: str) -> Iterator[Item]:
    opened = before.rsplit("{", 1)[-1] if "{" in before else before
    if not opened.strip():
        for name in sorted(TABLE):
            yield Item(name, "directive", TABLE[name].shape)
        for name, tactic in analysis.module.tactics.items():
            yield Item(name, "tactic", f"{name}({', '.join(tactic.params)})")
        yield Item("knobs", "keyword")
        return
    found = outline_before(analysis, chunk, text, offset)
    words = opened.split()
    if words[-1] == "with" or (words[0] == "tensorize" and "with" in words):
        for name in analysis.module.instructions:
            yield Item(name, "operator", "instruction")
    if found is not None:
        loops = [loop for stage in found.loops.values() for loop in stage]
        short = [loop.rsplit(".", 1)[-1] for loop in loops]
        for full, local in zip(loops, short, strict=True):
            count = found.extents.get(full)
            detail = f"loop `{full}`" + (f" of {count}" if count is not None else "")
            if short.count(local) == 1:
                yield Item(local, "loop", detail)
            yield Item(full, "loop", detail)
        for definition in found.program.definitions:
            for tensor in definition.tensors:
                yield Item(tensor.name, "tensor", "tensor")
        for param in found.program.params:
            yield Item(param.name, "tensor", "parameter")
    for word in sorted(PREPOSITIONS | {"in", "if"}):
        yield Item(word, "keyword")


def outline_before(analysis: Analysis, chunk: Chunk, text: str, offset: int) -> Outline | None:
    """Return the stages and loops of a schedule's operator after the directives in the lines before a character, those that are right."""
    found = analysis.representative(chunk.name)
    if found is None or chunk.kind != "schedule":
        return None
    lines = text[chunk.span.start : text.rfind("\n", 0, offset) + 1].split("\n")
    for dropped in range(_MOST_DROPPED):
        kept = lines[: len(lines) - dropped] if dropped else lines
        if not kept:
            break
        head = "\n".join(kept)
        written = _schedule(head if "{" in head else f"{lines[0]}\n")
        if written is None:
            continue
        try:
            return outline(found.program, read(analysis.module, written, found.program, attrs=found.attrs).schedule)
        except CompileError:
            continue
    return bare_outline(analysis, chunk)


def bare_outline(analysis: Analysis, chunk: Chunk) -> Outline | None:
    """Return the stages and loops of an operator before any directive."""
    found = analysis.representative(chunk.name)
    bare = _schedule(f"schedule {chunk.name} for cpu {{")
    if found is None or bare is None:
        return None
    try:
        return outline(found.program, read(analysis.module, bare, found.program, attrs=found.attrs).schedule)
    except CompileError:
        return None


def _schedule(text: str) -> sx.Schedule | None:
    file, _ = parse_parts(Source("<written so far>", f"{text.rstrip()}\n}}"))
    found = [d for d in file.declarations if isinstance(d, sx.Schedule)]
    return found[0] if len(found) == 1 else None
