"""The lexer of the language for Pygments, found by the entry-point group `pygments.lexers`: `pygmentize -l tensorlang f.tl`."""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import RegexLexer
from pygments.token import Token, Whitespace, string_to_tokentype

from tensorlang.lsp.words import RULES


class TensorlangLexer(RegexLexer):  # type: ignore[misc]
    """Colours `.tl` files, and blocks that say `tensorlang` or `tl`."""

    name = "tensorlang"
    aliases: ClassVar[list[str]] = ["tensorlang", "tl"]
    filenames: ClassVar[list[str]] = ["*.tl"]
    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"[ \t\r\n]+", Whitespace),
            *((rule.pattern, string_to_tokentype(f"Token.{rule.token}")) for rule in RULES),
            (r".", Token.Error),
        ]
    }
