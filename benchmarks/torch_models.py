"""ONNX models as functions of torch, so that torch can be measured on the models that ours is measured on.

    call = torch_model(model, torch.bfloat16, "cuda")
    logits, = call(image)

Weights are tensors of one type on one device, shapes and axes are numbers of Python, and every node is one call of torch. What torch has no
call for is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Values = dict[str, Any]
Step = Callable[[Values], None]


def torch_model(torch: Any, model: onnx.ModelProto, dtype: Any, device: str) -> Callable[..., list[Any]]:
    """Return the model as a function of tensors, the inputs in order, that returns a list of them."""
    maker = _Maker(torch, dtype, device, next(o.version for o in model.opset_import if not o.domain))
    for tensor in model.graph.initializer:
        maker.keep(tensor.name, numpy_helper.to_array(tensor))
    steps = [step for node in model.graph.node if (step := maker.step(node)) is not None]
    inputs = [i.name for i in model.graph.input if i.name not in maker.known]
    outputs = [o.name for o in model.graph.output]
    constants = maker.constants

    def call(*tensors: Any) -> list[Any]:
        values = dict(constants)
        for name, tensor in zip(inputs, tensors, strict=True):
            values[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        for step in steps:
            step(values)
        return [values[name] for name in outputs]

    return call


class _Maker:
    """Turns nodes into calls. `known`: constants as arrays of NumPy, `constants`: the same as tensors."""

    def __init__(self, torch: Any, dtype: Any, device: str, opset: int) -> None:
        self.torch, self.dtype, self.device, self.opset = torch, dtype, device, opset
        self.known: dict[str, np.ndarray[Any, Any]] = {}
        self.constants: Values = {}

    def keep(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self.known[name] = array
        tensor = self.torch.from_numpy(np.array(array)).to(self.device)
        self.constants[name] = tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def step(self, node: onnx.NodeProto) -> Step | None:
        """Return what a node does, or None for one whose result is a constant."""
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            self.keep(node.output[0], numpy_helper.to_array(attrs["value"]))
            return None
        if node.op_type == "ConstantOfShape":
            value = numpy_helper.to_array(attrs["value"]) if "value" in attrs else np.zeros(1, np.float32)
            self.keep(node.output[0], np.full(self.known[node.input[0]].tolist(), value.reshape(-1)[0]))
            return None
        call = self.call(node, attrs)
        names, results = list(node.input), list(node.output)

        def step(values: Values) -> None:
            found = call(*(values[n] if n else None for n in names))
            for name, value in zip(results, found if isinstance(found, (tuple, list)) else [found], strict=False):
                values[name] = value

        return step

    def numbers(self, node: onnx.NodeProto, position: int, attrs: Mapping[str, Any], name: str) -> list[int]:
        """Return whole numbers that are an attribute, or a constant input in newer opsets."""
        if name in attrs:
            return [int(n) for n in np.atleast_1d(attrs[name])]
        if len(node.input) > position and node.input[position]:
            return [int(n) for n in self.known[node.input[position]].reshape(-1)]
        return []

    def call(self, node: onnx.NodeProto, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        torch, functional, kind = self.torch, self.torch.nn.functional, node.op_type
        if kind in _PLAIN:
            function = getattr(torch, _PLAIN[kind])
            return lambda *x: function(*x)
        match kind:
            case "Div":
                return lambda a, b: torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")
            case "Sum":
                return lambda *x: sum(x[1:], x[0])
            case "Identity" | "Dropout":
                return lambda x, *rest: x
            case "Conv":
                return self._conv(attrs)
            case "MaxPool" | "AveragePool":
                return self._pool(kind, attrs)
            case "GlobalAveragePool":
                return lambda x: x.mean(tuple(range(2, x.dim())), keepdim=True)
            case "BatchNormalization":
                eps = attrs.get("epsilon", 1e-5)
                return lambda x, g, b, m, v: functional.batch_norm(x, m, v, g, b, False, 0.0, eps)
            case "LayerNormalization":
                eps = attrs.get("epsilon", 1e-5)
                return lambda x, g, b=None: functional.layer_norm(x, g.shape, g, b, eps)
            case "LRN":
                size, alpha, beta, bias = attrs["size"], attrs.get("alpha", 1e-4), attrs.get("beta", 0.75), attrs.get("bias", 1.0)
                return lambda x: functional.local_response_norm(x, size, alpha, beta, bias)
            case "Gemm":
                return self._gemm(attrs)
            case "Softmax":
                return self._softmax(attrs.get("axis"))
            case "Reshape":
                shape = self.numbers(node, 1, attrs, "shape")
                return lambda x, *rest: x.reshape([x.shape[k] if n == 0 else n for k, n in enumerate(shape)])
            case "Flatten":
                return lambda x: x.flatten(attrs.get("axis", 1))
            case "Unsqueeze":
                axes = self.numbers(node, 1, attrs, "axes")
                return lambda x, *rest: _unsqueezed(x, axes)
            case "Transpose":
                return lambda x: x.permute(attrs["perm"])
            case "Concat":
                return lambda *x: torch.cat(x, attrs["axis"])
            case "Split":
                axis, parts = attrs.get("axis", 0), len(node.output)
                return lambda x, *rest: torch.chunk(x, parts, axis)
            case "Clip":
                lo, hi = (float(self.known[n]) if n else None for n in (*node.input[1:], "", "")[:2])
                return lambda x, *rest: torch.clamp(x, lo, hi)
            case "ReduceMean":
                axes, keep = self.numbers(node, 1, attrs, "axes"), bool(attrs.get("keepdims", 1))
                return lambda x, *rest: x.mean(axes, keepdim=keep)
            case "Gather":
                axis = attrs.get("axis", 0)
                return lambda x, at: torch.index_select(x, axis, at.reshape(-1)).reshape(
                    [*x.shape[:axis], *at.shape, *x.shape[axis % x.dim() + 1 :]]
                )
            case "GatherElements":
                return lambda x, at: torch.gather(x, attrs.get("axis", 0), at)
            case "GatherND" if attrs.get("batch_dims", 0) == 0:
                return lambda x, at: x[tuple(at.unbind(-1))]
            case "Cast":
                to = _torch_dtype(torch, attrs["to"], self.dtype)
                return lambda x: x.to(to)
            case _:
                raise NotImplementedError(f"not supported yet: `{kind}` in torch")

    def _conv(self, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        pads = list(attrs.get("pads", [0, 0, 0, 0]))
        half = len(pads) // 2
        even = pads[:half] == pads[half:]
        functional = self.torch.nn.functional

        def call(x: Any, w: Any, b: Any = None) -> Any:
            x = x if even else functional.pad(x, _torch_pads(pads))
            strides, dilations = attrs.get("strides", [1] * half), attrs.get("dilations", [1] * half)
            return functional.conv2d(x, w, b, strides, pads[:half] if even else 0, dilations, attrs.get("group", 1))

        return call

    def _pool(self, kind: str, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        functional, pads = self.torch.nn.functional, list(attrs.get("pads", [0, 0, 0, 0]))
        kernel, strides, ceil = attrs["kernel_shape"], attrs.get("strides", [1, 1]), bool(attrs.get("ceil_mode", 0))
        fill = float("-inf") if kind == "MaxPool" else 0.0

        def call(x: Any) -> Any:
            if kind == "MaxPool":
                return functional.max_pool2d(functional.pad(x, _torch_pads(pads), value=fill), kernel, strides, ceil_mode=ceil)
            if pads[:2] == pads[2:]:
                return functional.avg_pool2d(x, kernel, strides, pads[:2], ceil, bool(attrs.get("count_include_pad", 0)))
            sums = functional.avg_pool2d(functional.pad(x, _torch_pads(pads)), kernel, strides, ceil_mode=ceil)
            inside = functional.pad(self.torch.ones_like(x), _torch_pads(pads))
            return sums / functional.avg_pool2d(inside, kernel, strides, ceil_mode=ceil)

        return call

    def _gemm(self, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)

        def call(a: Any, b: Any, c: Any = None) -> Any:
            a, b = a.t() if attrs.get("transA") else a, b.t() if attrs.get("transB") else b
            return alpha * (a @ b) if c is None else self.torch.addmm(c, a, b, beta=beta, alpha=alpha)

        return call

    def _softmax(self, axis: int | None) -> Callable[..., Any]:
        if self.opset < 13:  # over all dimensions from this one on
            first = 1 if axis is None else axis
            return lambda x: self.torch.softmax(x.flatten(first), first).reshape(x.shape)
        return lambda x: self.torch.softmax(x, -1 if axis is None else axis)


_PLAIN = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Relu": "relu",
    "Tanh": "tanh",
    "Erf": "erf",
    "Sigmoid": "sigmoid",
    "Sqrt": "sqrt",
    "Pow": "pow",
    "MatMul": "matmul",
    "Where": "where",
    "And": "logical_and",
}


def _unsqueezed(x: Any, axes: list[int]) -> Any:
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


def _torch_pads(pads: list[int]) -> list[int]:
    """Return ONNX's pads (all beginnings, all ends) as torch has them: pairs from the last axis on."""
    half = len(pads) // 2
    return [p for k in reversed(range(half)) for p in (pads[k], pads[half + k])]


def _torch_dtype(torch: Any, kind: int, dtype: Any) -> Any:
    found = onnx.helper.tensor_dtype_to_np_dtype(kind)
    return dtype if np.issubdtype(found, np.floating) else getattr(torch, np.dtype(found).name)
