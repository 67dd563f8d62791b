"""`torch.compile(model, backend="tensorlang")`: models compiled here, for inference and for training.

torch captures graphs, and hands them over as graphs of ATen's operators without effects. A graph is compiled when it is first called: its
parameters and buffers are constants then, which are laid out for the kernels that read them. Later calls see by the versions that torch
counts whether these have changed.

Where gradients are recorded, torch makes a graph of both directions and parts it in two: one whose further results are what the other one
reads. Parameters that are trained are inputs of them.

    options={"threads": 2, "precision": "bf16"}     threads (torch's number by default), precision and more as `tensorlang.compile` has them
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from codegen.errors import InternalError as InternalErrorOfCode
from codegen.forks import Lock
from codegen.log import log_of
from tensorlang.api import compile as compiled_model
from tensorlang.api import installed_importers
from tensorlang.diagnostics import CompileError, InternalError, error, warn_of_fault
from tensorlang.runtime.model import CompiledModel
from tensorlang.torch.attention_by_functions import write_attention_out
from tensorlang.torch.axis_orders import AxisOrders, Order, inverse, output_orders, permute_ends
from tensorlang.torch.capture import decompositions, kept_whole, of_graph
from tensorlang.torch.complex_numbers import as_real, complex_outputs, parts_of
from tensorlang.torch.effects import Effect, without_effects
from tensorlang.torch.foreign import Call, Piece, held_values, steps_around_foreign
from tensorlang.torch.output_layouts import InputView, OutputLayout, input_views, leave_out, output_layouts, output_views
from tensorlang.torch.program import DRAW, Array, Program, size_input
from tensorlang.torch.tensors import array_of, tensor_of

_log = log_of("compile")

MOST_BOUND = 64
"""For how many sets of parameters a graph keeps code: layers alike share a graph."""
MOST_CHANGES = 2
"""How often parameters may change before they become inputs, which are read anew in each call."""

_FUSED_STEPS: MutableMapping[torch.Tensor, int] = WeakIdKeyDictionary()
"""How often optimizers with `fused=True` have changed a tensor, which torch does not count as its changes."""


@runtime_checkable
class ReadsAten(Protocol):
    """An importer of programs of ATen."""

    def serves(self, operator: str) -> bool:
        """Tell whether an operator is read as it is."""
        ...

    def check(self, program: Program) -> None:
        """Raise CompileError for operators that nothing is there for."""
        ...


def tensorlang(
    module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Return a graph that torch captured, compiled; `torch.compile` calls this. Raises CompileError C0142 for graphs that lie on a device,
    O010 for operators that nothing is there for, C0143 for options and modes."""
    if mode not in (None, "default"):
        raise error("C0143", f"there is no mode `{mode}`", help='leave `mode` out; `options={"threads": 2}` says how many threads are used')
    given, importer = _checked_options(options or {}), _importer()

    def compiler(part: _Part) -> Callable[..., Any]:
        def compiled(graph: Any, given_inputs: Sequence[Any]) -> Callable[..., Any]:
            found = _compiled(graph, part, given, importer)

            def run(args: list[Any]) -> list[Any]:
                return found(args)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return compiled

    made = aot_autograd(
        fw_compiler=compiler(_Part.FORWARD),
        bw_compiler=compiler(_Part.BACKWARD),
        inference_compiler=compiler(_Part.ALL),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(importer.serves),
        keep_inference_input_mutations=False,
    )
    write_attention_out(module)
    with kept_whole(importer.serves):
        return made(module, inputs)  # type: ignore[no-any-return]


def _importer() -> ReadsAten:
    found = next((i for i in installed_importers() if isinstance(i, ReadsAten)), None)
    if found is None:
        raise error(
            "O0001", "no importer reads programs of ATen", help="install tensorlang as a package: importers are found by its metadata"
        )
    return found


_OPTIONS = ("threads", "precision", "winograd", "online", "force_precision")


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    strange = [name for name in options if name not in _OPTIONS]
    if strange:
        raise error("C0143", f"there is no option `{strange[0]}`", help=f"there are {', '.join(f'`{o}`' for o in _OPTIONS)}")
    return dict(options)


# ---------------------------------------------------------------- one graph


class _Part(Enum):
    """What a graph is of what torch captured."""

    ALL = auto()
    FORWARD = auto()
    """Up to the results, and what the derivatives read."""
    BACKWARD = auto()
    """From the derivatives by the results to those by what is given."""


def _compiled(graph: Any, part: _Part, options: Mapping[str, Any], importer: ReadsAten) -> _Captured:
    placeholders = graph.graph.find_nodes(op="placeholder")
    values = [node.meta.get("val") for node in placeholders]
    if any(isinstance(value, torch.Tensor) and value.device.type != "cpu" for value in values):
        raise error("C0142", "this graph lies on a device", help="move the model and its inputs to the host: `model.cpu()`")
    width = len(graph.graph.output_node().args[0])
    effects = without_effects(graph)
    to_derivatives = part is _Part.BACKWARD  # each of which has memory of its own, as torch adds to them in place
    layouts = {} if to_derivatives else output_layouts(graph)
    leave_out(graph, layouts)
    of_inputs = input_views(graph, range(_results())) if part is _Part.FORWARD else {}
    views = {} if to_derivatives else output_views(graph)
    lying = {*range(width), *(base for base, _ in views.values())} - layouts.keys() - of_inputs.keys() - views.keys()
    parameters = frozenset(placeholders[k].name for k in _parameters(values, part))

    def whole(piece: Any, returned: Collection[int]) -> _Graph:
        return _whole(piece, parameters, options, importer, returned)

    steps = steps_around_foreign(graph, importer.serves)
    if not steps:
        return _Captured(whole(graph, lying), layouts, of_inputs, views, effects, width)
    for step in steps:
        if isinstance(step, Call):
            _log.info("torch calls `%s`, which is no operator of its own, between what is compiled", step.node.target)
    pieces = {step: whole(step.graph, range(len(step.returned))) for step in steps if isinstance(step, Piece)}
    cut = _Cut([node.name for node in placeholders], held_values(graph), steps, pieces, graph.graph.output_node().args[0])
    return _Captured(cut, layouts, of_inputs, views, effects, width)


def _results() -> int:
    """Return how many outputs of a graph are not there for the derivatives alone: what inputs become, and what is returned."""
    known = torch._guards.TracingContext.get().fw_metadata
    return known.num_mutated_inp_runtime_indices + len(known.output_info)  # type: ignore[no-any-return]


def _whole(graph: Any, parameters: Collection[str], options: Mapping[str, Any], importer: ReadsAten, returned: Collection[int]) -> _Graph:
    """Return a graph all of which is compiled. Inputs among `parameters` do not change from call to call; outputs `returned` lie in memory
    as torch has them."""
    names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    real = as_real(graph)
    importer.check(of_graph(real, {}, "graph", importer.serves))
    integers, complex_ones = _integers(graph, names), complex_outputs(graph)
    orders = permute_ends(real, output_orders(graph, returned))
    fixed = tuple(k for k, name in enumerate(names) if name in parameters)
    return _Graph(real, names, fixed, options, integers, complex_ones, orders)


def _parameters(values: Sequence[Any], part: _Part) -> tuple[int, ...]:
    """Return which inputs are parameters or buffers that neither the graph changes nor who asks for derivatives by them."""
    context = torch._guards.TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None or part is _Part.BACKWARD:
        return ()
    changed = set(known.mutated_inp_runtime_indices)
    if part is _Part.FORWARD:
        changed |= {k for k, given in enumerate(known.input_info) if given.requires_grad}
    return tuple(k for k in known.static_input_indices if k not in changed and isinstance(values[k], torch.Tensor))


def _integers(graph: Any, names: Sequence[str]) -> dict[int, Callable[[Sequence[Any]], int]]:
    """Return how the outputs are computed that are integers, from the inputs that are."""
    (returned,) = next(node for node in graph.graph.nodes if node.op == "output").args
    return {
        k: _evaluation(node, names)
        for k, node in enumerate(returned)
        if isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.SymInt)
    }


def _evaluation(node: Any, names: Sequence[str]) -> Callable[[Sequence[Any]], int]:
    expression = node.meta["val"].node.expr
    at = {str(n.meta["val"].node.expr): names.index(n.name) for n in node.graph.nodes if n.op == "placeholder" and _is_size(n)}

    def evaluate(args: Sequence[Any]) -> int:
        return int(expression.xreplace({s: args[at[str(s)]] for s in expression.free_symbols}))

    return evaluate


def _is_size(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)


@dataclass(slots=True)
class _Served:
    """A program, compiled once for open sizes or, where that cannot be, for each combination of sizes."""

    program: Program
    options: Mapping[str, Any]
    model: CompiledModel
    is_open: bool

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        try:
            return self.model.run(feeds)
        except CompileError as refused:
            if not self.is_open:
                raise
            _log.info("sizes are numbers: %s", refused.diagnostics[0].title)
        except (InternalError, InternalErrorOfCode) as broken:
            if not self.is_open:
                raise
            warn_of_fault(f"a graph of torch is compiled for each combination of sizes: {broken}")
        self.model, self.is_open = compiled_model(self.program, sizes="static", **self.options), False
        return self.model.run(feeds)


@dataclass(slots=True)
class _Taken:
    """An input tensor of a graph. Arrays over parameters, which most calls are given again, are kept."""

    place: int
    name: str
    order: Order | None
    """The order in which the graph takes its axes, None for that of their numbers."""
    is_complex: bool
    _kept: tuple[torch.Tensor, int, Array] | None = None

    def array(self, args: Sequence[Any]) -> Array:
        """Return the array that the model is given in a call."""
        tensor, kept = args[self.place], self._kept
        if kept is not None and tensor is kept[0] and tensor.data_ptr() == kept[1]:
            return kept[2]
        given = parts_of(tensor) if self.is_complex else tensor
        array = array_of(given if self.order is None else given.permute(self.order))
        if type(tensor) is torch.nn.Parameter and not self.is_complex and not tensor.is_neg():  # of which there may be a copy
            self._kept = tensor, tensor.data_ptr(), array
        return array


@dataclass(frozen=True, slots=True)
class _Bound:
    """A graph compiled for parameters, as they were; the other inputs are taken from each call."""

    parameters: tuple[tuple[int, torch.Tensor, int, int, int], ...]
    """Where a parameter is among the inputs, itself, where its memory begins, how often it had changed, and in how many fused steps."""
    model: _Served
    tensors: tuple[_Taken, ...]
    sizes: tuple[tuple[int, str], ...]
    outputs: tuple[tuple[int, str], ...]
    width: int
    orders: AxisOrders
    complex_outputs: frozenset[int]
    draws: bool
    """Whether a call takes random numbers, which follow from torch's generator."""

    def fits(self, args: Sequence[Any]) -> bool:
        for k, tensor, address, version, _ in self.parameters:
            if args[k] is not tensor or tensor.data_ptr() != address or tensor._version != version:
                return False
        return not _FUSED_STEPS or all(_FUSED_STEPS.get(tensor, 0) == steps for _, tensor, _, _, steps in self.parameters)

    def run(self, args: Sequence[Any]) -> list[Any]:
        feeds: dict[str, Array] = {taken.name: taken.array(args) for taken in self.tensors}
        for k, name in self.sizes:
            feeds[name] = np.empty((args[k], 0), np.bool_)
        if self.draws:
            feeds[DRAW] = array_of(torch.randint(1 << 32, (), dtype=torch.uint32))
        found = self.model.run(feeds)
        results: list[Any] = [None] * self.width
        for k, name in self.outputs:
            results[k] = tensor_of(found[name])
        for k, order in self.orders.outputs.items():
            results[k] = results[k].permute(inverse(order))
        for k in self.complex_outputs:
            results[k] = torch.view_as_complex(results[k])
        return results


@cache
def _count_fused_steps() -> None:
    """Have every optimizer tell from now on which tensors it changed with `fused=True`."""

    def count(optimizer: torch.optim.Optimizer, args: Any, named: Any) -> None:
        for group in optimizer.param_groups:
            for tensor in group["params"] if group.get("fused") else ():
                _FUSED_STEPS[tensor] = _FUSED_STEPS.get(tensor, 0) + 1

    register_optimizer_step_post_hook(count)


@dataclass(slots=True)
class _Graph:
    """A graph and what is compiled of it, for the parameters that it was called with."""

    graph: Any
    names: Sequence[str]
    parameters: tuple[int, ...]
    options: Mapping[str, Any]
    integers: Mapping[int, Callable[[Sequence[Any]], int]]
    complex_outputs: frozenset[int]
    orders: AxisOrders
    _bound: dict[tuple[int, ...], _Bound] = field(default_factory=dict)
    _last: _Bound | None = None
    _changes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, args: list[Any]) -> list[Any]:
        last = self._last
        bound = last if last is not None and last.fits(args) else self._for(args)
        results = bound.run(args)
        for k, evaluate in self.integers.items():
            results[k] = evaluate(args)
        return results

    def _for(self, args: Sequence[Any]) -> _Bound:
        with self._lock:
            key = tuple(id(args[k]) for k in self.parameters)
            found = self._bound.get(key)
            if found is None or not found.fits(args):
                if found is not None:
                    self._changes += 1
                if self._changes > MOST_CHANGES:
                    self.parameters, key = (), ()
                    self._bound.clear()
                if len(self._bound) >= MOST_BOUND:
                    self._bound.pop(next(iter(self._bound)))
                found = self._bound[key] = self._made(args)
            self._last = found
            return found

    def _made(self, args: Sequence[Any]) -> _Bound:
        """Return the graph compiled for the parameters in a call."""
        _count_fused_steps()
        fixed = [k for k in self.parameters if not args[k].is_inference()]  # of which torch counts no changes
        constants = {self.names[k]: array_of(self.orders.taken(k, parts_of(args[k]))) for k in fixed}
        program = of_graph(self.graph, constants, "graph", _importer().serves)
        options = {"threads": torch.get_num_threads(), **self.options}
        model = compiled_model(program, sizes="symbolic" if program.is_open else "auto", **options)
        served = _Served(program, options, model, program.is_open)
        taken = {i.name for i in program.inputs}
        return _Bound(
            tuple((k, args[k], args[k].data_ptr(), args[k]._version, _FUSED_STEPS.get(args[k], 0)) for k in fixed),
            served,
            tuple(_Taken(k, name, self.orders.inputs.get(k), args[k].is_complex()) for k, name in enumerate(self.names) if name in taken),
            tuple((k, size_input(name)) for k, name in enumerate(self.names) if size_input(name) in taken),
            tuple((k, a) for k, a in program.output_names()),
            len(program.outputs),
            self.orders,
            self.complex_outputs,
            DRAW in taken,
        )


@dataclass(frozen=True, slots=True)
class _Cut:
    """A graph with operators of other libraries: what is compiled of it, and what torch calls in between."""

    names: Sequence[str]
    held: Mapping[str, torch.Tensor]
    steps: Sequence[Piece | Call]
    compiled: Mapping[Piece, _Graph]
    outputs: Sequence[Any]

    def __call__(self, args: list[Any]) -> list[Any]:
        values: dict[str, Any] = {**self.held, **dict(zip(self.names, args, strict=True))}
        for step in self.steps:
            if isinstance(step, Call):
                values[step.node.name] = step.run(values)
            else:
                found = self.compiled[step]([values[name] for name in step.taken])
                values.update(zip(step.returned, found, strict=True))
        return [values[o.name] if isinstance(o, torch.fx.Node) else o for o in self.outputs]


@dataclass(frozen=True, slots=True)
class _Captured:
    """A graph as torch calls it: outputs that are views have their layouts, and effects run behind it."""

    graph: _Graph | _Cut
    layouts: Mapping[int, OutputLayout]
    of_inputs: Mapping[int, InputView]
    views: Mapping[int, tuple[int, OutputLayout]]
    effects: tuple[Effect, ...]
    width: int
    """How many outputs torch knows of; behind them stand those that effects are called on, and what views are of."""

    def __call__(self, args: list[Any]) -> list[Any]:
        results = self.graph(args)
        for k, layout in self.layouts.items():
            results[k] = layout.made(args)
        for k, view in self.of_inputs.items():
            results[k] = view.made(args)
        for k, (base, layout) in self.views.items():
            results[k] = layout.of(results[base], args)
        for effect in self.effects:
            effect.run(results)
        return results[: self.width]
