"""Graphs of nodes that stay graphs: run once on values that stand for those of each turn, and cut out of the graph that grows.

    a loop, what it carries, what it goes through, what else its graph reads  ─►  graph IR `Loop`

`NotFixed` says why a graph cannot be: what it hands to the next turn is of another type or shape than what it was given, shapes in it
depend on what it is given, or it is about values that are no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.items import GrowingSequence, Item, TensorSequence
from stdlib.onnx.model import Array
from stdlib.onnx.problems import NotFixed, OtherKind, Unknown
from stdlib.onnx.site import Site
from tensorlang.graph.edit import reads, writes
from tensorlang.graph.nodes import Graph, Kernel, Loop, Value, View
from tensorlang.graph.nodes import Node as GraphNode
from tensorlang.graph.sizes import same_shape

FEW_NODES = 128
"""Turns whose number is known are written out when they come to no more nodes: what is constant in them folds away."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A graph of a node as it runs in each turn: its nodes, the values that stand for what it is given, and what it returns."""

    site: Site
    nodes: tuple[GraphNode, ...]
    given: tuple[Value, ...]
    found: tuple[Item, ...]

    def returned(self, k: int) -> Value:
        """Return result `k`. Raises NotFixed where that is no tensor."""
        item = self.found[k]
        if not isinstance(item, Value):
            raise NotFixed("it returns what is no tensor")
        return item

    def elements(self, value: Value) -> Array | None:
        """Return the elements of a result that is the same in every turn and known, None for others."""
        return self.site.builder.constants.get(value.name)

    def is_cheap(self, count: int) -> bool:
        """Tell whether so many turns are better written out: they come to a few nodes, none of which runs a graph again."""
        few = 0 < count * max(1, len(self.nodes)) <= FEW_NODES
        return few and not any(isinstance(node, Loop) for node in self.nodes)

    def loop(self, taken: Taken, returned: Sequence[Value], fixed: Sequence[Value], made: Sequence[Rows] = ()) -> tuple[Value, ...]:
        """Add the loop of the graph, whose inputs stand for the number of the turn, what is carried, and rows of what is scanned.

        `returned` are those of its results that are read, `fixed` what the loop returns: the number of turns, what is carried, rows."""
        b = self.site.builder
        nodes, before = self._parted()
        own = {name for node in nodes for name in writes(node)} | {value.name for value in self.given}
        outputs, views = list[str](), list[GraphNode]()
        for value in returned:
            name = b.fresh(f"{value.name}.turn")
            b.value(name, value.dtype, value.shape)
            views.append(View(b.label(self.site.node.label), value.name, name, (self.site.node.label,)))
            outputs.append(name)
        read = dict.fromkeys(name for node in (*nodes, *views) for name in reads(node) if name not in own)
        constants = {name: b.constants[name] for name in read if name in b.constants}
        captured = tuple(name for name in read if name not in constants)
        inputs = (*(value.name for value in self.given), *captured)
        b.nodes += [node for node in before if b.stored.isdisjoint(writes(node))]
        b.stored |= {name for node in before for name in writes(node)}
        for name in (*captured, *taken.names):
            b.store_sizes(name)
        used = {*inputs, *outputs, *read, *own}
        values = {name: value for name, value in b.values.items() if name in used}
        label = b.label(self.site.node.label)
        body = Graph(self.site.node.label, inputs, tuple(outputs), values, constants, (*nodes, *views), b.symbols)
        b.nodes.append(
            Loop(
                label,
                body,
                (*taken.names, *captured),
                tuple(value.name for value in fixed),
                taken.limit is not None,
                taken.condition is not None,
                taken.asks,
                tuple(rows.backwards for rows in taken.scanned),
                tuple(rows.backwards for rows in made),
                (self.site.node.label,),
            )
        )
        return tuple(fixed)

    def _parted(self) -> tuple[tuple[GraphNode, ...], tuple[GraphNode, ...]]:
        """Return the nodes of the graph, and those that are made of sizes alone: these are there before the first turn."""
        sizes = {node.name for node in self.nodes if isinstance(node, Kernel) and not node.inputs}
        return tuple(n for n in self.nodes if n.name not in sizes), tuple(n for n in self.nodes if n.name in sizes)


@dataclass(frozen=True, slots=True)
class Rows:
    """A value that a loop has a row of for each turn, from the first or, `backwards`, from the last on."""

    value: Value
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What a loop takes, but for what its graph reads of the graphs around it. `asks`: its graph says whether another turn follows."""

    carried: tuple[Value, ...] = ()
    scanned: tuple[Rows, ...] = ()
    limit: Value | None = None
    condition: Value | None = None
    asks: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        ends = (value.name for value in (self.limit, self.condition) if value is not None)
        return (*ends, *(value.name for value in self.carried), *(rows.value.name for rows in self.scanned))


def traced(n: Site, attribute: str, taken: Taken, which: str = "", carried: Sequence[Item] | None = None) -> Traced:
    """Return a graph of the node, run on values that stand for those of a turn.

    Of a Loop, `carried` are the arguments that it carries, with sequences among them: its graph takes the number of the turn and a truth
    value before these. Raises NotFixed; Unknown for what depends on elements of values around it."""
    b = n.builder
    known, start = set(b.values), len(b.nodes)
    turn = b.value(b.fresh(f"{n.node.label}: turn"), DTYPES["i64"], ())
    given = [turn, *(_like(n, value, value.shape) for value in taken.carried)]
    given += [_like(n, rows.value, rows.value.shape[1:]) for rows in taken.scanned]
    inputs: list[Item] = list(given[1:])
    if carried is not None:
        values = iter(given[1:])
        inputs = [turn, n.constant(np.asarray(True)), *(GrowingSequence() if _is_empty(item) else next(values) for item in carried)]
    try:
        with n.tracing(turn):
            found = n.run(attribute, inputs, f" as it is{which}")
        return Traced(n, b.cut(start), tuple(given), found)
    except Unknown as unknown:
        if unknown.value in known and unknown.value not in {value.name for value in given}:
            raise
        raise NotFixed(unknown.diagnostic.title) from None


def _is_empty(item: Item) -> bool:
    return isinstance(item, TensorSequence) and not item.items


def carried_tensors(items: Sequence[Item]) -> tuple[Value, ...]:
    """Return what a loop carries but for sequences that are empty at first. Raises NotFixed for what else is no tensor."""
    return tensors([item for item in items if not _is_empty(item)])


def appended(item: Item) -> Value:
    """Return what a turn has put at the end of the sequence that it was given. Raises NotFixed where that is not one tensor."""
    if not isinstance(item, GrowingSequence) or len(item.appended) != 1:
        raise NotFixed("it does not put one tensor at the end of each sequence that it carries")
    return item.appended[0]


def tensors(items: Sequence[Item]) -> tuple[Value, ...]:
    """Return items that are tensors. Raises NotFixed for others."""
    return tuple(_tensors(items))


def _tensors(items: Sequence[Item]) -> Iterator[Value]:
    for item in items:
        if not isinstance(item, Value):
            raise NotFixed(f"it carries {'a sequence' if isinstance(item, TensorSequence) else 'what is no tensor'}")
        yield item


def check_carried(before: Sequence[Value], after: Sequence[Value]) -> None:
    """Raise NotFixed where a turn hands something else to the next than it was given, OtherKind where no sizes of that are the same;
    `after` may have more behind that."""
    if len(after) < len(before):
        raise OtherKind(f"a turn takes {len(before)} values and hands on {len(after)}")
    pairs = list(zip(before, after, strict=False))
    for a, b in sorted(pairs, key=lambda pair: _is_one_kind(*pair)):
        if a.dtype != b.dtype or not same_shape(a.shape, b.shape):
            raised = NotFixed if _is_one_kind(a, b) else OtherKind
            raise raised(f"a turn takes {a.dtype}{list(a.shape)} and hands on {b.dtype}{list(b.shape)}")


def _is_one_kind(a: Value, b: Value) -> bool:
    """Tell whether two values have one element type, and as many axes."""
    return a.dtype == b.dtype and len(a.shape) == len(b.shape)


def scalar(n: Site, value: Value, dtype: str) -> Value:
    """Return the one element of a value. Raises Refusal for another type and for several elements."""
    if value.dtype != DTYPES[dtype]:
        raise n.wrong(f"`{value.name}` is {value.dtype} and must be {dtype}")
    return n.view(value, ())


def _like(n: Site, value: Value, shape: tuple[int, ...]) -> Value:
    made = n.builder.value(n.builder.fresh(f"{n.node.label}: {value.name}"), value.dtype, shape)
    return n.of_texts(made, value) if n.is_text(value) else made
