"""What a reader should have written: unexpected tokens to diagnostics."""

from __future__ import annotations

from tensorlang.diagnostics import Diagnostic, Label, Source, Span
from tensorlang.syntax.scanner import Chunk


def before_parsing(source: Source, chunk: Chunk) -> list[Diagnostic]:
    """Return mistakes that the grammar alone would report badly."""
    return []


def explain(source: Source, chunk: Chunk, position: int, accepted: frozenset[str]) -> Diagnostic:
    """Return the diagnostic for the token at `position`, which is none of `accepted`."""
    tokens = chunk.tokens
    end = position == len(tokens)
    token = tokens[-1] if end else tokens[position]
    return Diagnostic("P099", f"unexpected `{token.value}`", (Label(Span(source, token.start, token.end)),), notes=(" ".join(sorted(accepted)),))
