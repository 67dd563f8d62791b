"""Models that somebody wrote to do harm, or that a program wrote in error: data beside the file that is not there or lies elsewhere, graphs
that run in circles or lie in each other a thousand deep, extents beyond every memory, names that are no names.

Each is a small model that works, with one or two things done to it that mutations of its bytes would hardly ever find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

HUGE = (2**31, 2**40, 2**62, 2**63 - 1, -1, -(2**63), 2**48, 2**20)
NAMES = (
    *("\0", "a\nb", "\x1b[31mred", "`", "x" * 100_000, "\u202e", "\u2028", " "),
    *("x.part", "..", "%s%n", "{0}", "\U0001f600", "\\", '"', "\x7f"),
)


def hostile_model(random: Random) -> tuple[bytes, Mapping[str, bytes]]:
    """Return the bytes of a model, and those of the files beside it by their names."""
    model, beside = _chain(random), dict[str, bytes]()
    for _ in range(random.choice((1, 1, 1, 2))):
        with suppress(IndexError, ValueError):  # the first deed may leave nothing for the second
            random.choice(_DEEDS)(model, beside, random)
    content: bytes = model.SerializeToString()
    return content + (_nested(random.choice((30, 99, 100, 101, 5000))) if random.random() < 0.03 else b""), beside


def _nested(depth: int) -> bytes:
    """Return the field of a model that is a graph of one node, whose attribute is a graph of one node, and so on, which protobuf adds to
    the graph that is there. It would not write so deep a message itself."""
    content, tags = b"", (0x0A, 0x2A, 0x32)
    for k in range(3 * depth):
        content = bytes([tags[k % 3]]) + _varint(len(content)) + content
    return bytes([0x3A]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _chain(random: Random) -> onnx.ModelProto:
    """Return a model of a few nodes with weights."""
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    shape = numpy_helper.from_array(np.array([2, 3]), "s")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node(random.choice(("Relu", "Neg", "Softmax")), ["a"], ["b"], name="second"),
        helper.make_node("Reshape", ["b", "s"], ["y"], name="third"),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", [2, 4]), ("y", [2, 3]))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [weights, shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", random.choice((13, 17, 21)))], ir_version=9)


# ---------------------------------------------------------------- data beside the model


def _external(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    tensor = random.choice(model.graph.initializer)
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    name = random.choice(_PLACES) if random.random() < 0.6 else "w.bin"
    beside["w.bin"] = random.choice((data, data, data[:-1], b"", data * 3, data[:1]))
    beside["sub/w.bin"] = data
    if name:
        tensor.external_data.add(key="location", value=name)
    for key, values in (("offset", _COUNTS), ("length", (*_COUNTS, str(len(data)))), ("checksum", ("0", "", "z" * 1000))):
        if random.random() < 0.4:
            tensor.external_data.add(key=key, value=random.choice(values))
    if random.random() < 0.2:
        tensor.external_data.add(key=random.choice(("location", "offset", "unknown")), value=random.choice(("0", "w.bin", "\n")))
    if random.random() < 0.1:
        tensor.raw_data = data
    if random.random() < 0.1:
        tensor.dims[0] = random.choice(HUGE)


_PLACES = (
    *("sub/w.bin", "model.onnx", "../w.bin", "/etc/passwd", "/dev/zero", "/dev/stdin", "", ".", "sub", "sub/../w.bin", "w.bin/"),
    *("//w.bin", "C:\\w.bin", "w\0.bin", "x" * 5000, "é.bin", "./w.bin", "link", "pipe"),
)
_COUNTS = (
    *("0", "1", "48", "-1", "4096", "99999999999999999999", "9" * 5000, "1e3", "٣", "²", "0x10"),
    *(" 1", "", "1_0", "18446744073709551615"),
)


# ---------------------------------------------------------------- shapes and numbers


def _huge_dims(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    infos = [*model.graph.input, *model.graph.output]
    match random.randrange(4):
        case 0:
            dims = random.choice(infos).type.tensor_type.shape.dim
            dims[random.randrange(len(dims))].dim_value = random.choice(HUGE)
        case 1:
            tensor = random.choice(model.graph.initializer)
            tensor.dims[random.randrange(len(tensor.dims))] = random.choice(HUGE)
        case 2:
            shape = random.choice(infos).type.tensor_type.shape
            for _ in range(random.choice((1, 30, 70, 1000))):
                shape.dim.add(dim_value=random.choice((1, 1, 2, 0)))
        case _:
            dim = random.choice(random.choice(infos).type.tensor_type.shape.dim)
            dim.dim_param = random.choice((*NAMES, "n", "2", "-1", "n+1", "x_0"))


def _huge_result(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    """Put in a node that makes much of little."""

    def ints(*values: int) -> str:
        name = f"k{len(model.graph.initializer)}"
        model.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def some() -> int:
        return random.choice((*HUGE, 0, 1, 3, 1000))

    match random.randrange(12):
        case 0:
            node = helper.make_node("ConstantOfShape", [ints(some(), some())], ["z"])
        case 1:
            node = helper.make_node("Expand", ["b", ints(some(), some(), 1)], ["z"])
        case 2:
            node = helper.make_node("Tile", ["b", ints(some(), some())], ["z"])
        case 3:
            node = helper.make_node("Range", [ints(some()), ints(some()), ints(some())], ["z"])
        case 4:
            mode = random.choice(("constant", "edge", "wrap"))
            node = helper.make_node("Pad", ["b", ints(some(), some(), some(), some())], ["z"], mode=mode)
        case 5:
            node = helper.make_node("OneHot", [ints(0, 1), ints(some()), ints(0, 1)], ["z"])
        case 6:
            node = helper.make_node("EyeLike", ["b"], ["z"], k=some())
        case 7:
            node = helper.make_node("Slice", ["b", ints(some()), ints(some()), ints(random.choice((0, 1, some()))), ints(some())], ["z"])
        case 8:
            node = helper.make_node("TopK", ["b", ints(some())], ["z", "zi"], axis=random.choice((0, -1, some())))
        case 9:
            node = helper.make_node("CumSum", ["b", ints(some())], ["z"])
        case 10:
            node = helper.make_node("Reshape", ["b", ints(some(), some(), -1)], ["z"], allowzero=random.choice((0, 1)))
        case _:
            scales = random.choices((1e30, 1e-30, 0.0, -1.0, np.nan, np.inf, 1.0, 1e6), k=2)
            model.graph.initializer.append(numpy_helper.from_array(np.array(scales, np.float32), "ks"))
            node = helper.make_node("Resize", ["b", "", "ks"], ["z"], mode=random.choice(("nearest", "linear", "cubic")))
    model.graph.node.append(node)
    model.graph.output.add().name = "z"


def _windows(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    """Put in a convolution or pooling whose windows are nonsense."""

    def ints(count: int) -> list[int]:
        return [random.choice((1, 1, 2, 3, 0, -1, *HUGE)) for _ in range(random.choice((count, count, count, 1, 5)))]

    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 1, 2, 3), np.float32), "img"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 2, 2), np.float32), "ker"))
    kind = random.choice(("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"))
    attrs = {name: ints(n) for name, n in (("strides", 2), ("pads", 4), ("dilations", 2), ("kernel_shape", 2)) if random.random() < 0.6}
    if kind == "ConvTranspose":
        attrs |= {name: ints(2) for name in ("output_padding", "output_shape") if random.random() < 0.5}
    more = {} if random.random() < 0.7 else {"auto_pad": random.choice(("SAME_UPPER", "VALID", "SAME", "", "\n"))}
    group = {"group": random.choice((1, 0, -1, 2, 2**62))} if kind.startswith("Conv") and random.random() < 0.3 else {}
    model.graph.node.append(helper.make_node(kind, ["img", "ker"] if kind.startswith("Conv") else ["img"], ["z"], **attrs, **more, **group))
    model.graph.output.add().name = "z"


# ---------------------------------------------------------------- graphs


def _circle(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    nodes = model.graph.node
    match random.randrange(4):
        case 0:
            nodes[0].input[0] = "y"
        case 1:
            nodes[1].input[0] = nodes[1].output[0]
        case 2:
            nodes[0].input[0] = "b"
            nodes[1].input[0] = "a"
        case _:
            for _ in range(500):
                nodes.add(op_type="Identity", input=[f"c{random.randrange(40)}"], output=[f"c{random.randrange(40)}"])


def _twice(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    graph = model.graph
    match random.randrange(7):
        case 0:
            graph.node[1].output[0] = random.choice(("x", "w", "a", "y", ""))
        case 1:
            graph.output.add().CopyFrom(graph.output[0])
        case 2:
            graph.input.add().CopyFrom(random.choice((graph.input[0], graph.output[0])))
        case 3:
            graph.initializer.add().CopyFrom(graph.initializer[0])
        case 4:
            graph.output.add().CopyFrom(graph.input[0])
        case 5:
            graph.node.add().CopyFrom(random.choice(graph.node))
        case _:
            graph.node[0].output.append(random.choice(("a", "", "extra")))


def _deep(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    """Lay graphs, types or functions in each other."""
    depth = random.choice((1, 5, 20))
    match random.randrange(4):
        case 0:
            inner = helper.make_graph([helper.make_node("Identity", ["x"], ["t"])], "in", [], [model.graph.output[0]])
            for _ in range(depth):
                node = helper.make_node("If", ["cond"], ["t"])
                for name in ("then_branch", "else_branch")[: 2 if depth < 6 else 1]:
                    node.attribute.append(AttributeProto(name=name, type=AttributeProto.GRAPH, g=inner))
                inner = helper.make_graph([node], "in", [], [model.graph.output[0]])
            model.graph.node.add().CopyFrom(inner.node[0])
        case 1:
            kind = onnx.TypeProto(tensor_type=model.graph.input[0].type.tensor_type)
            for _ in range(depth):
                kind = onnx.TypeProto(optional_type=onnx.TypeProto.Optional(elem_type=kind))
            model.graph.input[0].type.CopyFrom(kind)
        case 2:
            for k in range(depth):
                called = f"f{(k + 1) % depth if random.random() < 0.9 else k}"
                call = helper.make_node(called, ["p"], ["q"], domain="own")
                model.functions.append(helper.make_function("own", f"f{k}", ["p"], ["q"], [call], [helper.make_opsetid("own", 1)]))
            model.opset_import.add(domain="own", version=1)
            model.graph.node[1].op_type, model.graph.node[1].domain = "f0", "own"
        case _:
            last = model.graph.node[2].input[0]
            for k in range(depth * 20):
                model.graph.node.insert(2, helper.make_node("Neg", [last], [f"d{k}"]))
                last = f"d{k}"
            model.graph.node[-1].input[0] = last


def _many(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    """Let one node have very many operands or results."""
    count = random.choice((2, 65, 300))
    kind = random.choice(("Concat", "Sum", "Max", "Split", "Einsum"))
    if kind == "Split":
        node = helper.make_node(kind, ["b"], [f"z{k}" for k in range(count)], axis=random.choice((0, 1)))
    elif kind == "Einsum":
        node = helper.make_node(
            kind, ["b"] * min(count, 30), ["z0"], equation=",".join(["ij"] * min(count, 30)) + random.choice(("->ij", "->", ""))
        )
    else:
        node = helper.make_node(kind, ["b"] * count, ["z0"], **({"axis": 0} if kind == "Concat" else {}))
    model.graph.node.append(node)
    model.graph.output.add().name = "z0"


def _renamed(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    """Give something a name that is none, wherever it is written."""
    graph = model.graph
    old, new = random.choice(("x", "w", "a", "y", "first", "g")), random.choice(NAMES)
    for owner in (*graph.node, *graph.input, *graph.output, *graph.initializer, graph):
        if owner.name == old:
            owner.name = new
    for node in graph.node:
        for names in (node.input, node.output):
            for k, name in enumerate(names):
                if name == old:
                    names[k] = new
    if random.random() < 0.2:
        graph.node[1].op_type = random.choice(NAMES)
    if random.random() < 0.2:
        graph.node[1].domain = random.choice(NAMES)


def _versions(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    version = random.choice((0, -1, 1, 2, 5, 6, 7, 12, 99, 2**63 - 1, -(2**63)))
    match random.randrange(4):
        case 0:
            model.opset_import[0].version = version
        case 1:
            model.opset_import.add(domain=random.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", *NAMES)), version=version)
        case 2:
            del model.opset_import[:]
        case _:
            model.ir_version = version


def _elements(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    """Let a tensor say one thing and hold another."""
    tensor = random.choice(model.graph.initializer)
    match random.randrange(8):
        case 0:
            tensor.data_type = random.choice((*TensorProto.DataType.values(), 99, -1))
        case 1:
            tensor.raw_data = random.choice((b"", tensor.raw_data[:-1], tensor.raw_data * 2, b"\xff" * len(tensor.raw_data)))
        case 2:
            tensor.float_data.extend([float("nan")] * random.choice((1, 12)))
        case 3:
            tensor.ClearField("raw_data")
            tensor.data_type = random.choice(
                (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.BOOL, TensorProto.UINT8)
            )
            tensor.int32_data.extend(random.choice(((0, 1, 65536, -1), (2**31 - 1,) * 12, (-(2**31),) * 6)))
        case 4:
            tensor.ClearField("raw_data")
            tensor.data_type = TensorProto.STRING
            tensor.string_data.extend([b"\xff\x00", b"text"] * 6)
        case 5:
            tensor.segment.begin, tensor.segment.end = random.choice(HUGE), random.choice(HUGE)
        case 6:
            values = numpy_helper.from_array(np.array([1.0], np.float32), random.choice(("w", "sparse", "")))
            indices = numpy_helper.from_array(np.array([random.choice((0, 11, 12, -1, 2**62))]), "i")
            sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[4, random.choice((3, *HUGE))])
            model.graph.sparse_initializer.append(sparse)
        case _:
            del tensor.dims[:]


def _attributes(model: onnx.ModelProto, beside: dict[str, bytes], random: Random) -> None:
    """Give a node an attribute of a type that is not its own."""
    value = random.choice(
        (1, 1.5, "text", [1, 2], [0.5], ["a"], float("nan"), 2**63 - 1, "\n", _TENSOR, helper.make_graph([], "e", [], []))
    )
    node = random.choice(model.graph.node)
    attribute = helper.make_attribute(random.choice(("axis", "allowzero", "alpha", "to", "value", *NAMES[:4])), value)
    if random.random() < 0.3:
        attribute.type = random.choice(AttributeProto.AttributeType.values())
    if random.random() < 0.1:
        attribute.ref_attr_name = "outer"
    node.attribute.extend([attribute] * random.choice((1, 1, 2)))


_TENSOR = numpy_helper.from_array(np.ones((2, 2), np.float32), "t")
_DEEDS: tuple[Callable[[onnx.ModelProto, dict[str, bytes], Random], None], ...] = (
    *(_external, _external, _external, _huge_dims, _huge_result, _huge_result, _windows, _circle, _twice, _twice, _deep, _many, _renamed),
    *(_renamed, _versions, _elements, _elements, _attributes),
)
