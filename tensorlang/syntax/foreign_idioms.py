"""Idioms of other languages that the grammar stops at: NumPy, Python, C, and schedules of other tools. Each is told what it is here, and
where it is surely meant so, the edits that make it."""

from __future__ import annotations

import re
from collections.abc import Callable

from tensorlang.diagnostics import Diagnostic, Edit, Label, Source, Span
from tensorlang.syntax.directive_forms import ELSEWHERE, form_called
from tensorlang.syntax.foreign_directives import told, written_here
from tensorlang.syntax.foreign_types import TYPES
from tensorlang.syntax.scanner import Token
from tensorlang.syntax.stopped import OPERATOR, Stopped, indent_of, line_from

_REDUCERS = frozenset(["sum", "prod", "min", "max", "any", "all", "mean", "argmax", "argmin", "logsumexp"])
_FUNCTIONS = frozenset(
    ["abs", "sqrt", "rsqrt", "exp", "log", "log2", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "floor", "ceil", "round", "trunc", "sq"]
)
_METHODS = {
    "shape": "a size has a name: it is what stands in the type, as `N` in `x: f32[N]`",
    "size": "a size has a name: it is what stands in the type, as `N` in `x: f32[N]`",
    "T": "write the indices in another order: `y[i, j] = x[j, i]`",
    "transpose": "write the indices in another order: `y[i, j] = x[j, i]`",
    "dtype": "a type is a name: declare a generic, `op f[T](x: T[N])`, and write `T`",
    "astype": "a cast is a call of the type: `f32(x[i])`",
    "dot": "a product of tensors is a sum over the index that they share: `y[i, j] = sum(k) a[i, k] * b[k, j]`",
}
FOREIGN_LIBRARIES = frozenset(
    ["cupy", "halide", "jax", "keras", "math", "mxnet", "numba", "numpy", "scipy", "tensorflow", "torch", "triton", "tvm"]
)
"""Libraries that people import who write arrays in Python."""
_MODULES = FOREIGN_LIBRARIES | {"np", "jnp", "tf", "tl", "te", "topi", "F", "nn", "hl", "cp", "sp", "std", "T"}


def dotted(source: Source, token: Token) -> Diagnostic:
    """Return P015 for a name with a dot: a constant of a module, a method or an attribute of a tensor."""
    span = Span(source, token.start, token.end)
    help, undotted = explain_dots(token.value)
    owner = token.value.partition(".")[0]
    if help is None and re.search(rf"(?<![\w.]){re.escape(owner)}\s*=\s*[\w.]+\(", source.text):
        help = "results of a call have names of their own: `a, b = f(x)`, then `a[i]`"
    otherwise = f"only schedules and what is used have dotted names; a foreign name is written in backquotes: `` `{token.value}` ``"
    edits = (Edit(span, undotted),) if undotted is not None else ()
    return Diagnostic("P015", f"the name `{token.value}` has a dot", (Label(span),), help=help or otherwise, edits=edits)


def explain_dots(name: str) -> tuple[str | None, str | None]:
    """Return what a function of a module, a method or an attribute of a tensor is here, and the name to write for it if it is one."""
    owner, _, member = name.rpartition(".")
    if owner.split(".")[0] in _MODULES and (sized := re.fullmatch(r"(b?)(u?)(float|int)(8|16|32|64)", member)) is not None:
        called = f"{sized[1]}{sized[2] or sized[3][0]}{sized[4]}"
        return f"it is called `{called}` here", called
    if member == "constexpr":
        return "a constant that the caller chooses is an attribute: `attr n: int`", None
    if owner.split(".")[0] in _MODULES:
        return f"leave the module out: `{member}`", member
    if member in _REDUCERS:
        return f"`{member}` names the index that it runs over: `{member}(k) {owner}[…, k]`", None
    return _METHODS.get(member), None


def _condition_of_a_clause(p: Stopped) -> Diagnostic | None:
    if p.token.type != "WHERE" or p.is_schedule:
        return None
    if p.needs_operand:
        return Diagnostic("P009", "`where` chooses no value", (Label(p.span),), help="write `if c then a else b`")
    if p.is_clause_level:
        edits = (Edit(p.span, "for"),)
        if any(t.type == "FOR" for t in p.statement()):
            edits = (Edit(Span(p.source, p.previous.end, p.token.end), ","),)
            condition = line_from(p, p.token)[0].removeprefix("where").strip()
            help = f"conditions of a clause stand behind its ranges: write `, {condition}`"
            return Diagnostic("P010", "`where` speaks of parameters", (Label(p.span),), help=help, edits=edits)
        return Diagnostic("P010", "`where` speaks of parameters", (Label(p.span),), help="conditions of a clause follow `for`", edits=edits)
    return None


def _condition_of_a_reduction(p: Stopped) -> Diagnostic | None:
    """`sum(k where x[k] > 0)`, and with `if`, `when` or a bar."""
    asks = p.token.type in ("WHERE", "IF", "VBAR") or p.token.value == "when"
    if p.is_schedule or not asks or p.inside() != "LPAR" or not p.has_operand:
        return None
    opening = p.brackets()[-1]
    closing = p.closing_of(opening)
    if p.tokens[opening - 1].value not in _REDUCERS or closing is None:
        return None
    first, second = p.tokens[opening + 1 : opening + 3]
    binds = first.type == "NAME" and (second.type in ("COMMA", "IN") or second is p.token)
    if not binds or any(t.type == "ELSE" for t in p.tokens[p.position : closing]):
        return None
    binders = p.source.text[p.tokens[opening].end : p.previous.end].strip()
    condition = p.source.text[p.token.end : p.tokens[closing].start].strip()
    help = f"a condition is one more item of the list: `{p.tokens[opening - 1].value}({binders}, {condition})`"
    edits = (Edit(Span(p.source, p.previous.end, p.token.end), ","),)
    return Diagnostic("P010", f"conditions of a reduction follow a comma, not `{p.token.value}`", (Label(p.span),), help=help, edits=edits)


def _range_call(p: Stopped) -> Diagnostic | None:
    """`in range(N)`: what follows `in` is a range."""
    if "RANGE" not in p.accepted or p.previous.type != "RPAR":
        return None
    opening = p.opening_of(p.position - 1)
    if opening is None or opening < 2 or p.tokens[opening - 1].value not in ("range", "arange") or p.tokens[opening - 2].type != "IN":
        return None
    parts = [part.strip() for part in p.source.text[p.tokens[opening].end : p.previous.start].split(",")]
    if len(parts) > 3:
        return None
    span = Span(p.source, p.tokens[opening - 1].start, p.previous.end)
    meant = f"{parts[0] if len(parts) > 1 else '0'}..{parts[min(len(parts), 2) - 1]}"
    if len(parts) == 3:
        index, step = p.tokens[opening - 3].value, parts[2]
        if step.startswith("-"):
            help = f"a range counts upwards, and what is read backwards is said by its index: `{index} in 0..N`, `x[N - 1 - {index}]`"
            return Diagnostic("P011", "`in` asks for a range", (Label(span),), help=help)
        meant += f", {index if parts[0] == '0' else f'({index} - {parts[0]})'} % {step} == 0"
    return Diagnostic(
        "P011", "`in` asks for a range", (Label(span),), help=f"write `{meant}`; the end is excluded", edits=(Edit(span, meant),)
    )


def _beside_an_operand(p: Stopped) -> Diagnostic | None:
    """A cast of C, a lambda, a reduction without its parentheses: all put two operands side by side."""
    if not p.has_operand or p.is_schedule:
        return None
    before, opening = p.previous, p.opening_of(p.position - 1)
    if before.value == "lambda":
        statement = p.statement()
        written = re.match(r"([\w\s,]+):\s*([^\n]*?)\)*\s*$", line_from(p, p.token)[0])
        target = statement[0].value if len(statement) > 1 and statement[1].type == "EQUAL" else "y"
        meant = f"{target}[{written[1].strip()}] = {written[2]}" if written is not None and written[2] else "y[i] = x[i]"
        help = f"an equation says what an element is: `{meant}`"
        return Diagnostic("P010", "there are no anonymous functions", (Label(p.at(before)),), help=help)
    if before.type == "NAME" and before.value in _REDUCERS and p.token.type in ("NAME", "LPAR", "NUMBER"):
        help = f"name the index that it runs over: `{before.value}(k) …`"
        return Diagnostic("P010", f"`{before.value}` says not what it runs over", (Label(p.at(before)),), help=help)
    if opening is None or opening == 0:
        return None
    inside, name = p.tokens[opening + 1 : p.position - 1], p.tokens[opening - 1]
    if before.type == "RSQB" and name.value in _REDUCERS and p.token.type in ("NAME", "LPAR", "NUMBER"):
        edits = (Edit(p.at(p.tokens[opening]), "("), Edit(p.at(before), ")"))
        listed = p.source.text[p.tokens[opening].end : before.start]
        help = f"indices of a reduction stand in parentheses: `{name.value}({listed}) …`"
        return Diagnostic("P010", f"`{name.value}` is a reduction, not a tensor", (Label(p.at(name)),), help=help, edits=edits)
    if before.type == "RPAR" and len(inside) == 1 and inside[0].value in TYPES and name.type not in ("NAME", "RSQB", "RPAR"):
        span, called = Span(p.source, p.tokens[opening].start, before.end), TYPES[inside[0].value]
        bracket = p.position + 1 < len(p.tokens) and p.tokens[p.position + 1].type in ("LSQB", "CALL", "LPAR")
        closing = p.closing_of(p.position + 1) if bracket else None
        operand = p.source.text[p.token.start : p.tokens[closing].end if closing is not None else p.token.end]
        help = f"a cast is a call of the type: `{called}({operand})`"
        return Diagnostic("P010", f"`({inside[0].value})` casts nothing", (Label(span),), help=help)
    return None


def _dimensions(p: Stopped) -> Diagnostic | None:
    """Types as calls, `f32(N)`, or with their dimensions in front, `[N]f32`."""
    if p.is_schedule or p.tokens[0].type in ("FN", "REDUCER"):
        return None
    if p.token.type == "LPAR" and p.previous.type == "NAME" and p.position > 1 and p.tokens[p.position - 2].type == "COLON":
        closing = p.closing_of(p.position)
        if closing is None:
            return None
        inner = p.source.text[p.token.end : p.tokens[closing].start]
        edits = (Edit(p.span, "["), Edit(p.at(p.tokens[closing]), "]"))
        help = f"write `{p.previous.value}[{inner}]`"
        return Diagnostic("P032", "dimensions stand in square brackets", (Label(p.span),), help=help, edits=edits)
    if p.token.type == "LSQB" and p.previous.type == "COLON":
        closing = p.closing_of(p.position)
        after = p.tokens[closing + 1] if closing is not None and closing + 1 < len(p.tokens) else None
        if closing is None or after is None or after.type != "NAME":
            return None
        span, dims = Span(p.source, p.token.start, after.end), p.source.text[p.token.start : p.tokens[closing].end]
        help, meant = f"write `{after.value}{dims}`", Edit(span, f"{after.value}{dims}")
        return Diagnostic("P019", "the element type comes before the dimensions", (Label(span),), help=help, edits=(meant,))
    return None


def _results_without_parentheses(p: Stopped) -> Diagnostic | None:
    if p.previous.type != "ARROW" or "LPAR" not in p.accepted or p.is_schedule or p.token.type != "NAME":
        return None
    end = next((k for k in range(p.position, len(p.tokens)) if p.tokens[k].type in ("LBRACE", "WHERE", "NEWLINE")), None)
    named = p.position + 1 < len(p.tokens) and p.tokens[p.position + 1].type == "COLON"
    if end is None or not named:
        return None
    start, stop = p.token.start, p.tokens[end - 1].end
    edits = (Edit(Span(p.source, start, start), "("), Edit(Span(p.source, stop, stop), ")"))
    help = f"write `-> ({p.source.text[start:stop]})`"
    return Diagnostic("P018", "results stand in parentheses", (Label(Span(p.source, start, stop)),), help=help, edits=edits)


def _increment(p: Stopped) -> Diagnostic | None:
    if not p.needs_operand or p.position < 2 or p.previous.value not in ("+", "-"):
        return None
    first = p.tokens[p.position - 2]
    if first.value != p.previous.value or first.end != p.previous.start:
        return None
    sign, span = first.value, Span(p.source, first.start, p.previous.end)
    help = f"nothing is changed here: what is one {'more' if sign == '+' else 'less'} than `i` is `i {sign} 1`"
    return Diagnostic("P009", f"there is no operator `{sign}{sign}`", (Label(span),), help=help)


def _architecture(p: Stopped) -> Diagnostic | None:
    """`schedule f for cuda:sm_90`: schedules are for a kind of machine."""
    if not p.is_schedule or "LBRACE" not in p.accepted or p.token.type != "COLON" or p.position + 1 >= len(p.tokens):
        return None
    last = p.tokens[p.position + 1]
    whole = f"{p.previous.value}:{last.value}"
    span = Span(p.source, p.token.start, last.end)
    help = f'write `for {p.previous.value}`; which architecture is said when compiling: `--target {whole}`, `target="{whole}"`'
    return Diagnostic(
        "P012", "a schedule is for a kind of machine, not for one architecture", (Label(span),), help=help, edits=(Edit(span, ""),)
    )


def _hardware_index(p: Stopped) -> Diagnostic | None:
    """`bind i threadIdx.x`: the places of threads and blocks have other names."""
    place, _, axis = p.token.value.partition(".")
    called = {"threadIdx": "thread", "blockIdx": "block"}.get(place)
    statement = p.statement()
    if p.is_schedule and statement and (first := statement[0].value.partition("."))[0] in ("threadIdx", "blockIdx"):
        meant = f"{'thread' if first[0] == 'threadIdx' else 'block'}{first[1]}{first[2]}"
        loop = p.tokens[p.position + 1].value if p.token.type == "EQUAL" and p.position + 1 < len(p.tokens) else "LOOP"
        help = f"a directive gives the iterations of a loop to threads or blocks: `bind {loop} to {meant}`"
        return Diagnostic("P027", f"`{statement[0].value}` starts no directive", (Label(p.at(statement[0])),), help=help)
    if not p.is_schedule or called is None or not statement or statement[0].value != "bind":
        return None
    meant = f"{called}.{axis}" if axis else called
    loop = p.previous.value if p.previous.value != "to" else "LOOP"
    to = "" if p.previous.value == "to" else "to "
    help = f"it is called `{meant}` here: `bind {loop} to {meant}`"
    return Diagnostic("P027", f"there is no `{p.token.value}`", (Label(p.span),), help=help, edits=(Edit(p.span, f"{to}{meant}"),))


def _foreign_directive(p: Stopped) -> Diagnostic | None:
    """A directive that is none, or one in another form, stops the grammar at what follows its name."""
    statement = p.statement()
    if not p.is_schedule or p.inside() not in ("LBRACE", "CALL") or not statement or statement[0].type != "NAME":
        return None
    name = statement[0]
    if name.value.lower() not in ELSEWHERE:
        return None
    line, end = line_from(p, name)
    meant = written_here(line)
    if not meant:
        return Diagnostic("P027", f"there is no directive `{name.value}`", (Label(p.at(name)),), help=form_called(name.value))
    edits = (Edit(Span(p.source, name.start, end), f"\n{indent_of(p, name)}".join(meant)),)
    return Diagnostic("P027", f"there is no directive `{name.value}`", (Label(p.at(name)),), help=told(meant), edits=edits)


def _absolute_value(p: Stopped) -> Diagnostic | None:
    """`|x[i]|`: bars around an operand."""
    if p.token.type != "VBAR" or p.is_schedule or p.inside() == "LSQB" or not p.needs_operand:
        return None
    closing = next((k for k in range(p.position + 2, len(p.tokens)) if p.tokens[k].type in ("VBAR", "NEWLINE")), None)
    if closing is None or p.tokens[closing].type != "VBAR":
        return None
    span, inner = Span(p.source, p.token.start, p.tokens[closing].end), p.source.text[p.token.end : p.tokens[closing].start].strip()
    edits = (Edit(span, f"abs({inner})"),)
    return Diagnostic("P017", "bars are no absolute value", (Label(span),), help=f"write `abs({inner})`", edits=edits)


def _several_values(p: Stopped) -> Diagnostic | None:
    """`lo, hi = a, b`: an equation defines one tensor, or several by one call or reduction."""
    statement = p.statement()
    equal = next((k for k, t in enumerate(statement) if t.type == "EQUAL"), None)
    if p.token.type != "COMMA" or p.is_schedule or not p.is_clause_level or equal is None:
        return None
    names = [t.value for t in statement[:equal] if t.type == "NAME"]
    first = p.source.text[statement[equal].end : p.token.start].strip()
    if [t.type for t in statement[:equal]] != ["NAME", "COMMA"] * (len(names) - 1) + ["NAME"] or len(names) < 2:
        return None
    help = f"each has an equation of its own, on a line of its own: `{names[0]} = {first}`"
    return Diagnostic("P010", "an equation has one value", (Label(p.span),), help=help)


def _mirrored(p: Stopped) -> Diagnostic | None:
    """`x[::-1]`: a slice backwards."""
    if p.token.type != "COLON" or p.inside() != "LSQB":
        return None
    following = [t.value for t in p.tokens[p.position + 1 : p.position + 4]]
    if following[:3] != [":", "-", "1"]:
        return None
    help = "an index names one element, and the last one is `N - 1`: `y[i] = x[N - 1 - i]`"
    return Diagnostic("P011", "there are no slices", (Label(Span(p.source, p.token.start, p.tokens[p.position + 3].end)),), help=help)


def _included_end(p: Stopped) -> Diagnostic | None:
    """`0..=N`: a range that has its end in it."""
    dots = p.position if p.token.type in ("RANGE", "EXPAND") else p.position - 1
    if dots < 0 or dots + 1 >= len(p.tokens) or p.tokens[dots].type not in ("RANGE", "EXPAND") or p.tokens[dots + 1].type != "EQUAL":
        return None
    if p.tokens[dots].end != p.tokens[dots + 1].start:
        return None
    span = Span(p.source, p.tokens[dots].start, p.tokens[dots + 1].end)
    after = p.tokens[dots + 2] if dots + 2 < len(p.tokens) else None
    meant = f"`..{after.value} + 1`" if after is not None and after.type in ("NAME", "NUMBER") else "`..` and one more"
    return Diagnostic("P011", "the end of a range is excluded", (Label(span),), help=f"to include it write {meant}")


def _is(p: Stopped) -> Diagnostic | None:
    """`x is y`: a comparison in words."""
    if p.token.value != "is" or not p.has_operand or p.is_schedule:
        return None
    after = p.tokens[p.position + 1].value if p.position + 1 < len(p.tokens) else ""
    start = next((t for t in reversed(p.statement()) if t.type in ("IF", "AND", "OR", "NOT", "EQUAL")), None)
    operand = p.source.text[start.end : p.token.start].strip() if start is not None else "a"
    if after.lower() == "nan":
        return Diagnostic("P010", "`is` has no meaning here", (Label(p.span),), help=f"write `isnan({operand})`")
    return Diagnostic("P010", "`is` has no meaning here", (Label(p.span),), help="write `==`, or `!=` for `is not`")


def _formatted_text(p: Stopped) -> Diagnostic | None:
    """`f"{mode}"`: a letter before a text."""
    if p.token.type != "TEXT" or p.previous.type != "NAME" or p.previous.end != p.token.start:
        return None
    span = Span(p.source, p.previous.start, p.token.end)
    help = f"texts are compared as they are: `{p.token.value}`; a text that the caller chooses is an attribute, `attr mode: str`"
    return Diagnostic("P010", "there are no formatted texts", (Label(span),), help=help)


def _angled(p: Stopped) -> Diagnostic | None:
    """`op f<T>(…)` and `f32<N>`: brackets of C++ and MLIR."""
    if p.token.value != "<" or p.is_schedule or p.previous.type != "NAME" or p.inside() not in ("", "LPAR"):
        return None
    closing = next((k for k in range(p.position + 1, len(p.tokens)) if p.tokens[k].value == ">"), None)
    if closing is None or p.tokens[0].type not in OPERATOR | {"FN", "REDUCER"}:
        return None
    inner = p.source.text[p.token.end : p.tokens[closing].start]
    edits = (Edit(p.span, "["), Edit(p.at(p.tokens[closing]), "]"))
    what = "dimensions" if p.inside() else "types that a call chooses"
    help = f"write `{p.previous.value}[{inner}]`"
    whole = Span(p.source, p.token.start, p.tokens[closing].end)
    return Diagnostic("P032", f"{what} stand in square brackets", (Label(whole),), help=help, edits=edits)


def _starred(p: Stopped) -> Diagnostic | None:
    """`f32[*B, N]`: any number of dimensions."""
    if p.token.value != "*" or p.inside() != "LSQB" or p.previous.type not in ("LSQB", "COMMA") or p.position + 1 >= len(p.tokens):
        return None
    name = p.tokens[p.position + 1]
    if name.type != "NAME":
        return None
    span = Span(p.source, p.token.start, name.end)
    title = "dimensions of any number have dots behind their name"
    return Diagnostic("P009", title, (Label(span),), help=f"write `{name.value}..`", edits=(Edit(span, f"{name.value}.."),))


def _listed_numbers(p: Stopped) -> Diagnostic | None:
    """`w = [1, 2, 3]`: a tensor written as its elements."""
    if p.token.type != "LSQB" or not p.needs_operand or p.is_schedule:
        return None
    closing, statement = p.closing_of(p.position), p.statement()
    if closing is not None and p.previous.type == "RPAR":
        return _element_of_a_call(p)
    if closing is not None and p.inside() == "LPAR" and not p.is_clause_level and p.previous.type == "EQUAL":
        span = Span(p.source, p.token.start, p.tokens[closing].end)
        help = "a default is one number or a text; let the caller pass the array, or define it in the body, an element a line"
        return Diagnostic("P029", "elements are not listed", (Label(span),), help=help)
    if closing is None or not statement or statement[0].type != "NAME":
        return None
    inner = p.source.text[p.token.end : p.tokens[closing].start]
    if (listed := re.fullmatch(r"\s*(.+?)\s+for\s+(\w+)\s+in\s+(.+?)\s*", inner)) is not None:
        bounds = re.fullmatch(r"range\(\s*([^(),]+?)\s*\)", listed[3])
        range_ = f"0..{bounds[1]}" if bounds is not None else listed[3]
        meant = f"{statement[0].value}[{listed[2]}] = {listed[1]} for {listed[2]} in {range_}"
        help = f"an equation is for all elements, and its range follows it: `{meant}`"
        span = Span(p.source, p.token.start, p.tokens[closing].end)
        return Diagnostic("P029", "elements are not listed", (Label(span),), help=help)
    items = [part.strip() for part in inner.split(",")]
    each = ", ".join(f"`{statement[0].value}[{k}] = {item}`" for k, item in enumerate(items[:2]))
    help = f"let the caller pass them as a tensor, or give each element a line: {each}{', …' if len(items) > 2 else ''}"
    return Diagnostic("P029", "elements are not listed", (Label(Span(p.source, p.token.start, p.tokens[closing].end)),), help=help)


def _element_of_a_call(p: Stopped) -> Diagnostic | None:
    """`softmax(x)[i, j]`: an element of what a call gives."""
    opening, closing = p.opening_of(p.position - 1), p.closing_of(p.position)
    if opening is None or closing is None or p.tokens[opening - 1].type not in ("NAME", "QUALIFIED"):
        return None
    call = p.source.text[p.tokens[opening - 1].start : p.previous.end]
    indices = p.source.text[p.token.start : p.tokens[closing].end]
    span = Span(p.source, p.token.start, p.tokens[closing].end)
    help = f"a call has an equation of its own: `t = {call}`, then read `t{indices}`"
    return Diagnostic("P010", "only a name can be indexed", (Label(span),), help=help)


def _comprehension(p: Stopped) -> Diagnostic | None:
    """`sum(x[i] for i in range(N))`: a reduction as Python writes it."""
    if p.token.type != "FOR" or p.is_schedule or not p.brackets():
        return None
    opening = p.brackets()[-1]
    name, closing = p.tokens[opening - 1], p.closing_of(opening)
    if p.tokens[opening].type != "LPAR" or name.value not in _REDUCERS or closing is None:
        return None
    body = p.source.text[p.tokens[opening].end : p.token.start].strip()
    found = re.match(r"for\s+(\w+)\s+in\s+(?:range\(\s*([^(),]+)\)|([^()]+))\s*$", p.source.text[p.token.start : p.tokens[closing].start])
    binder = "k" if found is None else f"{found[1]} in {f'0..{found[2].strip()}' if found[2] else found[3].strip()}"
    whole, meant = Span(p.source, name.start, p.tokens[closing].end), f"{name.value}({binder}) ({body})"
    edits = () if found is None or (found[3] and ".." not in found[3]) else (Edit(whole, meant),)
    return Diagnostic("P010", "a reduction names its index first", (Label(whole),), help=f"write `{meant}`", edits=edits)


def _range_of_a_binder(p: Stopped) -> Diagnostic | None:
    """`sum(i=0..N) x[i]`."""
    if p.token.type != "RANGE" or p.is_schedule or p.inside() != "LPAR":
        return None
    opening = p.brackets()[-1]
    words = p.tokens[opening + 1 : p.position]
    if p.tokens[opening - 1].value not in _REDUCERS or len(words) < 3 or [t.type for t in words[-3:-1]] != ["NAME", "EQUAL"]:
        return None
    name, equal, low = words[-3:]
    edits = (Edit(Span(p.source, name.end, low.start), " in "),)
    closing = p.closing_of(opening)
    high = p.source.text[p.token.end : p.tokens[closing].start].partition(",")[0].strip() if closing is not None else ""
    help = f"write `{name.value} in {low.value}..{high}`"
    return Diagnostic("P011", f"the range of `{name.value}` follows `in`", (Label(p.at(equal)),), help=help, edits=edits)


def _called_without_parentheses(p: Stopped) -> Diagnostic | None:
    """`tanh x[i]`."""
    if not p.has_operand or p.is_schedule or p.token.type not in ("NAME", "NUMBER") or p.previous.type != "NAME":
        return None
    if p.previous.value not in _FUNCTIONS:
        return None
    end = p.token.end
    if p.position + 1 < len(p.tokens) and p.tokens[p.position + 1].type == "LSQB":
        closing = p.closing_of(p.position + 1)
        end = end if closing is None else p.tokens[closing].end
    argument = p.source.text[p.token.start : end]
    edits = (Edit(Span(p.source, p.previous.end, end), f"({argument})"),)
    title = f"the argument of `{p.previous.value}` stands in parentheses"
    return Diagnostic("P010", title, (Label(p.span),), help=f"write `{p.previous.value}({argument})`", edits=edits)


def _paired_elements(p: Stopped) -> Diagnostic | None:
    """`(y[i], z[i]) = (…, …)`."""
    if p.token.type != "LPAR" or not p.is_clause_level or p.previous.type not in ("LBRACE", "NEWLINE"):
        return None
    closing = p.closing_of(p.position)
    if closing is None or closing + 1 >= len(p.tokens) or p.tokens[closing + 1].type != "EQUAL":
        return None
    names = p.source.text[p.token.end : p.tokens[closing].start].split("],")
    help = f"each has an equation of its own, on a line of its own: `{names[0].strip()}{']' if len(names) > 1 else ''} = …`"
    return Diagnostic("P010", "an equation has one value", (Label(Span(p.source, p.token.start, p.tokens[closing].end)),), help=help)


def _named_number(p: Stopped) -> Diagnostic | None:
    """`BLOCK_SIZE = 128` in a schedule."""
    statement = p.statement()
    if not p.is_schedule or p.inside() != "LBRACE" or p.token.type != "EQUAL" or [t.type for t in statement] != ["NAME"]:
        return None
    value = p.tokens[p.position + 1] if p.position + 1 < len(p.tokens) else None
    if value is None or value.type != "NUMBER" or statement[0].value.lower() in ELSEWHERE:
        return None
    name = statement[0].value
    help = (
        f"a number with a name is a knob, with the values to choose from, at the begin of a schedule: `knobs {name} in {{{value.value}}}`"
    )
    return Diagnostic("P027", "numbers of schedules are knobs", (Label(Span(p.source, statement[0].start, value.end)),), help=help)


def _assigned_loops(p: Stopped) -> Diagnostic | None:
    """`io, ii = split(i, 8)`: the loops that a directive makes stand behind it."""
    statement = p.statement()
    if not p.is_schedule or p.inside() != "LBRACE" or not statement or p.token.type not in ("COMMA", "EQUAL"):
        return None
    end = next((k for k in range(p.position, len(p.tokens)) if p.tokens[k].type in ("NEWLINE", "RBRACE")), len(p.tokens))
    line = p.source.text[statement[0].start : p.tokens[end - 1].end]
    found = re.fullmatch(r"((?:\w+\s*,\s*)*\w+)\s*=\s*(?:[\w.\[\]]+\.)?(split|fuse|tile|cut)\s*\(([^()]*)\)", line)
    if found is None:
        return None
    of = [part.partition("=")[2].strip() or part.strip() for part in found[3].split(",")]
    meant = {
        "split": f"split {of[0]} by {of[-1]} -> {found[1]}",
        "fuse": f"fuse {', '.join(of)} -> {found[1]}",
    }.get(found[2], form_called(found[2]))
    help = f"write `{meant}`" if found[2] in ("split", "fuse") else meant
    edits = (Edit(Span(p.source, statement[0].start, p.tokens[end - 1].end), meant),) if found[2] in ("split", "fuse") else ()
    title = "the loops that a directive makes stand behind it"
    return Diagnostic("P027", title, (Label(Span(p.source, statement[0].start, statement[0].end)),), help=help, edits=edits)


_BARE = ("order", "parallel", "unroll", "inline", "stream", "trim", "partition")
"""Directives of nothing but loops or tensors."""


def _operands_with_blanks(p: Stopped) -> Diagnostic | None:
    """`order i k j`: loops without commas between them."""
    statement = p.statement()
    if not p.is_schedule or p.inside() != "LBRACE" or p.token.type != "NAME" or [t.type for t in statement] != ["NAME", "NAME"]:
        return None
    directive = ELSEWHERE.get(statement[0].value.lower(), statement[0].value)
    end = next((k for k in range(p.position, len(p.tokens)) if p.tokens[k].type != "NAME"), len(p.tokens))
    if statement[1].value in _BARE and statement[0].value not in _BARE:  # `omp parallel i`
        listed = ", ".join(t.value for t in p.tokens[p.position : end])
        span, meant = Span(p.source, statement[0].start, p.tokens[end - 1].end), f"{statement[1].value} {listed}"
        title = f"`{statement[0].value}` is no part of a directive"
        return Diagnostic(
            "P027",
            title,
            (Label(Span(p.source, statement[0].start, statement[0].end)),),
            help=f"write `{meant}`",
            edits=(Edit(span, meant),),
        )
    if directive not in _BARE or (end < len(p.tokens) and p.tokens[end].type not in ("NEWLINE", "RBRACE")):
        return None
    listed = ", ".join(t.value for t in p.tokens[p.position - 1 : end])
    span, meant = Span(p.source, statement[0].start, p.tokens[end - 1].end), f"{directive} {listed}"
    called = f"; what is called `{statement[0].value}` elsewhere is `{directive}` here" if statement[0].value != directive else ""
    help = f"write `{meant}`{called}"
    return Diagnostic("P027", "there are commas between operands", (Label(p.span),), help=help, edits=(Edit(span, meant),))


def _part_of_a_loop(p: Stopped) -> Diagnostic | None:
    """`vectorize j 8`, `unroll k 4`: a part of a loop is one of its own."""
    statement = p.statement()
    if not p.is_schedule or p.inside() != "LBRACE" or p.token.type != "NUMBER" or [t.type for t in statement] != ["NAME", "NAME"]:
        return None
    directive, loop = ELSEWHERE.get(statement[0].value.lower(), statement[0].value), statement[1].value
    if directive not in ("vectorize", "unroll", "parallel"):
        return None
    short = loop.rsplit(".", 1)[-1]
    help = f"split the loop first, `split {loop} by {p.token.value} -> {short}o, {short}i`, then `{directive} {short}i`"
    return Diagnostic("P027", f"`{directive}` is about a whole loop", (Label(p.span, "of how many iterations"),), help=help)


FOREIGN_IDIOMS: tuple[Callable[[Stopped], Diagnostic | None], ...] = (
    _condition_of_a_clause,
    _condition_of_a_reduction,
    _range_call,
    _beside_an_operand,
    _dimensions,
    _results_without_parentheses,
    _increment,
    _absolute_value,
    _several_values,
    _mirrored,
    _included_end,
    _is,
    _formatted_text,
    _angled,
    _starred,
    _listed_numbers,
    _comprehension,
    _range_of_a_binder,
    _called_without_parentheses,
    _paired_elements,
    _architecture,
    _hardware_index,
    _assigned_loops,
    _named_number,
    _operands_with_blanks,
    _part_of_a_loop,
    _foreign_directive,
)
