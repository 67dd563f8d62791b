"""Graphs of torch's as programs of ATen: exported programs, and what `torch.compile` hands to a back end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._decomp.decompositions import upsample_compute_output_size
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from codegen.dtypes import DTYPES
from tensorlang.diagnostics import CompileError, Diagnostic, error
from tensorlang.runtime.operator import Operator
from tensorlang.torch.attention_by_functions import write_attention_out
from tensorlang.torch.axis_orders import order_of
from tensorlang.torch.complex_numbers import as_real, complex_outputs, is_complex, parts_of, place_of
from tensorlang.torch.decompositions import BY_LOOPS, MENDED, table
from tensorlang.torch.derivatives import SOLUTIONS
from tensorlang.torch.program import DRAW, Argument, Array, Block, Input, Node, Program, Ref, Type, nodes_within, size_input
from tensorlang.torch.recurrent_layers import whole_layers
from tensorlang.torch.registration import registered
from tensorlang.torch.tensors import array_of, dtype_of

aten = torch.ops.aten

Serves = Callable[[str], bool]
"""Tells whether an operator of ATen is read as it is, by its name and overload."""


def decompositions(serves: Serves, *, by_loops: bool = True) -> dict[Any, Callable[..., Any]]:
    """Return how operators are taken apart that are not read as they are."""
    known = table() | BY_LOOPS if by_loops else table()
    return {op: how for op, how in known.items() if not serves(operator_name(op))}


@contextmanager
def kept_whole(serves: Serves) -> Iterator[None]:
    """Let torch, while it captures a graph, keep operators whole that make images of another size and are read as they are, and recurrent
    layers. Before it asks for decompositions it has kernels in Python take them apart, into elements that
    data name and into steps. What these make something else of is taken apart as here, and some have derivatives of another form."""
    given = {op: dict(op.py_kernels) for op in table() if _resizes(op) and serves(operator_name(op))}
    given |= {op: dict(op.py_kernels) for op in _OTHERWISE}
    try:
        for op, kernels in given.items():
            if op in _OTHERWISE:
                _replace_kernels(op, kernels | {torch._C.DispatchKey.Autograd: _OTHERWISE[op]})
            elif op._overloadname == "vec":
                _replace_kernels(op, kernels | dict.fromkeys(_TAKING_APART & kernels.keys(), _of_sizes(op)))
            else:
                _replace_kernels(op, {key: kernel for key, kernel in kernels.items() if key not in _TAKING_APART})
        with whole_layers() if serves(operator_name(aten.mkldnn_rnn_layer_backward.default)) else nullcontext():
            yield
    finally:
        for op, kernels in given.items():
            _replace_kernels(op, kernels)


_OTHERWISE = MENDED | SOLUTIONS


def _resizes(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and "upsample" in op._schema.name and op._overloadname in ("vec", "default")


_TAKING_APART = {torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd}


def _replace_kernels(op: Any, kernels: Mapping[Any, Any]) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()


def _of_sizes(op: Any) -> Callable[..., Any]:
    """Return how an image is resized by the operator that is given the sizes, where `op` is given sizes or scales."""
    whole = getattr(torch.ops.aten, op._schema.name.removeprefix("aten::")).default

    def resized(x: Any, output_size: Any, *options_and_scales: Any) -> Any:
        *options, scales = options_and_scales
        sizes = upsample_compute_output_size(x.shape, output_size, scales)
        return whole(x, sizes, *options, *(scales or [None] * len(sizes)))

    return resized


def operator_name(op: Any) -> str:
    """Return what programs call an operator of torch's: `add.Tensor`, or `mine::blur.default` outside of ATen."""
    if not isinstance(op, torch._ops.OpOverload):
        return str(getattr(op, "__name__", op))
    return f"{op._schema.name.removeprefix('aten::')}.{op._overloadname}"


def of_export(exported: Any, serves: Serves) -> Program:
    """Return an exported program. Raises CompileError O010 for one that changes what it is given, and for tensors that are none here."""
    kinds = torch.export.graph_signature
    found = exported.run_decompositions(decompositions(serves, by_loops=False))
    changing = [s for s in found.graph_signature.output_specs if s.kind in _CHANGING]
    if changing:
        title = f"the exported program changes `{changing[0].target}`, and programs here return values alone"
        raise error("O010", title, help="return what changes, and take it as an input: a cache as a tensor in and out")
    held = {**found.state_dict, **found.constants}
    constants: dict[str, Array] = {}
    for spec in found.graph_signature.input_specs:
        if spec.kind in (kinds.InputKind.PARAMETER, kinds.InputKind.BUFFER, kinds.InputKind.CONSTANT_TENSOR):
            constants[spec.arg.name] = _array(parts_of(held[spec.target]), spec.target)
        elif spec.kind != kinds.InputKind.USER_INPUT:
            raise error("O010", f"the exported program takes `{spec.target}`, which is no tensor")
    _check_no_complex(found)
    return of_graph(as_real(_captured_anew(found.graph_module, serves)), constants, "exported", serves)


def _captured_anew(module: Any, serves: Serves) -> Any:
    """Return the graph of an exported program without what torch does not take apart in a program, into loops or by functions that it
    holds: it captures a graph that calls the program's."""
    wanted = {op for op in BY_LOOPS if not serves(operator_name(op))}
    if not (write_attention_out(module) or any(node.target in wanted for node in module.graph.nodes)):
        return module
    given = module.graph.find_nodes(op="placeholder")
    with torch.no_grad():
        captured = make_fx(torch.fx.Interpreter(module).run, decompositions(serves), tracing_mode="symbolic", _allow_non_fake_inputs=True)(
            *(node.meta["val"] for node in given)
        )
    return _named_anew(captured, [node.name for node in given])


def _named_anew(module: Any, inputs: Sequence[str] = ()) -> Any:
    """Return a graph whose inputs are called so, without what nobody uses. Torch numbers names by what it has met on the way, which is not
    the same each time."""
    for name, inner in list(module.named_children()):
        setattr(module, name, _named_anew(inner))
    module.graph.eliminate_dead_code()
    graph, made = torch.fx.Graph(), dict[Any, Any]()
    names = iter(inputs)
    for node in module.graph.nodes:
        name = next(names, node.name) if node.op == "placeholder" else None
        args, named = torch.fx.map_arg((node.args, node.kwargs), made.__getitem__)
        made[node] = graph.create_node(node.op, name or node.target, args, named, name)
        made[node].meta = dict(node.meta)
    return torch.fx.GraphModule(module, graph)


def _check_no_complex(exported: Any) -> None:
    """Raise CompileError O010 where a program takes or returns complex numbers: arrays here have none."""
    taken = set(exported.graph_signature.user_inputs)
    nodes = exported.graph_module.graph.nodes
    given = [n.name for n in nodes if n.op == "placeholder" and n.name in taken and n.meta["val"] is not None and is_complex(n.meta["val"])]
    if given or complex_outputs(exported.graph_module):
        title = f"the exported program takes complex numbers, `{given[0]}`" if given else "the exported program returns complex numbers"
        raise error("O010", title, help="let it take and return both parts: `torch.view_as_real`, `torch.view_as_complex`")


_CHANGING = tuple(
    getattr(torch.export.graph_signature.OutputKind, name)
    for name in ("BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION")
    if hasattr(torch.export.graph_signature.OutputKind, name)
)


def of_graph(module: Any, constants: Mapping[str, Array], name: str, serves: Serves) -> Program:
    """Return a graph of ATen's operators; the inputs among `constants` have these elements. What no rule serves, torch computes once where
    it takes no tensor and no size. Raises CompileError O010."""
    inputs: list[Input] = []
    sizes: dict[str, str | int] = {}
    for node in module.graph.find_nodes(op="placeholder"):
        if node.name not in constants:
            _enter_input(node, inputs, sizes)
    reader = _Reader(dict(constants), serves)
    body = reader.block(module, "")
    integers = {n.name for n in module.graph.nodes if isinstance(n.meta.get("val"), torch.SymInt)}
    outputs = tuple(None if isinstance(a, Ref) and a.name in integers else a for a in body.outputs)  # which follow from the inputs
    if any("draw" in node.named for node in nodes_within(body.nodes)):
        inputs.append(Input(DRAW, DTYPES["u32"], ()))
    given = tuple(_with_sizes_of(inputs, sizes))
    return Program(name, given, sizes, reader.held, body.nodes, outputs, reader.operators, _least(module))


@dataclass(frozen=True, slots=True)
class _Reader:
    """What is read of a graph and of the graphs inside of it: tensors that they hold, and operators of the language."""

    held: dict[str, Array]
    serves: Serves
    operators: dict[str, Operator] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)

    def block(self, module: Any, prefix: str) -> Block:
        """Return a graph, whose values are called what torch calls them, with a prefix."""
        nodes: list[Node] = []
        outputs: tuple[Argument, ...] = ()
        for node in module.graph.nodes:
            match node.op:
                case "placeholder":
                    pass
                case "get_attr":
                    self._hold(module, node, prefix)
                case "output":
                    returned = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
                    outputs = tuple(self._argument(a, prefix) for a in returned)
                case _ if (value := self._computed(node)) is not None:
                    self.held[prefix + node.name] = _array(value, node.name)
                case "call_function" if node.target is torch.ops.aten.as_strided.default:
                    nodes += self._by_strides(node, prefix)
                case _:
                    nodes.append(self._node(node, prefix))
        return Block(tuple(prefix + n.name for n in module.graph.find_nodes(op="placeholder")), tuple(nodes), outputs)

    def _hold(self, module: Any, node: Any, prefix: str) -> None:
        value = module
        for part in node.target.split("."):
            value = getattr(value, part)
        name = prefix + node.name
        if isinstance(value, torch.fx.GraphModule):
            if _meets_complex(value):
                raise error("O010", f"the graph `{node.target}` inside of another takes or returns complex numbers")
            self.blocks[name] = self.block(as_real(value), f"{name}.")
        elif isinstance(value, torch.Tensor):
            self.held[name] = _array(value, node.target)
        else:
            raise error("O010", f"the graph holds a `{type(value).__name__}`, `{node.target}`")

    def _computed(self, node: Any) -> torch.Tensor | None:
        """Return what a node is that no rule serves, where it takes no tensor and no size: it is the same in all calls."""
        op = node.target
        if not isinstance(op, torch._ops.OpOverload) or self.serves(operator_name(op)) or registered(op) is not None:
            return None
        if op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags or not isinstance(node.meta.get("val"), torch.Tensor):
            return None
        if node.all_input_nodes:
            return None
        with unset_fake_temporarily():
            found: torch.Tensor = op(*node.args, **node.kwargs)
            return found.contiguous()

    def _by_strides(self, node: Any, prefix: str) -> Iterator[Node]:
        """Yield what reads a tensor as it lies in memory: with its axes in the order that they have there."""
        value, read = node.args[0].meta["val"], self._node(node, prefix)
        order = order_of(value)
        lying = value if order is None else value.permute(order)
        if not _lies_in_rows(lying):
            title = "the graph takes apart how a tensor lies in memory that is not all of it"
            raise error("O010", title, notes=(place_of(node),))
        if order is None:
            yield read
            return
        rows = f"{read.name}.rows"
        yield Node(rows, "permute.default", (read.args[0], order), {}, (_type(lying),), read.place)
        yield replace(read, args=(Ref(rows), *read.args[1:]))

    def _node(self, node: Any, prefix: str) -> Node:
        if node.op != "call_function":
            raise error("O010", f"the graph calls the module or method `{node.target}`", help="let torch capture it: `torch.compile`")
        op = operator_name(node.target)
        operator = registered(node.target)
        if operator is not None:
            self.operators[op] = operator
        value = node.meta.get("val")
        values = value if isinstance(value, tuple | list) else (value,)
        args = tuple(self._argument(a, prefix) for a in node.args)
        named = {key: self._argument(a, prefix) for key, a in node.kwargs.items()}
        if _draws(node):
            named = {"draw": Ref(DRAW), **{key: a for key, a in named.items() if key != "generator"}}
        return Node(prefix + node.name, op, args, named, tuple(map(_type, values)), place_of(node))

    def _argument(self, value: Any, prefix: str) -> Argument:
        match value:
            case torch.fx.Node():
                name = prefix + value.name
                return self.blocks.get(name) or Ref(name)
            case tuple() | list():
                return tuple(self._argument(a, prefix) for a in value)
            case torch.dtype():
                return dtype_of(value, "a value")
            case None | bool() | int() | float() | str():
                return value
            case slice():
                raise CompileError(Diagnostic("O010", "the graph holds a slice of Python's"))
            case _:
                return str(value)


def _meets_complex(module: Any) -> bool:
    """Tell whether a graph takes or returns complex numbers."""
    (output,) = module.graph.find_nodes(op="output")
    nodes = (*module.graph.find_nodes(op="placeholder"), *output.all_input_nodes)
    return any(is_complex(node.meta.get("val")) for node in nodes)


def _least(module: Any) -> dict[str, int]:
    """Return what symbols are at least."""
    found = {}
    for node in module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        for extent in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_symbol:
                low = extent.node.shape_env.bound_sympy(extent.node.expr).lower
                found[str(extent.node.expr)] = int(low) if low.is_integer and low >= 0 else 0
    return found


def _array(tensor: torch.Tensor, name: str) -> Array:
    """Return the elements of a parameter where they lie."""
    try:
        dtype_of(tensor.dtype, f"`{name}`")
        with unset_fake_temporarily():  # torch captures in a mode in which no tensor has elements
            return array_of(tensor)
    except (CompileError, RuntimeError, TypeError) as refused:
        why = refused.diagnostics[0].title if isinstance(refused, CompileError) else str(refused).split("\n")[0]
        raise error("O010", f"`{name}` is no array of the host's memory", notes=(why,)) from None


def _enter_input(node: Any, inputs: list[Input], sizes: dict[str, str | int]) -> None:
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        sizes[node.name] = known if isinstance(known := _dim(value), int) else str(value.node.expr)
    elif isinstance(value, torch.Tensor):
        inputs.append(Input(node.name, dtype_of(value.dtype, f"`{node.name}`"), tuple(map(_dim, value.shape))))
    elif value is not None and node.users:  # a number that an exported program is for is an input that nothing reads
        raise error("O010", f"the graph takes `{node.name}`, a `{type(value).__name__}`", help="pass it as a tensor")


def _dim(extent: Any) -> int | str | None:
    """Return an extent: a number, also where torch found out that a symbol can be no other, or the name of a symbol."""
    if isinstance(extent, int):
        return extent
    expression = extent.node.expr
    return int(expression) if expression.is_number else str(expression) if expression.is_symbol else None


def _with_sizes_of(inputs: Sequence[Input], sizes: Mapping[str, str | int]) -> Iterator[Input]:
    """Yield the inputs, and one without elements for each size that none of them tells."""
    yield from inputs
    told = {dim for tensor in inputs for dim in tensor.dims}
    for name, symbol in sizes.items():
        if isinstance(symbol, str) and symbol not in told:
            yield Input(size_input(name), DTYPES["bool"], (symbol, 0))


def _draws(node: Any) -> bool:
    """Tell whether a node draws random numbers: some operators do where an argument says so alone."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    given = {a.name: a.default_value for a in op._schema.arguments}
    given |= {**dict(zip(given, node.args, strict=False)), **node.kwargs}
    return all(given.get(name) is None or given[name] for name in ("train", "training", "dropout_p"))  # a `train` of None is True


def _lies_in_rows(value: torch.Tensor) -> bool:
    """Tell whether a tensor is all of its memory, row by row."""
    size: Any = value.untyped_storage().size()
    return value.is_contiguous() and bool(statically_known_true(size == value.numel() * value.element_size()))


def _type(value: Any) -> Type | None:
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return dtype_of(value.dtype, "a value"), tuple(n if isinstance(n, int) else None for n in map(_dim, value.shape))
    except CompileError:
        return None  # refused where an operator returns it
