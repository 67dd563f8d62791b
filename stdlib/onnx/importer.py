"""ONNX models as graphs of library operators.

    file ─reader→ model ─rule of each node→ kernels, views, constants ─→ graph

Everything that is not supported is reported at once, node by node; so is everything else that can be found without what is missing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ParamSpec

import numpy as np
from onnx import FunctionProto, ModelProto

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.custom_operators import CustomNodes
from stdlib.onnx.entry_point import Importer as Importer
from stdlib.onnx.functions import body_in_standard, is_function, type_of
from stdlib.onnx.graph_builder import Builder
from stdlib.onnx.items import GrowingSequence, Item, Maps, RowSequence, TensorSequence, is_small, tensors_of
from stdlib.onnx.model import Array, Block, Declared, Model, Node
from stdlib.onnx.problems import Hosted, Refusal, Unknown, Unsupported, quoted
from stdlib.onnx.reader import AnyDomain, read
from stdlib.onnx.scope import Scope
from stdlib.onnx.site import Result, Rule, Site
from stdlib.onnx.stages import data_dependent
from stdlib.onnx.table import rule_for
from stdlib.onnx.table.strings import moves_text, takes_text
from stdlib.onnx.tensors import TEXT
from tensorlang.check.foreign import nearest
from tensorlang.diagnostics import CompileError, Diagnostic, error
from tensorlang.graph.data_dependent import DataDependent, HostCall, Known, ModelPart, TypeOfInput
from tensorlang.graph.edit import reads, writes
from tensorlang.graph.nodes import Graph, Value, View
from tensorlang.graph.shape_arithmetic import int_or_size
from tensorlang.graph.sizes import Size, Symbols, UnequalSizes
from tensorlang.runtime.custom_nodes import Custom
from tensorlang.runtime.signature import Signature, TensorSignature
from tensorlang.runtime.structured import SAID, count_of, item_of, keys_of, values_of

P = ParamSpec("P")
logger = logging.getLogger("tensorlang.compile")


def imported(
    source: str | os.PathLike[str] | bytes | ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
    operators: Custom | None = None,
    known: Known | None = None,
    fed: Collection[str] = (),
) -> Graph:
    """Return the graph of a model, with the shapes and elements of inputs that are given, the operators of other domains, what is known of
    values in between, and the inputs among its initializers that runs feed (`Importer.load`). Raises CompileError."""
    custom, kept = CustomNodes(operators or Custom()), None if known is None else known.read
    model = kept if isinstance(kept, Model) else read(source, custom)
    try:
        return to_graph(with_fed(with_constants(model, constants), fed), shapes, custom, known)
    except DataDependent as problem:
        problem.read = model
        raise


def signature_of(source: str | os.PathLike[str] | bytes | ModelProto) -> Signature:
    """Return the signature of a model as it declares it. Raises CompileError."""
    model = read(source, AnyDomain())
    taken, returned, defaults = (
        tuple(TensorSignature(d.name, d.dtype, d.dims, d.form, d.text, d.text_keys) for d in all_)
        for all_ in (model.inputs, model.outputs, model.defaults)
    )
    return Signature(model.name, taken, returned, defaults)


def with_constants(model: Model, constants: Mapping[str, Array]) -> Model:
    """Return the model with some of its inputs fixed. Raises O011 when they are no inputs, or do not have these elements."""
    inputs = {i.name: i for i in model.inputs}
    for name, array in constants.items():
        declared = inputs.get(name)
        if declared is None or declared.dtype is None or declared.dtype.numpy != array.dtype:
            raise error("O011", f"{quoted(name)} cannot be fixed to {array.dtype}{list(array.shape)}", notes=("there is no such input",))
    kept = tuple(i for i in model.inputs if i.name not in constants)
    return replace(model, inputs=kept, initializers={**model.initializers, **constants})


def with_fed(model: Model, fed: Collection[str]) -> Model:
    """Return the model with inputs alone for some of its initializers that are inputs, too."""
    rest = {name: array for name, array in model.initializers.items() if name not in fed}
    inputs = (*model.inputs, *(d for d in model.defaults if d.name in fed))
    return replace(model, inputs=inputs, initializers=rest, defaults=tuple(d for d in model.defaults if d.name not in fed))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model stands that is a part of another one: in which blocks, and which of its inputs are the numbers of turns of the loops
    around it."""

    path: str = ""
    iterations: tuple[str, ...] = ()


def to_graph(
    model: Model,
    shapes: Mapping[str, tuple[int, ...]],
    custom: CustomNodes | None = None,
    known: Known | None = None,
    place: Place | None = None,
) -> Graph:
    """Return the graph of a model that was read; `custom` has operators of domains that ONNX does not have. Raises CompileError (O010 to
    O014) with everything that was found, `DataDependent` where nothing is wrong but that shapes depend on elements."""
    known = known or Known()
    carried = (n for value in known.carried.values() for n in value.shape)
    elements = (n for array in known.elements.values() if array.dtype == object for n in array.flat)
    extents: Iterable[object] = chain((n for shape in shapes.values() for n in shape), elements, carried)
    symbols = next((n.symbols for n in extents if isinstance(n, Size)), None)
    return _Import(model, custom or CustomNodes(), known, symbols, place or Place()).run(shapes)


def is_onnx_model(data: bytes) -> bool:
    """Tell whether protobuf makes a model with a version of these bytes."""
    try:
        return bool(ModelProto.FromString(data).ir_version)
    except Exception:  # whatever protobuf makes of bytes that are something else
        return False


MOST_NESTED = 64
"""How deep blocks and functions may stand in one another."""
MOST_INLINED = 100_000
"""How many nodes blocks and functions may come to."""
MOST_STAGES = 128
"""How many times elements may decide what is compiled, each time those of what was compiled for the elements before. Values of which none
decides what becomes of another are found at once."""


class _Import:
    def __init__(self, model: Model, custom: CustomNodes, known: Known, symbols: Symbols | None, place: Place) -> None:
        self.model, self.custom, self.known, self.place = model, custom, known, place
        names = {i.name for i in model.inputs} | set(model.initializers) | {o for n in model.nodes for o in n.outputs}
        self.builder = Builder(names, known, symbols)
        self.builder.within = place.path
        self.builder.block_length = model.block_length
        self.scope = self.top = Scope()
        self.bound: set[str] = set()
        """The values that have a name of the model."""
        self.inlined = 0
        self.problems: list[Diagnostic] = []
        self.missing: list[str] = []
        self.unknown: dict[str, Diagnostic] = {}
        self.calls: list[HostCall] = []
        self.taken: list[str] = []
        """The inputs of the graph that are not known."""
        self.returned: list[str] = []
        self.made: list[tuple[Node, range]] = []
        """Which nodes of the graph each node of the model has become: none, where it is still to be made, of what it reads."""

    def run(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        self._inputs(shapes)
        self._unknown_operators()
        self._stop_if(bool(self.problems) and not self.missing)
        if not self.problems:
            self.builder.iterations += [item for name in self.place.iterations if isinstance(item := self.scope[name], Value)]
            for name, array in self.model.initializers.items():
                self._guard(self._initializer, name, array)
            for node in self.model.nodes:
                start, unknown = len(self.builder.nodes), len(self.unknown)
                self._guard(self._node, node)
                self.made.append((node, range(start, len(self.builder.nodes) if len(self.unknown) == unknown else start)))
        if not self.problems and not self.missing and not self.unknown:
            for output in self.model.outputs:
                self._guard(self._output, output)
        self._stop_if(bool(self.problems or self.missing))
        if self.unknown:
            self._stop_if_endless()
            outputs = tuple(o.name for o in self.model.outputs)
            made = data_dependent(self.model.name, self.builder, self._taken(), self.unknown, self.calls, self.made, outputs, self.top)
            raise made
        return self._graph()

    def _stop_if_endless(self) -> None:
        if self.known.stages >= MOST_STAGES:
            title = f"what is computed depends on more than {MOST_STAGES} values, one after the other"
            raise CompileError(Diagnostic("O014", title, (), next(iter(self.unknown.values())).notes))

    def _guard(self, step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a step, keeping what it refuses for the report. Raises UnequalSizes for what is refused because sizes are not equal."""
        symbols = self.builder.symbols
        if symbols is not None:
            symbols.unequal = None
        try:
            step(*args, **kwargs)
        except Hosted as hosted:
            self.unknown[hosted.value] = hosted.diagnostic
            self.calls.append(hosted.call)
        except Unknown as unknown:
            self.unknown[unknown.value] = unknown.diagnostic
        except Refusal as refusal:
            if symbols is not None and symbols.unequal is not None:
                raise UnequalSizes(symbols.unequal, CompileError(refusal.diagnostic)) from None
            self.problems.append(refusal.diagnostic)
        except Unsupported as missing:
            if symbols is not None and symbols.unequal is not None:
                raise UnequalSizes(symbols.unequal, CompileError(_missing([str(missing)]))) from None
            self.missing.append(str(missing))

    def _stop_if(self, stop: bool) -> None:
        if not stop:
            return
        found = list(self.problems)
        if self.missing:
            found.insert(0, _missing(self.missing))
        raise CompileError(*found)

    def _define(self, name: str, item: Item) -> None:
        """Note what the model calls so in this block. Its tensors have the names that they will keep: others read them by these."""
        self.scope.items[name] = item
        self.bound |= {value.name for value in tensors_of(item)}

    def _initializer(self, name: str, array: Array) -> None:
        self._define(name, self.builder.constant(self._name(name), array))

    def _name(self, name: str) -> str:
        """Return what a value is called in the graph that the model calls so in this block."""
        if not self.scope.path:
            return name
        found = self.scope.path + name
        if found in self.builder.taken:
            raise Refusal("O002", f"{quoted(name)} is defined more than once", f"in {quoted(self.scope.path)}")
        self.builder.taken.add(found)
        return found

    # ---- inputs

    def _inputs(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        known = {i.name: i for i in self.model.inputs}
        self._guard(self._said, shapes)
        parts = {part for i in self.model.inputs for part in _parts(i, shapes)}
        for name in shapes:
            if name not in known and name not in parts and name != SAID:
                there = ", ".join(quoted(n) for n in known) or "no inputs"
                near = nearest(name, known)
                help = f"did you mean {quoted(near)}?" if near is not None else None
                title = f"a shape is given for {quoted(name)}, which is not an input"
                self.problems.append(Diagnostic("O011", title, (), (f"the model has {there}",), help))
        symbols: dict[str, int | None] = {}
        for declared in self.model.inputs:
            if not declared.is_sequence and not declared.is_map:
                self._guard(self._bind_symbols, declared, shapes.get(declared.name), symbols)
        for declared in self.model.inputs:
            self._guard(self._input_of_form, declared, shapes, symbols)

    def _said(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse a model with sequences and the like among its inputs and outputs unless it is compiled for what a run brings."""
        first = next((d for d in (*self.model.inputs, *self.model.outputs) if d.form != "tensor" or d.text), None)
        if first is not None and SAID not in shapes:
            what = f"a {first.form}" if first.form != "tensor" else "of strings"
            raise Refusal("O011", f"{quoted(first.name)} is {what}", "such a model is compiled when it runs", help="give no shapes")
        if first is not None:
            self._plain_input(SAID, DTYPES["bool"], (0,))

    def _input_of_form(self, declared: Declared, shapes: Mapping[str, tuple[int, ...]], symbols: Mapping[str, int | None]) -> None:
        if declared.is_map:
            if SAID in shapes:
                self._map_input(declared, shapes)
            return
        count = shapes.get(count_of(declared.name), (0,))[0]
        if declared.form != "tensor" and SAID in shapes:
            self._plain_input(count_of(declared.name), DTYPES["bool"], (count,))
        if declared.is_optional and not count:
            self._define(declared.name, None)
        elif declared.is_sequence:
            assert declared.dtype is not None
            names = [item_of(declared.name, k) for k in range(count - declared.is_optional)]
            items = tuple(self._plain_input(name, declared.dtype, shapes[name], declared.text) for name in names)
            self._define(declared.name, TensorSequence(items, declared.dtype))
        else:
            self._input(declared, shapes.get(declared.name), symbols)

    def _map_input(self, declared: Declared, shapes: Mapping[str, tuple[int, ...]]) -> None:
        assert declared.dtype is not None
        keys, values = keys_of(declared.name), values_of(declared.name)
        item = Maps(
            self._plain_input(keys, DTYPES["i64"], shapes[keys], declared.text_keys),
            self._plain_input(values, declared.dtype, shapes[values], declared.text),
        )
        self._define(declared.name, item)

    def _plain_input(self, name: str, dtype: DType, shape: tuple[int, ...], text: bool = False) -> Value:
        if name in self.builder.taken:
            raise Unsupported(f"{quoted(name)} as a name of a value")
        self.builder.taken.add(name)
        self.taken.append(name)
        self.builder.texts |= {name} if text else set()
        value = self.builder.value(name, dtype, shape)
        self.bound.add(name)
        return value

    def _bind_symbols(self, declared: Declared, given: tuple[int, ...] | None, symbols: dict[str, int | None]) -> None:
        """Enter what a shape that is given makes of names, None where one would be two numbers: that says nothing of other inputs."""
        if given is None or declared.dims is None:
            return
        fits = len(given) == len(declared.dims) and all(not isinstance(d, int) or d == n for d, n in zip(declared.dims, given, strict=True))
        if not fits or any(n < 0 for n in given):
            raise Refusal(
                "O011", f"input {quoted(declared.name)} cannot have the shape {list(given)}", f"the model declares {_dims(declared)}"
            )
        for dim, extent in zip(declared.dims, given, strict=True):
            if isinstance(dim, str) and symbols.setdefault(dim, extent) != extent:
                symbols[dim] = None

    def _input(self, declared: Declared, given: tuple[int, ...] | None, symbols: Mapping[str, int | None]) -> None:
        if given is not None:
            shape = tuple(int_or_size(n) for n in given)
        else:
            if declared.dims is None:
                raise Refusal("O011", f"input {quoted(declared.name)} has no shape", help=_give(declared, (1, 3)))
            resolved = [symbols.get(d) if isinstance(d, str) else d for d in declared.dims]
            unknown = [str(d or f"number {k}") for k, (d, n) in enumerate(zip(declared.dims, resolved, strict=True)) if n is None]
            if unknown:
                what = ", ".join(quoted(d) for d in unknown)
                plural = "dimension" if len(unknown) == 1 else "dimensions"
                raise Refusal(
                    "O011",
                    f"input {quoted(declared.name)} leaves the {plural} {what} open",
                    f"the model declares {_dims(declared)}",
                    help=_give(declared, tuple(1 if n is None else n for n in resolved)),
                )
            shape = tuple(n for n in resolved if n is not None)
        assert declared.dtype is not None
        array = self.known.elements.get(declared.name)
        if declared.text:
            self.builder.texts.add(declared.name)
        if array is None:
            self.taken.append(declared.name)
            value = self.builder.value(declared.name, declared.dtype, shape)
            self.builder.decidable |= {value.name} if is_small(value) and not self.known.is_all else set()
            self._define(declared.name, value)
        else:
            self._define(declared.name, self.builder.of_elements(declared.name, declared.dtype, array))

    # ---- nodes

    def _unknown_operators(self) -> None:
        for node in self.model.nodes:
            self._guard(self._rule_for, node)

    def _rule_for(self, node: Node) -> Rule:
        rule, function = self.custom.rule_for(node), self.model.function_of(node)
        if rule is not None:
            return rule
        if function is not None:
            return lambda site: self._call(site.node, function, site.inputs)
        return self._rule_of_standard(node)

    def _rule_of_standard(self, node: Node) -> Rule:
        """Return the rule of the table, or the function by which ONNX defines what the table does not have."""
        try:
            return rule_for(node)
        except Unsupported as problem:
            if not is_function(node):
                raise
            missing = problem
        return lambda site: self._inlined(site.node, site.inputs, missing)

    def _inlined(self, node: Node, inputs: Sequence[Item], missing: Unsupported) -> Result:
        """Return what the function computes that ONNX defines an operator by. Raises what was `missing` where there is none."""
        body = body_in_standard(node, [type_of(item) for item in inputs])
        if body is None:
            raise missing
        return self._call(node, body, inputs)

    def _call(self, node: Node, function: FunctionProto, inputs: Sequence[Item]) -> Result:
        block = self.model.body_of(function, node.proto)
        if len(inputs) > len(block.inputs) or len(node.outputs) > len(block.outputs):
            what = f"{len(inputs)} inputs and {len(node.outputs)} outputs"
            raise Refusal("O007", f"node {quoted(node.label)} has {what}", f"the function {quoted(function.name)} has fewer")
        given = [*inputs, *(None for _ in block.inputs[len(inputs) :])]
        asked = tuple(name if result else "" for name, result in zip(block.outputs, node.outputs, strict=False))
        return self.run_block(node, replace(block, outputs=asked), given, "body", Scope())

    def run_block(self, node: Node, block: Block, inputs: Sequence[Item], which: str, outer: Scope | None = None) -> tuple[Item, ...]:
        """Return the outputs of a block of a node, which sees the names of the blocks around it, or of `outer`."""
        if len(inputs) != len(block.inputs):
            raise Refusal("O007", f"a graph of node {quoted(node.label)} takes {len(block.inputs)} inputs and is given {len(inputs)}")
        before = self.scope
        self.inlined += len(block.nodes)
        if before.depth >= MOST_NESTED or self.inlined > MOST_INLINED:
            limits = f"at most {MOST_INLINED} nodes, at most {MOST_NESTED} deep, are taken"
            raise Refusal("O014", f"the graphs and functions that node {quoted(node.label)} runs are too large", limits)
        self.scope = Scope(outer or before, f"{before.path}{node.label} {which}/", before.depth + 1)
        try:
            for name, item in zip(block.inputs, inputs, strict=True):
                self._define(name, item)
            for name, array in block.initializers.items():
                self._initializer(name, array)
            for inner in block.nodes:
                self._node(inner)
            return tuple(self._found(name, node) if name else None for name in block.outputs)
        finally:
            self.scope = before

    def captured(self, block: Block) -> dict[str, Item]:
        """Return what a block reads of the blocks around it. Raises Refusal O002 for what nothing defines."""
        found: dict[str, Item] = {}
        for name in block.free():
            if name not in self.scope:
                raise Refusal("O002", f"{quoted(name)} is read, which nothing defines", f"in {quoted(self.scope.path)}")
            found[name] = self.scope[name]
        return found

    def model_part(
        self, label: str, block: Block, inputs: Sequence[TypeOfInput], constants: Mapping[str, Array], iterations: Sequence[str]
    ) -> ModelPart:
        """Return a block as a model of its own, whose `inputs` are those of the block and what it reads around it but for `constants`;
        `iterations` of them are the numbers of turns of the loops around it."""
        returned, place = tuple(dict.fromkeys(block.outputs)), Place(f"{self.builder.within}{self.scope.path}{label}/", tuple(iterations))
        whole = replace(
            self.model,
            name=label,
            inputs=tuple(Declared(*type_) for type_ in inputs),
            outputs=tuple(Declared(name, None, None) for name in returned),
            initializers={**constants, **block.initializers},
            nodes=block.nodes,
        )

        def load(shapes: Mapping[str, tuple[int, ...]] | None = None, known: Known | None = None) -> Graph:
            return to_graph(whole, shapes or {}, self.custom, known, place)

        others = Known({k: array for k, array in constants.items() if array is not self.model.initializers.get(k)})  # of this run alone
        return ModelPart(label, load, tuple(inputs), returned, f"{place.path} {inputs} {others.digest().hex()}")

    def _found(self, name: str, node: Node) -> Item:
        if name not in self.scope:
            raise Refusal("O002", f"a graph of node {quoted(node.label)} returns {quoted(name)}, which nothing defines")
        return self.scope[name]

    def _node(self, node: Node) -> None:
        lost = next((name for name in node.reads() if name not in self.scope), None)
        if lost is not None:
            if self.scope is self.top:
                return  # what it depends on has been reported
            raise Refusal("O002", f"node {quoted(node.label)} reads {quoted(lost)}, which nothing defines", f"in {quoted(self.scope.path)}")
        inputs = [self.scope[name] if name else None for name in node.inputs]
        start = len(self.builder.nodes)
        rule = self._rule_for(node)
        text = any(value.name in self.builder.texts for item in inputs for value in tensors_of(item))
        if text and not takes_text(node):
            raise Unsupported(f"node {quoted(node.label)}: {node.op} of strings")
        site = Site(self.builder, node, inputs, self, self.scope.path)
        try:
            result = rule(site)
        except Unsupported as missing:
            if not is_function(node):
                raise
            self.builder.cut(start)
            result = self._inlined(node, inputs, missing)
        self._bind(node, self._as_outputs(site, result), start)
        if text and moves_text(node):
            found = [value for name in node.outputs if name for value in tensors_of(self.scope[name])]
            self.builder.texts |= {value.name for value in found if value.dtype == TEXT}

    def _as_outputs(self, site: Site, result: Result) -> Result:
        """Return results of a node, sequences taken apart where they are outputs of the model."""
        results = result if isinstance(result, tuple) else (result,)
        if self.scope is not self.top or not any(isinstance(item, RowSequence) for item in results):
            return result
        names = {output.name for output in self.model.outputs}
        outputs = site.node.outputs
        return tuple(
            site.taken_apart(item) if isinstance(item, RowSequence) and k < len(outputs) and outputs[k] in names else item
            for k, item in enumerate(results)
        )

    def _bind(self, node: Node, result: Result, start: int) -> None:
        """Give what the rule made the names that the model uses. What it only passed on keeps its name."""
        results = result if isinstance(result, tuple) else (result,)
        made = {name for n in self.builder.nodes[start:] for name in writes(n)} - self.bound
        renamed: dict[str, str] = {}
        found: dict[str, Item] = {}

        def named(value: Value, name: str) -> Value:
            if value.name in made or self._is_new_constant(value):
                before = self._known_as(name, value.dtype)
                if before is not None:
                    self.builder.texts |= {before.name} if value.name in self.builder.texts else set()
                    return before  # what computes it again is not read
                if value.name not in renamed:
                    renamed[value.name] = name
                return replace(value, name=renamed[value.name])
            return value

        for k, name in enumerate(node.outputs):
            if not name:
                continue
            if k >= len(results):
                raise Unsupported(f"node {quoted(node.label)}: output {k} of {node.op}")
            item = results[k]
            match item:
                case Value():
                    found[name] = named(item, self._name(name))
                case TensorSequence():
                    stem = self._name(name)
                    items = tuple(named(value, self.builder.fresh(f"{stem}[{at}]")) for at, value in enumerate(item.items))
                    found[name] = replace(item, items=items)
                case RowSequence():
                    found[name] = RowSequence(named(item.rows, self._name(name)))
                case GrowingSequence():
                    found[name] = GrowingSequence(tuple(named(value, self.builder.fresh(self._name(name))) for value in item.appended))
                case Maps():
                    stem = self._name(name)
                    found[name] = Maps(named(item.keys, keys_of(stem)), named(item.values, values_of(stem)))
                case None if node.op in ("Optional", "If", "Loop", "Scan", "Identity") or self.model.function_of(node) or is_function(node):
                    found[name] = None
                case None:
                    raise Unsupported(f"node {quoted(node.label)}: output {k} of {node.op}")
        self.builder.rename(renamed, start)
        self.builder.bound(start)
        for name, item in found.items():
            self._define(name, item)

    def _known_as(self, name: str, dtype: DType) -> Value | None:
        """Return what is known of the value of that name already: its elements, or that it is an input; None where nothing is."""
        array = self.known.elements.get(name)
        return self.known.carried.get(name) if array is None else self.builder.of_elements(name, dtype, array)

    def _is_new_constant(self, value: Value) -> bool:
        known = value.name in self.builder.constants or value.name in self.builder.sizes
        return known and value.name not in self.bound

    # ---- outputs

    def _output(self, declared: Declared) -> None:
        item = self.scope[declared.name]
        if declared.is_map != isinstance(item, Maps):
            raise Unsupported(f"output {quoted(declared.name)}, which is {'no map' if declared.is_map else 'a map'}")
        if isinstance(item, Maps):
            part = replace(declared, form="tensor", dims=None)
            keys = replace(part, name=keys_of(declared.name), dtype=item.keys.dtype, text=declared.text_keys)
            self._tensor_output(keys, item.keys)
            self._tensor_output(replace(part, name=values_of(declared.name)), item.values)
            return
        is_sequence, absent = isinstance(item, TensorSequence), item is None and declared.is_optional
        if is_sequence != declared.is_sequence and not absent:
            found = "a tensor" if isinstance(item, Value) else "nothing" if item is None else "a sequence"
            raise Unsupported(f"output {quoted(declared.name)}, which is {found}, declared a {declared.form}")
        if isinstance(item, TensorSequence):
            if declared.is_optional:
                said = self.builder.constant(count_of(declared.name), np.zeros(len(item.items) + 1, np.bool_))
                self.returned.append(said.name)
            for k, value in enumerate(item.items):
                part = replace(declared, name=item_of(declared.name, k), form="tensor")
                if value.name != part.name and part.name in self.builder.values:
                    raise Unsupported(f"{quoted(part.name)} as a name of a value")
                self._tensor_output(part, value)
        elif isinstance(item, Value):
            self._tensor_output(declared, item)

    def _tensor_output(self, declared: Declared, value: Value) -> None:
        self.returned.append(declared.name)
        if declared.dtype is not None and declared.text != (value.name in self.builder.texts):
            raise Refusal("O012", f"output {quoted(declared.name)} is declared {_dims(declared)} and computed as something else")
        if declared.dtype is not None and declared.dtype != value.dtype:
            raise Refusal("O012", f"output {quoted(declared.name)} is declared {declared.dtype} and computed as {value.dtype}")
        dims = declared.dims
        if dims is not None and (
            len(dims) != len(value.shape) or any(isinstance(d, int) and d != n for d, n in zip(dims, value.shape, strict=True))
        ):
            # Some converters write such shapes, and every run tells the right one
            logger.warning("output %s is declared %s and computed as %s", quoted(declared.name), _dims(declared), list(value.shape))
        if value.name != declared.name:
            result = self.builder.value(declared.name, value.dtype, value.shape)
            self.builder.store_sizes(value.name)
            if value.name in self.builder.constants:
                self.builder.constants[declared.name] = self.builder.constants[value.name]
            else:
                self.builder.nodes.append(View(self.builder.label(f"output {declared.name}"), value.name, declared.name))
            self._define(declared.name, result)
        else:
            self.builder.store_sizes(value.name)

    def _taken(self) -> tuple[Value, ...]:
        """Return the inputs of the graph: those of the model that are not known, and what is carried over."""
        own = tuple(self.builder.values[name] for name in self.taken)
        return (*own, *self.known.carried.values())

    def _graph(self) -> Graph:
        b = self.builder
        inputs = tuple(value.name for value in self._taken())
        outputs = tuple(self.returned)
        used = {*inputs, *outputs, *(name for n in b.nodes for name in (*reads(n), *writes(n)))}
        return Graph(
            self.model.name,
            inputs,
            outputs,
            {name: value for name, value in b.values.items() if name in used},
            {name: np.asarray(array) for name, array in b.constants.items() if name in used},
            tuple(b.nodes),
            b.symbols,
        )


def _missing(what: Iterable[str]) -> Diagnostic:
    return Diagnostic("O010", "this model needs what is not supported yet", (), tuple(dict.fromkeys(what)))


def _parts(declared: Declared, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return what else than the name of an input a run gives shapes of."""
    if declared.form == "tensor":
        return []
    if declared.is_map:
        return [keys_of(declared.name), values_of(declared.name)]
    (count,) = shapes.get(count_of(declared.name), (0,))
    return [count_of(declared.name), *(item_of(declared.name, k) for k in range(count))]


def _dims(declared: Declared) -> str:
    dims = "any shape" if declared.dims is None else "[" + ", ".join("?" if d is None else str(d) for d in declared.dims) + "]"
    return f"{_type(declared.dtype)}{dims}"


def _type(dtype: DType | None) -> str:
    return "" if dtype is None else str(dtype)


def _give(declared: Declared, shape: tuple[int, ...]) -> str:
    """Return how the shape of an input is given, with numbers for sizes that are not known."""
    name, sizes = declared.name, ",".join(map(str, shape))
    return f"give its shape, such as `shapes={{{name!r}: {shape}}}`; on the command line `{name}={declared.dtype or 'f32'}[{sizes}]`"
