"""One node of a model as its rule sees it.

A rule reads arguments and attributes from its `Site`, and says with `op`, `view` and `constant` what the node becomes:

    def leaky_relu(n: Site) -> Value:
        return n.op("map_with", n.arg(0), f="leaky_relu", a=n.real("alpha", 0.01))

Shapes and types of results are those of the operator's program: the language infers them. An operator whose arguments are all constant and
small is evaluated at once, which is how shape arithmetic folds away.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import Int
from stdlib.onnx.graph_builder import KNOWN_ELEMENTS, Builder, holds, in_case, program
from stdlib.onnx.items import (
    Argument,
    GrowingSequence,
    Item,
    Maps,
    RowSequence,
    TensorSequence,
    Type,
    argument_type,
    flat,
    plain_attribute,
    tensors_of,
)
from stdlib.onnx.model import Array, Attribute, Block, Node
from stdlib.onnx.problems import Hosted, NotFixed, Refusal, Unknown, Unsupported, quoted
from stdlib.onnx.tensors import check_size
from tensorlang.check.types import limits
from tensorlang.diagnostics import CompileError
from tensorlang.graph.data_dependent import HostCall, ModelPart, TypeOfInput
from tensorlang.graph.externs import inputs_of
from tensorlang.graph.nodes import Attr, Extern, Kernel, Value, View
from tensorlang.graph.programs import axes_of, result_tensors, single
from tensorlang.graph.shape_arithmetic import int_or_size, of_sizes
from tensorlang.graph.sizes import PREFIX, OpenSize, Size, is_open, same_shape, shape_in, to_expr
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import ExternCall, Program, Read, Tensor
from tensorlang.tensor.operation_count import operations
from tensorlang.tensor.segments import segments

FOLDED_ELEMENTS = 1 << 12
"""Operators on constants are evaluated at import when their results have no more elements than this; larger ones wait for the compiler, or
for a rule that asks for their elements."""

FOLDED_OPERATIONS = 1 << 22
"""And when they take no more operations: a window of a few elements may be as large as anybody writes."""

FOLDED_SIZES = 1 << 8
"""And on sizes that are open, when neither arguments nor results have more elements."""

Result: TypeAlias = "Item | tuple[Item, ...]"
Rule: TypeAlias = "Callable[[Site], Result]"


class Noted(Mapping[str, Attribute]):
    """Attributes, and in `unread` which of them nobody has asked for."""

    def __init__(self, attributes: Mapping[str, Attribute]) -> None:
        self._attributes, self.unread = attributes, set(attributes)

    def __getitem__(self, name: str) -> Attribute:
        self.unread.discard(name)
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)


class Blocks(Protocol):
    """What there is to do with blocks of a node."""

    def run_block(self, node: Node, block: Block, inputs: Sequence[Item], which: str) -> tuple[Item, ...]:
        """Return the outputs of a block, of which `which` tells one run from another."""
        ...

    def captured(self, block: Block) -> dict[str, Item]:
        """Return what a block reads of the blocks around it, by the names that it has there."""
        ...

    def model_part(
        self, label: str, block: Block, inputs: Sequence[TypeOfInput], constants: Mapping[str, Array], iterations: Sequence[str]
    ) -> ModelPart:
        """Return a block as a model of its own, whose `inputs` are those of the block and what it reads of the blocks around it but for
        `constants`; `iterations` of them are the numbers of turns of the loops around it, from the outermost on."""
        ...


class Site:
    """A node of the model: its arguments, its attributes, and the means to say what becomes of it."""

    def __init__(
        self,
        builder: Builder,
        node: Node,
        inputs: Sequence[Item],
        blocks: Blocks | None,
        path: str = "",
    ) -> None:
        """`blocks` is what there is to do with blocks of nodes, None where they have none; `path` says in which blocks the node stands."""
        self.builder, self.node, self.inputs = builder, replace(node, attributes=Noted(node.attributes)), tuple(inputs)
        self.blocks, self.path, self._asked, self._kept = blocks, path, 0, 0
        self._unread = {k for k, item in enumerate(inputs) if item is not None}

    # ---- arguments

    def arg(self, k: int) -> Value:
        """Return argument `k`, which must be there."""
        value = self.maybe(k)
        if value is None:
            raise Refusal("O007", f"node {quoted(self.node.label)} lacks its input {k}, which {self.node.op} requires")
        return value

    def maybe(self, k: int) -> Value | None:
        item = self.item(k)
        if isinstance(item, TensorSequence | RowSequence | GrowingSequence):
            raise self.wrong(f"input {k} is a sequence")
        if isinstance(item, Maps):
            raise self.wrong(f"input {k} is a map")
        return item

    def item(self, k: int) -> Item:
        """Return argument `k`, a tensor, a sequence, a map or nothing."""
        self._unread.discard(k)
        return self.inputs[k] if k < len(self.inputs) else None

    def sequence(self, k: int) -> TensorSequence:
        """Return argument `k`, which must be a sequence."""
        item = self.item(k)
        if isinstance(item, GrowingSequence):
            raise NotFixed(f"{self.node.op} reads a sequence that grows")
        if isinstance(item, RowSequence):
            return self.taken_apart(item)
        if not isinstance(item, TensorSequence):
            raise self.wrong(f"input {k} is no sequence")
        return item

    def taken_apart(self, sequence: RowSequence) -> TensorSequence:
        """Return a sequence with each of its tensors as a value of its own. Raises OpenSize where it is not known how many these are."""
        rows = sequence.rows
        count, *shape = rows.shape
        if isinstance(count, Size):
            raise OpenSize(count, why=f"node {quoted(self.node.label)} ({self.node.op}) takes a sequence apart")
        parts = [
            self.op("slice", rows, start=(k, *(0 for _ in shape)), step=(1,) * len(rows.shape), length=(1, *shape)) for k in range(count)
        ]
        return TensorSequence(tuple(self.view(part, shape) for part in parts), rows.dtype)

    def map(self, k: int) -> Maps:
        """Return argument `k`, which must be a map."""
        item = self.item(k)
        if not isinstance(item, Maps):
            raise self.wrong(f"input {k} is no map")
        return item

    def args(self) -> tuple[Value, ...]:
        return self.args_from(0)

    def args_from(self, k: int) -> tuple[Value, ...]:
        """Return all arguments from `k` on, which must be there."""
        return tuple(self.arg(j) for j in range(k, len(self.inputs)))

    def has_output(self, k: int) -> bool:
        """Tell whether the model gives output `k` a name."""
        return k < len(self.node.outputs) and self.node.outputs[k] != ""

    def run(self, attribute: str, inputs: Sequence[Item], which: str = "") -> tuple[Item, ...]:
        """Return the outputs of the block that an attribute is. `which` tells one run of it from another."""
        assert self.blocks is not None, "a node with a block"
        return self.blocks.run_block(self.node, self.block(attribute), inputs, f"{attribute}{which}")

    def block(self, attribute: str) -> Block:
        """Return the block that an attribute is."""
        block = self.node.attributes.get(attribute)
        if not isinstance(block, Block):
            raise Refusal("O005", f"node {quoted(self.node.label)} lacks the attribute {quoted(attribute)}")
        return block

    @contextmanager
    def tracing(self, number: Value) -> Iterator[None]:
        """Note that what is run here runs in every turn of a loop, which `number` counts: nothing of it is known when the model is
        compiled."""
        self.builder.iterations.append(number)
        self.builder.traced += 1
        try:
            yield
        finally:
            self.builder.traced -= 1
            self.builder.iterations.pop()

    @property
    def is_traced(self) -> bool:
        """Whether the node runs in every turn of a loop."""
        return self.builder.traced > 0

    def tried(self, attribute: str, inputs: Sequence[Item]) -> tuple[Item, ...]:
        """Return what the outputs of a block of the node would be like, of which nothing is computed."""
        start = len(self.builder.nodes)
        found = self.run(attribute, inputs, " for its types")
        self.builder.cut(start)
        return found

    def elements(self, value: Value, *notes: str) -> Array:
        """Return the elements of a value that decides what the node becomes. Raises Unknown, with what else there is to say."""
        array = self.builder.elements(value.name)
        if array is None:
            raise Unknown(value.name, f"what node {quoted(self.node.label)} ({self.node.op}) runs depends on the data", *notes)
        self.small(array.size, f"value {quoted(value.name)}")
        return array

    def decided(self, value: Value) -> Any:
        """Return the element of a value that this node has computed, and that the shapes of its results depend on: an integer, or a size
        where it is to be open. Raises Unknown."""
        if value.name in self.builder.constants:
            return int(self.builder.constants[value.name])
        name = f"{self.path}{self.node.label}: decides {self._asked}"
        self._asked += 1
        if name in self.builder.known.elements:
            return int_or_size(self.builder.known.elements[name].item())
        self.builder.value(name, value.dtype, value.shape)
        self.builder.decided.add(name)
        self.builder.nodes.append(View(self.builder.label(self.node.label), value.name, name, (self.node.label,)))
        raise Unknown(name, f"the shapes of the results of node {quoted(self.node.label)} depend on the data")

    def kept(self, value: Value) -> Value:
        """Return a value that this node computes and reads again once the shapes of its results are known: it is carried over then, and not
        computed anew."""
        known = self.builder.known.carried
        lasts = any(value.name in names for names in (self.builder.constants, self.builder.kept, known))
        if lasts or any(value in tensors_of(item) for item in self.inputs):
            return value
        name = f"{self.path}{self.node.label}: keeps {self._kept}"
        self._kept += 1
        if name in known:
            return known[name]
        self.builder.kept.append(name)
        self.builder.nodes.append(View(self.builder.label(self.node.label), value.name, name, (self.node.label,)))
        return self.builder.value(name, value.dtype, value.shape)

    def is_text(self, value: Value) -> bool:
        """Tell whether the elements of a value are strings."""
        return value.name in self.builder.texts

    def of_texts(self, value: Value, *sources: Value) -> Value:
        """Return a value, noted as one of strings where its sources are."""
        if all(self.is_text(source) for source in sources):
            self.builder.texts.add(value.name)
        return value

    def hosted(self, compute: Callable[..., Sequence[Array]], *args: Value, body: ModelPart | None = None) -> tuple[Value, ...]:
        """Return what `compute` makes of the elements of values, strings as objects: by itself, between two stages of compiled code, since
        what it does is not in the language, or runs a `body`. Raises Hosted where the elements are not known yet and it has not run."""
        arrays = [self.builder.elements(v.name) for v in args]
        reads_text = [self.is_text(v) for v in args]
        call = HostCall(compute, tuple(v.name for v in args), tuple(reads_text), f"{self.path}{self.node.label}: host", body=body)
        if body is None and all(a is not None for a in arrays):
            return tuple(self.constant(a) for a in call.results([a for a in arrays if a is not None]))
        before = self.builder.known
        known = [self.builder.carried(name) for name in call.names((*before.elements, *before.carried))]
        if not known:
            for value in args:
                self.builder.store_sizes(value.name)
            raise Hosted(call, f"node {quoted(self.node.label)} ({self.node.op}) is computed between two stages of the model")
        self.builder.texts |= {v.name for v in known if v.name.endswith(" text")}
        return tuple(known)

    def constant_of(self, k: int) -> Array:
        """Return the elements of argument `k`, which must be constant."""
        value = self.arg(k)
        array = self.builder.elements(value.name)
        if array is None:
            raise Unknown(
                value.name,
                f"input {k} ({quoted(value.name)}) of node {quoted(self.node.label)} must be known when the model is imported",
                f"{self.node.op} takes a shape, axes or sizes from it, and here they depend on the data",
            )
        self.small(array.size, f"input {k}")
        return array

    def constant_or_none(self, k: int) -> Array | None:
        return None if self.maybe(k) is None else self.constant_of(k)

    def is_constant(self, k: int) -> bool:
        value = self.maybe(k)
        return value is not None and self.builder.elements(value.name) is not None

    def array(self, value: Value) -> Array | None:
        return self.builder.constants.get(value.name)

    def constant_ints(self, k: int) -> tuple[int, ...] | None:
        """Return argument `k` as integers (one, or a vector of them), or None when it is absent."""
        array = self.constant_or_none(k)
        if array is None:
            return None
        if array.ndim > 1 or array.dtype.kind not in "iuO":
            raise self.wrong(f"input {k} must be a vector of integers, not {array.dtype}{list(array.shape)}")
        return tuple(int_or_size(v) for v in array.reshape(-1))

    def like(self, *inputs: Item, **attributes: Attribute) -> Site:
        """Return this node with other arguments, and with more attributes, for a rule that computes a part of what it does."""
        more = ChainMap(attributes, self.node.attributes)  # type: ignore[arg-type]
        made = Site(self.builder, replace(self.node, attributes=more), inputs, self.blocks, self.path)
        self._unread.clear()
        return made

    def without_effect(self, *attributes: str, inputs: Sequence[int] = ()) -> None:
        """Note attributes and inputs that change nothing of what this node computes."""
        for name in attributes:
            self.node.attributes.get(name)
        self._unread.difference_update(inputs)

    def nothing_unread(self) -> None:
        """Raise Unsupported where the node has an attribute or an input that its rule has not looked at. Of an operator that ONNX does not
        define, nothing else tells that there is more to it than the rule knows."""
        attributes = self.node.attributes
        assert isinstance(attributes, Noted)
        what = [f"the attribute {quoted(name)}" for name in sorted(attributes.unread)] + [f"input {k}" for k in sorted(self._unread)]
        if what:
            raise self.unsupported(", ".join(what))

    # ---- attributes

    def has(self, name: str) -> bool:
        return name in self.node.attributes

    def integer(self, name: str, default: int, low: int | None = None, high: int | None = None) -> int:
        value = self.node.attributes.get(name, default)
        if isinstance(value, Size):
            raise OpenSize(value)
        assert isinstance(value, int)
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"{'…' if low is None else low} to {'…' if high is None else high}"
            raise Refusal("O005", f"attribute {quoted(name)} of node {quoted(self.node.label)} is {value} and must lie in {bounds}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        return self.integer(name, int(default)) != 0

    def real(self, name: str, default: float) -> float:
        value = self.node.attributes.get(name, default)
        assert isinstance(value, float)
        return value

    def text(self, name: str, default: str, choices: Sequence[str] = ()) -> str:
        value = self.node.attributes.get(name, default)
        assert isinstance(value, str)
        if choices and value not in choices:
            raise Refusal(
                "O005",
                f"attribute {quoted(name)} of node {quoted(self.node.label)} is {quoted(value)}",
                f"it must be one of {', '.join(choices)}",
            )
        return value

    def integers(
        self, name: str, default: Sequence[int] | None = None, low: int | None = None, count: int | None = None
    ) -> tuple[int, ...]:
        """Return a list attribute; `count` is how many elements it must have, `low` the least each may be."""
        value = self.node.attributes.get(name, default)
        if value is None:
            raise Refusal("O005", f"node {quoted(self.node.label)} lacks the attribute {quoted(name)}")
        found = tuple(int(v) for v in value)  # type: ignore[union-attr]
        if count is not None and len(found) != count:
            raise Refusal(
                "O005", f"attribute {quoted(name)} of node {quoted(self.node.label)} has {len(found)} elements and must have {count}"
            )
        if low is not None and any(v < low for v in found):
            raise Refusal("O005", f"attribute {quoted(name)} of node {quoted(self.node.label)} holds {min(found)}, less than {low}")
        return found

    def axis(self, name: str, default: int, rank: int, *, end: bool = False) -> int:
        """Return an axis attribute counted from the front. `end`: one past the last axis is allowed."""
        return self.axis_of(self.integer(name, default), rank, end=end)

    def axis_of(self, axis: int, rank: int, *, end: bool = False) -> int:
        if not -rank <= axis < rank + end:
            raise Refusal("O005", f"node {quoted(self.node.label)} has the axis {axis}, but its value has {rank} dimensions")
        return axis + rank if axis < 0 else axis

    def axes_of(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Return distinct axes counted from the front, in their order."""
        found = tuple(self.axis_of(axis, rank) for axis in axes)
        if len(set(found)) != len(found):
            raise Refusal("O005", f"node {quoted(self.node.label)} names an axis twice", f"its axes are {list(axes)}")
        return found

    # ---- results

    def op(self, operator: str, *args: Argument, **attrs: Attr) -> Value:
        """Return the only result of a library operator."""
        (result,) = self.ops(operator, *args, **attrs)
        return result

    def ops(self, operator: str, *args: Argument, **attrs: Attr) -> tuple[Value, ...]:
        """Return the results of a library operator. Raises Refusal O012 when the arguments do not fit it."""
        frozen = tuple((name, plain_attribute(given)) for name, given in attrs.items())
        try:
            found = program(operator, tuple(argument_type(a) for a in args), frozen)
        except CompileError as problem:
            open_: list[Any] = [n for value in flat(args) for n in value.shape if is_open((n,))]
            if open_ and any(d.code == "R0212" for d in problem.diagnostics):
                raise OpenSize(*open_, why=f"node {quoted(self.node.label)} ({self.node.op}) needs a number") from None
            raise self.mismatch(args, problem) from problem
        known = frozen if self.builder.symbols is None else tuple(item for item in attrs.items() if plain_attribute(item[1]) == item[1])
        return self.apply(found, flat(args), operator, known)

    def table(self, operator: str, **attrs: Attr) -> tuple[Value, ...]:
        """Return the results of a library operator without inputs: constants, or computed when the model runs where sizes are open. Raises
        Refusal O014 when constants are too many to be stored."""
        found = program(operator, (), tuple((name, plain_attribute(given)) for name, given in attrs.items()))
        shapes = [shape_in(t, self.builder.symbols) for t in result_tensors(found)]
        if any(map(is_open, shapes)) or found.sizes:
            return self.apply(found, ())
        self.small(sum(map(prod, shapes)), "the table")
        return self._evaluated(found, ())

    def apply(
        self, found: Program, inputs: Sequence[Value], operator: str = "", attrs: tuple[tuple[str, Attr], ...] = ()
    ) -> tuple[Value, ...]:
        """Return the results of a program for these inputs."""
        found = in_case(found, self.builder.symbols)
        self._agree(found, inputs)
        results = [(t.dtype, shape_in(t, self.builder.symbols)) for t in result_tensors(found)]
        for dtype, shape in results:
            check_size(dtype, shape, f"a result of node {quoted(self.node.label)}")
        elements = self._of_sizes(found, inputs, results) if any(v.name in self.builder.sizes for v in inputs) else None
        if elements is not None and not any(dtype.is_float for dtype, _ in results):
            return tuple(self.of_sizes(array, dtype) for array, (dtype, _) in zip(elements, results, strict=True))
        if self._foldable(found, inputs, results):
            return self._evaluated(found, inputs)
        made = self._node(found, inputs, results, operator, attrs)
        for value, array in zip(made, elements or (), strict=False):
            self.builder.note_elements(value, array)
        return made

    def _agree(self, found: Program, inputs: Sequence[Value]) -> None:
        """See to it that open sizes are equal which a program takes for one, and are as it requires. Raises Refusal, and OpenSize where a
        size of the program's own follows from none of them, such as how many channels a group has."""
        symbols = self.builder.symbols
        for tensor, value in zip(found.params, inputs, strict=True):
            if not is_open(value.shape):
                continue
            if symbols is not None and not all(symbols.knows(name) for e in tensor.shape for name in affine.names(e)):
                extents: Sequence[Any] = value.shape
                raise OpenSize(*(n for n in extents if isinstance(n, Size)), why=f"{self.node.op} takes an extent apart")
            if shape_in(tensor, symbols) != value.shape:
                raise self._unfit(inputs)
        if symbols is not None and not holds(found.context, symbols):
            raise self._unfit(inputs)

    def _unfit(self, inputs: Sequence[Value]) -> Refusal:
        shapes = ", ".join(f"{quoted(v.name)}: {v.dtype}{list(v.shape)}" for v in inputs)
        return Refusal("O012", f"the inputs of node {quoted(self.node.label)} do not fit {self.node.op}", f"they are {shapes}")

    def apply_segments(self, found: Program, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Return the results of a program for these inputs, as `apply` does; it may call kernels that are not in the language."""
        found = in_case(found, self.builder.symbols)
        if not found.externs:
            return self.apply(found, inputs)
        values = {tensor.name: value for tensor, value in zip(found.params, inputs, strict=True)}
        for part in segments(found):
            match part:
                case Program():
                    made = self.apply(part, [values[p.name] for p in part.params])
                    values |= dict(zip(part.results, made, strict=True))
                case ExternCall():
                    values |= dict(zip((t.name for t in part.results), self._extern(part, values), strict=True))
        return tuple(values[name] for name in found.results)

    def _extern(self, call: ExternCall, values: Mapping[str, Value]) -> tuple[Value, ...]:
        results = [(t.dtype, shape_in(t, self.builder.symbols)) for t in call.results]
        for dtype, shape in results:
            check_size(dtype, shape, f"a result of node {quoted(self.node.label)}")
        outputs = tuple(self.builder.value(self._fresh(), dtype, shape) for dtype, shape in results)
        inputs = tuple(values[name].name for name in inputs_of(call))
        for name in inputs:
            self.builder.store_sizes(name)
        label = self.builder.label(self.node.label)
        self.builder.nodes.append(Extern(label, call, inputs, tuple(v.name for v in outputs), (self.node.label,)))
        return outputs

    def stated(self, operator: str, *args: Argument) -> Value:
        """Return the only result of a library operator as `op` does, but leave it to the graph to compute it, even of constants."""
        found = program(operator, tuple(argument_type(a) for a in args), ())
        (result,) = self._node(
            found, flat(args), [(t.dtype, shape_in(t, self.builder.symbols)) for t in result_tensors(found)], operator, ()
        )
        return result

    def _node(
        self, found: Program, inputs: Sequence[Value], results: Sequence[Type], operator: str, attrs: tuple[tuple[str, Attr], ...]
    ) -> tuple[Value, ...]:
        outputs = tuple(self.builder.value(self._fresh(), dtype, shape) for dtype, shape in results)
        for v in inputs:
            self.builder.store_sizes(v.name)
        label = self.builder.label(self.node.label)
        self.builder.nodes.append(
            Kernel(label, found, tuple(v.name for v in inputs), tuple(v.name for v in outputs), operator, attrs, (self.node.label,))
        )
        return outputs

    def view(self, x: Value, shape: Sequence[int]) -> Value:
        """Return the elements of `x`, in row-major order, under another shape."""
        if prod(shape) != prod(x.shape) or any(extent < 0 for extent in shape):
            raise self.wrong(f"{prod(x.shape)} elements of the shape {list(x.shape)} do not fill the shape {list(shape)}")
        if same_shape(tuple(shape), x.shape):
            return x
        array = self.array(x)
        if array is not None and not is_open(shape):
            return self.constant(array.reshape(tuple(shape)))
        elements = None if is_open(shape) else self.builder.sizes.get(x.name)
        if elements is not None and not x.dtype.is_float:
            return self.of_sizes(elements.reshape(tuple(shape)), x.dtype)
        result = self.builder.value(self._fresh(), x.dtype, tuple(shape))
        self.builder.nodes.append(View(self.builder.label(self.node.label), x.name, result.name, (self.node.label,)))
        if elements is not None:
            self.builder.note_elements(result, elements.reshape(tuple(shape)))
        return result

    def constant(self, array: Array) -> Value:
        return self.builder.constant(self._fresh(), array)

    def of_sizes(self, array: Array, dtype: DType) -> Value:
        """Return a value of these elements, integers and sizes: a constant where no size is open."""
        if not is_open(tuple(array.flat)):
            return self.constant(array.astype(dtype.numpy))
        result = self.builder.value(self._fresh(), dtype, array.shape)
        self.builder.sizes[result.name] = array
        return result

    def filled(self, shape: Sequence[int], dtype: DType, value: float | Size = 0) -> Value:
        """Return a value all of whose elements are equal; a constant takes no memory."""
        check_size(dtype, tuple(shape), f"a constant of node {quoted(self.node.label)}")
        if isinstance(value, Size):
            return self._expanded(self.of_sizes(np.full((1,) * len(shape), value, object), dtype), shape)
        if dtype.is_integer and not limits(dtype)[0] <= value <= limits(dtype)[1]:
            raise self.wrong(f"{value} does not fit {dtype}")
        if is_open(shape):
            one = self.constant(np.full((1,) * len(shape), value, dtype.numpy))
            result = self._expanded(one, shape)
            self.builder.fills[result.name] = value
            return result
        return self.constant(np.broadcast_to(np.asarray(value, dtype.numpy), tuple(shape)))

    def _expanded(self, one: Value, shape: Sequence[int]) -> Value:
        """Return the one element of a value everywhere in a shape."""
        axes = axes_of(len(shape))
        result, param = Tensor("y", one.dtype, tuple(map(to_expr, shape))), Tensor("x", one.dtype, (Int(1),) * len(shape))
        (made,) = self.apply(single("fill", (param,), result, axes, Read("x", (Int(0),) * len(shape))), (one,))
        return made

    def small(self, count: int, what: str) -> None:
        """Refuse a table that would be computed at import and has more elements than a program should carry."""
        if count > KNOWN_ELEMENTS:
            raise Refusal("O014", f"{what} of node {quoted(self.node.label)} has {count} elements, too many to be stored with the program")

    def wrong(self, what: str) -> Refusal:
        """Return the refusal of values that do not fit this node."""
        return Refusal("O012", f"node {quoted(self.node.label)} ({self.node.op}): {what}")

    def unsupported(self, what: str) -> Unsupported:
        return Unsupported(f"node {quoted(self.node.label)}: {self.node.op} with {what}")

    def result(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        """Return a new value, for a node of the graph to define."""
        return self.builder.value(self._fresh(), dtype, shape)

    def _fresh(self) -> str:
        return self.builder.fresh(next((o for o in self.node.outputs if o), self.node.label) + ".part")

    def _of_sizes(self, found: Program, inputs: Sequence[Value], results: Sequence[Type]) -> list[Array] | None:
        """Return the elements of the results of a program on sizes and constants where they are sizes and constants, too."""
        b = self.builder
        arrays = [b.sizes[v.name] if v.name in b.sizes else b.constants.get(v.name) for v in inputs]
        if any(a is None or a.size > FOLDED_SIZES for a in arrays) or any(is_open(s) or prod(s) > FOLDED_SIZES for _, s in results):
            return None
        made = of_sizes(found, {t.name: a for t, a in zip(found.params, arrays, strict=True) if a is not None})
        return None if made is None else [made[t.name] for t in result_tensors(found)]

    def _foldable(self, found: Program, inputs: Sequence[Value], results: Sequence[Type]) -> bool:
        return (
            not found.sizes
            and not any(is_open(shape) for _, shape in results)
            and all(v.name in self.builder.constants for v in inputs)
            and sum(prod(shape) for _, shape in results) <= FOLDED_ELEMENTS
            and sum(prod(v.shape) for v in inputs) <= 4 * FOLDED_ELEMENTS
            and operations(found, {}) <= FOLDED_OPERATIONS
        )

    def _evaluated(self, found: Program, inputs: Sequence[Value]) -> tuple[Value, ...]:
        arrays = {tensor.name: self.builder.constants[value.name] for tensor, value in zip(found.params, inputs, strict=True)}
        try:
            results = interpret(found, {}, arrays)
        except CompileError as problem:
            raise self.mismatch(inputs, problem) from problem
        return tuple(self.constant(np.asarray(results[name])) for name in found.results)

    def mismatch(self, args: Sequence[Argument], problem: CompileError) -> Refusal:
        """Return the refusal of arguments that an operator refuses, with its reasons."""
        given = ", ".join(f"{quoted(a.name)}: {a.dtype}{list(a.shape)}" for a in flat(args))
        notes = [note.replace(PREFIX, "") for d in problem.diagnostics for note in (d.title, *d.notes)]
        return Refusal("O012", f"the inputs of node {quoted(self.node.label)} do not fit {self.node.op}", f"they are {given}", *notes)
