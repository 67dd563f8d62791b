"""Operators of torch that were made of ours in ONNX models that torch writes.

    blur = tensorlang.torch.custom_op(ops.blur)
    torch.onnx.export(model, args, "net.onnx", dynamo=True, custom_translation_table=tensorlang.torch.onnx_translations(blur))
    tl.compile("net.onnx", ops={"tensorlang::blur": ops.blur})

A node has the domain and the name of the operator in torch, its tensors as inputs, its attributes and sizes as attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorlang.diagnostics import error, trimmed
from tensorlang.syntax import nodes as sx
from tensorlang.torch.registration import registered

VERSION = 1
"""The version of the domains that such nodes are of."""


@trimmed
def onnx_translations(*operators: Any) -> dict[Any, Callable[..., Any]]:
    """Return the `custom_translation_table` of `torch.onnx.export` for operators that `custom_op` returned. Needs the package `onnxscript`,
    as that export does. Raises CompileError C0140 for other operators."""
    return {overload: _translation(overload) for overload in operators}


def _translation(overload: Any) -> Callable[..., Any]:
    operator = registered(overload)
    if operator is None:
        raise error("C0140", f"{overload} is no operator of tensorlang", help="pass what `tensorlang.torch.custom_op` returned")
    from onnxscript.values import Op, Opset

    namespace, _, name = overload.name().partition("::")
    domain, name = Opset(namespace, VERSION), name.partition(".")[0]
    made = Op(domain, name, _schema(namespace, name, operator.declaration))
    truths = {p.name for p in operator.declaration.params if isinstance(p.type, sx.Id) and p.type.name == "bool"}

    def translate(*args: Any, **named: Any) -> Any:
        given = {n: int(v) if n in truths else v for n, v in named.items() if v is not None}
        flat = [tensor for a in args for tensor in (a if isinstance(a, list | tuple) else (a,))]
        return made(*flat, **given)

    return translate


def _schema(domain: str, name: str, declared: sx.Operator) -> Any:
    """Return what onnxscript has to know of an operator: how many inputs and outputs there are, and which attributes."""
    from onnx.defs import OpSchema

    kinds = {"int": "INT", "bool": "INT", "float": "FLOAT"}
    option, every = OpSchema.FormalParameterOption, "T{}".format

    def place(k: int, param: sx.Param, given: Any) -> Any:
        return OpSchema.FormalParameter(param.name, every(k), param_option=given, is_homogeneous=False)

    tensors = [p for p in declared.params if p.kind == "tensor"]
    inputs = [place(k, p, option.Variadic if p.each else option.Optional if p.default else option.Single) for k, p in enumerate(tensors)]
    outputs = [place(len(tensors) + k, p, option.Single) for k, p in enumerate(declared.results)]
    attributes = []
    for param in declared.params:
        if param.kind != "tensor":
            kind = "INT" if param.kind == "size" else kinds.get(param.type.name if isinstance(param.type, sx.Id) else "int", "STRING")
            attributes.append(OpSchema.Attribute(param.name, getattr(OpSchema.AttrType, kind + "S" * param.pack), required=False))
    any_type = sorted(OpSchema.all_tensor_types_ir4()) if hasattr(OpSchema, "all_tensor_types_ir4") else ["tensor(float)"]
    constraints = [(every(k), any_type, "") for k in range(len(inputs) + len(outputs))]
    return OpSchema(name, domain, VERSION, inputs=inputs, outputs=outputs, type_constraints=constraints, attributes=attributes)
