"""What a reader should have written: unexpected tokens to diagnostics.

The parser tells which terminals may follow at the point where it stopped. Together with the tokens before it that is enough to name the
mistake: `explain` asks each of `_EXPLANATIONS` in turn and takes the first answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches

from codegen.dtypes import DTYPES
from tensorlang.diagnostics import Diagnostic, Edit, Label, Source, Span
from tensorlang.syntax.directive_forms import FORMS, form_called
from tensorlang.syntax.foreign_directives import TENSOR, told, written_here
from tensorlang.syntax.foreign_idioms import FOREIGN_IDIOMS, dotted
from tensorlang.syntax.foreign_imports import line_of, listed_names, use_for
from tensorlang.syntax.foreign_types import element_type
from tensorlang.syntax.result_type import type_of_result
from tensorlang.syntax.scanner import RESERVED, Chunk, Token
from tensorlang.syntax.stopped import ENDS, OPERATOR, Stopped, indent_of, line_from


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPERATORS = _words("SIGN TIMES DIVIDE COMPARE AND OR NOT")
_STARTS_OPERAND = _words("NAME NUMBER TEXT LPAR LSQB LET IF NOT")
_HEADS = ("use", "op", "fn", "reducer", "schedule", "tactic", "instruction", "extern")
PRODUCTS = _words("matmul dot mm bmm einsum tensordot gemm inner vdot")
"""What products of tensors are called elsewhere."""
_STATEMENTS = _words("return var const def while int float double auto local buffer alloc tensor yield print assert pass")


def before_parsing(source: Source, chunk: Chunk) -> list[Diagnostic]:
    """Return mistakes that the grammar alone would report badly."""
    found: list[Diagnostic] = []
    if not _starts_well(chunk.tokens[0]):
        found.append(_no_declaration(source, chunk.tokens[0]))
        return found
    for token in chunk.tokens:
        if token.type == "NAME" and "." in token.value and not token.value.startswith("`") and not chunk.may_have_dots:
            found.append(dotted(source, token))
        elif token.type == "TEXT":
            found += _bad_escapes(source, token)
    return found


def missing_body(source: Source, chunk: Chunk) -> Diagnostic:
    """Return the diagnostic for an operator that ends after its results."""
    place = Stopped(source, chunk.tokens, len(chunk.tokens), frozenset(), chunk.is_schedule)
    label = Label(place.span, "`{` expected")
    help = "write its clauses in braces; only an `extern op` may go without"
    return Diagnostic("P012", f"{place.word()} has no body", (label,), help=help)


def explain(source: Source, chunk: Chunk, position: int, accepted: frozenset[str]) -> Diagnostic:
    """Return the diagnostic for the token at `position`, which is none of `accepted`."""
    place = Stopped(source, chunk.tokens, position, accepted, chunk.is_schedule)
    for explanation in _EXPLANATIONS:
        diagnostic = explanation(place)
        if diagnostic is not None:
            return diagnostic
    return _unexpected(place)


def _span(source: Source, token: Token) -> Span:
    return Span(source, token.start, token.end)


def _starts_well(token: Token) -> bool:
    return token.type in (*OPERATOR, "FN", "REDUCER", "ORDERED", "SCHEDULE", "TACTIC", "INSTRUCTION", "USE")


def _no_declaration(source: Source, token: Token) -> Diagnostic:
    title = f"`{token.value}` starts no declaration"
    foreign = {"def": "op", "func": "fn", "function": "fn", "kernel": "op", "operator": "op", "reduce": "reducer"}
    edits: tuple[Edit, ...] = ()
    help = "a file holds `use`, `op`, `fn`, `reducer`, `schedule`, `tactic` and `instruction` declarations"
    if function := re.match(r"(?:def|func|function)\s+(\w+)\s*\(([\w\s,]*)\)\s*[:{=]?\s*(?:return\s+)?([^{}]*)", line_of(source, token)):
        help = f"write `fn {function[1]}({function[2].strip()}) = {function[3].strip() or '…'}`"
    elif token.value in foreign:
        help, edits = f"write `{foreign[token.value]}`", (Edit(_span(source, token), foreign[token.value]),)
    elif token.value in ("import", "include", "from", "require", "use", "using"):
        help, edits = use_for(source, token)
    elif token.value in _DECLARED_ELSEWHERE and _constant(source, token) is None:
        help = "an operator says what its results are, and indices are not declared: `op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }`"
    elif (constant := _constant(source, token)) is not None:
        help = constant
    elif re.match(rf"{re.escape(token.value)}\s*(?:\[[^\]]*\]\s*)?[-+*]?=(?!=)", line_of(source, token)):
        help = "equations stand in an operator: `op f(x: f32[N]) -> (y: f32[N]) { y[i] = … }`"
    elif re.match(rf"{re.escape(token.value)}\s*(?:\[[^\]]*\]\s*)?\(.*->", line_of(source, token)):
        help, edits = f"an operator begins with `op`: `op {token.value}(…)`", (Edit(Span(source, token.start, token.start), "op "),)
    elif close := get_close_matches(token.value, _HEADS, 1, 0.6):
        help, edits = f"did you mean `{close[0]}`?", (Edit(_span(source, token), close[0]),)
    return Diagnostic("P013", title, (Label(_span(source, token)),), help=help, edits=edits)


def _constant(source: Source, token: Token) -> str | None:
    """Return how a constant is said, where a number is given a name outside of operators: `N = 10`, `const N: i32 = 10`."""
    found = re.match(r"(?:[A-Za-z]+\s+)*([A-Za-z_]\w*)\s*(?::\s*\w+\s*)?=\s*(-?[0-9][0-9.eE+-]*)\s*;?\s*(?:#.*)?$", line_of(source, token))
    return f"a constant is a function of nothing: `fn {found[1]}() = {found[2]}`, called `{found[1]}()`" if found is not None else None


_DECLARED_ELSEWHERE = frozenset(
    ["Func", "Var", "RDom", "ImageParam", "Buffer", "void", "float", "double", "int", "auto", "template", "class", "struct"]
)
"""What declarations of Halide and C++ begin with."""
_UNDECLARED = "nothing is declared: an index is what stands in the brackets on the left, and a tensor is what an equation defines"


def _use(p: Stopped) -> Diagnostic | None:
    """Something in a `use` that does not belong there."""
    if p.tokens[0].type != "USE":
        return None
    help = 'write `use "file.tl"`, `use std.norm (softmax, rms_norm)` or `use std.norm as n`'
    if p.token.value in RESERVED and "NAME" in p.accepted:
        return _reserved_word(p, p.token)
    if p.inside() == "LPAR":
        title = "names that are used stand in parentheses, with commas between them"
    elif p.position == 1:
        title = "a `use` names a file or a module"
    elif p.previous.type == "AS":
        title = "a name is missing after `as`"
    elif p.token.type == "AS":
        title = "what is named one by one has no common name"
        help = "give each its own, `use std.norm (softmax as s)`, or leave the names out: `use std.norm as n`"
    else:
        title = f"`{p.token.value}` does not belong into this `use`" if p.token.value.strip() else "this `use` ends too early"
        help = listed_names(line_of(p.source, p.tokens[0])) or help
    return Diagnostic("P034", title, (Label(p.span),), help=help)


def _bad_escapes(source: Source, token: Token) -> list[Diagnostic]:
    found = []
    for match in re.finditer(r"\\(.)", token.value):
        if match.group(1) not in 'nt"\\':
            span = Span(source, token.start + match.start(), token.start + match.end())
            help = 'texts know `\\n`, `\\t`, `\\"` and `\\\\`'
            found.append(Diagnostic("P030", f"`{match.group()}` means nothing in a text", (Label(span),), help=help))
    return found


# ---------------------------------------------------------------- explanations, most telling first


def _semicolon(p: Stopped) -> Diagnostic | None:
    if p.token.type != "SEMICOLON":
        return None
    edits = (Edit(p.span, ""),)
    return Diagnostic(
        "P003",
        "there is no operator `;`",
        (Label(p.span),),
        help=f"the end of a line ends a {'directive' if p.is_schedule else 'clause'}",
        edits=edits,
    )


_CLAUSE = "a clause says what an element is, as in `y[i] = x[i]`; its indices run over the declared shape by themselves"


def _recurrence_in(p: Stopped) -> str | None:
    """Return how steps are said where a loop assigns to a tensor what it computes of the same."""
    found = re.match(r"for\s+(\w+)\s+in\s+[^{:]*[{:]\s*(\w+)\[([^\]]*)\]\s*=([^\n}]*)", p.source.text[p.token.start :])
    if found is None or found[1] in re.findall(r"\w+", found[3]) or not re.search(rf"\b{found[2]}\[", found[4]):
        return None
    step, name, inner = found[1], found[2], found[3].strip()
    first, then = f"`{name}[0, {inner}] = …`", f"`{name}[{step} + 1, {inner}] = …` of `{name}[{step}, …]`"
    return f"steps that need each other are a recurrence, with an index for the step: {first} and {then}"


def _reserved(p: Stopped) -> Diagnostic | None:
    """A keyword stands where only a name, or a name among others, can stand."""
    if p.token.type == "COLON" and p.previous.value in RESERVED and "NAME" in p.accepted:
        return _reserved_word(p, p.previous)
    if "NAME" not in p.accepted or p.token.value not in RESERVED:
        return None
    word = p.token.value
    if p.previous.type in ("LBRACE", "NEWLINE") and word in ("for", "if", "let", "otherwise"):
        if word == "let":
            after = Span(p.source, p.token.start, p.tokens[p.position + 1].start if p.position + 1 < len(p.tokens) else p.token.end)
            help = "drop `let`: the equation gives the name"
            return Diagnostic("P031", "`let` starts no clause", (Label(p.span),), help=help, edits=(Edit(after, ""),))
        if word == "otherwise":
            clause = line_from(p, p.token)[0].removeprefix("otherwise").strip(" :")
            help = f"write it behind the last clause of a tensor: `{clause or 'y[i] = 0'} otherwise`"
            return Diagnostic("P031", "`otherwise` starts no clause", (Label(p.span),), help=help)
        help = _recurrence_in(p) or _CLAUSE
        if p.is_schedule and word == "for":
            help = "loops follow from equations; directives change them: `order j, i`, `split i by 8 -> io, ii`"
            return Diagnostic("P031", f"`{word}` starts no directive", (Label(p.span),), help=help)
        if word == "if":
            chosen = "a condition chooses the value of an element: `y[i] = if c then a else b`"
            help = f"{chosen}; where a clause applies is said behind it, `for i >= 1`"
        return Diagnostic("P031", f"`{word}` starts no clause", (Label(p.span),), help=help)
    following = p.tokens[p.position + 1].type if p.position + 1 < len(p.tokens) else ""
    if word == "from" or (word == "for" and following == "NAME" and not p.needs_operand):
        return None
    joins = ("for", "in", "then", "else", "otherwise", "and", "or", "where", "if", "let", "not")
    if p.needs_operand and word in joins:
        return None
    if "ATTR" in p.accepted and word == "op":
        return None
    return _reserved_word(p, p.token)


def _reserved_word(p: Stopped, token: Token) -> Diagnostic:
    help = f"choose another name, or write `` `{token.value}` ``"
    after = p.tokens[p.position + 1] if p.position + 1 < len(p.tokens) else None
    if token.value in ("size", "attr") and p.previous.type in ("LBRACE", "NEWLINE") and after is not None and after.type == "NAME":
        declared = f"{token.value} {after.value}{': int' if token.value == 'attr' else ''}"
        help = f"what the caller tells stands among the parameters: `op f(x: f32[N], {declared})`"
    return Diagnostic("P007", f"`{token.value}` is a reserved word", (Label(p.at(token), "a name is expected here"),), help=help)


def _preposition(p: Stopped) -> Diagnostic | None:
    if p.token.type != "PREPOSITION" or "NAME" not in p.accepted:
        return None
    word = p.token.value
    name = p.previous.value if p.previous.type == "PREPOSITION" else word
    help = f"a loop or tensor called `{name}` is written `` `{name}` ``"
    if p.previous.type == "COMMA":
        return Diagnostic("P007", f"`{word}` is a reserved word in schedules", (Label(p.span, "a name is expected here"),), help=help)
    return Diagnostic("P027", f"`{p.previous.value}` has no operand", (Label(p.at(p.previous)),), help=help)


def _late_if(p: Stopped) -> Diagnostic:
    """An `if` behind what it is about: a choice as Python writes it, or the condition of a clause."""
    rest, label = line_from(p, p.token)[0], Label(p.span)
    if re.search(r"\belse\b", rest) or not p.is_clause_level:
        choice = _CHOICE.match(rest)
        equation = next((t for t in reversed(p.statement()) if t.type == "EQUAL"), None) if p.is_clause_level else None
        if choice is None or equation is None:
            return Diagnostic("P026", "`if` comes first", (label,), help="write `if c then a else b`")
        value = p.source.text[equation.end : p.token.start].strip()
        meant = f"if {choice[1]} then {value} else {choice[2]}"
        return Diagnostic("P026", "`if` comes first", (label,), help=f"write `{meant}`")
    condition = rest.removeprefix("if").strip()
    if any(t.type == "FOR" for t in p.statement()):
        edits = (Edit(Span(p.source, p.previous.end, p.token.end), ","),)
        return Diagnostic("P026", "one more condition of a clause follows a comma", (label,), help=f"write `, {condition}`", edits=edits)
    return Diagnostic(
        "P026", "the condition of a clause follows `for`", (label,), help=f"write `for {condition}`", edits=(Edit(p.span, "for"),)
    )


_CHOICE = re.compile(r"if\s+(.+?)\s+else\s+(.+?)(?:\s+for\b.*)?;?$")
"""The end of a choice as Python writes it, with its condition and what is chosen otherwise."""


def _equality(p: Stopped) -> Diagnostic | None:
    if p.token.value == "==" and "EQUAL" in p.accepted:
        edits = (Edit(p.span, "="),)
        return Diagnostic("P028", "a definition has a single `=`", (Label(p.span),), help="`==` compares, `=` defines", edits=edits)
    statement = [t.type for t in p.statement()]
    if p.token.type == "EQUAL" and p.is_clause_level and p.has_operand and "EQUAL" in statement and not {"IF", "FOR"} & {*statement}:
        help = "give each tensor an equation of its own, on a line of its own"
        return Diagnostic("P028", "an equation has one `=`", (Label(p.span),), help=help)
    if p.token.type == "EQUAL" and "COMPARE" in p.accepted:
        return Diagnostic("P028", "`=` defines, it does not compare", (Label(p.span),), help="write `==`", edits=(Edit(p.span, "=="),))
    return None


def _results(p: Stopped) -> Diagnostic | None:
    if "ARROW" in p.accepted and p.tokens[0].type in OPERATOR:
        return Diagnostic("P018", f"{p.word()} has no results", (Label(p.span, "`->` expected"),), help="write `-> (y: T[…])`")
    if p.previous.type == "ARROW" and "LPAR" in p.accepted:
        type_ = line_from(p, p.token)[0].rpartition("{")[0].strip() if p.token.type == "NAME" else ""
        help = f"write `-> (y: {type_})`" if re.fullmatch(r"\w+(\[[^\]]*\])?", type_) else "write `-> (y: T[…])`"
        if (result := re.fullmatch(r"([a-z_]\w*)(?:\[[^\]]*\])?", type_)) is not None and not _is_type(p, result[1]):
            meant = f"({result[1]}: {type_of_result(p.source.text[p.tokens[0].start :], result[1])})"
            edits = (Edit(Span(p.source, p.token.start, p.token.start + len(type_)), meant),) if "…" not in meant else ()
            return Diagnostic("P018", "a result has no type", (Label(p.span),), help=f"a result needs a type: `-> {meant}`", edits=edits)
        return Diagnostic("P018", "results stand in parentheses", (Label(p.span),), help=help)
    among_results = any(token.type == "ARROW" for token in p.tokens[: p.position])
    named = p.position + 1 < len(p.tokens) and p.tokens[p.position + 1].type == "COLON"
    if p.token.type in ("ATTR", "SIZE") and "EACH" in p.accepted and among_results and not named:
        help = "a result's sizes follow from the parameters; an attribute is a parameter"
        return Diagnostic("P018", f"a result cannot be `{p.token.value}`", (Label(p.span),), help=help)
    if p.previous.type == "LPAR" and p.accepted == {"NAME", "EACH"} and p.token.type == "RPAR":
        return Diagnostic("P018", f"{p.word()} has no results", (Label(p.span, "a result expected"),), help="write `-> (y: T[…])`")
    if among_results and p.inside() == "LPAR" and p.token.type == "EQUAL" and p.tokens[0].type in OPERATOR:
        help = "clauses define it; only parameters have defaults"
        return Diagnostic("P018", "a result has no default", (Label(p.span),), help=help)
    return None


def _is_type(p: Stopped, name: str) -> bool:
    """Tell whether a name is that of an element type, here or elsewhere, or stands as one among the parameters."""
    head = p.source.text[p.tokens[0].start : p.token.start]
    return name in DTYPES or element_type(name) is not None or re.search(rf":\s*{re.escape(name)}\b", head) is not None


def _parameters(p: Stopped) -> Diagnostic | None:
    if "COLON" in p.accepted and not p.is_schedule and p.inside() == "LPAR" and p.previous.type in ("NAME", "EXPAND"):
        name = p.tokens[p.position - (2 if p.previous.type == "EXPAND" else 1)]
        if any(t.type == "ARROW" for t in p.tokens[: p.position]) and p.token.type in ("LSQB", "COMMA", "RPAR"):
            closing = p.closing_of(p.position) if p.token.type == "LSQB" else None
            type_ = p.source.text[name.start : p.tokens[closing].end] if closing is not None else name.value
            help = f"results have names, and types behind them: `y: {type_}`"
            return Diagnostic("P019", "this result has no name", (Label(p.at(name)),), help=help)
        after = re.match(r"(\[[^\]]*\])?\s*([A-Za-z_]\w*)(\[[^\]]*\])?", p.source.text[p.token.start :])
        written = element_type(name.value)
        foreign = _PARAMETER_OF_C.match(p.source.text, name.start)
        is_foreign = foreign is not None and (foreign["qualifiers"] or foreign["pointer"].strip())
        if foreign is not None and is_foreign and (pointed := element_type(foreign["type"])) is not None:
            meant = f"{foreign['name']}: {pointed}{foreign['dims'] or ('[N]' if '*' in foreign['pointer'] else '')}"
            title = f"`{p.source.text[name.start : foreign.start('name')].strip()}` stands before the name"
            label = Label(Span(p.source, name.start, foreign.end()))
            return Diagnostic("P019", title, (label,), help=f"the name comes first, and no type is a pointer: `{meant}`")
        if after is not None and written is not None:  # `float x[N]`, `f32[N] x`
            meant = f"{after[2]}: {written}{after[1] or after[3] or ''}"
            span = Span(p.source, name.start, p.token.start + len(after[0]))
            help = f"the name comes first: `{meant}`"
            return Diagnostic("P019", f"`{name.value}` stands before the name", (Label(span),), help=help, edits=(Edit(span, meant),))
        kinds = f"`{name.value}: f32[N]` for a tensor, `{name.value}: f32` for one number, `attr {name.value}: float` for a constant"
        help = f"write `{name.value}: int`" if p.tokens[p.position - 2].type == "ATTR" else f"write {kinds}"
        return Diagnostic("P019", f"`{name.value}` has no type", (Label(p.at(name)),), help=help)
    if p.previous.type == "COLON" and p.accepted <= {"NAME", "FN"} and not p.is_schedule:
        return Diagnostic("P019", "a type is expected here", (Label(p.span),), help="types are names with dimensions: `f32`, `T[M, N]`")
    if "LPAR" in p.accepted and p.position <= 6 and p.tokens[0].type in (*OPERATOR, "FN") and not p.needs_operand:
        return Diagnostic("P019", f"{p.word()} has no parameters", (Label(p.span, "`(` expected"),), help="write `()` where there are none")
    return None


_PARAMETER_OF_C = re.compile(
    r"""(?P<qualifiers>(?:(?:const|volatile|static|__global)\s+)*)(?P<type>\w+)
    (?P<pointer>\s*[*&]+\s*(?:(?:const|restrict|__restrict(?:__)?)\s+)*|\s+)(?P<name>\w+)(?P<dims>\[[^\]]*\])?""",
    re.VERBOSE,
)
"""A parameter as C declares it: `const float *x`, `double &sum`."""
_ACTIONS = frozenset(["print", "printf", "assert", "static_assert", "device_print", "debug", "log", "call", "syncthreads", "barrier"])
"""What programs of other languages do beside computing."""


def _round_indices(p: Stopped) -> Diagnostic | None:
    if p.is_clause_level and p.token.type == "LPAR" and "LSQB" in p.accepted and "EQUAL" in p.accepted:
        name = p.previous.value
        if name in _ACTIONS:
            help = "a clause says what an element is, as in `y[i] = x[i]`, and does nothing else; `tensorlang run` shows results"
            return Diagnostic("P031", f"`{name}` starts no clause", (Label(p.at(p.previous)),), help=help)
        return Diagnostic("P032", "indices stand in square brackets", (Label(p.span),), help=f"write `{name}[…] = …`")
    return None


def _definition(p: Stopped) -> Diagnostic | None:
    if "EQUAL" not in p.accepted or p.inside() not in ("", "LBRACE") or p.is_schedule:
        return None
    if not p.is_clause_level and p.tokens[0].type not in ("FN", "REDUCER", "ORDERED"):
        return None
    if p.token.type == "ARROW":
        help = "write `fn f(x) = …`; its type follows from the value"
        return Diagnostic("P008", "a function states no result", (Label(p.span, "`=` expected"),), help=help)
    if p.previous.value in _STATEMENTS and p.token.type == "NAME":
        edits: tuple[Edit, ...] = ()
        help = f"drop `{p.previous.value}`: a tensor is declared by defining it, and its type follows"
        if p.previous.value in ("return", "yield"):
            results = [t.value for t, after in zip(p.tokens, p.tokens[1:], strict=False) if after.type == "COLON" and t.type == "NAME"]
            help = f"a result is defined by its name: `{results[-1] if results else 'y'}[…] = …`"
        elif p.previous.value == "while":
            help = "steps that need each other are a recurrence: `s[0] = x` and `s[t + 1] = f(s[t]) for t in 0..T`"
        elif p.previous.value in ("print", "assert", "pass"):
            help = "a clause says what an element is, as in `y[i] = x[i]`, and does nothing else"
        else:
            edits = (Edit(Span(p.source, p.previous.start, p.token.start), ""),)
        return Diagnostic("P031", f"`{p.previous.value}` starts no clause", (Label(p.at(p.previous)),), help=help, edits=edits)
    if p.is_clause_level and p.previous.value in FORMS and p.token.type == "NAME":
        line, _ = line_from(p, p.previous)
        help = f"directives stand in a schedule, beside the operator: `schedule {_operator_of(p)} for cpu {{ {line} }}`"
        return Diagnostic("P031", f"`{p.previous.value}` starts no clause", (Label(p.at(p.previous)),), help=help)
    if p.tokens[0].type == "FN" and p.token.type in ("LBRACE", "COLON"):
        value = re.match(r"[{:]\s*(?:return\s+)?([^\n;}]*)", p.source.text[p.token.start :])
        head = p.source.text[p.tokens[0].start : p.previous.end]
        help = f"its value follows `=`: `{head} = {value[1].strip() if value is not None and value[1].strip() else '…'}`"
        return Diagnostic("P008", "a function is an expression", (Label(p.span, "`=` expected"),), help=help)
    if p.token.type == "LSQB" and p.previous.type == "RSQB":
        edits = (Edit(Span(p.source, p.previous.start, p.token.end), ", "),)
        return Diagnostic("P010", "all indices stand in one bracket", (Label(p.span),), help="write `y[i, j] = …`", edits=edits)
    if p.is_clause_level and p.previous.value in _DECLARED_ELSEWHERE and p.token.type == "NAME":
        return Diagnostic("P031", f"`{p.previous.value}` starts no clause", (Label(p.at(p.previous)),), help=_UNDECLARED)
    return _declaration(p) or Diagnostic(
        "P008", "`=` is missing", (Label(p.span, "expected here"),), help="a definition is written `y[i] = …`, `fn f(x) = …`"
    )


def _operator_of(p: Stopped) -> str:
    """Return the name of the operator that the parser is in."""
    names = [t.value for t in p.tokens[:6] if t.type == "NAME"]
    return names[0] if names else "f"


def _declaration(p: Stopped) -> Diagnostic | None:
    """Return what to say of a tensor that is declared before it is defined, `t: f32[N]`."""
    start = next((k + 1 for k in range(p.position - 1, -1, -1) if p.tokens[k].type in ("NEWLINE", "LBRACE", "SEMICOLON")), 0)
    if [t.type for t in p.tokens[start : start + 2]] != ["NAME", "COLON"] or p.token.type not in ENDS:
        return None
    whole = Span(p.source, p.tokens[start].start, p.tokens[p.position - 1].end)
    help = "drop this: a tensor is declared by defining it, and its type and sizes follow"
    message = f"`{p.tokens[start].value}` is declared but not defined here"
    return Diagnostic("P031", message, (Label(whole),), help=help, edits=(Edit(whole, ""),))


def _ranges(p: Stopped) -> Diagnostic | None:
    span, kind = p.span, p.token.type
    if kind == "COLON" and p.inside() == "LSQB":
        called = p.tokens[p.brackets()[-2] - 1].value.rpartition(".")[2] if len(p.brackets()) > 1 else ""
        if called in PRODUCTS:
            help = "a product of tensors is a sum over the index that they share: `y[i, j] = sum(k) a[i, k] * b[k, j]`"
            return Diagnostic("P011", "there are no slices", (Label(span),), help=help)
        help = "an index names one element: clauses run over all, `y[i, j] = x[i, j]`, and a reduction names its own: `sum(j) x[i, j]`"
        return Diagnostic("P011", "there are no slices", (Label(span),), help=help)
    if kind == "COLON" and "IN" in p.accepted and p.previous.type == "NAME":
        message = f"the range of `{p.previous.value}` follows a colon"
        help = f"a range follows `in`: `{p.previous.value} in 0..n`"
        return Diagnostic("P011", message, (Label(span),), help=help, edits=(Edit(span, " in"),))
    if p.previous.type == "RANGE" or (kind == "EXPAND" and "RANGE" in p.accepted):
        dots = p.previous if p.previous.type == "RANGE" else p.token
        return Diagnostic("P011", "a range has no end", (Label(p.at(dots)),), help="write `lo..hi`; `hi` is excluded")
    if kind in ("RANGE", "EXPAND") and p.previous.type == "IN":
        return Diagnostic("P011", "a range has no start", (Label(span),), help="write `0..hi`; `hi` is excluded")
    if "RANGE" in p.accepted:
        return Diagnostic("P011", "`in` asks for a range", (Label(span, "`..` expected"),), help="write `i in 0..N`; `N` is excluded")
    if kind == "RANGE":
        help = "a range follows `in`, as in `i in 0..N`; a pack ends its argument, as in `x[d.., i]`"
        return Diagnostic("P011", "a range stands where a value is expected", (Label(span),), help=help)
    if kind == "EXPAND":
        help = "`..` repeats a whole argument: put what it repeats in parentheses, as in `x[(p + lo)..]`"
        return Diagnostic("P011", "`..` repeats only a name, a call or a parenthesis that is a whole argument", (Label(span),), help=help)
    return None


def _conditionals(p: Stopped) -> Diagnostic | None:
    for word in ("then", "else"):
        if word.upper() in p.accepted:
            opening = next(t for t in reversed(p.tokens[: p.position]) if t.type == "IF")
            label, second = Label(p.at(opening), "this `if`"), Label(p.span, f"`{word}` expected")
            if p.token.type == "COLON" and word == "then":
                colon = "write `if c then a else b`: `then` for the colon"
                return Diagnostic("P016", "an `if` has no colon", (second, label), help=colon, edits=(Edit(p.span, " then"),))
            if (meant := _misspelled(p, word, "and", "or")) is not None:
                help = f"did you mean `{meant}`?"
                return Diagnostic("P016", f"an `if` has no `{word}`", (second, label), help=help, edits=(Edit(p.span, meant),))
            edits: tuple[Edit, ...] = (Edit(p.span, "else if"),) if p.token.value in ("elif", "elseif", "elsif") else ()
            help = f"write `else if` for `{p.token.value}`" if edits else "write `if c then a else b`"
            return Diagnostic("P016", f"an `if` has no `{word}`", (second, label), help=help, edits=edits)
    let = next((i for i in range(p.position - 1, -1, -1) if p.tokens[i].type == "LET"), None)
    if let is not None and "IN" in p.accepted and p.token.type in ENDS and all(t.type != "IN" for t in p.tokens[let : p.position]):
        label, second = Label(p.at(p.tokens[let]), "this `let`"), Label(p.span, "`in` expected")
        return Diagnostic("P016", "a `let` has no `in`", (second, label), help="write `let m = e in …`")
    if p.needs_operand and p.token.type in ("IF", "LET", "NOT"):
        word = p.token.value
        return Diagnostic("P026", f"`{word}` as an operand needs parentheses", (Label(p.span),), help=f"write `({word} …)`")
    if p.token.type == "ELSE" and "OTHERWISE" in p.accepted and p.is_clause_level:
        help = "a clause for all that no other one defines ends with `otherwise`"
        return Diagnostic("P026", "`else` belongs to an `if`", (Label(p.span),), help=help, edits=(Edit(p.span, "otherwise"),))
    if p.has_operand and p.token.type == "IF":
        return _late_if(p)
    return None


def _mode(p: Stopped) -> Diagnostic | None:
    if p.inside() == "LSQB":
        inner = [t.type for t in p.tokens[p.brackets()[-1] : p.position]]
        if "VBAR" in inner and p.token.type in ("COMMA", "VBAR"):
            help = "one mode stands last in the brackets, for all dimensions; mixed cases use `clamp(i, lo, hi)`, `wrap(i, n)` in the slot"
            return Diagnostic("P017", "a read has one mode", (Label(p.span),), help=help)
    if p.token.type != "VBAR":
        return None
    if p.inside() == "LSQB" and p.has_operand:
        return Diagnostic("P017", "only a read has a mode", (Label(p.span),), help="what is defined lies inside the tensor: drop the mode")
    if p.inside() == "LSQB":
        return Diagnostic("P009", "`|` has nothing before it", (Label(p.span),))
    help = "conditions are joined by `or`, bits by `bitor(a, b)`; `x[i | 0]` says what a read gives outside its tensor"
    after = p.tokens[p.position + 1].value if p.position + 1 < len(p.tokens) else ""
    if p.is_clause_level and after in (*_OUTSIDE, "0"):
        reads = re.findall(r"(\w+)\[([^\[\]|=]*)\](?!\s*=)", p.source.text[p.statement()[0].start : p.token.start])
        name, index = next((read for read in reads if re.search("[-+]", read[1])), ("x", "i + 1"))
        shown = f"`{name}[{index.strip()} | {after}]`"
        help = f"what lies outside is said of each read, last in its brackets: {shown}"
    return Diagnostic("P017", "`|` belongs into the brackets of a read", (Label(p.span),), help=help)


_OUTSIDE = _words("clamp wrap reflect skip")
"""What a read may say of what lies outside, besides a number."""


def _operand(p: Stopped) -> Diagnostic | None:
    is_line = p.is_schedule and p.inside() == "LBRACE" and p.previous.type == "NAME"
    if not p.needs_operand or is_line:
        return None
    previous, kind = p.previous, p.token.type
    if previous.type in _OPERATORS:
        return Diagnostic("P009", f"`{previous.value}` has no right operand", (Label(p.at(previous)),))
    if kind in _OPERATORS:
        return Diagnostic("P009", f"`{p.token.value}` has no left operand", (Label(p.span),))
    if previous.type == "COMMA":
        return Diagnostic("P009", "nothing follows this comma", (Label(p.at(previous)),))
    if kind == "COMMA":
        return Diagnostic("P009", "nothing stands before this comma", (Label(p.span),))
    if kind in ENDS or kind in ("FOR", "IN", "THEN", "ELSE", "OTHERWISE", "WHERE", "EQUAL", "COLON", "LBRACE"):
        return Diagnostic("P009", f"an expression is missing after `{previous.value}`", (Label(p.span, "expected here"),))
    return None


def _misspelled(p: Stopped, *words: str) -> str | None:
    """Return which of some keywords, that may all stand here, a name is meant to be."""
    possible = [word for word in words if word.upper() in p.accepted]
    close = get_close_matches(p.token.value.lower(), possible, 1, 0.65) if p.token.type == "NAME" and len(p.token.value) > 1 else []
    return close[0] if close else None


def _juxtaposition(p: Stopped) -> Diagnostic | None:
    if p.has_operand and p.token.type == "COMMA":
        binds = any(token.type == "LET" for token in p.statement())
        help = (
            "a `let` binds one name: write `let a = e in let b = …`"
            if binds
            else "a clause has one value; the next clause begins on a new line"
        )
        return Diagnostic("P010", "`,` follows an expression that is complete", (Label(p.span),), help=help)
    if not p.has_operand or p.token.type not in _STARTS_OPERAND or (p.is_schedule and p.inside() == "LBRACE"):
        return None
    token, before = p.token, p.previous
    if token.type == "LSQB" and before.type in ("RSQB", "RPAR"):
        joined = before.type == "RSQB"
        help = "all indices stand in one bracket: `x[i, j]`" if joined else "give it a name first: only names are indexed"
        edits = (Edit(Span(p.source, before.start, token.end), ", "),) if joined else ()
        return Diagnostic("P010", "only a name can be indexed", (Label(p.span),), help=help, edits=edits)
    if p.is_clause_level and token.type == "NAME" and token.value in ("where", "when", "while", "until", "unless", "with"):
        return Diagnostic("P010", f"`{token.value}` has no meaning here", (Label(p.span),), help="conditions of a clause follow `for`")
    if p.is_clause_level and token.type == "NAME" and token.value in ("forall", "foreach", "for_each", "over", "loop"):
        edits = (Edit(p.span, "for"),)
        return Diagnostic("P010", f"`{token.value}` has no meaning here", (Label(p.span),), help="write `for`", edits=edits)
    word = _misspelled(p, "for", "otherwise", "and", "or", "in")
    if word is not None:
        title = f"`{token.value}` follows an expression that is complete"
        return Diagnostic("P010", title, (Label(p.span),), help=f"did you mean `{word}`?", edits=(Edit(p.span, word),))
    help = "write `*` for a product" if before.type == "NUMBER" or token.type == "LPAR" else "write an operator, or begin a new line"
    if p.inside() in ("LPAR", "LSQB", "CALL") and before.type != "NUMBER":
        between = Span(p.source, before.end, token.start)
        title = f"a comma or an operator is missing before `{token.value}`"
        return Diagnostic(
            "P010",
            title,
            (Label(p.span),),
            help=f"write `{before.value}, {token.value}`" if before.type == "NAME" else f"write `, {token.value}`",
            edits=(Edit(between, ", "),) if p.inside() == "LSQB" else (),
        )
    return Diagnostic("P010", f"`{token.value}` follows an expression that is complete", (Label(p.span),), help=help)


def _body(p: Stopped) -> Diagnostic | None:
    if "LBRACE" not in p.accepted:
        return None
    if p.previous.type == "IN":
        return Diagnostic("P027", "the choices of a knob stand in braces", (Label(p.span),), help="write `knobs n in {8, 16}`")
    label = Label(p.span, "`{` expected")
    if p.token.type == "ARROW":
        return Diagnostic("P018", "results are listed once", (Label(p.span),), help="write `-> (y: T[M], z: T[N])`")
    if p.tokens[0].type == "SCHEDULE" and p.token.type == "COMMA":
        both = [p.previous.value, *([p.tokens[p.position + 1].value] if p.position + 1 < len(p.tokens) else [])]
        name = p.tokens[1].value
        help = "write one for each: " + ", ".join(f"`schedule {name} for {target} {{ … }}`" for target in both)
        return Diagnostic("P012", "a schedule is for one target", (Label(p.span),), help=help)
    help = "write `{` before its first line and `}` after its last"
    return Diagnostic("P012", f"the body of {p.word()} stands in braces", (label,), help=help)


def _after_declaration(p: Stopped) -> Diagnostic | None:
    if "$END" not in p.accepted or p.inside():
        return None
    following = p.position + (p.token.type == "NEWLINE")
    token = p.tokens[following] if following < len(p.tokens) else p.token
    if p.token.type != "NEWLINE" and p.previous.type != "RBRACE":
        return None
    help = _constant(p.source, token) or f"{p.word()} ends before it; clauses stand inside the braces of an operator"
    return Diagnostic("P013", f"`{token.value}` stands outside every declaration", (Label(p.at(token)),), help=help)


def _list(p: Stopped) -> Diagnostic | None:
    if "COMMA" in p.accepted and p.token.type == "NAME" and not p.is_schedule:
        edits = (Edit(Span(p.source, p.previous.end, p.token.start), ", "),)
        help = f"write `, {p.token.value}`"
        return Diagnostic("P010", f"a comma is missing before `{p.token.value}`", (Label(p.span),), help=help, edits=edits)
    if p.previous.type == "COMMA":
        return Diagnostic("P009", "nothing follows this comma", (Label(p.at(p.previous)),))
    return None


def _condition(p: Stopped) -> Diagnostic | None:
    """The condition of a directive stands behind it, and ends it."""
    if not p.is_schedule or p.inside() != "LBRACE":
        return None
    statement = p.statement()
    if not statement and p.token.type == "IF":
        help = "a condition stands behind its directive, on the same line: `unroll i if n > 1`"
        return Diagnostic("P027", "`if` starts no directive", (Label(p.span),), help=help)
    if p.has_operand and "IF" not in p.accepted and any(t.type == "IF" for t in statement) and p.token.type not in (*ENDS, "EQUAL"):
        help = (
            "a condition ends its directive: join several by `and`, and give what else is to happen a line of its own, `… if not CONDITION`"
        )
        return Diagnostic("P027", f"`{p.token.value}` does not belong into this directive", (Label(p.span),), help=help)
    return None


_THREADS = frozenset(["num_threads", "nthreads", "threads", "num_workers", "workers"])


def _directive(p: Stopped) -> Diagnostic | None:
    if not p.is_schedule or p.inside() != "LBRACE":
        return None
    statement = p.statement()
    help = form_called(statement[0].value if statement else "")
    line, end = line_from(p, statement[0]) if statement else ("", 0)
    meant = written_here(line)
    if meant:
        edits = (
            () if TENSOR in meant[0] else (Edit(Span(p.source, statement[0].start, end), f"\n{indent_of(p, statement[0])}".join(meant)),)
        )
        title = f"`{p.token.value if p.token.value.strip() else p.previous.value}` does not belong into this directive"
        return Diagnostic("P027", title, (Label(p.span),), help=told(meant), edits=edits)
    if not statement:
        return Diagnostic("P027", f"`{p.token.value}` starts no directive", (Label(p.span),), help=help)
    if p.token.type in ("NEWLINE", "$END", "RBRACE"):
        return Diagnostic("P027", f"`{p.previous.value}` has no operand", (Label(p.at(p.previous)),), help=help)
    if p.token.value in _THREADS or (p.token.type == "EQUAL" and p.previous.value in _THREADS):
        help = "how many threads there are is no part of a schedule: `threads=4` of `tl.load` and `tl.parse`, or `TENSORLANG_THREADS=4`"
    elif p.token.type == "EQUAL" and len(statement) == 1:
        help = "a schedule names nothing: each directive stands on a line of its own, as `split i by 8 -> io, ii`"
    elif any(t.type == "ARROW" for t in statement):
        help = "names stand after `->`, with commas between them; the next directive begins on a new line"
    elif any(t.type == "CALL" for t in statement):
        help = f"a tactic call ends with its `)`; an operand in parentheses follows a space: `{statement[0].value} (i, j)`"
    return Diagnostic("P027", f"`{p.token.value}` does not belong into this directive", (Label(p.span),), help=help)


_EXPLANATIONS: tuple[Callable[[Stopped], Diagnostic | None], ...] = (
    _semicolon,
    _use,
    *FOREIGN_IDIOMS,
    _results,
    _condition,
    _reserved,
    _preposition,
    _equality,
    _mode,
    _ranges,
    _parameters,
    _round_indices,
    _definition,
    _conditionals,
    _operand,
    _juxtaposition,
    _body,
    _after_declaration,
    _directive,
    _list,
)

_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "TEXT": "a text", "NEWLINE": "a new line", "$END": "the end",
    "LPAR": "`(`", "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`", "LBRACE": "`{`", "RBRACE": "`}`", "COMMA": "`,`", "COLON": "`:`",
    "QUALIFIED": "a name with dots", "EQUAL": "`=`", "ARROW": "`->`", "SEMICOLON": "`;`", "EXPAND": "`..`", "RANGE": "`..`", "VBAR": "`|`",
}  # fmt: skip
_QUIET = _words("SIGN TIMES DIVIDE COMPARE AND OR CALL STRICT REDUCE FAST")
"""Signs may follow everywhere, and few mean to say how exact an operator is; naming these helps nobody."""


def _unexpected(p: Stopped) -> Diagnostic:
    words = sorted(_WORDS.get(t, f"`{t.lower()}`") for t in p.accepted - _QUIET)
    if len(words) == 1:
        target = p.tokens[0].type == "SCHEDULE" and p.accepted == {"FOR"}
        help = f"a schedule names its target: `schedule {p.previous.value} for cpu {{ … }}`" if target else None
        edits: tuple[Edit, ...] = ()
        if p.tokens[0].type == "SCHEDULE" and p.token.type == "TEXT" and p.accepted == {"NAME"}:
            bare = p.token.value.strip('"')
            help, edits = f"names of targets have no quotes: `for {bare}`", (Edit(p.span, bare),)
        elif p.accepted == {"FROM"} and p.tokens[0].type in ("REDUCER", "ORDERED"):
            head = p.source.text[p.tokens[0].start : p.previous.end]
            help = f"a reducer says what changes nothing, which is the value of nothing: `{head} from 0 = …`"
        return Diagnostic("P029", f"{words[0]} is missing", (Label(p.span, "expected here"),), help=help, edits=edits)
    ends = {"NEWLINE": "this line ends too early", "$END": "the text ends too early"}
    found = ends.get(p.token.type, f"`{p.token.value}` is not expected here")
    listed = " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
    return Diagnostic("P029", found, (Label(p.span),), notes=(f"possible here: {listed}",))
