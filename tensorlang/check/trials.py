"""Values for the attributes of an operator that has no defaults for them, to check it with where it is defined.

texts and bools    each choice on its own: all texts that the body compares with, both truth values
whole numbers      the first that the signature and `where` allow and that check: 1, 0, 2, 3, numbers that stand beside the attribute
packs              one such number for every position, or the positions themselves, forwards and backwards
floats, functions  one of each
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product

from tensorlang.check.types import REPRESENTATIVE
from tensorlang.check.walk import children, conjuncts, descendants
from tensorlang.syntax import nodes as sx

MOST_CHOICES = 16
"""Choices of texts and bools that are tried."""
MOST_NUMBERS = 48
"""Choices of whole numbers that are tried for each of them."""

_FUNCTIONS = {1: "tanh", 2: "pow", 3: "hard_sigmoid"}
"""Stand-ins for function attributes, by number of arguments."""
SMALL = (1, 0, 2, 3)

Attributes = dict[str, object]


@dataclass(frozen=True, slots=True)
class Pack:
    """The whole numbers of a pack whose length is not known yet: each is `start + step * position`."""

    start: int
    step: int = 0
    backwards: bool = False

    def of(self, length: int) -> tuple[int, ...]:
        """Return the numbers of a pack of this length."""
        forwards = range(length)
        return tuple(self.start + self.step * position for position in (reversed(forwards) if self.backwards else forwards))

    def __str__(self) -> str:
        first, second = self.of(2)
        return f"(…, {first}, {second})" if self.backwards else f"({first}, {second}, …)"


def required_attributes(operator: sx.Operator) -> list[sx.Param]:
    """Return the attributes that have no default and that no rank tells."""
    told = {attr for where in operator.where for cond in conjuncts(where) for attr in _told(cond)}
    return [p for p in operator.params if p.kind == "attr" and p.default is None and p.name not in told]


def _told(cond: sx.Node) -> Iterator[str]:
    match cond:
        case sx.Compare((sx.Apply("rank", (sx.Id(_),)), sx.Id(attr)), ("==",)) | sx.Compare(
            (sx.Id(attr), sx.Apply("rank", (sx.Id(_),))), ("==",)
        ):
            yield attr
        case _:
            pass


def choices(operator: sx.Operator, small: Sequence[int] = SMALL) -> Iterator[Iterator[Attributes]]:
    """Yield for each choice of texts and bools the assignments of all attributes to try with it, those most likely to fit first."""
    params = required_attributes(operator)
    types = {
        g.name: REPRESENTATIVE.get(g.bound or "any", g.bound or "f32") for g in operator.generics if not _has_argument(operator, g.name)
    }
    modes = [p for p in params if _kind(p) in ("bool", "str")]
    rest = [p for p in params if p not in modes]
    for chosen in islice(product(*(_modes(operator, p) for p in modes)), MOST_CHOICES):
        fixed: Attributes = {**types, **{p.name: v for p, v in zip(modes, chosen, strict=True)}}
        yield ({**fixed, **{p.name: v for p, v in zip(rest, values, strict=True)}} for values in _assignments(operator, rest, small))


def _assignments(operator: sx.Operator, params: list[sx.Param], small: Sequence[int]) -> Iterator[tuple[object, ...]]:
    """Yield values of several attributes: all alike first, then every combination, as far as the budget goes."""
    domains = [_values(operator, p, small) for p in params]
    alike = zip(*(d if len(d) > 1 else d * len(small) for d in domains), strict=False) if domains else iter([()])
    return islice(chain(alike, product(*domains) if len(domains) > 1 else ()), MOST_NUMBERS)


def _kind(param: sx.Param) -> str:
    return param.type.name if isinstance(param.type, sx.Id) else "int"


def _modes(operator: sx.Operator, param: sx.Param) -> list[object]:
    if _kind(param) == "bool":
        return [True, False]
    texts: dict[object, None] = {}
    for node in descendants(operator):
        if isinstance(node, sx.Compare) and sx.Id(param.name) in node.items:
            texts |= dict.fromkeys(o.value for o in node.items if isinstance(o, sx.Text))
    return list(texts) or ["text"]


def _values(operator: sx.Operator, param: sx.Param, small: Sequence[int]) -> list[object]:
    match _kind(param):
        case "float":
            return [0.5]
        case "fn":
            calls = (n.args for n in descendants(operator) if isinstance(n, sx.Apply) and n.name == param.name)
            arity = next((sum(not isinstance(a, sx.Pack) for a in args) for args in calls), 1)
            return [_FUNCTIONS[arity]] if arity in _FUNCTIONS else []
        case "int" if param.pack:
            return [Pack(0, 1), Pack(0, 1, backwards=True), *map(Pack, small)]
        case "int":
            beside = [n for m in _mentions(operator, param) for n in _numbers(m)]
            return list(dict.fromkeys([*small, *(n + d for n in beside for d in (0, 1, -1))]))
        case _:
            return [1]


def _mentions(operator: sx.Operator, param: sx.Param) -> Iterator[sx.Node]:
    """Yield the comparisons in `where` that name an attribute, and its range."""
    if param.range is not None:
        yield param.range
    for cond in operator.where:
        for node in descendants(cond):
            if isinstance(node, sx.Compare) and any(isinstance(n, sx.Id) and n.name == param.name for n in descendants(node)):
                yield node


def _numbers(node: sx.Node) -> Iterator[int]:
    match node:
        case sx.Number(text) if text.isdigit() and len(text) < 10:
            yield int(text)
        case sx.Unary("-", value):
            yield from (-n for n in _numbers(value))
        case _:
            for child in children(node):
                yield from _numbers(child)


def _has_argument(operator: sx.Operator, generic: str) -> bool:
    return any(p.kind == "tensor" and isinstance(p.type, sx.TensorType) and p.type.dtype == generic for p in operator.params)
