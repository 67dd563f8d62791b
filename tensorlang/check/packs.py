"""How many dimensions each pack stands for.

Lengths are integers or unknown; what is known of them are equations:

    y: T[A.., N, B..], y[a.., j, b..]     the same shape: len(a) = len(A), len(b) = len(B)
    x: T[D..] of rank 3, x[n, c, p..]     a count: 2 + len(p) = len(D)
    (p*stride + r).., prod(H..)           packs expanded together have one length
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tensorlang.check.problems import counted, error, labelled
from tensorlang.check.types import CONSTANTS
from tensorlang.check.walk import descendants, repeated_names
from tensorlang.diagnostics import NOWHERE, Span
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.accumulated import clause_at
from tensorlang.syntax.result_type import completed

Pattern = tuple["str | int | None", ...]
"""One entry a slot: None for a single one, the key of a pack, or the length of a pack."""


class Lengths:
    """A system of equations between the lengths of packs."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}
        self.known: dict[str, int] = {}
        self.counts: list[tuple[list[str], int, Span]] = []

    def find(self, key: str) -> str:
        while (up := self.parent.setdefault(key, key)) != key:
            key = up
        return key

    def get(self, key: str) -> int | None:
        return self.known.get(self.find(key))

    def fix(self, key: str, length: int, span: Span = NOWHERE) -> None:
        root = self.find(key)
        if self.known.setdefault(root, length) != length:
            raise mismatch(key, self.known[root], length, span)

    def equate(self, a: str, b: str, span: Span = NOWHERE) -> None:
        x, y = self.find(a), self.find(b)
        if x == y:
            return
        if x in self.known and y in self.known and self.known[x] != self.known[y]:
            raise mismatch(f"{a}` and `{b}", self.known[x], self.known[y], span)
        self.parent[x] = y
        if x in self.known:
            self.known[y] = self.known.pop(x)

    def count(self, keys: list[str], total: int, span: Span) -> None:
        self.counts.append((keys, total, span))

    def match(self, pattern: Pattern, slots: Pattern, span: Span, name: str = "", declared: Span = NOWHERE, defined: bool = False) -> None:
        """Say that `slots` index the tensor `name` of this pattern. Raises T0132 where single indices are too many or too few."""
        if len(pattern) == len(slots) and all((p is None) == (s is None) for p, s in zip(pattern, slots, strict=True)):
            for p, s in zip(pattern, slots, strict=True):
                self._same(p, s, span)
            return
        lengths = [p if isinstance(p, int) else 1 if p is None else self.get(p) for p in pattern]
        if all(n is not None for n in lengths):
            rank = sum(n for n in lengths if n is not None)
            fixed = sum(1 if s is None else s for s in slots if not isinstance(s, str))
            if rank != fixed and all(s is None for s in slots):
                raise _without_pack(name, pattern, span, declared) or wrong_count(name, rank, fixed, span, declared, defined)
            self.count([s for s in slots if isinstance(s, str)], rank - fixed, span)

    def _same(self, p: str | int | None, s: str | int | None, span: Span) -> None:
        match p, s:
            case str(), str():
                self.equate(s, p, span)
            case (str(key), int(length)) | (int(length), str(key)):
                self.fix(key, length, span)
            case _:
                pass

    def solve(self) -> None:
        """Draw every conclusion; raise T0132 where counts contradict one another."""
        changed = True
        while changed:
            changed = False
            for keys, total, span in self.counts:
                changed |= self._solve_one(keys, total, span)

    def _solve_one(self, keys: list[str], total: int, span: Span) -> bool:
        unknown = {self.find(k) for k in keys if self.get(k) is None}
        rest = total - sum(self.get(k) or 0 for k in keys)
        if not unknown or (len(unknown) == 1 and rest < 0):
            if rest != 0:
                raise error(
                    "T0132",
                    "the number of indices differs from the number of dimensions",
                    span,
                    f"{'too many' if rest < 0 else 'too few'} indices by {abs(rest)}",
                    help="write one index a dimension, or a pack `d..` for several",
                )
            return False
        if len(unknown) > 1:
            return False
        (key,) = unknown
        times = sum(1 for k in keys if self.find(k) == key)
        if rest % times:
            return False
        self.known[key] = rest // times
        return True


def _without_pack(name: str, pattern: Pattern, span: Span, declared: Span) -> Exception | None:
    """Return T0132 for a tensor of any number of dimensions that single indices stand for; None where it has no pack, or not one."""
    packs = [(position, key) for position, key in enumerate(pattern) if isinstance(key, str)]
    read = re.fullmatch(r"(\w+)\[([^\[\]|()]*?)(\s*\|[^\[\]]*)?\]", span.source.text[span.start : span.end])
    if len(packs) != 1 or read is None:
        return None
    slots = [slot.strip() for slot in read[2].split(",")]
    given, position, key = len(slots), packs[0][0], packs[0][1].rpartition("/")[2]
    if len(slots) == len(pattern):
        slots[position] += ".."
    else:
        slots.insert(position, f"{key.lower()}..")
    title = f"`{name}` has any number of dimensions, `{key}..`, and is given {'1 index' if given == 1 else f'{given} indices'}"
    help = f"a pack of indices stands for all of them: `{name}[{', '.join(slots)}{read[3] or ''}]`"
    return labelled("T0132", title, [(span, "one index a dimension"), (declared, f"declared with `{key}..`")], help=help)


def wrong_count(name: str, rank: int, given: int, span: Span, declared: Span, defined: bool) -> Exception:
    """Return T0132 for a tensor of `rank` dimensions with another number of indices."""
    letters = [letter for letter in "ijklmn" if not re.search(rf"\b{letter}\b", span.source.text[span.start : span.end])]
    help = "write one index a dimension, or a pack `d..` for several"
    if 0 < given < rank <= given + len(letters):
        slots = [slot.strip() for slot in span.source.text[span.start : span.end - 1].partition("[")[2].split(",")]
        clause = None if defined else clause_at(span)
        meant = completed(clause, name, slots) if clause is not None and len(slots) == given else None
        more = ", ".join(letters[: rank - given] if meant is None else meant[given:])
        whole = f"{span.source.text[span.start : span.end - 1]}, {more}]"
        together = "" if defined or meant is not None else f", or take all of them together: `sum({more}) {whole}`"
        help = f"index every dimension: `{whole}`{together}"
    if rank < given and (kept := _kept(span, rank)) is not None:
        help = f"what `{name}` does not depend on is left out: `{kept}`"
    return labelled(
        "T0132",
        f"`{name}` has {counted(rank, 'dimension')} and is given {'1 index' if given == 1 else f'{given} indices'}",
        [(span, f"too {'many' if given > rank else 'few'} indices by {abs(rank - given)}"), (declared, "declared here")],
        help=help,
    )


def _kept(span: Span, rank: int) -> str | None:
    """Return a read without its additional indices: those of other languages' new axes, or the first ones, as NumPy takes them."""
    text = span.source.text[span.start : span.end]
    read = re.fullmatch(r"(\w+)\[([^\[\]|()]*)\]", text)
    if read is None or not rank:
        return None
    slots = [slot.strip() for slot in read[2].split(",")]
    own = [slot for slot in slots if slot not in ("None", "newaxis")]
    return f"{read[1]}[{', '.join(own if len(own) == rank else slots[len(slots) - rank :])}]"


def mismatch(what: str, first: int, second: int, span: Span) -> Exception:
    return error(
        "T0131",
        f"pack `{what.rsplit('/', 1)[-1]}` would have to stand for {first} and for {second} dimensions",
        span,
        "lengths disagree here",
        help="use different packs, or write the dimensions out",
    )


@dataclass(frozen=True, slots=True)
class PackNames:
    """The packs that can be mentioned at one place: operator-level ones by name, a clause's own under `prefix`."""

    outer: frozenset[str]
    inner: frozenset[str]
    prefix: str

    def key(self, name: str) -> str | None:
        if name in self.outer:
            return name
        return f"{self.prefix}/{name}" if name in self.inner else None

    def mentioned(self, pack: sx.Pack) -> list[str]:
        keys = (self.key(n.name) for n in repeated_names(pack.value))
        return list(dict.fromkeys(k for k in keys if k is not None))

    def pattern(self, slots: Iterable[sx.Node]) -> Pattern | None:
        """Return the pattern of a list of slots or dimensions; None when an expansion mentions no pack."""
        out: list[str | int | None] = []
        for slot in slots:
            inner = slot.value if isinstance(slot, sx.Broadcast) else slot
            if isinstance(inner, sx.Pack):
                keys = self.mentioned(inner)
                if not keys:
                    return None
                out.append(keys[0])
            else:
                out.append(None)
        return tuple(out)


def index_packs(clause: sx.Clause, outer: frozenset[str]) -> frozenset[str]:
    """Return the packs of indices that a clause introduces: those written `d..` or `d[perm]..`."""
    found = set()
    for node in descendants(clause):
        if isinstance(node, sx.Pack):
            value = node.value
            if isinstance(value, sx.Id) or (isinstance(value, sx.Index) and value.slots and all(isinstance(s, sx.Id) for s in value.slots)):
                found.add(value.name)
    return frozenset(found - outer)


def clause_names(number: int, clause: sx.Clause, outer: frozenset[str], tensors: Iterable[str]) -> PackNames:
    own = index_packs(clause, outer) - frozenset(tensors)
    return PackNames(outer, own, str(number))


def constrain(
    lengths: Lengths, names: PackNames, node: sx.Node, patterns: Mapping[str, Pattern], declared: Mapping[str, Span] | None = None
) -> None:
    """Add the equations that a clause, or any expression, states; `declared`: where parameters are."""
    for inner in descendants(node):
        match inner:
            case sx.Pack():
                keys = names.mentioned(inner)
                for key in keys[1:]:
                    lengths.equate(keys[0], key, inner.span)
            case sx.Index(name, slots) | sx.Target(name, slots) if slots is not None and name in patterns:
                pattern = names.pattern(slots)
                if pattern is not None:
                    lengths.match(
                        patterns[name], pattern, inner.span, name, (declared or {}).get(name, NOWHERE), isinstance(inner, sx.Target)
                    )
            case _:
                pass


def dimension_names(operator: sx.Operator) -> Iterator[tuple[str, bool]]:
    """Yield (size variable, is a pack) of everything the parameters and results of an operator introduce as sizes."""
    attrs = {p.name for p in operator.params if p.kind == "attr"}
    for param in operator.params:
        if param.kind == "size":
            yield param.name, param.pack
        elif isinstance(param.type, sx.TensorType):
            for dim in param.type.dims or ():
                yield from _introduced(dim, attrs)


def linear_names(dim: sx.Node) -> Iterator[str]:
    """Yield the names that a dimension may tell, a sum of products: `M + 1`, `2*N + K`. Neither a square nor what stands under
    `//` or `%` is told."""
    match dim:
        case sx.Id(name):
            yield name
        case sx.Unary("-" | "+", value):
            yield from linear_names(value)
        case sx.Binary("+" | "-", lhs, rhs):
            yield from linear_names(lhs)
            yield from linear_names(rhs)
        case sx.Binary("*", lhs, rhs):
            sides = [*linear_names(lhs)], [*linear_names(rhs)]
            yield from (name for side, other in (sides, sides[::-1]) for name in side if name not in other)
        case _:
            return


def _introduced(dim: sx.Node, attrs: Collection[str]) -> Iterator[tuple[str, bool]]:
    match dim:
        case sx.Broadcast(value):
            yield from _introduced(value, attrs)
        case sx.Each(name):
            yield name, True
        case sx.Pack(sx.Id(name)):
            yield name, True
        case sx.Id(name):
            yield name, False
        case sx.TupleOf(items):
            for item in items:
                yield from _introduced(item, attrs)
        case sx.Apply("sum", (sx.Pack(sx.Id(name)),)):
            yield name, True
        case sx.Unary() | sx.Binary():
            yield from ((name, False) for name in linear_names(dim) if name not in attrs and name not in CONSTANTS)
        case _:
            return
