"""Idioms of other languages that the grammar stops at: NumPy, Python, C, and schedules of other tools. Each is told what it is here, and
where it is surely meant so, the edits that make it."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.diagnostics import Diagnostic, Edit, Label, Source, Span
from tensorlang.syntax.directive_forms import ELSEWHERE, form_called
from tensorlang.syntax.scanner import Token
from tensorlang.syntax.stopped import Stopped

_REDUCERS = frozenset(["sum", "prod", "min", "max", "any", "all", "mean", "argmax", "argmin", "logsumexp"])
_TYPES = {"float": "f32", "double": "f64", "int": "i32", "long": "i64", "bool": "bool", "half": "f16", "char": "i8", "float32": "f32"}
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
    otherwise = f"only schedules and what is used have dotted names; a foreign name is written in backquotes: `` `{token.value}` ``"
    edits = (Edit(span, undotted),) if undotted is not None else ()
    return Diagnostic("P015", f"the name `{token.value}` has a dot", (Label(span),), help=help or otherwise, edits=edits)


def explain_dots(name: str) -> tuple[str | None, str | None]:
    """Return what a function of a module, a method or an attribute of a tensor is here, and the name to write for it if it is one."""
    owner, _, member = name.rpartition(".")
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
        return Diagnostic("P010", "`where` speaks of parameters", (Label(p.span),), help="conditions of a clause follow `for`", edits=edits)
    return None


def _range_call(p: Stopped) -> Diagnostic | None:
    """`in range(N)`: what follows `in` is a range."""
    if "RANGE" not in p.accepted or p.previous.type != "RPAR":
        return None
    opening = p.opening_of(p.position - 1)
    if opening is None or opening < 2 or p.tokens[opening - 1].value not in ("range", "arange") or p.tokens[opening - 2].type != "IN":
        return None
    parts = [part.strip() for part in p.source.text[p.tokens[opening].end : p.previous.start].split(",")]
    if len(parts) > 2:
        return None
    span = Span(p.source, p.tokens[opening - 1].start, p.previous.end)
    meant = f"{parts[0] if len(parts) == 2 else '0'}..{parts[-1]}"
    return Diagnostic(
        "P011", "`in` asks for a range", (Label(span),), help=f"write `{meant}`; the end is excluded", edits=(Edit(span, meant),)
    )


def _beside_an_operand(p: Stopped) -> Diagnostic | None:
    """A cast of C, a lambda, a reduction without its parentheses: all put two operands side by side."""
    if not p.has_operand or p.is_schedule:
        return None
    before, opening = p.previous, p.opening_of(p.position - 1)
    if before.value == "lambda":
        help = "an equation says what an element is: `y[i] = x[i]`"
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
    if before.type == "RPAR" and len(inside) == 1 and inside[0].value in _TYPES and name.type not in ("NAME", "RSQB", "RPAR"):
        span, called = Span(p.source, p.tokens[opening].start, before.end), _TYPES[inside[0].value]
        help = f"a cast is a call of the type: `{called}({p.token.value}…)`"
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
    return Diagnostic("P027", f"there is no directive `{name.value}`", (Label(p.at(name)),), help=form_called(name.value))


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


FOREIGN_IDIOMS: tuple[Callable[[Stopped], Diagnostic | None], ...] = (
    _condition_of_a_clause,
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
    _architecture,
    _hardware_index,
    _foreign_directive,
)
