"""From a file, bytes or a ModelProto to a `Model`: everything checked that does not need to know what operators mean.

    bytes ─protobuf→ ModelProto ─names, types, versions, attributes against the operators' definitions→ Model

Whatever is wrong becomes a Refusal; several are collected where they do not depend on one another.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from math import isnan
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from stdlib.onnx.channel_blocks import NCHWC, block_length
from stdlib.onnx.functions import substituted
from stdlib.onnx.model import Array, Attribute, Block, Declared, Dim, Model, Node
from stdlib.onnx.problems import Refusal, Unsupported, quoted
from stdlib.onnx.tensors import TEXT, Folder, element_type, read_sparse, read_tensor
from stdlib.onnx.wire import separated
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.memory_map import contents
from tensorlang.runtime.signature import Form

NEWEST_OPSET = onnx.defs.onnx_opset_version()
_NEWEST_ELSEWHERE = 2**31 - 1
"""What onnx can count to, which says what versions other domains have."""
_KIND: dict[int, tuple[str, int]] = {
    AttributeProto.INT: ("i", 1),
    AttributeProto.FLOAT: ("f", 1),
    AttributeProto.STRING: ("s", 1),
    AttributeProto.TENSOR: ("t", 1),
    AttributeProto.INTS: ("ints", 0),
    AttributeProto.FLOATS: ("floats", 0),
    AttributeProto.STRINGS: ("strings", 0),
    AttributeProto.GRAPH: ("g", 1),
    AttributeProto.TYPE_PROTO: ("tp", 1),
    AttributeProto.SPARSE_TENSOR: ("sparse_tensor", 1),
}
_FORMS: Mapping[str, Form] = {
    "": "tensor",
    "sequence": "sequence",
    "optional": "optional",
    "optional sequence": "optional sequence",
}
OPEN_DOMAINS = ("com.microsoft", NCHWC)
"""Domains of which there are operators in the table, and no definitions in the package `onnx`."""
UNDEFINED = frozenset(
    ("", op)
    for op in (
        *("SimplifiedLayerNormalization", "MemcpyFromHost", "MemcpyToHost"),
        *("Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
    )
)
"""Operators that onnxruntime has in ONNX's own domain: those that it writes there, and those that ONNX had on trial and took back."""
TEXT_FORMATS = {".onnxtxt": "onnxtxt", ".onnxtext": "onnxtxt", ".textproto": "textproto", ".onnxjson": "json"}
"""Models written as text, by the ends of their names: formats of the package `onnx`."""
_ALL_ARE_INPUTS = 3
"""The last version of the format in which all initializers are inputs: there this does not say that a run may feed them."""
T = TypeVar("T")
P = ParamSpec("P")


class Elsewhere(Protocol):
    """What is known of operators that neither ONNX nor the model defines."""

    def is_custom(self, domain: str, op: str, version: int, defined: bool) -> bool:
        """Tell whether nodes `domain::op` are defined there; `defined`: ONNX or the model says what they are."""
        ...

    def how(self, domain: str, op: str, version: int) -> str:
        """Return what to do about nodes that nobody defines."""
        ...


class AnyDomain:
    """Takes the nodes of all domains but ONNX's own as they are."""

    def is_custom(self, domain: str, op: str, version: int, defined: bool) -> bool:
        return domain != ""

    def how(self, domain: str, op: str, version: int) -> str:
        return ""


def read(source: str | os.PathLike[str] | bytes | ModelProto, elsewhere: Elsewhere) -> Model:
    """Return the model in `source`: a path, the bytes of a file, or a ModelProto; operators may be defined `elsewhere`.

    Raises CompileError (O001 to O007, O010)."""
    try:
        proto, weights, folder = _proto(source)
        _check_text(proto)
        return _Reader(proto, weights, None if folder is None else Folder(folder), elsewhere).model()
    except Refusal as refusal:
        raise CompileError(refusal.diagnostic) from refusal


def _proto(source: str | os.PathLike[str] | bytes | ModelProto) -> tuple[ModelProto, Mapping[int, memoryview], Path | None]:
    """Return the model, the `raw_data` of those initializers that it lies outside of, and the folder of the file."""
    if isinstance(source, ModelProto):
        return source, {}, None
    if isinstance(source, bytes):
        return *_parsed(memoryview(source)), None
    try:
        data = contents(source)
    except (OSError, ValueError) as problem:
        help = "give the path of a model: a file that ends in `.onnx`, or is one"
        raise Refusal("O001", f"cannot read {quoted(str(source))}", str(problem), help=help) from problem
    format = TEXT_FORMATS.get(Path(source).suffix.lower())
    if format is not None:
        return _of_text(bytes(data), format), {}, Path(source).parent
    return *_parsed(data), Path(source).parent


def _of_text(data: bytes, format: str) -> ModelProto:
    """Return a model that is written as text."""
    try:
        return onnx.parser.parse_model(data.decode()) if format == "onnxtxt" else onnx.load_from_string(data, format=format)
    except (onnx.parser.ParseError, text_format.ParseError, json_format.ParseError, ValueError, RecursionError) as problem:
        why = problem.args[0] if problem.args else problem
        why = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        raise Refusal("O001", f"this is not an ONNX model in the format {quoted(format)}", why.strip()) from problem


def _parsed(data: memoryview) -> tuple[ModelProto, Mapping[int, memoryview]]:
    if bytes(data[4:8]) == b"ORTM":
        help = "give the `.onnx` file that it was made of"
        raise Refusal("O001", "this is a model in the format of onnxruntime (ORT), which is no ONNX", help=help)
    parts = separated(data)
    proto = ModelProto()
    try:
        proto.ParseFromString(parts.message)
    except (DecodeError, RecursionError) as problem:
        raise Refusal("O001", "this is not an ONNX model", str(problem), help="the file may be truncated") from problem
    return proto, parts.weights


def _check_text(proto: ModelProto) -> None:
    """Refuse text that is not UTF-8, which protobuf hands out as bytes, wherever it stands."""
    pending: list[Any] = [proto]
    while pending:
        for field, content in pending.pop().ListFields():
            several = isinstance(content, Sequence) and not isinstance(content, str | bytes)
            items = content if several else (content,)
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                pending.extend(items)
            elif field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(item, str) for item in items):
                raise Refusal("O001", f"the {field.name} of a {field.containing_type.name} is not UTF-8")


class _Reader:
    def __init__(self, proto: ModelProto, weights: Mapping[int, memoryview], folder: Folder | None, elsewhere: Elsewhere) -> None:
        self.proto, self.weights, self.folder, self.elsewhere = proto, weights, folder, elsewhere
        self.problems: list[Diagnostic] = []
        self.missing: list[str] = []
        self.unknown: list[tuple[str, str, int]] = []
        """Nodes of domains that nothing is known of: domain, operator and version."""
        self.versions: dict[str, int] = {}
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in proto.functions}

    def model(self) -> Model:
        self.versions = _versions(self.proto)
        graph = self.proto.graph
        initializers = self._initializers(graph)
        inputs = [self._collect(self._declared, v, "input") for v in graph.input]
        outputs = [self._collect(self._declared, v, "output") for v in _different(graph.output)]
        labels = _labels(graph.node)
        nodes = [self._collect(self._node, n, label) for n, label in zip(graph.node, labels, strict=True)]
        if not graph.output:
            self.problems.append(Diagnostic("O002", "the model has no outputs"))
        self._check_names(graph, [n for n in nodes if n is not None])
        self._stop()
        model = Model(
            graph.name,
            tuple(i for i in inputs if i is not None and i.name not in initializers),
            tuple(o for o in outputs if o is not None),
            initializers,
            tuple(n for n in nodes if n is not None),
            self.functions,
            self.body_of,
            defaults=tuple(i for i in inputs if i is not None and i.name in initializers and self.proto.ir_version > _ALL_ARE_INPUTS),
        )
        return replace(model, nodes=_sorted(model.nodes), block_length=block_length(model.nodes, initializers))

    def body_of(self, function: FunctionProto, call: NodeProto) -> Block:
        """Return the body of a function for a node that calls it. Raises Refusal and Unsupported."""
        inner = _Reader(ModelProto(), {}, self.folder, self.elsewhere)
        inner.functions = self.functions
        inner.versions = {_domain(entry.domain): entry.version for entry in function.opset_import}
        nodes = list(substituted(function, call))
        read = [inner._node(n, label) for n, label in zip(nodes, _labels(nodes), strict=True)]
        return _checked(Block(tuple(function.input), tuple(function.output), {}, tuple(read)), f"function {quoted(function.name)}")

    def _block(self, graph: GraphProto, what: str) -> Block:
        """Return a graph inside of a node. Raises Refusal and Unsupported."""
        arrays = {t.name: read_tensor(t, self.folder, f"initializer {quoted(t.name)} of {what}") for t in graph.initializer}
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            arrays[name] = read_sparse(sparse, self.folder, f"initializer {quoted(name)} of {what}")
        nodes = [self._node(n, label) for n, label in zip(graph.node, _labels(graph.node), strict=True)]
        inputs, outputs = (tuple(v.name for v in values) for values in (graph.input, graph.output))
        return _checked(Block(inputs, outputs, arrays, tuple(nodes)), what)

    def _collect(self, f: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what `f` returns, or keep what it refuses for the report."""
        try:
            return f(*args, **kwargs)
        except Refusal as refusal:
            self.problems.append(refusal.diagnostic)
        except Unsupported as missing:
            self.missing.append(str(missing))
        return None

    def _stop(self) -> None:
        if self.missing:
            notes, help = tuple(dict.fromkeys(self.missing)), None if not self.unknown else self.elsewhere.how(*self.unknown[0])
            self.problems.append(Diagnostic("O010", "this model needs what is not supported yet", (), notes, help))
        if self.problems:
            raise CompileError(*self.problems)

    def _initializers(self, graph: GraphProto) -> dict[str, Array]:
        arrays: dict[str, Array] = {}

        def keep(name: str, array: Array | None) -> None:
            if not name:
                self.problems.append(Diagnostic("O002", "an initializer has no name"))
            elif name in arrays:
                self.problems.append(Diagnostic("O002", f"two initializers are called {quoted(name)}"))
            elif array is not None:
                arrays[name] = array

        for k, tensor in enumerate(graph.initializer):
            what = f"initializer {quoted(tensor.name)}"
            keep(tensor.name, self._collect(read_tensor, tensor, self.folder, what, self.weights.get(k)))
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            keep(name, self._collect(read_sparse, sparse, self.folder, f"initializer {quoted(name)}"))
        for value in graph.input:
            if value.name in arrays:
                self._collect(self._agrees, value, arrays[value.name])
        return arrays

    def _agrees(self, value: ValueInfoProto, array: Array) -> None:
        declared = self._declared(value, "input")
        dims = declared.dims
        wrong_type = declared.dtype is not None and declared.dtype.numpy != array.dtype
        wrong_shape = dims is not None and (
            len(dims) != array.ndim or any(isinstance(d, int) and d != n for d, n in zip(dims, array.shape, strict=True))
        )
        if wrong_type or wrong_shape:
            found = f"its initializer is {array.dtype}{list(array.shape)}"
            raise Refusal("O003", f"{quoted(value.name)} is declared {declared.dtype}{list(dims or ())} and {found}")

    def _declared(self, value: ValueInfoProto, role: str) -> Declared:
        if not value.name:
            raise Refusal("O002", f"an {role} of the model has no name")
        what = f"{role} {quoted(value.name)}"
        type_, form = value.type, ""
        for wrapper in ("optional", "sequence"):
            if type_.WhichOneof("value") == f"{wrapper}_type":
                type_, form = getattr(type_, f"{wrapper}_type").elem_type, f"{form} {wrapper}".strip()
        kind = type_.WhichOneof("value")
        if kind is None:
            if role == "output":
                return Declared(value.name, None, None, form=_FORMS[form])
            raise Refusal("O003", f"{what} has no type")
        if kind == "map_type" and (role, form) in (("input", ""), ("output", "sequence")):
            return _declared_map(value.name, type_.map_type, form, what)
        if kind != "tensor_type":
            raise Unsupported(f"{what} is a {f'{form} of a ' if form else ''}{kind.removesuffix('_type').replace('_', ' ')}, not a tensor")
        tensor = type_.tensor_type
        text = tensor.elem_type == TensorProto.STRING
        dtype = TEXT if text else element_type(tensor.elem_type, what)
        dims = tuple(_dim(d, what) for d in tensor.shape.dim) if tensor.HasField("shape") else None
        return Declared(value.name, dtype, dims, _FORMS[form], text)

    # ---- nodes

    def _node(self, node: NodeProto, label: str) -> Node:
        domain, versions = _domain(node.domain), self.versions
        if not node.op_type:
            raise Refusal("O002", f"node {quoted(label)} has no operator")
        version = versions.get(domain)
        if version is None:
            raise Refusal(
                "O006", f"node {quoted(label)} is of the domain {quoted(domain or 'ai.onnx')}, for which the model imports no version"
            )
        schema, taken = _schema(node.op_type, domain, version), self._is_elsewhere(node, domain)
        defined = schema is not None or taken
        if taken or self.elsewhere.is_custom(domain, node.op_type, version, defined):
            return self._custom(node, label, domain, version, defined)
        if schema is None:
            if domain in ("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"):
                title = f"node {quoted(label)}: ONNX has no operator {quoted(node.op_type)} in version {version}"
                raise Refusal("O007", title, help=_did_you_mean(node.op_type, _op_types(domain)))
            self.unknown.append((domain, node.op_type, version))
            raise Unsupported(f"node {quoted(label)}: operator {quoted(node.op_type)} of the domain {quoted(domain)}")
        attributes = self._attributes(node, label, schema)
        _check_arity(node, label, schema)
        names = tuple(node.input), tuple(node.output)
        return Node(label, domain, node.op_type, version, schema.since_version, *names, attributes, node)

    def _custom(self, node: NodeProto, label: str, domain: str, version: int, defined: bool) -> Node:
        """Return a node whose operator is defined elsewhere: its attributes are of the types that they say themselves."""
        found: dict[str, Attribute] = {}
        for attribute in node.attribute:
            what = f"attribute {quoted(attribute.name)} of node {quoted(label)}"
            if attribute.name in found:
                raise Refusal("O005", f"{what} is given twice")
            if attribute.ref_attr_name:
                raise Refusal("O005", f"{what} refers to an attribute of a function, outside of one")
            if not attribute.type:
                raise Refusal("O005", f"{what} does not say its type")
            found[attribute.name] = self._attribute(attribute, what, int(attribute.type), nan=True)
        # What onnxruntime adds to operators of ONNX it adds to the newest ones, whatever the version of its own domain
        since = 1 if (domain, node.op_type) in UNDEFINED else NEWEST_OPSET if domain in OPEN_DOMAINS else version
        names = tuple(node.input), tuple(node.output)
        return Node(label, domain, node.op_type, version, since, *names, found, node, custom=not defined)

    def _is_elsewhere(self, node: NodeProto, domain: str) -> bool:
        """Tell whether the operator of a node is a function of the model or one that the table has though ONNX does not describe it."""
        return domain in OPEN_DOMAINS or (domain, node.op_type) in UNDEFINED or (domain, node.op_type, node.overload) in self.functions

    def _attributes(self, node: NodeProto, label: str, schema: Any) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {}
        for attribute in node.attribute:
            what = f"attribute {quoted(attribute.name)} of node {quoted(label)}"
            if attribute.name in found:
                raise Refusal("O005", f"{what} is given twice")
            if attribute.name not in schema.attributes:
                has = f"{node.op_type} has {', '.join(sorted(schema.attributes)) or 'no attributes'}"
                raise Refusal("O005", f"{what} does not exist", has, help=_did_you_mean(attribute.name, schema.attributes))
            if attribute.ref_attr_name:
                raise Refusal("O005", f"{what} refers to an attribute of a function, outside of one")
            declared_type = int(schema.attributes[attribute.name].type.value)
            data = node.domain == "ai.onnx.ml" or node.op_type == "Constant"
            found[attribute.name] = self._attribute(attribute, what, declared_type, nan=data)
        for name, declared in schema.attributes.items():
            if declared.required and name not in found:
                raise Refusal("O005", f"node {quoted(label)} lacks the attribute {quoted(name)}, which {node.op_type} requires")
        return found

    def _attribute(self, attribute: AttributeProto, what: str, declared: int, nan: bool = False) -> Attribute:
        kinds = AttributeProto.AttributeType
        kind = attribute.type or declared
        if kind != declared:
            raise Refusal("O005", f"{what} is {_kind_name(kind)} and must be {_kind_name(declared)}")
        if kind not in _KIND:
            raise Unsupported(f"{what} is {_kind_name(kind)}")
        filled = [f for f in ("f", "i", "s", "t", "g", "tp", "sparse_tensor") if attribute.HasField(f)]
        filled += [f for f in ("floats", "ints", "strings", "tensors", "graphs") if len(getattr(attribute, f))]
        field, count = _KIND[kind]
        if any(f != field for f in filled) or (count and not filled):
            raise Refusal("O005", f"{what} is marked {kinds.Name(kind)} and holds {', '.join(filled) or 'nothing'}")
        match kind:
            case AttributeProto.TENSOR:
                return read_tensor(attribute.t, self.folder, what)
            case AttributeProto.SPARSE_TENSOR:
                return read_sparse(attribute.sparse_tensor, self.folder, what)
            case AttributeProto.GRAPH:
                return self._block(attribute.g, what)
            case AttributeProto.TYPE_PROTO:
                return str(attribute.tp.WhichOneof("value"))
            case AttributeProto.STRING:
                return _text(attribute.s, what)
            case AttributeProto.STRINGS:
                return tuple(_text(s, what) for s in attribute.strings)
            case AttributeProto.INT:
                return int(attribute.i)
            case AttributeProto.INTS:
                return tuple(int(i) for i in attribute.ints)
            case AttributeProto.FLOAT:
                return _real(attribute.f, what, nan)
            case _:
                return tuple(_real(f, what, nan) for f in attribute.floats)

    # ---- names

    def _check_names(self, graph: GraphProto, nodes: Sequence[Node]) -> None:
        """Note names that are defined twice or never; `nodes` are those of the graph in which nothing else is wrong."""
        inputs, outputs = [v.name for v in graph.input if v.name], [v.name for v in graph.output if v.name]
        constants = [name for name in (*(t.name for t in graph.initializer), *(t.values.name for t in graph.sparse_initializer)) if name]
        defined = Counter([*dict.fromkeys([*inputs, *constants]), *(o for n in graph.node for o in n.output if o)])
        repeated = [name for names in (Counter(inputs), defined) for name, count in names.items() if count > 1]
        for name in repeated:
            self.problems.append(Diagnostic("O002", f"{quoted(name)} is defined more than once"))
        for node in nodes:
            for name in node.reads():
                if name not in defined:
                    title = f"node {quoted(node.label)} reads {quoted(name)}, which nothing defines"
                    self.problems.append(Diagnostic("O002", title, help=_did_you_mean(name, defined)))
        for name in outputs:
            if name not in defined:
                title = f"output {quoted(name)} is never computed"
                self.problems.append(Diagnostic("O002", title, help=_did_you_mean(name, defined)))


def _different(outputs: Sequence[ValueInfoProto]) -> Iterable[ValueInfoProto]:
    """Return the outputs without those that are listed before: a model computes each once."""
    first: dict[str, ValueInfoProto] = {}
    for value in outputs:
        first.setdefault(value.name, value)
    return first.values()


def _op_types(domain: str) -> set[str]:
    return {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain}


def _did_you_mean(name: str, known: Iterable[str]) -> str | None:
    close = get_close_matches(name, list(known), 1, 0.7)
    return f"did you mean {quoted(close[0])}?" if close else None


def _declared_map(name: str, declared: Any, form: str, what: str) -> Declared:
    """Return an input or output that is a map, or several of them."""
    held = declared.value_type
    if declared.key_type not in (TensorProto.STRING, TensorProto.INT64) or held.WhichOneof("value") != "tensor_type":
        raise Unsupported(f"{what} is a map from something else than strings or i64, or to something else than tensors")
    text = held.tensor_type.elem_type == TensorProto.STRING
    dtype = TEXT if text else element_type(held.tensor_type.elem_type, what)
    return Declared(name, dtype, None, "sequence of maps" if form else "map", text, declared.key_type == TensorProto.STRING)


def _versions(proto: ModelProto) -> dict[str, int]:
    """Return the version of each domain the model imports."""
    if not proto.HasField("ir_version") or not proto.HasField("graph"):
        raise Refusal("O001", "this is not an ONNX model", help="a model has an ir_version and a graph; the file may be empty or truncated")
    if not 0 < proto.ir_version <= onnx.IR_VERSION:
        raise Refusal("O006", f"the model has the IR version {proto.ir_version}", f"this importer knows 1 to {onnx.IR_VERSION}")
    versions: dict[str, int] = {} if proto.opset_import or proto.ir_version >= 3 else {"": 1}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise Refusal("O006", f"the model imports two versions of the domain {quoted(domain or 'ai.onnx')}")
        newest = NEWEST_OPSET if domain == "" else _NEWEST_ELSEWHERE
        if not 1 <= entry.version <= newest:
            which = "the operators" if domain == "" else f"the domain {quoted(domain)}"
            raise Refusal("O006", f"the model needs version {entry.version} of {which}", f"this importer knows 1 to {newest}")
    if not versions:
        raise Refusal("O006", "the model does not say which version of the operators it uses", help="it lacks an opset_import")
    return versions


def _dim(dim: Any, what: str) -> Dim:
    """Return a dimension of a declared type, None for one that is not said, which some exporters write as -1."""
    match dim.WhichOneof("value"):
        case "dim_value" if dim.dim_value == -1:
            return None
        case "dim_value":
            if dim.dim_value < 0:
                raise Refusal("O003", f"{what} has the negative dimension {dim.dim_value}")
            return int(dim.dim_value)
        case "dim_param":
            return str(dim.dim_param) or None
        case _:
            return None


def _labels(nodes: Iterable[NodeProto]) -> list[str]:
    """Return a distinct name for each node: its own where it has one that is not taken."""
    taken: set[str] = set()
    labels = []
    for position, node in enumerate(nodes):
        label = node.name if node.name and node.name not in taken else f"{node.op_type}_{position}"
        while label in taken:
            label += "'"
        taken.add(label)
        labels.append(label)
    return labels


def _schema(op: str, domain: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def _check_arity(node: NodeProto, label: str, schema: Any) -> None:
    for what, count, low, high in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not low <= count <= high:
            raise Refusal(
                "O007",
                f"node {quoted(label)} has {count} {what}",
                f"{node.op_type} has {low} to {high}" if low != high else f"{node.op_type} has {low}",
            )
    required = min(schema.min_input, len(node.input))
    for k in range(required):
        if not node.input[k] and not _optional(schema, k):
            raise Refusal("O002", f"input {k} of node {quoted(label)} has no name, and {node.op_type} requires it")


def _optional(schema: Any, k: int) -> bool:
    formal = schema.inputs[min(k, len(schema.inputs) - 1)]
    return bool(formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional)


def _kind_name(kind: int) -> str:
    names = {v: k for k, v in AttributeProto.AttributeType.items()}
    return f"of type {names.get(kind, str(kind))}"


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise Refusal("O005", f"{what} is not UTF-8") from problem


def _real(value: float, what: str, nan: bool) -> float:
    """Return a number, which may be NaN where it is a value, of features or a constant, and not what an operator computes with."""
    if isnan(value) and not nan:
        raise Refusal("O005", f"{what} is not a number")
    return float(value)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _checked(block: Block, what: str) -> Block:
    """Return a block with its nodes in order. Raises O002 for names that are defined twice, or, of a function, not at all."""
    defined = Counter([*dict.fromkeys([*block.inputs, *block.initializers]), *(o for n in block.nodes for o in n.outputs if o)])
    repeated = next((name for name, count in (*Counter(block.inputs).items(), *defined.items()) if count > 1), None)
    if repeated is not None:
        raise Refusal("O002", f"{quoted(repeated)} is defined more than once in {what}")
    return replace(block, nodes=_sorted(block.nodes))


def _sorted(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the nodes so that each comes after those it reads. Raises O002 on a cycle."""
    maker = {output: k for k, node in enumerate(nodes) for output in node.outputs if output}
    reads = [[maker[name] for name in node.reads() if name in maker] for node in nodes]
    if all(other < k for k, others in enumerate(reads) for other in others):
        return nodes
    try:
        order = list(TopologicalSorter(dict(enumerate(reads))).static_order())
    except CycleError as problem:
        cycle = [nodes[k].label for k in problem.args[1]]
        shown = " → ".join(quoted(label) for label in cycle[:6]) + (" → …" if len(cycle) > 6 else "")
        raise Refusal("O002", "the nodes of the model depend on each other in a cycle", shown) from problem
    return tuple(nodes[k] for k in order)
