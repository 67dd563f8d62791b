"""Names in scope, and what the checker of one operator remembers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from codegen.dtypes import DTYPES, DType
from polyhedral import expr as px
from tensorlang.check.module import Module
from tensorlang.check.problems import error, renamed
from tensorlang.check.types import CONSTANTS, LIMITS
from tensorlang.check.values import Idx, Num, Packed, Tensor, Value
from tensorlang.check.walk import repeated_names
from tensorlang.diagnostics import Edit, Span
from tensorlang.syntax import accumulated
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import Fresh


@dataclass(frozen=True, slots=True)
class Copies:
    """The packs of sizes that `for each` runs over, and the position. `sums`: those of the sizes before each position of a pack, as far as
    they were asked for: positions follow one another, so each takes one addition."""

    packs: Mapping[str, Packed]
    position: int
    sums: dict[str, list[Value]]


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one place.

    `ranges`: of indices by their unique names. `refined`: what is known of a value on this side of a condition. `skips`: conditions that
    reads with `skip` have put on the nearest reduction. `owner`: the tensor being defined. `positions`: where each pack stands inside
    `e..`. `copies`: what `for each` runs over."""

    values: Mapping[str, Value]
    ranges: Mapping[str, tuple[px.Expr, px.Expr]] = field(default_factory=dict)
    refined: Mapping[ir.Expr, tuple[px.Expr | None, px.Expr | None]] = field(default_factory=dict)
    skips: list[Value] | None = None
    owner: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)
    copies: Copies | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    """How many positions each pack of indices of this clause has."""
    indexing: bool = False
    """Inside the brackets of a read, where integers are widened to i64 as they are read."""

    def bind(self, names: Mapping[str, Value]) -> Scope:
        return replace(self, values={**self.values, **names})

    def bounded(self, ranges: Mapping[str, tuple[px.Expr, px.Expr]]) -> Scope:
        return replace(self, ranges={**self.ranges, **ranges})

    def at(self, names: Iterable[str], position: int) -> Scope:
        """Return the scope in which the named packs stand for their element at `position`."""
        values, positions = dict(self.values), dict(self.positions)
        for name in names:
            pack = self.values[name]
            if isinstance(pack, Packed):
                values[name], positions[name] = pack.items[position], position
        return replace(self, values=values, positions=positions)


@dataclass
class Context:
    """What is remembered while one operator is checked."""

    module: Module
    operator: sx.Operator
    dtypes: dict[str, DType]
    names: Fresh
    """Names for the binders and lets of the definition at hand."""
    evaluate: Callable[[Context, Scope, sx.Node], Value]
    """`scalar.value`, for the modules that it calls."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    element_type: Callable[[str], DType | None] = lambda name: None
    """The type of a local tensor whose type is not declared; None while it is being inferred."""
    local_names: frozenset[str] = frozenset()
    """Tensors that the body defines, known or not yet."""
    sizes: frozenset[str] = frozenset()
    """Sizes that stay symbolic."""
    open_types: frozenset[str] = frozenset()
    """Types of the function at hand that stand for one that is being inferred: a value cast to it takes the type of what it meets."""
    written_out: Iterator[int] = field(default_factory=lambda: count(1))
    """Counts the calls of functions that were replaced by what they say, in all copies of this."""

    def value(self, scope: Scope, node: sx.Node) -> Value:
        return self.evaluate(self, scope, node)


def expand(scope: Scope, items: Iterable[sx.Node]) -> Iterator[tuple[sx.Node, Scope]]:
    """Yield every item with the scope to read it in, `e..` once per position."""
    for item in items:
        if isinstance(item, sx.Pack):
            yield from expand_pack(scope, item)
        else:
            yield item, scope


def expand_pack(scope: Scope, pack: sx.Pack) -> Iterator[tuple[sx.Node, Scope]]:
    """Yield the repeated expression with one scope a position. Raises T0130 (nothing to repeat) and T0131 (lengths differ)."""
    names = packs_of(scope, pack)
    if not names:
        raise no_pack(scope, pack)
    lengths = {name: len(value.items) for name in names if isinstance(value := scope.values[name], Packed)}
    if len(set(lengths.values())) > 1:
        raise error(
            "T0131",
            "the packs of this expansion have different lengths",
            pack.span,
            ", ".join(f"`{name}` has {length}" for name, length in lengths.items()),
            help="expand packs of one length together, or index one by the other's position: `d[pos(e)]`",
        )
    for position in range(next(iter(lengths.values()))):
        yield pack.value, scope.at(names, position)


def no_pack(scope: Scope, pack: sx.Pack) -> Exception:
    packs = [name for name, value in scope.values.items() if isinstance(value, Packed)]
    unknown = [n.name for n in repeated_names(pack.value) if n.name not in scope.values]
    if unknown:
        return unbound(unknown[0], scope, pack.span)
    return error(
        "T0130",
        "`..` repeats an expression for every position of its packs, but this one has no pack",
        pack.span,
        "nothing to repeat",
        help=f"the packs here are {', '.join(f'`{p}`' for p in sorted(packs))}" if packs else "delete the `..`",
    )


def packs_of(scope: Scope, pack: sx.Pack) -> list[str]:
    """Return the packs that an expansion runs over."""
    return list(dict.fromkeys(n.name for n in repeated_names(pack.value) if isinstance(scope.values.get(n.name), Packed)))


def unbound(name: str, scope: Scope, span: Span) -> Exception:
    """Return T0105 for a name that nothing binds here."""
    known = [*scope.values, *(() if scope.indexing else (*CONSTANTS, *LIMITS, *DTYPES))]  # no constant is the index of an element
    line = span.source.text[span.source.text.rfind("\n", 0, span.start) + 1 : span.start]
    if line.rstrip().endswith("//"):
        slashes = span.source.text.rindex("//", 0, span.start)
        at = Span(span.source, slashes, slashes + 2)
        return error("P035", "`//` divides, and starts no comment", at, f"divides by `{name}`", help="write `#`", edits=(Edit(at, "#"),))
    label = "neither an index on the left of `=`, a reduction index, a size, an attribute nor a tensor"
    help, edits = renamed(span, name, known)
    if help is None:
        free = [n for n, v in scope.values.items() if isinstance(v, Idx) and not v.size]
        other = f"write an index of the left side, {' or '.join(f'`{n}`' for n in free)}; or " if 0 < len(free) <= 3 else ""
        clause = accumulated.clause_at(span) if scope.indexing else None
        meant = accumulated.reduction(clause) if clause is not None and name in clause.free(clause.value) else None
        if clause is not None and meant is not None and _summed(span, name) is None and _reduced(span, name) is None:
            if re.search(rf"\b{re.escape(clause.name)}\b", clause.value):
                instead = f", in place of all others of `{clause.name}`" if clause.others else ""
                help = f"what a loop accumulates is one equation{instead}, a reduction that names its indices: `{meant}`"
                return error("T0105", f"`{name}` is not bound here", span, label, help=help)
            summed = f"bind `{name}` by a reduction, as the sum `{meant}`"
            first = accumulated.beside_the_left(clause, name) or not free
            help = f"{summed}{f'; or {other}'.removesuffix('; or ') if other else ''}" if first else f"{other}{summed}"
        help = help or (
            _summed(span, name)
            or _reduced(span, name)
            or f"{other}bind it: on the left of `=`, in `for {name} in 0..…`, or in a reduction `sum({name}) …`"
        )
    return error("T0105", f"`{name}` is not bound here", span, label, help=help, edits=edits)


def _summed(span: Span, name: str) -> str | None:
    """Return the sum that is meant where an index stands in two factors and in no binder, as Einstein's convention has it."""
    text = span.source.text
    begin, end = text.rfind("\n", 0, span.start) + 1, text.find("\n", span.start)
    target, equals, value = text[begin : end if end >= 0 else len(text)].partition("#")[0].rstrip(" }").partition("=")
    factors = [part for part in value.split("*") if re.search(rf"\[[^\]]*\b{re.escape(name)}\b", part)]
    if not equals or len(factors) < 2 or "(" in value:
        return None
    return f"an index in two factors is summed by name: `{target.strip().rpartition('{')[2].strip()} = sum({name}) {value.strip()}`"


def _reduced(span: Span, name: str) -> str | None:
    """Return the reduction that is meant where an index stands in the parentheses behind a reducer, `sum(x[i, j])`."""
    text = span.source.text
    before = re.search(r"\b(sum|prod|max|min|mean|any|all)\(([^()=]*)$", text[text.rfind("\n", 0, span.start) + 1 : span.start])
    after = re.match(r"[^()\n]*(?=\))", text[span.start :])
    if before is None or after is None or "," in re.sub(r"\[[^\]]*\]", "", before[2] + after[0]).replace("[", ""):
        return None
    return f"a reduction names its index: `{before[1]}({name}) {before[2]}{after[0]}`"


def no_shadowing(scope: Scope, name: str, span: Span, what: str) -> None:
    """Raise T0106 when `name` already means something here (rule S4)."""
    if name in scope.values:
        kind = {Idx: "an index or a size", Num: "an attribute", Tensor: "a tensor", Packed: "a pack"}.get(
            type(scope.values[name]), "a value"
        )
        raise error(
            "T0106",
            f"{what} `{name}` would hide another `{name}`",
            span,
            f"`{name}` is already {kind} here",
            help=f"`{name}` is told by the arrays of a call, and not set: give this {what} another name"
            if isinstance(known := scope.values[name], Idx) and known.size
            else f"give this {what} another name",
        )
