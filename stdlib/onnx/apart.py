"""Models taken apart: with the values between their nodes as outputs, and single nodes of them as models of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from stdlib.onnx.model import Array
from tensorlang.graph.taken_apart import TakenApart, TakenNode

LIMIT_BYTES = 1 << 31
"""A message of protobuf holds no more."""


def taken_apart(source: str | os.PathLike[str] | bytes) -> TakenApart | None:
    """Return a model with all tensors that its nodes make as outputs, None where it is too large for one message."""
    model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
    names = [name for node in model.graph.node for name in node.output if name]
    others = _no_tensors(model)
    shown = [name for name in dict.fromkeys(names) if name not in others]
    made = ModelProto()
    made.CopyFrom(model)
    del made.graph.output[:]
    made.graph.output.extend(ValueInfoProto(name=name) for name in shown)
    if made.ByteSize() >= LIMIT_BYTES:
        return None
    stored = {tensor.name for tensor in model.graph.initializer} | {tensor.values.name for tensor in model.graph.sparse_initializer}
    nodes = tuple(
        TakenNode(
            node.name or f"number {k}",
            node.op_type,
            tuple(name for name in node.input if name and name not in stored),
            tuple(name for name in node.output if name in shown),
            partial(_alone, model, node),
        )
        for k, node in enumerate(model.graph.node)
    )
    return TakenApart(made.SerializeToString(), tuple(shown), nodes)


def _no_tensors(model: ModelProto) -> set[str]:
    """Return the values that are sequences, optional or maps, as far as types can be told."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # whatever it is: then nothing is known, and the importer will say what is wrong
        inferred = model
    known = [*inferred.graph.value_info, *inferred.graph.output]
    return {value.name for value in known if value.HasField("type") and not value.type.HasField("tensor_type")}


def _alone(model: ModelProto, node: NodeProto, values: Mapping[str, Array]) -> bytes:
    """Return a model of one node, which takes what no constant of the model gives it."""
    reads = {*node.input, *_free(node)}
    graph = GraphProto(name=f"{model.graph.name} {node.name}".strip())
    graph.node.append(node)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in reads)
    graph.sparse_initializer.extend(tensor for tensor in model.graph.sparse_initializer if tensor.values.name in reads)
    for name, array in values.items():
        graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    graph.output.extend(ValueInfoProto(name=name) for name in node.output if name)
    made = ModelProto(ir_version=model.ir_version)
    made.opset_import.extend(model.opset_import)
    made.functions.extend(model.functions)
    made.graph.CopyFrom(graph)
    return bytes(made.SerializeToString())


def _free(node: NodeProto) -> set[str]:
    """Return the names that the graphs inside of a node read."""
    graphs = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
    return {name for graph in graphs for inner in graph.node for name in (*inner.input, *_free(inner))}
