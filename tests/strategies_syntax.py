"""Syntax trees of every shape the grammar can write, and texts laid out at random."""

from __future__ import annotations

from hypothesis import strategies as st

from tensorlang.diagnostics import Source
from tensorlang.syntax.nodes import (
    Apply,
    Binary,
    Broadcast,
    Clause,
    Compare,
    Directive,
    Each,
    File,
    From,
    Generic,
    Id,
    IfElse,
    Index,
    Keyword,
    Knob,
    Knobs,
    Layout,
    LetIn,
    Member,
    Number,
    Operator,
    Pack,
    Param,
    Phrase,
    Place,
    Range,
    Reducer,
    Reduction,
    Role,
    ScalarFunction,
    Schedule,
    Tactic,
    Target,
    TensorType,
    Text,
    TupleOf,
    Unary,
    Use,
    UsedName,
)
from tensorlang.syntax.scanner import scan

PLAIN = ["x", "y", "i", "k", "N", "sum", "max", "f32", "_", "m1", "role", "inside", "ordering"]
AWKWARD = [
    "p.m",
    "d.0",
    "for",
    "in",
    "op",
    "at",
    "by",
    "lift",
    "yield",
    "schedule",
    "reducer",
    "tactic",
    "extern",
    "a b",
    "α",
    "#",
    "1x",
    '"',
    "a..b",
    "{",
]

names = st.sampled_from(PLAIN) | st.sampled_from(PLAIN + AWKWARD)
numbers = st.sampled_from(["0", "1", "2.5", "1e-5", "3.0E+7", "128"]).map(Number)
contents = st.text(alphabet='ab "\\#\n\t`', max_size=4)
texts = contents.map(Text)
ids = names.map(Id)


def some(strategy, least=0, most=3):
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def maybe(strategy):
    return st.none() | strategy


def items(exprs):
    """What may stand between commas: values and packs."""
    return exprs | exprs.map(Pack)


def ranges(exprs):
    return st.builds(Range, exprs, exprs)


def binders(exprs):
    return items(exprs) | st.builds(Member, exprs.map(Pack), ranges(exprs))


def arguments(exprs):
    return binders(exprs) | st.builds(Keyword, names, exprs) | exprs.map(From)


def tuples(exprs):
    return some(items(exprs), 1).map(TupleOf)


def comparisons(exprs):
    operators = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return some(exprs, 2).flatmap(lambda items: st.builds(Compare, st.just(items), some(operators, len(items) - 1, len(items) - 1)))


def larger(exprs):
    slots = some(items(exprs))
    return st.one_of(
        tuples(exprs),
        st.builds(Index, names, slots, maybe(exprs)),
        st.builds(Apply, names, some(arguments(exprs)), slots),
        st.builds(Reduction, names, slots, some(arguments(exprs)), exprs),
        st.builds(Unary, st.sampled_from(["-", "+", "not"]), exprs),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "*", "/", "//", "%", "and", "or"]), exprs, exprs),
        comparisons(exprs),
        st.builds(Member, exprs, ranges(exprs)),
        st.builds(IfElse, exprs, exprs, exprs),
        st.builds(LetIn, names, exprs, exprs),
    )


exprs = st.recursive(numbers | ids | texts, larger, max_leaves=12)
small = st.recursive(numbers | ids, larger, max_leaves=4)

generics = some(st.builds(Generic, names, maybe(names)), most=2)
types = st.builds(TensorType, names, maybe(some(items(small) | items(small).map(Broadcast) | names.map(Each))))
tensors = st.builds(Param, st.just("tensor"), names, types, st.booleans(), st.just(False), maybe(ranges(small)), maybe(small))
results = st.builds(Param, st.just("tensor"), names, types, st.booleans(), st.just(False), maybe(ranges(small)))
attributes = st.builds(
    Param,
    st.just("attr"),
    names,
    (names | st.just("fn")).map(Id),
    st.booleans(),
    st.booleans(),
    maybe(ranges(small)),
    maybe(small | st.just(TupleOf(()))),
)
sizes = st.builds(Param, st.just("size"), names, st.none(), st.just(False), st.booleans(), maybe(ranges(small)))

targets = st.builds(Target, names, st.none(), maybe(types)) | st.builds(Target, names, some(items(small)))
conditions = binders(small) | names.map(Each)
clauses = (
    st.builds(Clause, some(targets, 1, 2), exprs)
    | st.builds(Clause, some(targets, 1, 1), exprs, some(conditions, 1))
    | st.builds(Clause, some(targets, 1, 1), exprs, st.just(()), st.just(True))
)
operators = st.builds(
    Operator,
    names,
    generics,
    some(tensors | attributes | sizes),
    some(results, 1, 2),
    some(items(small), most=2),
    some(clauses),
    st.booleans(),
)
places = st.builds(Place, st.builds(Index, names, some(items(small)), maybe(small)), names, small, small)
instructions = st.builds(
    Operator,
    names,
    generics,
    some(tensors | attributes | sizes),
    some(results, 1, 2),
    st.just(()),
    some(clauses),
    needs=some(names, 1, 2),
    places=some(places),
    llvm=maybe(contents),
)
functions = st.builds(ScalarFunction, names, generics, some(st.tuples(names, maybe(names))), exprs)
patterns = some(names, 1)
reducers = st.builds(
    Reducer,
    names,
    generics,
    patterns,
    patterns,
    small,
    exprs,
    st.booleans(),
    maybe(st.tuples(names, maybe(names), small)),
    maybe(st.tuples(patterns, small)),
)

operands = items(small) | some(items(small)).map(Layout)
phrases = st.builds(Phrase, st.sampled_from(["by", "at", "in", "as", "with", "to", "fold", "stages", ":"]), some(operands, 1, 2))
group_names = st.sampled_from(PLAIN) | st.sampled_from(["batch..", "i..", "`for`..".replace("`", "")])
roles = st.builds(Role, names, some(some(group_names, 1), 1, 2))
directives = (
    st.builds(Directive, names, some(operands), some(phrases, most=2), some(names), condition=maybe(exprs), pattern=maybe(roles))
    | st.builds(
        Directive,
        names,
        some(arguments(small).filter(lambda a: not isinstance(a, From))),
        call=st.just(True),
        condition=maybe(exprs),
        pattern=maybe(roles),
    )
    | some(st.builds(Knob, names, some(small, 1)), 1, 2).map(Knobs)
)
bodies = some(directives)
schedules = st.builds(Schedule, names, names, some(items(small), most=2), bodies) | roles.flatmap(
    lambda role: st.builds(Schedule, st.just(role.name), names, some(items(small), most=2), bodies, st.just(role))
)
tactics = st.builds(Tactic, names, some(names), bodies)

used_names = st.builds(UsedName, names, maybe(names))
uses = st.builds(Use, texts | ids, some(used_names)) | st.builds(Use, texts | ids, alias=maybe(names))

declarations = uses | operators | instructions | functions | reducers | schedules | tactics
files = some(declarations, 0, 3).map(File)


@st.composite
def scattered(draw, text: str) -> str:
    """Return a canonical text with comments, empty lines and blanks put where lines end and, now and then, after commas and brackets.

    Inside of brackets no line begins in the first column: there a word such as `schedule` would begin a declaration."""
    at_line_end = st.sampled_from(["", "", "", "  # first", "\n\n", "\n# own line\n", "\n\n# apart\n\n", "   # two  "])
    anywhere = st.sampled_from(["", "", "", "", " # inside\n ", "\n\n ", "\n  # alone\n ", "  "])
    pieces, end = [draw(st.sampled_from(["", "# top\n", "\n\n"]))], 0
    for token in scan(Source("", text)).lexemes:
        if token.type == "NEWLINE":
            extra = draw(at_line_end)
            pieces += [text[end : token.start], extra, "\n"]
        else:
            extra = draw(anywhere) if token.type in ("COMMA", "LPAR", "LSQB") else ""
            pieces += [text[end : token.end], extra]
        end = token.end
    return "".join([*pieces, text[end:]])
