"""Text to tokens, one list for each declaration.

    scan      text → lexemes (words, numbers, signs, brackets, line ends) and comments
    split     lexemes → declarations: each starts outside brackets at one of
              `use op fn reducer schedule tactic instruction extern ordered strict reduce fast`,
              or in the first column even when a bracket was left open, so that one mistake does not hide the next declaration
    match     every bracket has its partner, else a diagnostic at the opening one
    refine    line ends become NEWLINE tokens or nothing, `..` becomes RANGE or EXPAND, words that are keywords in one place only get
              their type

A line end counts unless it lies inside `( [`, follows something that cannot end a clause (an operator, `,`, `=`, `in`, …) or precedes
something that cannot start one (`for`, `otherwise`, `->`, `{`, `(`, an operator, …). The next lexeme is known here, which is why this is
not left to a lexer that meets tokens one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tensorlang.diagnostics import Diagnostic, Edit, Label, Source, Span
from tensorlang.syntax import accumulated, einsum
from tensorlang.syntax.directive_forms import ELSEWHERE, FORMS
from tensorlang.syntax.foreign_directives import written_here
from tensorlang.syntax.foreign_types import element_type
from tensorlang.syntax.nodes import Comment


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


RESERVED = _words("op fn for in let if then else otherwise and or not attr size each where from broadcast extern knobs")
PREPOSITIONS = _words("by at as to with fold stages")
"""Keywords in schedules only, after the first word of a directive; `in` and `:` introduce phrases too."""

MODES = _words("strict reduce fast")
"""Keywords right before `op`."""

DECLARATION_WORDS = _words("use op fn reducer schedule tactic instruction extern ordered") | MODES
_CONTEXTUAL = {
    "use": "USE",
    "reducer": "REDUCER",
    "schedule": "SCHEDULE",
    "tactic": "TACTIC",
    "instruction": "INSTRUCTION",
    "ordered": "ORDERED",
}

NAME = r"[A-Za-z_][A-Za-z_0-9]*"
_PATTERN = re.compile(
    rf"""
      (?P<space>[ \t\r]+)
    | (?P<newline>\n)
    | (?P<comment>\#[^\n]*)
    | (?P<name>{NAME}(?:\.[A-Za-z_0-9]+)*)
    | (?P<quoted>`[^`\n]+`)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z_0-9]|\.(?!\.)))
    | (?P<text>"(?:[^"\\\n]|\\[^\n])*")
    | (?P<foreign><<<[^>\n]*>>>|<>|\.\.\.|\*\*|&&|\|\||:=|[-+*/%]=|=>|<<|>>|===|!==|~=|\.[-+*/^])
    | (?P<sign>->|\.\.|//|[<>=!]=|[-+*/%<>=,:;|(){{}}\[\]])
    | (?P<bad_number>\.?[0-9][A-Za-z_0-9]*(?:\.(?!\.)[A-Za-z_0-9]*)*)
    """,
    re.VERBOSE,
)
_SIGNS = {
    "->": "ARROW", "..": "RANGE", "//": "DIVIDE", "/": "DIVIDE", "%": "DIVIDE", "*": "TIMES", "+": "SIGN", "-": "SIGN",
    "<": "COMPARE", ">": "COMPARE", "<=": "COMPARE", ">=": "COMPARE", "==": "COMPARE", "!=": "COMPARE",
    "=": "EQUAL", ",": "COMMA", ":": "COLON", ";": "SEMICOLON", "|": "VBAR",
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE",
}  # fmt: skip
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {")": "(", "]": "[", "}": "{"}

_JOINS_NEXT = _words(
    "SIGN TIMES DIVIDE COMPARE RANGE EQUAL COMMA COLON VBAR ARROW LPAR LSQB LBRACE SEMICOLON IN THEN ELSE FOR IF LET "
    "AND OR NOT WHERE FROM ATTR SIZE EACH BROADCAST"
)
JOINS_PREVIOUS = _words("SIGN TIMES DIVIDE COMPARE RANGE EQUAL COMMA ARROW LPAR LBRACE RBRACE FOR OTHERWISE WHERE THEN ELSE AND OR IN")
_STARTS_OPERAND = _words("NAME NUMBER TEXT LPAR SIGN")

_FOREIGN = {
    "**": "write a product, or call `pow(a, b)`",
    "&&": "write `and`",
    "||": "write `or`",
    ":=": "write `=`",
    "=>": "write `->` before results, `>=` to compare",
    "<<": "call `shl(a, n)`",
    ">>": "call `shr(a, n)`",
    "===": "write `==`",
    "!==": "write `!=`",
    "<>": "write `!=`",
    "~=": "write `!=`",
    **dict.fromkeys((".*", "./", ".+", ".-"), "an equation says what one element is, so no dot is needed: `y[i] = x[i] * z[i]`"),
    ".^": "an equation says what one element is: `y[i] = pow(x[i], 2)`",
    "<<<": "a call takes arrays alone, `f(x)`; a schedule gives iterations to blocks and threads: `bind i to block.x`",
    "...": "a range is `a..b`; dimensions of any number have a name, `x: f32[D..]`, and so have their indices, `x[d..]`",
}
_MEANT = {"&&": "and", "||": "or", ":=": "=", "===": "==", "!==": "!=", "<>": "!=", "~=": "!=", ".*": "*", "./": "/", ".+": "+", ".-": "-"}
"""The signs of other languages that have another name here, and no other meaning."""
_STRAY = {
    "!": "write `not a`, or `a != b`",
    "&": "write `and` for conditions, `bitand(a, b)` for integers",
    "^": "write `pow(a, b)`, or `bitxor(a, b)` for integers",
    "~": "write `not a` for conditions, `bitnot(a)` for integers",
    "?": "write `if c then a else b`",
    "'": 'texts stand in double quotes: `"…"`',
    ".": "a range is `a..b`; `d.0` and `p.e` are names of schedules",
    "@": "a product of tensors is a sum: `y[i, j] = sum(k) a[i, k] * b[k, j]`",
    "\u2212": "this is a minus sign from typesetting; write `-`",
    "\u00d7": "write `*`",
    "\u00b7": "write `*`",
    "\u2264": "write `<=`",
    "\u2265": "write `>=`",
    "\u2260": "write `!=`",
    "\u2192": "write `->`",
    "\u2026": "write `..`",
    "\u2211": "write `sum(k) …`",
}
_STRAY_MEANT = {"\u2212": "-", "\u00d7": "*", "\u00b7": "*", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u2192": "->", "\u2026": ".."}


@dataclass(slots=True)
class Token:
    """A terminal of grammar.lark. `value` is the text as written, `type` the terminal's name."""

    type: str
    value: str
    start: int
    end: int
    source: Source


@dataclass(frozen=True, slots=True)
class Chunk:
    """The tokens of one declaration."""

    tokens: list[Token]
    is_schedule: bool
    is_reducer: bool

    @property
    def may_have_dots(self) -> bool:
        """Names may have dots everywhere in it."""
        return self.is_schedule or self.tokens[0].type == "USE"


@dataclass(slots=True)
class Scan:
    """What a text is made of. `lexemes` still holds line ends; a `diagnostics` entry is a place that is no lexeme at all."""

    source: Source
    lexemes: list[Token] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


MOST_DIGITS = 2000
"""Any value of any element type can be written exactly in fewer."""


def scan(source: Source) -> Scan:
    """Return the lexemes and comments of a text, and a diagnostic for each place that is neither."""
    found = Scan(source)
    text, lexemes = source.text, found.lexemes
    position, line_has_lexeme = 0, False
    match_at = _PATTERN.match
    while position < len(text):
        match = match_at(text, position)
        if match is None:
            position = _stray(found, position)
            continue
        kind, value, end = match.lastgroup or "", match.group(), match.end()
        if kind in ("sign", "text", "foreign") and (skipped := _foreign_comment(found, position, line_has_lexeme)):
            position = skipped
            continue
        kind = "bad_number" if kind == "number" and end - position > MOST_DIGITS else kind
        if kind == "newline":
            lexemes.append(Token("NEWLINE", value, position, end, source))
            line_has_lexeme = False
        elif kind == "comment":
            found.comments.append(Comment(value.rstrip(), position, line_has_lexeme))
        elif kind != "space":
            line_has_lexeme = True
            token = Token(_type(kind, value), value, position, end, source)
            lexemes.append(token)
            _complain(found, kind, token)
        position = end
    return found


_BLOCK_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|\"\"\".*?(?:\"\"\"|\Z)", re.DOTALL)
_LINE_COMMENT = re.compile(r"(?://+|--+|%+|;+)[ \t]*([A-Za-z][^\n]*)?")


def _foreign_comment(found: Scan, position: int, line_has_lexeme: bool) -> int:
    """Report what is surely a comment of another language, and return where it ends; 0 where none begins. One that ends its line is
    read as one of ours, so that nothing else is made of it."""
    text, source = found.source.text, found.source
    block = _BLOCK_COMMENT.match(text, position)
    if block is not None:
        sign, end = '"""' if text[position] == '"' else "/*", block.end()
        rest = text[end : _line_end(text, end)].strip()
        inner = block.group()[len(sign) :].removesuffix(sign[::-1])
        edits = (Edit(Span(source, position, end), f"# {inner.strip()}"),) if "\n" not in inner and not rest else ()
        found.diagnostics.append(_comment(source, position, sign, edits))
        return end
    match = _LINE_COMMENT.match(text, position)
    if match is None or not _is_comment(found, match, line_has_lexeme):
        return 0
    length = len(match.group()) - len(match.group().lstrip("/-%;"))
    span = Span(source, position, position + length)
    found.diagnostics.append(_comment(source, position, text[position : position + length], (Edit(span, "#"),)))
    return match.end()


def _is_comment(found: Scan, match: re.Match[str], line_has_lexeme: bool) -> bool:
    """Tell whether words follow as no expression has them, or the line stands where no expression can."""
    before = next((token for token in reversed(found.lexemes) if token.type != "NEWLINE"), None)
    if not line_has_lexeme and (before is None or before.value in ("}", "{")):
        return True
    words = re.match(r"//+[ \t]*([A-Za-z_']+)[ \t]+([A-Za-z_']+)", match.group())
    if words is None:
        return False
    within = next((token.value for token in reversed(found.lexemes) if token.value in DECLARATION_WORDS), "")
    beside_names = RESERVED | PREPOSITIONS if within in ("schedule", "tactic") else RESERVED
    return not {words[1], words[2]} & beside_names


def _comment(source: Source, position: int, sign: str, edits: tuple[Edit, ...]) -> Diagnostic:
    says = "`//` divides, and starts no comment" if sign == "//" else f"`{sign}` starts no comment"
    label = Label(Span(source, position, position + len(sign)))
    return Diagnostic("P035", says, (label,), help="a comment begins with `#` and ends with its line", edits=edits)


def _type(kind: str, value: str) -> str:
    match kind:
        case "sign":
            return _SIGNS[value]
        case "name" if value in RESERVED:
            return value.upper()
        case "name" | "quoted":
            return "NAME"
        case "text":
            return "TEXT"
        case "foreign":
            return _FOREIGN_TYPES.get(value, "SIGN")
        case _:
            return "NUMBER"


_FOREIGN_TYPES = {
    "**": "TIMES",
    "&&": "AND",
    "||": "OR",
    ":=": "EQUAL",
    "=>": "COMPARE",
    "===": "COMPARE",
    "!==": "COMPARE",
    "...": "RANGE",
} | {f"{sign}=": "EQUAL" for sign in "+-*/%"}  # fmt: skip | {f"{sign}=": "EQUAL" for sign in "+-*/%"}
"""What a sign of another language stands for, so that the rest of the declaration can still be read."""


def _complain(found: Scan, kind: str, token: Token) -> None:
    span = Span(found.source, token.start, token.end)
    if kind == "bad_number":
        text = token.value if len(token.value) <= MOST_DIGITS else f"{token.value[:8]}…{token.value[-8:]}"
        meant = _number_meant(token.value)
        help = _number_help(token.value) if meant is None else f"{meant[0]}: `{meant[1]}`"
        edits = () if meant is None else (Edit(span, meant[1]),)
        found.diagnostics.append(Diagnostic("P002", f"`{text}` is not a number", (Label(span),), help=help, edits=edits))
    elif kind == "foreign":
        once = "a tensor's elements are defined once: give the result a name of its own, or write a reduction, `y = sum(k) …`"
        hint = _FOREIGN.get(token.value[:3] if token.value.startswith("<<<") else token.value, once)
        if token.value.endswith("=") and (clause := accumulated.clause_at(span)) is not None and clause.sign == token.value:
            reduced = accumulated.reduction(clause)
            instead = f", in place of all others of `{clause.name}`" if clause.others else ""
            hint = f"what a loop accumulates is one equation{instead}, a reduction that names its indices: `{reduced}`" if reduced else hint
        edits = (Edit(span, _MEANT[token.value]),) if token.value in _MEANT else ()
        found.diagnostics.append(Diagnostic("P003", f"there is no operator `{token.value}`", (Label(span),), help=hint, edits=edits))


def _number_meant(text: str) -> tuple[str, str] | None:
    """Return why a number of another language is none here, and how it is written."""
    if len(text) > MOST_DIGITS:
        return None
    if re.fullmatch(r"\.[0-9]+([eE][+-]?[0-9]+)?", text):
        return "write a digit before the dot", f"0{text}"
    if re.fullmatch(r"[0-9][0-9_]*_[0-9]+(\.[0-9]+)?", text):
        return "write the digits without separators", text.replace("_", "")
    if re.fullmatch(r"[0-9]+\.([eE][0-9]+)?", text):
        return "write a digit after the dot", text.replace(".", ".0", 1)
    if re.fullmatch(r"([0-9]+|[0-9]*\.[0-9]*)(f|F|l|L|u|U|ul|UL)", text) and text[0] != ".":
        number = text.rstrip("fFlLuU")
        return "numbers have no suffix", f"{number}0" if number.endswith(".") else number
    product = re.fullmatch(r"([0-9]+)([A-Za-z_]\w*)", text)
    if product is not None and not re.match(r"[eE][0-9]|[eE]$|[xXbBoO][0-9a-fA-F]", product[2]):
        return "a product needs its `*`", f"{product[1]} * {product[2]}"
    return None


def _number_help(text: str) -> str:
    if len(text) > MOST_DIGITS:
        return f"numbers have at most {MOST_DIGITS} digits"
    if re.match(r"0[xXbBoO]", text):
        return "integers are written in decimal"
    if re.match(r"[0-9]+[A-Za-z_]", text) and not re.match(r"[0-9]+[eE]", text):
        return "a name starts with a letter, and a product needs its `*`; casts are calls: `f32(1)`"
    return "numbers are written `12`, `2.5`, `1e-5`"


def _method(text: str, position: int, called: str) -> str:
    """Return what is said of a method: a directive where it is called like one, and a function otherwise."""
    if called in FORMS or called.lower() in ELSEWHERE:
        meant = written_here(text[position + 1 : _line_end(text, position)].partition(").")[0])
        lines = ", then ".join(f"`{line}`" for line in meant) or f"`{called} …`"
        return f"there are no methods: each directive stands on a line of its own, {lines}"
    operand = _operand_before(text, position)
    if called in _CASTS:
        named = re.match(r"\.\s*\w+\s*\(\s*[\"']?(?:\w+\.)*(\w+)", text[position:])
        cast = f"{element_type(named[1]) or 'f32' if named is not None else 'f32'}({operand})"
        return f"a cast is a call of the type: `{cast}`"
    return f"there are no methods: a function is called by itself, `{called}({operand})`"


_CASTS = frozenset(["astype", "to", "type", "cast", "as_type"])


def _operand_before(text: str, end: int) -> str:
    """Return the read, the call or what stands in parentheses that ends at `end`, on one line."""
    start, depth = end, 0
    while start > 0 and text[start - 1] != "\n":
        character = text[start - 1]
        depth += (character in _CLOSING) - (character in _OPENING)
        if depth < 0 or (depth == 0 and character not in _OPENING and not _is_letter(character)):
            break
        start -= 1
    return text[start + 1 : end - 1] if text[start] == "(" else text[start:end]


def _stray(found: Scan, position: int) -> int:
    """Report what stands at `position` and return where to go on."""
    source, text, character = found.source, found.source.text, found.source.text[position]
    if character == '"':
        end = _line_end(text, position)
        span = Span(source, position, end)
        found.diagnostics.append(Diagnostic("P004", "this text is not closed", (Label(span, 'no second `"` on this line'),)))
        found.lexemes.append(Token("TEXT", '""', position, end, source))
        return end
    if character == "`":
        end = min(_line_end(text, position), position + 2 if text[position + 1 : position + 2] == "`" else len(text))
        span = Span(source, position, end)
        title = "a quoted name cannot be empty" if end == position + 2 else "this quoted name is not closed"
        found.diagnostics.append(Diagnostic("P004", title, (Label(span),), help="quoted names stand between two backquotes on one line"))
        found.lexemes.append(Token("NAME", "`?`", position, end, source))
        return end
    if character == "'" and (operand := _transposed(text, position)) is not None:
        help = f"there is no sign for transposition: write the indices in another order, `y[i, j] = {operand}[j, i]`"
        label = Label(Span(source, position, position + 1))
        found.diagnostics.append(Diagnostic("P001", "the character `'` has no meaning here", (label,), help=help))
        return position + 1
    if (quoted := _OTHER_QUOTES.match(text, position)) is not None:
        span, meant = Span(source, position, quoted.end()), f'"{quoted[1]}"'
        title = f"texts stand in double quotes, not in `{character}`"
        line = source.line(source.location(position)[0])
        if (meant_by := einsum.equation(line)) is not None:
            found.diagnostics.append(Diagnostic("P001", "indices are no text", (Label(span),), help=f"write the equation: `{meant_by}`"))
            found.lexemes.append(Token("TEXT", meant, position, quoted.end(), source))
            return quoted.end()
        found.diagnostics.append(Diagnostic("P001", title, (Label(span),), help=f"write `{meant}`", edits=(Edit(span, meant),)))
        found.lexemes.append(Token("TEXT", meant, position, quoted.end(), source))
        return quoted.end()
    end = position + 1
    while end < len(text) and _is_letter(character) and _is_letter(text[end]):
        end += 1
    span, word = Span(source, position, end), text[position:end]
    hint: str | None
    if _is_letter(character):
        title, hint = f"`{word}` is not a name", "names are made of `A-Z a-z 0-9 _`; any other name goes in backquotes"
        hint = f"{hint}: `` `{word}` ``"
        found.lexemes.append(Token("NAME", word, position, end, source))
    else:
        shown = word if word.isprintable() else f"U+{ord(word):04X}"
        title, hint = f"the character `{shown}` has no meaning here", _STRAY.get(word)
        if word == "?" and text[:position].rstrip(" \t")[-1:] in ("[", ","):
            hint = "a size that is not known yet is a name, as `N` in `x: f32[N]`"
        elif word == "?" and (choice := _CONDITIONAL.search(source.line(source.location(position)[0]))) is not None:
            hint = f"write `if {choice[1]} then {choice[2]} else {choice[3]}`"
        if (called := _METHOD.match(text, position)) is not None and text[:position].endswith((")", "]")):
            hint = _method(text, position, called[1])
        if word == "@" and not text[_line_start(text, position) : position].strip() and _DECORATOR.match(text, position):
            hint = "there are no decorators: delete this line; operators are compiled when they are called"
            end = _line_end(text, position)
        while text.startswith(character, end):
            end += 1
        span = Span(source, position, end)
    edits = (Edit(span, _STRAY_MEANT[word]),) if word in _STRAY_MEANT and end == position + 1 else ()
    found.diagnostics.append(Diagnostic("P001", title, (Label(span),), help=hint, edits=edits))
    return end


_OTHER_QUOTES = re.compile(
    r"""['\u2018\u2019\u201c\u201d\u00ab\u00bb]([^'"\\\u2018\u2019\u201c\u201d\u00ab\u00bb\n]*)['\u2018\u2019\u201c\u201d\u00ab\u00bb]"""
)
"""A text between quotes of other languages, or of typesetting."""
_CONDITIONAL = re.compile(r"(?<![=!<>])=(?!=)\s*([^?]+?)\s*\?\s*([^?:]+?)\s*:\s*([^?:]+?)\s*;?\s*$")
"""A choice of C at the end of a line, with all three of its operands."""
_METHOD = re.compile(r"\.\s*([A-Za-z_]\w*)\s*\(")
_DECORATOR = re.compile(r"@\s*[A-Za-z_][\w.]*[^\n=]*\n")


def _transposed(text: str, position: int) -> str | None:
    """Return the tensor behind whose name a quotation mark stands as MATLAB's sign of transposition; None where it opens a text."""
    before = re.search(r"(\w+)(?:\[[^\[\]]*\]|\([^()]*\))?$", text[_line_start(text, position) : position])
    if before is None:
        return None
    is_prefix = before[0].lower() in ("f", "r", "b", "u") and "'" in text[position + 1 : _line_end(text, position)]
    return None if is_prefix else before[1]


def _line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def split(lexemes: list[Token], text: str) -> Iterator[list[Token]]:
    """Yield the lexemes of each declaration; what stands before the first one is yielded as well."""
    chunk: list[Token] = []
    depth = 0
    for position, token in enumerate(lexemes):
        if token.value in DECLARATION_WORDS and _starts_declaration(lexemes, position, depth, text) and not _is_prefix(chunk):
            yield chunk
            chunk, depth = [], 0
        chunk.append(token)
        if token.value in _OPENING:
            depth += 1
        elif token.value in _CLOSING:
            depth = max(0, depth - 1)
    yield chunk


def _is_prefix(chunk: list[Token]) -> bool:
    """`extern op`, `strict op` and `ordered reducer` are one declaration."""
    words = [token.value for token in chunk if token.type != "NEWLINE"]
    return 0 < len(words) <= 2 and (words == ["ordered"] or all(word in ("extern", *MODES) for word in words))


def _starts_declaration(lexemes: list[Token], position: int, depth: int, text: str) -> bool:
    token = lexemes[position]
    following = lexemes[position + 1] if position + 1 < len(lexemes) else None
    in_first_column = token.start == 0 or text[token.start - 1] == "\n"
    if token.value in MODES:
        return following is not None and following.value == "op" and (in_first_column or depth == 0)
    if token.value in RESERVED and in_first_column:
        return True
    if token.value == "use" and following is not None and following.type == "TEXT":
        return in_first_column or depth == 0
    if token.value == "use" and (following is None or following.value == "\n"):  # one that is being written
        before = next((t for t in reversed(lexemes[:position]) if t.value != "\n"), None)
        return in_first_column and depth == 0 and (before is None or before.type == "TEXT" or before.value in ("}", ")"))
    if following is None or not (following.type == "NAME" or following.value in RESERVED):
        return depth == 0 and token.value in ("op", "extern")
    return in_first_column or (depth == 0 and (position == 0 or lexemes[position - 1].value in ("\n", "}")))


def match_brackets(source: Source, lexemes: list[Token]) -> Diagnostic | None:
    """Return what is wrong with the brackets of a declaration, if anything is."""
    stack: list[Token] = []
    for token in lexemes:
        if token.value in _OPENING and token.type != "TEXT":
            stack.append(token)
        elif token.value in _CLOSING and token.type != "TEXT":
            if not stack or (stack[-1].value == "{" and all(_OPENING[o.value] != token.value for o in stack)):
                span = Span(source, token.start, token.end)
                label = Label(span, f"no `{_CLOSING[token.value]}` is open here")
                return Diagnostic("P006", f"`{token.value}` closes nothing", (label,), help="delete it", edits=(Edit(span, ""),))
            opening = stack.pop()
            if _OPENING[opening.value] != token.value:
                return _mismatch(source, opening, token)
    return _unclosed(source, stack[-1]) if stack else None


def _mismatch(source: Source, opening: Token, closing: Token) -> Diagnostic:
    here = Label(Span(source, opening.start, opening.end), f"needs `{_OPENING[opening.value]}`")
    there = Label(Span(source, closing.start, closing.end), "but this comes first")
    return Diagnostic("P005", f"this `{opening.value}` is not closed", (here, there))


def _unclosed(source: Source, opening: Token) -> Diagnostic:
    here = Label(Span(source, opening.start, opening.end), f"no `{_OPENING[opening.value]}` follows")
    closing = _OPENING[opening.value]
    where = "on a line of its own behind the last clause or directive" if closing == "}" else "where what it encloses ends"
    return Diagnostic("P005", f"this `{opening.value}` is not closed", (here,), help=f"write `{closing}` {where}")


def refine(lexemes: list[Token]) -> Chunk:
    """Return the tokens of one declaration as grammar.lark knows them."""
    words = [token for token in lexemes[:8] if token.type != "NEWLINE"]
    first = words[0].value if words else ""
    head = words[1].value if first in ("ordered", "extern") and len(words) > 1 else first
    is_schedule = first in ("schedule", "tactic")
    tokens: list[Token] = []
    brackets: list[str] = []
    pending: Token | None = None
    for token in lexemes:
        if token.type == "NEWLINE":
            pending = pending or token
            continue
        if pending is not None:
            _line_break(tokens, pending, token, brackets)
            pending = None
        if is_schedule and token.type == "NAME" and token.value in PREPOSITIONS and _in_directive(tokens, brackets):
            token.type = "PREPOSITION"
        elif is_schedule and token.type == "LPAR" and _calls_tactic(tokens, token, brackets):
            token.type = "CALL"
        _end_expansion(tokens, token)
        tokens.append(token)
        if token.value in _OPENING and token.type != "TEXT":
            brackets.append("set" if token.value == "{" and len(tokens) > 1 and tokens[-2].type == "IN" else token.value)
        elif token.value in _CLOSING and token.type != "TEXT" and brackets:
            brackets.pop()
    if tokens and tokens[-1].type == "RANGE":
        tokens[-1].type = "EXPAND"
    is_reducer = head == "reducer"
    _name_declaration(tokens)
    if is_reducer:
        _name_reducer_parts(tokens)
    if head == "use":
        _name_use_parts(tokens)
    elif not is_schedule:
        _name_qualified(tokens)
    return Chunk(tokens, is_schedule, is_reducer)


def _line_break(tokens: list[Token], newline: Token, following: Token, brackets: list[str]) -> None:
    """Append a NEWLINE if the line end before `following` ends a clause."""
    if not tokens or (brackets and brackets[-1] != "{"):
        return
    previous = tokens[-1]
    if previous.type == "RANGE":
        previous.type = "EXPAND"
    if previous.type in _JOINS_NEXT or following.type in JOINS_PREVIOUS or (following.value in ("lift", "yield", "llvm") and not brackets):
        return
    tokens.append(Token("NEWLINE", "\n", newline.start, newline.end, newline.source))


def _end_expansion(tokens: list[Token], following: Token) -> None:
    if tokens and tokens[-1].type == "RANGE" and following.type not in _STARTS_OPERAND:
        tokens[-1].type = "EXPAND"


def _in_directive(tokens: list[Token], brackets: list[str]) -> bool:
    return brackets == ["{"] and bool(tokens) and tokens[-1].type not in ("NEWLINE", "LBRACE")


def _calls_tactic(tokens: list[Token], parenthesis: Token, brackets: list[str]) -> bool:
    if brackets != ["{"] or len(tokens) < 2:
        return False
    name, before = tokens[-1], tokens[-2]
    return name.type == "NAME" and before.type in ("NEWLINE", "LBRACE") and name.end == parenthesis.start


def _name_declaration(tokens: list[Token]) -> None:
    """Mark the words that are keywords only where a declaration starts."""
    for token, following in pairwise(tokens[:3]):
        if token.value in MODES and following.type == "OP":
            token.type = token.value.upper()
    for token in tokens[:2]:
        if token.value not in _CONTEXTUAL:
            break
        token.type = _CONTEXTUAL[token.value]
        if token.value == "schedule" and len(tokens) > 2 and tokens[1].value == "role" and tokens[2].type == "NAME":
            tokens[1].type = "ROLE"
        if token.value != "ordered":
            break
    for token, following in pairwise(tokens):
        if tokens[0].type == "INSTRUCTION" and token.value == "llvm" and following.type == "TEXT":
            token.type = "LLVM"


def _name_reducer_parts(tokens: list[Token]) -> None:
    """Mark `lift v at i =` and `yield (…) =` after the combination of a reducer."""
    depth, combines = 0, False
    for position, token in enumerate(tokens):
        if token.value in _OPENING:
            depth += 1
        elif token.value in _CLOSING:
            depth -= 1
        elif depth == 0 and token.type == "EQUAL":
            combines = True
        elif depth == 0 and combines and token.value in ("lift", "yield"):
            token.type = token.value.upper()
        elif depth == 0 and token.value == "at" and position >= 2 and tokens[position - 2].type == "LIFT":
            token.type = "AT"


def _name_use_parts(tokens: list[Token]) -> None:
    """Mark the `as` of `use "norm.tl" as n` and `use std.norm (softmax as s)`."""
    for before, token in pairwise(tokens):
        if token.value == "as" and token.type == "NAME" and before.type in ("NAME", "TEXT", "RPAR"):
            token.type = "AS"


def _name_qualified(tokens: list[Token]) -> None:
    """Mark names with dots that are called, and those that are a whole argument."""
    brackets: list[str] = []
    for position, token in enumerate(tokens):
        if token.type == "NAME" and "." in token.value and not token.value.startswith("`"):
            before, after = (tokens[k].type if k < len(tokens) else "" for k in (position - 1, position + 1))
            is_argument = brackets[-1:] == ["LPAR"] and before in ("LPAR", "COMMA", "EQUAL") and after in ("RPAR", "COMMA")
            if is_argument or _is_called(tokens, position):
                token.type = "QUALIFIED"
        if token.value in _OPENING and token.type != "TEXT":
            brackets.append(token.type)
        elif token.value in _CLOSING and token.type != "TEXT" and brackets:
            brackets.pop()


def _is_called(tokens: list[Token], position: int) -> bool:
    """`name(…)` and `name[…](…)`."""
    at = position + 1
    if at < len(tokens) and tokens[at].type == "LSQB":
        depth = 0
        while at < len(tokens):
            depth += (tokens[at].type == "LSQB") - (tokens[at].type == "RSQB")
            at += 1
            if depth == 0:
                break
    return at < len(tokens) and tokens[at].type == "LPAR"
