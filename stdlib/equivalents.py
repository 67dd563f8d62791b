"""What other libraries call the operators of this one, so that they can be measured side by side.

    matmul    ONNX MatMul     numpy.matmul    torch.matmul
    conv      ONNX Conv       –               torch.nn.functional.conv2d

An operator that no row names is measured alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from stdlib.library import library
from stdlib.onnx.entry_point import INSTALL, has_onnx
from tensorlang.check.module import Module
from tensorlang.diagnostics import error
from tensorlang.shell.peers import Call, Task

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The same operator elsewhere: the ONNX node, and what of numpy and torch to call. With `weights` all inputs but the first are known
    when a model is compiled."""

    node: Callable[[Attributes, Sequence[Array]], tuple[str, dict[str, Any]]]
    numpy: Callable[[Attributes], Call] | None = None
    torch: Callable[[Attributes], Call] | None = None
    weights: bool = False


class Library:
    """The standard library as something to measure."""

    def module(self) -> Module:
        return library()

    def task(self, name: str, arrays: Mapping[str, Array], attributes: Attributes, results: tuple[Array, ...]) -> Task:
        """Return what peers are to do where ours calls the operator `name` with these arrays; nothing, when no row names it.

        Without the package `onnx` the peers that run models are left out; raises CompileError C0221 for an operator whose weights only a
        model can hold."""
        found = TABLE.get(name)
        if found is None:
            return Task(arrays, results=results)
        names = list(arrays)
        inside = names[1:] if found.weights else []
        calls = {peer: make(attributes) for peer, make in (("numpy", found.numpy), ("torch", found.torch)) if make is not None}
        outside = {n: a for n, a in arrays.items() if n not in inside}
        if not has_onnx():
            if found.weights:
                raise error("C0221", f"onnx is not installed, and the weights of `{name}` are measured inside a model", help=INSTALL)
            return Task(outside, None, calls, (), results)
        model = _model(found.node(attributes, list(arrays.values())), arrays, inside, results)
        return Task(outside, model, calls, tuple(arrays[n] for n in inside), results)


def _model(node: tuple[str, dict[str, Any]], arrays: Mapping[str, Array], inside: Sequence[str], results: Sequence[Array]) -> bytes:
    """Return an ONNX model of one node; the inputs named in `inside` are constants of it."""
    from onnx import helper, numpy_helper

    kind, attributes = node
    made = helper.make_node(kind, list(arrays), [f"result{k}" for k in range(len(results))], **attributes)
    inputs = [_port(n, a) for n, a in arrays.items() if n not in inside]
    outputs = [_port(f"result{k}", a) for k, a in enumerate(results)]
    opset = 12 if "axes" in attributes else 21  # axes became an input in between
    graph = helper.make_graph([made], kind, inputs, outputs, [numpy_helper.from_array(arrays[n], n) for n in inside])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return bytes(model.SerializeToString())


def _port(name: str, array: Array) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))


@cache
def _torch() -> Any:
    return importlib.import_module("torch")


# ---------------------------------------------------------------- rows


def _plain(kind: str, numpy: str | None, torch: str | None = None) -> Equivalent:
    """Return the row of an operator whose result a function of numpy and torch writes where it is told."""
    return Equivalent(
        lambda attributes, inputs: (kind, {}),
        None if numpy is None else lambda attributes: lambda *arrays: getattr(np, numpy)(*arrays[:-1], out=arrays[-1]),
        None if torch is None else lambda attributes: lambda *arrays: getattr(_torch(), torch)(*arrays[:-1], out=arrays[-1]),
    )


def _conv_node(attributes: Attributes, inputs: Sequence[Array]) -> tuple[str, dict[str, Any]]:
    spatial = inputs[0].ndim - 2
    given = {name: _each(attributes.get(name, default), spatial) for name, default in _WINDOW.items()}
    found = {"strides": given["stride"], "dilations": given["dilation"], "pads": given["lo"] + given["hi"]}
    return "Conv", {**found, "group": attributes.get("group", 1)}


_WINDOW = {"stride": 1, "dilation": 1, "lo": 0, "hi": 0}


def _each(value: Any, count: int) -> list[int]:
    return [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)] * count


def _torch_conv(attributes: Attributes) -> Call:
    def call(x: Any, w: Any, *rest: Any) -> Any:
        functional = _torch().nn.functional
        spatial = x.dim() - 2
        lo, hi = (_each(attributes.get(side, 0), spatial) for side in ("lo", "hi"))
        if lo != hi:
            x = functional.pad(x, [p for pair in reversed(list(zip(lo, hi, strict=True))) for p in pair])
        bias = rest[0] if len(rest) > 1 else None
        stride, dilation = (_each(attributes.get(name, 1), spatial) for name in ("stride", "dilation"))
        padding = lo if lo == hi else 0
        return getattr(functional, f"conv{spatial}d")(x, w, bias, stride, padding, dilation, attributes.get("group", 1))

    return call


def _along(kind: str, torch: str) -> Equivalent:
    """Return the row of an operator along one axis."""
    return Equivalent(
        lambda attributes, inputs: (kind, {"axis": int(attributes.get("axis", -1))}),
        torch=lambda attributes: lambda x, y: getattr(_torch(), torch)(x, int(attributes.get("axis", -1)), out=y),
    )


def _layer_norm(attributes: Attributes) -> Call:
    axis, eps = int(attributes.get("axis", -1)), float(attributes.get("eps", 1e-5))
    return lambda x, g, *rest: _torch().nn.functional.layer_norm(x, x.shape[axis:], g, rest[0] if len(rest) > 1 else None, eps)


def _perm(attributes: Attributes) -> list[int]:
    return [int(p) for p in attributes["perm"]]


def _reduced(kind: str, numpy: str, torch: str) -> Equivalent:
    """Return the row of a reduction over neighbouring axes."""

    def axes(attributes: Attributes) -> tuple[int, ...]:
        return tuple(range(int(attributes.get("axis", -1)), int(attributes.get("axis", -1)) + int(attributes.get("count", 1))))

    def node(attributes: Attributes, inputs: Sequence[Array]) -> tuple[str, dict[str, Any]]:
        return kind, {"keepdims": 0, "axes": list(axes(attributes))}

    return Equivalent(
        node,
        lambda attributes: lambda x, y: getattr(np, numpy)(x, axis=axes(attributes), out=y),
        lambda attributes: lambda x, y: getattr(_torch(), torch)(x, dim=axes(attributes), out=y),
    )


def _function_node(attributes: Attributes, inputs: Sequence[Array]) -> tuple[str, dict[str, Any]]:
    name = str(attributes["f"])
    return _NODES.get(name, name.capitalize()), {"approximate": "tanh"} if name == "gelu_tanh" else {}


_NODES = {"gelu_tanh": "Gelu", "negate": "Neg", "magnitude": "Abs"}


def _function(attributes: Attributes) -> Call:
    name = str(attributes["f"])
    if name in ("relu", "gelu", "gelu_tanh", "softplus"):
        options = {"approximate": "tanh"} if name == "gelu_tanh" else {}
        return lambda x, y: getattr(_torch().nn.functional, name.removesuffix("_tanh"))(x, **options)
    return lambda x, y: getattr(_torch(), {"negate": "neg", "magnitude": "abs"}.get(name, name))(x, out=y)


TABLE: dict[str, Equivalent] = {
    "matmul": _plain("MatMul", "matmul", "matmul"),
    "gemm": Equivalent(lambda attributes, inputs: ("Gemm", {}), torch=lambda attributes: lambda a, b, *c: _torch().mm(a, b, out=c[-1])),
    "add": _plain("Add", "add", "add"),
    "sub": _plain("Sub", "subtract", "sub"),
    "mul": _plain("Mul", "multiply", "mul"),
    "div": _plain("Div", "divide", "div"),
    "power": _plain("Pow", "power", "pow"),
    "maximum": _plain("Max", "maximum", "maximum"),
    "minimum": _plain("Min", "minimum", "minimum"),
    "map": Equivalent(_function_node, torch=_function),
    "softmax": _along("Softmax", "softmax"),
    "log_softmax": _along("LogSoftmax", "log_softmax"),
    "layer_norm": Equivalent(
        lambda attributes, inputs: (
            "LayerNormalization",
            {"axis": int(attributes.get("axis", -1)), "epsilon": float(attributes.get("eps", 1e-5))},
        ),
        torch=_layer_norm,
    ),
    "transpose": Equivalent(
        lambda attributes, inputs: ("Transpose", {"perm": _perm(attributes)}),
        lambda attributes: lambda x, y: np.copyto(y, x.transpose(_perm(attributes))),
        lambda attributes: lambda x, y: y.copy_(x.permute(_perm(attributes))),
    ),
    "reduce_max": _reduced("ReduceMax", "max", "amax"),
    "reduce_min": _reduced("ReduceMin", "min", "amin"),
    "reduce_mean": _reduced("ReduceMean", "mean", "mean"),
    "reduce_sum": _reduced("ReduceSum", "sum", "sum"),
    "conv": Equivalent(_conv_node, torch=_torch_conv, weights=True),
}
"""By names of operators."""
