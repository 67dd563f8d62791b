"""How the language is coloured: one table of patterns, from which the lexer of Pygments and the TextMate grammar of editors are made.

A pattern is tried where the one before it ended, the patterns of the table in their order; the longest words are matched whole, so nothing
begins inside a word. Words that are keywords in one place only (`split`, `by`, `schedule`, `role`) are told by what stands beside them, as
two names side by side are found nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from codegen.dtypes import DTYPES
from tensorlang.check.types import BUILTINS, CLASSES, CONSTANTS, LIMITS
from tensorlang.schedule.directives.table import DIRECTIVES
from tensorlang.syntax.scanner import MODES, NAME, PREPOSITIONS, RESERVED

SCOPE = "source.tensorlang"
_SUFFIX = "tensorlang"
HEADS = ("instruction", "reducer", "schedule", "tactic", "use")
"""Words that begin a declaration and are names elsewhere."""


OF_ROLES = ("spread",)
"""Directives that only schedules of roles have."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`scope`: TextMate's name, without the language. `token`: that of Pygments, from its root `Token`."""

    scope: str
    token: str
    pattern: str


def _any(words: Iterable[str]) -> str:
    return "(?:" + "|".join(sorted(words, key=lambda w: (-len(w), w))) + ")(?![A-Za-z_0-9])"


_BESIDE = r"(?=[ \t]+(?!(?:then|else|and|or|in|for|not|otherwise|where)(?![A-Za-z_0-9]))[A-Za-z_0-9`(\[\"])"
"""A word with another name, a bracket or a text after it and a space between."""

RULES: tuple[Rule, ...] = (
    Rule("comment.line.number-sign", "Comment.Single", r"#[^\n]*"),
    Rule("string.quoted.double", "String.Double", r'"(?:[^"\\\n]|\\[^\n])*"'),
    Rule("variable.other.quoted", "Name.Variable", r"`[^`\n]+`"),
    Rule("constant.numeric", "Number", r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z_0-9]|\.(?!\.))"),
    Rule("variable.other.member", "Name.Variable", rf"{NAME}(?:\.[A-Za-z_0-9]+)+"),
    Rule("storage.modifier", "Keyword.Declaration", rf"{_any(MODES)}(?=[ \t]+op(?![A-Za-z_0-9]))"),
    Rule("storage.modifier", "Keyword.Declaration", r"ordered(?=[ \t]+reducer(?![A-Za-z_0-9]))"),
    Rule("storage.type", "Keyword.Declaration", rf"{_any(HEADS)}(?=[ \t]+[A-Za-z_`])|use(?=[ \t]+\")"),
    Rule("storage.modifier", "Keyword.Declaration", r"(?<=schedule )role(?=[ \t]+[A-Za-z_`])"),
    Rule("keyword.other", "Keyword", r'llvm(?=[ \t]+")'),
    Rule("keyword.other", "Keyword", r"lift(?=[ \t]+[A-Za-z_(`])|yield(?=[ \t]*\()"),
    Rule("storage.type", "Keyword.Declaration", _any(("op", "fn", "extern"))),
    Rule("entity.name.function", "Name.Function", rf"(?<=\bop ){NAME}|(?<=\bfn ){NAME}|(?<=\btactic ){NAME}|(?<=\breducer ){NAME}"),
    Rule("keyword.control", "Keyword", _any(RESERVED - {"op", "fn", "extern"})),
    Rule("keyword.other.preposition", "Keyword", rf"(?<=[A-Za-z_0-9)\]`.\"] ){_any(PREPOSITIONS)}(?=[ \t]+[A-Za-z_0-9`(\[-])"),
    Rule("keyword.other.directive", "Keyword", rf"{_any({*DIRECTIVES, *OF_ROLES})}{_BESIDE}|(?:flatten|derive)(?=[ \t]*(?:#[^\n]*)?$)"),
    Rule("support.type", "Keyword.Type", _any(DTYPES)),
    Rule("support.type.class", "Keyword.Type", rf"(?<=: ){_any(CLASSES)}"),
    Rule("support.function", "Name.Builtin", rf"{_any(BUILTINS)}(?=[(\[])"),
    Rule("constant.language", "Keyword.Constant", _any({*CONSTANTS, *LIMITS, "none"})),
    Rule("entity.name.function.call", "Name.Function", rf"{NAME}(?=\()"),
    Rule("variable.other", "Name", NAME),
    Rule("keyword.operator", "Operator", r"->|\.\.|//|[<>=!]=|[-+*/%<>=|]"),
    Rule("punctuation", "Punctuation", r"[,:;(){}\[\]]"),
)


def textmate() -> dict[str, object]:
    """Return the grammar as TextMate and Visual Studio Code read it."""
    patterns = [{"name": f"{rule.scope}.{_SUFFIX}", "match": rule.pattern} for rule in RULES]
    return {"name": "tensorlang", "scopeName": SCOPE, "fileTypes": ["tl"], "patterns": patterns}
