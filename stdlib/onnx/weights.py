"""Random weights for models that ship without any.

The light models replace every large weight by `ConstantOfShape` of its shape. `randomise` replaces those nodes by seeded arrays, scaled so
that activations neither vanish nor overflow over a hundred layers. Which scale a weight gets follows from how the model uses it:

    variance of a batch norm     around 1 and positive
    scale of a normalisation     uniform in [0.8, 1.2): near 1, so that depth does not amplify
    kernels (rank 3 and more)    normal, deviation sqrt(2 / fan-in) (He et al. 2015): keeps the variance through a ReLU;
                                 a sixth of that where the result is added to a residual, which would double the variance at every block
    matrices                     normal, deviation sqrt(1 / fan-in)
    vectors                      normal, deviation 0.1: biases and means
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

_SCALE_INPUT = {"BatchNormalization": 1, "LayerNormalization": 1, "InstanceNormalization": 1}
_VARIANCE_INPUT = {"BatchNormalization": 4}


def randomise(model: ModelProto, seed: int = 0) -> ModelProto:
    """Return a copy of `model` whose `ConstantOfShape` weights are random, the same for the same seed. Inputs that nothing reads go."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    shapes = {w.name: numpy_helper.to_array(w) for w in graph.initializer if w.data_type == TensorProto.INT64}
    weights = {n.output[0]: tuple(map(int, shapes[n.input[0]])) for n in graph.node if _is_weight(n, shapes)}
    kinds = _kinds(graph.node, weights)
    kept = [node for node in graph.node if not _is_weight(node, shapes)]
    random = np.random.default_rng(seed)
    used = {name for node in kept for name in node.input} | {output.name for output in graph.output}
    initializers = [w for w in graph.initializer if w.name in used]
    inputs = [i for i in graph.input if i.name in used]
    for field, items in ((graph.node, kept), (graph.initializer, initializers), (graph.input, inputs)):
        copies = list(items)
        del field[:]
        field.extend(copies)
    for name, shape in weights.items():  # one at a time: together they may be most of the memory there is
        drawn = _draw(random, shape, kinds.get(name, "")).astype("<f4", copy=False)
        graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=shape, raw_data=drawn.tobytes())
    return result


def _is_weight(node: NodeProto, shapes: dict[str, Any]) -> bool:
    return node.op_type == "ConstantOfShape" and node.input[0] in shapes


def _kinds(nodes: Any, weights: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Return for each weight that needs care what it is: "variance", "scale", "stored" (a matrix whose rows are outputs)."""
    origin = {name: name for name in weights}
    kinds: dict[str, str] = {}
    for node in nodes:
        if node.op_type in ("Unsqueeze", "Reshape", "Identity") and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        for table, kind in ((_SCALE_INPUT, "scale"), (_VARIANCE_INPUT, "variance")):
            at = table.get(node.op_type)
            if at is not None and at < len(node.input) and node.input[at] in origin:
                kinds[origin[node.input[at]]] = kind
        if node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute) and node.input[1] in origin:
            kinds.setdefault(origin[node.input[1]], "stored")
        if node.op_type == "Mul":
            for name in node.input:
                if name in origin and len(weights[origin[name]]) == 1:
                    kinds.setdefault(origin[name], "scale")
    return kinds | dict.fromkeys(_branches(nodes, origin), "branch")


def _branches(nodes: Any, origin: dict[str, str]) -> Iterator[str]:
    """Yield the kernels of convolutions whose result, normalised or not, is one of two activations that are added."""
    maker = {output: node for node in nodes for output in node.output}
    for node in nodes:
        activations = [name for name in node.input if name not in origin]
        if node.op_type not in ("Add", "Sum") or len(activations) < 2:
            continue
        for name in activations:
            source = maker.get(name)
            while source and source.op_type in ("BatchNormalization", "Mul", "Add") and any(i in origin for i in source.input):
                source = maker.get(next((i for i in source.input if i not in origin), ""))
            if source and source.op_type == "Conv" and source.input[1] in origin:
                yield origin[source.input[1]]


def _draw(random: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray[Any, Any]:
    if kind == "variance":
        return np.exp(random.uniform(-0.4, 0.4, shape)).astype(np.float32)
    if kind == "scale":
        return random.uniform(0.8, 1.2, shape).astype(np.float32)
    normal = random.standard_normal(shape, dtype=np.float32)
    if len(shape) > 2:
        deviation = sqrt(2 / max(1, prod(shape[1:]))) / (6 if kind == "branch" else 1)
    elif len(shape) == 2:
        deviation = sqrt(1 / max(1, shape[1] if kind == "stored" else shape[0]))
    else:
        deviation = 0.1
    normal *= np.float32(deviation)
    return normal
