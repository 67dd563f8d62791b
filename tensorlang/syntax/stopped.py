"""Where the parser stopped, and what stands around it."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.diagnostics import Source, Span
from tensorlang.syntax.scanner import Token

OPERATOR = frozenset(["OP", "EXTERN", "STRICT", "REDUCE", "FAST"])
"""Tokens that begin an operator."""
ENDS = frozenset(["NEWLINE", "$END", "RBRACE", "RPAR", "RSQB"])
"""Tokens that end an expression."""
OPENING = frozenset(["LPAR", "LSQB", "LBRACE", "CALL"])
CLOSING = frozenset(["RPAR", "RSQB", "RBRACE"])


@dataclass(frozen=True, slots=True)
class Stopped:
    """Where the parser stopped: the token it could not use, the one before, and what it could have used."""

    source: Source
    tokens: list[Token]
    position: int
    accepted: frozenset[str]
    is_schedule: bool

    @property
    def token(self) -> Token:
        if self.position < len(self.tokens):
            return self.tokens[self.position]
        end = self.tokens[-1].end
        return Token("$END", "", end, end, self.source)

    @property
    def previous(self) -> Token:
        return self.tokens[self.position - 1] if self.position else self.token

    @property
    def needs_operand(self) -> bool:
        return "NUMBER" in self.accepted

    @property
    def has_operand(self) -> bool:
        """An expression is complete as far as it goes."""
        return not self.needs_operand and bool(self.accepted & {"SIGN", "TIMES", "DIVIDE"})

    @property
    def span(self) -> Span:
        return self.at(self.token)

    def at(self, token: Token) -> Span:
        between = self.source.text[self.previous.end : token.start] if self.position and token is self.token else ""
        if token.type in ("NEWLINE", "$END") or (token.type in ENDS and "\n" in between):
            return Span(self.source, self.previous.end, self.previous.end)
        return Span(self.source, token.start, token.end)

    def statement(self) -> list[Token]:
        """The tokens of this clause or directive, up to here."""
        start = self.position
        while start > 0 and self.tokens[start - 1].type not in ("NEWLINE", "LBRACE"):
            start -= 1
        return self.tokens[start : self.position]

    def brackets(self) -> list[int]:
        """The positions of the brackets that are open here, outermost first."""
        stack: list[int] = []
        for position, token in enumerate(self.tokens[: self.position]):
            if token.type in OPENING:
                stack.append(position)
            elif token.type in CLOSING and stack:
                stack.pop()
        return stack

    def opening_of(self, closing: int) -> int | None:
        """Return the position of the bracket that the one at `closing` closes; None where none stands there."""
        depth = 0
        for position in range(closing, -1, -1):
            kind = self.tokens[position].type
            depth += (kind in CLOSING) - (kind in OPENING)
            if depth == 0:
                return position if kind in OPENING else None
        return None

    def closing_of(self, opening: int) -> int | None:
        """Return the position of the bracket that closes the one at `opening`."""
        depth = 0
        for position in range(opening, len(self.tokens)):
            kind = self.tokens[position].type
            depth += (kind in OPENING) - (kind in CLOSING)
            if depth == 0:
                return position if kind in CLOSING else None
        return None

    def inside(self) -> str:
        """The type of the innermost open bracket, or nothing."""
        stack = self.brackets()
        return self.tokens[stack[-1]].type if stack else ""

    @property
    def is_clause_level(self) -> bool:
        return not self.is_schedule and self.inside() == "LBRACE"

    def word(self) -> str:
        """What the declaration is called: `operator `f``."""
        names = {"op": "operator", "fn": "function"}
        words = [t for t in self.tokens[:4] if t.type not in ("ORDERED", *OPERATOR - {"OP"})]
        kind = names.get(words[0].value, words[0].value)
        return f"{kind} `{words[1].value}`" if len(words) > 1 and words[1].type == "NAME" else f"this {kind}"


def line_from(p: Stopped, first: Token) -> tuple[str, int]:
    """Return the text from a token to the end of its line, without a comment, and where that ends."""
    end = p.source.text.find("\n", first.start)
    line = p.source.text[first.start : end if end >= 0 else len(p.source.text)].partition("#")[0].rstrip().removesuffix("}").rstrip()
    return line, first.start + len(line)


def indent_of(p: Stopped, first: Token) -> str:
    """Return what stands before a token in its line, where that is nothing but blanks."""
    before = p.source.text[p.source.text.rfind("\n", 0, first.start) + 1 : first.start]
    return before if not before.strip() else ""
