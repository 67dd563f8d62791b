"""The samples of a batch one after another, through chains of kernels whose values do not fit the cache for all of them.

    before   t = conv(x, w)    y = relu(t + s)                                  x, s, t, y of 8 samples: each goes to memory and back
    after    x0 = part of x    t0 = conv'(x0, w)    y0 = relu'(t0 + s0)         t0 stays in the cache, and t1, t2, … take its place
             x1 = part of x    t1 = conv'(x1, w)    y1 = relu'(t1 + s1)         the kernels are made once, for one sample
             …                                       join y0, y1, … -> y

A kernel can be split so when every element of its results depends on its own sample alone: wherever it reads what has samples, it reads at
the place along the batch that it defines. Samples lie one after another in memory, so nothing is copied at either end.

It is worth it where a kernel's values of all samples exceed the cache next to a processor and those of one sample are more than the weights
that are read again for each. A chain has at least two such kernels: a single one has nothing to find in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.graph.edit import Additions, consumers, members, reads, size_bytes, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, Value, View
from tensorlang.graph.plan import ALIGNMENT
from tensorlang.graph.programs import constant_params
from tensorlang.graph.sizes import is_open
from tensorlang.schedule.layout import Layout
from tensorlang.tensor import walk
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Program, Tensor

ROOM = 2
"""How many times the near cache the values of all samples must take: less than that stays close anyway."""


def batch_tiling(graph: Graph, near_bytes: int) -> Graph:
    """Return the graph with chains of kernels once for each sample of the batch; `near_bytes`: of the cache next to a processor, 0 where
    batches stay together."""
    if near_bytes == 0:
        return graph
    state = _State(graph, near_bytes)
    for run in state.runs():
        if sum(isinstance(node, Kernel) for node in run.nodes) > 1:
            state.unroll(run)
        else:
            state.nodes += run.nodes
    return state.new.rebuilt(state.nodes)


# ---------------------------------------------------------------- one sample of a program


@dataclass(frozen=True, slots=True)
class SampleProgram:
    """A program for one sample of `count`, and which of its parameters and results are of one sample, too."""

    program: Program
    count: int
    names: frozenset[str]


def for_one_sample(program: Program, constants: frozenset[str] = frozenset()) -> SampleProgram | None:
    """Return the program for one sample, along the first axis of its results, or None where samples depend on each other. Parameters in
    `constants` belong to all samples."""
    table = walk.tensor_table(program)
    counts = {_count(table[name]) for name in program.results}
    count = counts.pop()
    if counts or count is None or count == 1:
        return None
    along = dict.fromkeys(program.results, 0)
    whole = set(constants)
    for definition in reversed([d for group in walk.components(program) for d in group]):
        places = {along.get(t.name) for t in definition.tensors}
        place = places.pop()
        if places or place is None or not _follows(definition, place, along, whole):
            return None
    borders = frozenset(along) & {*program.results, *(p.name for p in program.params)}
    if whole & along.keys() or any(affine.constant(table[t].shape[k]) != count for t, k in along.items()):
        return None
    if any(along[name] != 0 or _count(table[name]) is None for name in borders):
        return None
    return SampleProgram(_narrowed(program, along), count, borders)


def _count(tensor: Tensor) -> int | None:
    """Return the extent of the first dimension that the caller sees, where that is one axis."""
    plain = bool(tensor.shape) and (not tensor.grouping or tensor.grouping[0] == 1)
    return affine.constant(tensor.shape[0]) if plain else None


def _follows(definition: Definition, place: int, along: dict[str, int], whole: set[str]) -> bool:
    """Tell whether the definition, whose axis number `place` is the batch, reads along it at its own place alone; note which axis that is
    of each tensor, and what has none."""
    axis = definition.axes[place]
    for piece in definition.pieces:
        elsewhere = walk.index_names(walk.substitute_reads(piece.value, lambda r: replace(r, index=())))
        if axis in affine.names(piece.guard) or axis in elsewhere:
            return False
        for r in walk.reads(piece.value):
            found = [k for k, slot in enumerate(r.index) if slot == Name(axis)]
            if axis in walk.index_names(replace(r, index=tuple(s for s in r.index if s != Name(axis)))) or len(found) > 1:
                return False
            if not found:
                whole.add(r.tensor)
            elif along.setdefault(r.tensor, found[0]) != found[0]:
                return False
    return True


def _narrowed(program: Program, along: Mapping[str, int]) -> Program:
    def one(tensor: Tensor) -> Tensor:
        k = along.get(tensor.name)
        return tensor if k is None else replace(tensor, shape=(*tensor.shape[:k], Int(1), *tensor.shape[k + 1 :]))

    definitions = tuple(replace(d, tensors=tuple(map(one, d.tensors))) for d in program.definitions)
    return redefined(replace(program, params=tuple(map(one, program.params))), definitions)


# ---------------------------------------------------------------- chains of kernels


@dataclass(frozen=True, slots=True)
class _Run:
    """Nodes in a row that can be computed for one sample after the other, of `count`; `made`: those that are kernels, for one sample."""

    nodes: tuple[Node, ...]
    count: int = 0
    made: Mapping[str, SampleProgram] = field(default_factory=dict)


class _State:
    """The nodes and values so far."""

    def __init__(self, graph: Graph, near_bytes: int) -> None:
        self.graph = graph
        self.near_bytes = near_bytes
        self.new = Additions(graph)
        self.nodes: list[Node] = []
        self.readers = consumers(graph)
        self.returned = frozenset(graph.outputs)
        self.known: dict[tuple[int, frozenset[str]], SampleProgram | None] = {}

    def runs(self) -> Iterator[_Run]:
        """Yield the nodes in order, cut into runs; those that stay as they are make runs of their own."""
        run = _Run(())
        for node in self.graph.nodes:
            made = self._split(node) if isinstance(node, Kernel) else None
            count = made.count if made is not None else self._viewed(node)
            together = count is not None and count == run.count and not self._reads_whole(node, made, run)
            if run.nodes and not together:
                yield run
            before = run if together else _Run((), count or 0)
            kept = {**before.made, node.name: made} if made is not None else before.made
            run = replace(before, nodes=(*before.nodes, node), made=kept)
            if count is None:
                yield run
                run = _Run(())
        if run.nodes:
            yield run

    def _reads_whole(self, node: Node, made: SampleProgram | None, run: _Run) -> bool:
        """Tell whether a kernel reads all samples of what the run makes."""
        inside = {name for n in run.nodes for name in writes(n)}
        if not isinstance(node, Kernel) or made is None:
            return False
        return any(v in inside and p.name not in made.names for p, v in zip(node.program.params, node.inputs, strict=True))

    def _viewed(self, node: Node) -> int | None:
        """Return how many samples a view has on both sides."""
        if not isinstance(node, View):
            return None
        before, after = self.graph.values[node.input].shape, self.graph.values[node.output].shape
        found = before[0] if before and after and not is_open((before[0], after[0])) and before[0] == after[0] > 1 else None
        return found if found is not None and self._divides(node.input, found) else None

    def _split(self, node: Kernel) -> SampleProgram | None:
        """Return a kernel for one sample, where it can be split and that pays."""
        pairs = [*zip(node.program.params, node.inputs, strict=True)]
        constants = constant_params(self.graph, node)
        key = (id(node.program), constants)
        if key not in self.known:
            self.known[key] = for_one_sample(node.program, constants)
        made = self.known[key]
        if made is None:
            return None
        split = [*(v for p, v in pairs if p.name in made.names), *node.outputs]
        again = [v for p, v in pairs if p.name not in made.names]
        if len(set(split)) != len(split) or set(split) & set(again) or not all(self._divides(v, made.count) for v in split):
            return None
        moved, reread = (sum(size_bytes(self.graph.values[v]) for v in dict.fromkeys(part)) for part in (split, again))
        profitable = moved > ROOM * self.near_bytes and (reread <= moved // made.count or reread <= self.near_bytes // 2)
        return made if profitable else None

    def _divides(self, name: str, count: int) -> bool:
        """Tell whether the samples of a value lie one after another in memory, each where a value may begin."""
        value = self.graph.values[name]
        if is_open(value.shape):
            return False
        one = _sample(value, count)
        return one is not None and size_bytes(one) * count == size_bytes(value) and size_bytes(one) % ALIGNMENT == 0

    # ------------------------------------------------------------ what becomes of a run

    def unroll(self, run: _Run) -> None:
        """Add the nodes of a run for each sample, and what cuts and joins the values around it."""
        inside = {name for node in run.nodes for name in writes(node)}
        outside = self._read_outside(run)
        parts: dict[str, list[str]] = {}
        for number in range(run.count):
            for node in run.nodes:
                for name in self._of_samples(node, run):
                    found = parts.setdefault(name, [])
                    if len(found) == number:
                        found.append(self._part(name, number, run.count, cut=name not in inside))
                self.nodes.append(
                    self._for_sample(node, run, {name: found[number] for name, found in parts.items() if len(found) > number})
                )
        for node in run.nodes:
            if isinstance(node, View):
                self.nodes += [node] if node.output in outside else []
            else:
                joined = [name for name in writes(node) if name in outside]
                self.nodes += [Join(self.new.label(f"samples of {name}"), tuple(parts[name]), name) for name in joined]

    def _read_outside(self, run: _Run) -> set[str]:
        """Return the values of a run that others read whole, and those they are views of: samples have one place each."""
        own = {node.name for node in run.nodes}
        made = [name for node in run.nodes for name in writes(node)]
        found = {name for name in made if name in self.returned or any(node.name not in own for node in self.readers[name])}
        for node in reversed(run.nodes):
            if isinstance(node, View) and node.output in found:
                found.add(node.input)
        return found

    def _of_samples(self, node: Node, run: _Run) -> Sequence[str]:
        """Return the values of a node that have samples."""
        if not isinstance(node, Kernel):
            return (*reads(node), *writes(node))
        params = zip(node.program.params, node.inputs, strict=True)
        return (*(v for p, v in params if p.name in run.made[node.name].names), *node.outputs)

    def _part(self, name: str, number: int, count: int, *, cut: bool) -> str:
        """Return the name of a sample of a value, which is cut out of it where nothing in the run makes it."""
        one = _sample(self.graph.values[name], count)
        assert one is not None
        part = self.new.add(replace(one, name=f"{name} {number}"))
        if cut:
            self.nodes.append(Part(self.new.label(f"sample {number} of {name}"), name, part, number * size_bytes(one)))
        return part

    def _for_sample(self, node: Node, run: _Run, names: Mapping[str, str]) -> Node:
        label = self.new.label(f"{node.name} {run.count}")
        match node:
            case Kernel():
                made = run.made[node.name]
                own = node.bound
                inputs = tuple(names[v] if p in made.names else v for p, v in own.items())
                outputs = tuple(names[v] for v in node.outputs)
                return replace(node.of_sizes(made.program), name=label, inputs=inputs, outputs=outputs, members=members(node))
            case View():
                return replace(node, name=label, input=names[node.input], output=names[node.output], members=members(node))
            case Join() | Part() | Extern() | Loop():
                raise AssertionError("runs are made of kernels and views")


def _sample(value: Value, count: int) -> Value | None:
    """Return a value of one sample, or None where samples do not lie one after another."""
    if not value.shape or value.shape[0] != count:
        return None
    layout = value.layout
    if layout is not None:
        [first, *others] = layout.dims
        apart = first == Name(layout.axes[0]) and layout.shape[0] == count
        if not apart or any(layout.axes[0] in affine.names(e) for e in others):
            return None
        layout = Layout(layout.axes, layout.dims, (1, *layout.shape[1:]))
    return replace(value, shape=(1, *value.shape[1:]), layout=layout)
