"""Functions: operators that are defined by other operators, in the model or by ONNX itself.

node that calls  +  FunctionProto  ─►  the nodes of its body, with the node's attributes in place of references to them
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, helper

from codegen.dtypes import DType
from stdlib.onnx.items import GrowingSequence, Item, Maps, RowSequence, TensorSequence
from stdlib.onnx.model import Node
from stdlib.onnx.tensors import ELEMENT_TYPES
from tensorlang.graph.nodes import Value

NUMBERS: Mapping[DType, int] = {dtype: number for number, dtype in ELEMENT_TYPES.items()}
"""How ONNX numbers element types."""


def substituted(function: FunctionProto, call: NodeProto) -> Iterator[NodeProto]:
    """Yield the nodes of a function's body for a node that calls it: attributes that refer to those of the function are the node's, or the
    function's defaults, or left out where there is neither."""
    given = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
    for node in function.node:
        yield _with_attributes(node, given)


def _with_attributes(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            kept = made.attribute.add()
            kept.CopyFrom(attribute)
            if kept.HasField("g"):
                inner = [_with_attributes(n, given) for n in kept.g.node]
                del kept.g.node[:]
                kept.g.node.extend(inner)
        elif attribute.ref_attr_name in given:
            found = made.attribute.add()
            found.CopyFrom(given[attribute.ref_attr_name])
            found.name = attribute.name
    return made


def body_in_standard(node: Node, types: Sequence[TypeProto]) -> FunctionProto | None:
    """Return the function that ONNX defines the operator of a node by, for inputs of these types, None where it defines none."""
    try:
        schema: Any = onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_context_dependent_function:
        version = _newest(schema.context_dependent_function_opset_versions, node.version)
        data = schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), [t.SerializeToString() for t in types]
        )
    elif schema.has_function:
        data = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, node.version))
    else:
        return None
    found = FunctionProto()
    found.ParseFromString(data)
    found.attribute_proto.extend(a.default_value for a in schema.attributes.values() if a.default_value.type)
    if all(entry.domain for entry in found.opset_import):  # it is of another domain, and uses what there is newest of ONNX's own
        found.opset_import.add(version=onnx.defs.onnx_opset_version())
    return found if found.node else None


def _newest(versions: Sequence[int], most: int) -> int:
    return max((v for v in versions if v <= most), default=min(versions))


def is_function(node: Node) -> bool:
    """Tell whether ONNX defines the operator of a node by a function, at least for some inputs and attributes."""
    try:
        schema: Any = onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_context_dependent_function or schema.has_function)


def type_of(item: Item) -> TypeProto:
    """Return the type of an argument as ONNX writes it, an empty one for what is not there and for maps, which no function takes."""
    match item:
        case None | Maps():
            return TypeProto()
        case Value():
            made: TypeProto = helper.make_tensor_type_proto(NUMBERS[item.dtype], item.shape)
            return made
        case GrowingSequence():
            return helper.make_sequence_type_proto(TypeProto())
        case TensorSequence() | RowSequence():
            dtype = item.dtype if isinstance(item, TensorSequence) else item.rows.dtype
            inner = TypeProto() if dtype is None else helper.make_tensor_type_proto(NUMBERS[dtype], None)
            made = helper.make_sequence_type_proto(inner)
            return made
