"""What imports of other languages stand for: a `use`, or nothing where what they bring is known anyway."""

from __future__ import annotations

import re

from tensorlang.diagnostics import Edit, Source, Span
from tensorlang.syntax.foreign_idioms import FOREIGN_LIBRARIES
from tensorlang.syntax.scanner import Token


def use_for(source: Source, token: Token) -> tuple[str, tuple[Edit, ...]]:
    """Return what an import of another language stands for: a `use`, or nothing where what it brings is known anyway."""
    name = r"[A-Za-z_][A-Za-z_0-9]*"
    number, line = source.location(token.start)[0], line_of(source, token)
    module = re.match(rf"\w+\s+({name})", line)
    if module is not None and module[1] in FOREIGN_LIBRARIES:
        whole = Span(source, token.start, min(token.start + len(source.line(number)) + 1, len(source.text)))
        known = "`sqrt`, `exp`, `sum` and the like are known, and `tensorlang list` shows what `use` brings: `use std.norm (softmax)`"
        return f"delete this line: `{module[1]}` is no library of this language; {known}", (Edit(whole, ""),)
    if found := re.fullmatch(rf"from\s+({name}(?:\.{name})*)\s+(?:import|use)\s+\(?\s*({name}(?:\s*,\s*{name})*)\s*\)?", line):
        return f"write `use {found[1]} ({', '.join(part.strip() for part in found[2].split(','))})`", ()
    if found := re.fullmatch(rf"\w+\s+\{{?\s*({name}(?:\s*,\s*{name})*)\s*\}}?\s+from\s+[\"']?({name}(?:\.{name})*)[\"']?\s*;?", line):
        return f"write `use {found[2]} ({', '.join(part.strip() for part in found[1].split(','))})`", ()
    if found := re.fullmatch(rf"\w+\s+({name}(?:\.{name})*)(?:\s+as\s+({name}))?\s*;?", line):
        from tensorlang.syntax import modules  # which parses

        declared = modules.declaring(found[1])
        if declared is not None:
            return f"write `use {declared} ({found[1]}{f' as {found[2]}' if found[2] else ''})`", ()
        return (f"write `use {found[1]} as {found[2]}`" if found[2] else f"write `use {found[1]}`"), ()
    if found := re.fullmatch(r"\w+\s*\(?\s*[\"<']([^\"<>'`]+\.tl)[\">']\s*\)?\s*;?", line):
        return f'write `use "{found[1]}"`', ()
    return 'write `use "file.tl"` for a file beside this one, `use std.norm (softmax)` for the standard library', ()


def line_of(source: Source, token: Token) -> str:
    """Return the line that a token stands in, without its comment."""
    return source.line(source.location(token.start)[0]).partition("#")[0].strip()


def listed_names(line: str) -> str | None:
    """Return how names of a `use` are listed that stand in other brackets than parentheses, or in none; None where none do."""
    found = re.fullmatch(r"use\s+([\w.]+|\"[^\"]*\")\s*(?:import|::|:)?\s*[{\[]?\s*(\w+(?:\s*,\s*\w+)*)\s*[}\]]?\s*;?", line)
    return f"names stand in parentheses: `use {found[1]} ({found[2]})`" if found is not None else None
