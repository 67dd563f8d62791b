"""Random ONNX graphs whose every value is known: a node is drawn, and onnx's reference evaluator says at once what it computes.

Inputs are small integers in every type, with which most operators are exact; from the first one that is not (`exp`, a quotient), values
count as rough: they are compared with a tolerance, and nothing that jumps (a comparison, a cast to integers, an index) reads them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from random import Random
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]

TYPES: dict[str, tuple[int, Any]] = {
    "f32": (TensorProto.FLOAT, np.float32),
    "f16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "f64": (TensorProto.DOUBLE, np.float64),
    "f8": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "f8e5": (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    "i8": (TensorProto.INT8, np.int8),
    "u8": (TensorProto.UINT8, np.uint8),
    "i16": (TensorProto.INT16, np.int16),
    "u16": (TensorProto.UINT16, np.uint16),
    "i32": (TensorProto.INT32, np.int32),
    "u32": (TensorProto.UINT32, np.uint32),
    "i64": (TensorProto.INT64, np.int64),
    "u64": (TensorProto.UINT64, np.uint64),
    "bool": (TensorProto.BOOL, np.bool_),
}
_BY_NUMPY = {np.dtype(t): name for name, (_, t) in TYPES.items()}
_WEIGHTS = ("f32",) * 8 + ("f16", "f16", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "i64", "u64", "bool")
EXACT = {"f32": 2**22, "f16": 2**10, "bf16": 2**7, "f64": 2**50, "f8": 2**3, "f8e5": 2**2}
"""Up to which whole numbers floats are exact, with a little to spare."""
FLOATS, WHOLE = ("f32", "f16", "bf16", "f64"), ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
OPSETS = (21,) * 4 + (7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 22, 23, 24)
"""Versions of the operators, those that many models have more often."""
_NEVER_EMPTY = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool", "Resize", "Upsample")
"""Operators that are refused where nothing of a spatial axis would be left, which the standard does not speak of: of windows that are
larger than their input the reference takes some, onnxruntime others."""
_RUNTIME_ONLY = (
    *("LSTM", "GRU", "RNN", "GlobalMaxPool", "GlobalLpPool", "LRN", "LpNormalization", "LpPool", "QLinearConv", "Upsample"),
    *("ConvTranspose", "Resize"),
)
"""Operators of which the reference leaves something out: directions and lengths, axes beyond two, signs. onnxruntime's values count."""
DOMAINS = {"com.microsoft": 1, "ai.onnx.ml": 3}
"""Which versions of other sets of operators are drawn."""
_FLAT_ONCE = ("Softmax", "LogSoftmax", "Hardmax")
"""Operators whose early versions the reference takes for later ones."""


def type_of(a: Array) -> str:
    return _BY_NUMPY[a.dtype]


@dataclass(frozen=True)
class Net:
    """Nodes in an order that works. `values` knows every value; of them `feeds` are inputs, `constants` initialisers, `rough` inexact."""

    nodes: tuple[onnx.NodeProto, ...]
    feeds: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Array] = field(repr=False)
    rough: frozenset[str]
    opset: int = 21

    def model(self, open_: bool = False) -> onnx.ModelProto:
        """Return the net as a model, one whose inputs have extents by name and whose outputs do not say theirs where it is to be open."""
        infos = [self._info(n, [f"{n}_{k}" for k in range(self.values[n].ndim)] if open_ else None) for n in self.feeds]
        outputs = [self._info(n, [None] * self.values[n].ndim if open_ else None) for n in self.outputs]
        constants = [tensor(self.values[n], n) for n in self.constants]
        graph = helper.make_graph(list(self.nodes), "drawn", infos, outputs, constants)
        return helper.make_model(graph, opset_imports=self.opsets(), ir_version=10)

    def opsets(self) -> list[onnx.OperatorSetIdProto]:
        return _opsets(self.nodes, self.opset)

    def _info(self, name: str, extents: Sequence[str | None] | None) -> onnx.ValueInfoProto:
        a = self.values[name]
        return helper.make_tensor_value_info(name, TYPES[type_of(a)][0], a.shape if extents is None else extents)


def tensor(a: Array, name: str) -> onnx.TensorProto:
    return helper.make_tensor(name, TYPES[type_of(a)][0], a.shape, a.tobytes(), raw=True)


def reads(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """Return the names that nodes, and graphs within them, take from around them, each once."""
    made, found = set[str](), dict[str, None]()
    for node in nodes:
        found.update(dict.fromkeys(n for n in node.input if n and n not in made))
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
                inner = [*reads(graph.node), *(o.name for o in graph.output)]
                own.update(o for n in graph.node for o in n.output)
                found.update(dict.fromkeys(n for n in inner if n not in own and n not in made))
        made.update(node.output)
    return list(found)


def evaluated(node: onnx.NodeProto, values: Mapping[str, Array], opset: int) -> list[Array]:
    """Return what a node computes of known values: by onnx's reference evaluator, by onnxruntime where that cannot. Raises whatever they
    raise, what the checker raises of nodes that are not valid, and ValueError where the two disagree on shapes or types."""
    model = _alone([node], values, opset)
    feeds = {n: values[n] for n in reads([node])}
    if node.domain == "com.microsoft" or not onnx.defs.has(node.op_type, node.domain):
        return _by_runtime(model, feeds)
    onnx.checker.check_node(node, _context(opset))
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    if node.domain:
        return _by_runtime(model, feeds)
    if node.op_type == "Hardmax" and any(np.isnan(a).any() for a in feeds.values()):
        raise ValueError("whether a NaN is the largest, each library settles for itself")
    if node.op_type in _RUNTIME_ONLY or (opset < 13 and node.op_type in _FLAT_ONCE):
        return _by_runtime(model, feeds)
    try:
        found = _by_reference(model, feeds)
    except Exception:
        return _by_runtime(model, feeds)
    try:
        other = _by_runtime(model, feeds)
    except Exception:
        return found  # it has no code for these types, or this version
    if any(a.shape != b.shape or (a.dtype != b.dtype and a.dtype.isbuiltin == 1) for a, b in zip(found, other, strict=True)):
        raise ValueError("the references disagree on what comes out")
    return found


@cache
def _context(opset: int) -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 10, {"": opset, **DOMAINS}
    return context


def _alone(nodes: Sequence[onnx.NodeProto], values: Mapping[str, Array], opset: int) -> onnx.ModelProto:
    """Return a model of nodes whose last one makes the results."""
    infos = [helper.make_tensor_value_info(n, TYPES[type_of(values[n])][0], values[n].shape) for n in reads(nodes)]
    graph = helper.make_graph(nodes, "one", infos, [onnx.ValueInfoProto(name=n) for n in nodes[-1].output if n])
    return helper.make_model(graph, opset_imports=_opsets(nodes, opset), ir_version=10)


def _opsets(nodes: Sequence[onnx.NodeProto], opset: int) -> list[onnx.OperatorSetIdProto]:
    domains = sorted({node.domain for node in nodes} - {""})
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, DOMAINS[domain]) for domain in domains)]


def _by_reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, dict(feeds))]


def _by_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, dict(feeds))]


def differently(net: Net, close: Callable[[str, Array, Array], bool]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Array]]]:
    """Yield the values of the net where onnxruntime is right about some of the operators on which it disagrees with the reference, with
    the names of these operators. `close` tells whether two arrays are the same value."""
    disputed: list[int] = []
    for k, node in enumerate(net.nodes):
        try:
            other = _by_runtime(_alone([node], net.values, net.opset), {n: net.values[n] for n in reads([node])})
        except Exception:
            continue
        named = zip([n for n in node.output if n], other, strict=True)
        if not all(close(n, a, net.values[n]) for n, a in named if n in net.values):
            disputed.append(k)
    for count in range(1, min(3, len(disputed)) + 1):
        for some in combinations(disputed, count):
            values = {n: net.values[n] for n in (*net.feeds, *net.constants)}
            try:
                for k, node in enumerate(net.nodes):
                    if not reads([node]):
                        values.update((n, net.values[n]) for n in node.output)
                        continue
                    feeds = {n: values[n] for n in reads([node])}
                    model = _alone([node], values, net.opset)
                    found = _by_runtime(model, feeds) if k in some else evaluated(node, values, net.opset)
                    values.update(zip([n for n in node.output if n], found, strict=True))
            except Exception:
                continue
            yield tuple(net.nodes[k].op_type for k in some), values


@dataclass
class NetDrawing:
    random: Random
    values: dict[str, Array] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    feeds: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    rough: set[str] = field(default_factory=set)
    late: dict[str, Array] = field(default_factory=dict)
    """Values that no other node reads: bytes that two roundings leave one apart."""
    count: int = 0
    opset: int = 21

    def net(self, size: int, rules: Sequence[Rule]) -> Net:
        for _ in range(self.random.randint(1, 3)):
            self.feed(self.array(self.random.choice(_WEIGHTS), self.shape()))
        for _ in range(5 * size):
            if len(self.nodes) < size:
                self.random.choice(rules)(self)
        self.values |= self.late
        made = [n for node in self.nodes for n in node.output if n in self.values]
        read = {n for node in self.nodes for n in reads([node])}
        ends = [n for n in made if n not in read]
        outputs = dict.fromkeys([*ends[:4], *self.random.sample(made, min(len(made), self.random.choice((0, 1, 2))))])
        rough = frozenset(self.rough)
        return pruned(Net(tuple(self.nodes), tuple(self.feeds), tuple(self.constants), tuple(outputs), self.values, rough, self.opset))

    # ---- values

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def feed(self, a: Array) -> str:
        name = self.fresh("x")
        self.values[name] = a
        self.feeds.append(name)
        return name

    def constant(self, a: Array) -> str:
        """Return the name of an array: of one that is there already now and then, an initialiser, a Constant."""
        for name in self.constants:
            there = self.values[name]
            if there.dtype == a.dtype and there.shape == a.shape and there.tobytes() == a.tobytes():
                return name
        name = self.fresh("c")
        self.values[name] = a
        if self.random.random() < 0.1:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor(a, name)))
        else:
            self.constants.append(name)
        return name

    def operand(self, dtype: str, shape: tuple[int, ...]) -> str:
        """Return a value of a type and a shape: one that is there, a constant, or an input."""
        there = [n for n, a in self.values.items() if a.shape == shape and type_of(a) == dtype]
        if there and self.random.random() < 0.6:
            return self.random.choice(there)
        a = self.array(dtype, shape)
        return self.constant(a) if self.random.random() < 0.6 else self.feed(a)

    def shape(self) -> tuple[int, ...]:
        rank = self.random.choice((0, *(1, 2, 2, 3, 3, 4) * 4, 5))
        extents = (1, 2, 2, 3, 4, 5, 8) if self.random.random() < 0.96 else (0, 1, 2, 17)
        return tuple(self.random.choice(extents) for _ in range(rank))

    def array(self, dtype: str, shape: tuple[int, ...]) -> Array:
        rng = np.random.default_rng(self.random.getrandbits(32))
        low, high = (0, 2) if dtype == "bool" else (0, 5) if dtype.startswith("u") else (-3, 4)
        return rng.integers(low, high, shape).astype(TYPES[dtype][1])

    def some(self, *types: str, least: int = 0, exact: bool = False, most: int = 9) -> str | None:
        """Return a value of one of some types and of a rank within limits, one that was made last most often."""
        found = [
            n
            for n, a in self.values.items()
            if type_of(a) in types and least <= a.ndim <= most and not (exact and n in self.rough) and n not in self.constants
        ]
        if not found:
            return None
        return self.random.choice(found[-4:] if self.random.random() < 0.6 else found)

    def add(
        self,
        kind: str,
        inputs: Sequence[str | None],
        outputs: int = 1,
        *,
        rough: bool = False,
        decided: bool = False,
        late: bool = False,
        left: int = 0,
        domain: str = "",
        **attrs: Any,
    ) -> None:
        """Append a node if somebody can evaluate it and its values stay exact and few. `left`: how many outputs before the last are left
        out; `decided`: whole numbers that a rough node makes are exact all the same; `late`: its results are read by no other node."""
        if None in inputs:
            return
        given = [n or "" for n in inputs]
        while given and not given[-1]:
            given.pop()
        names = ["" if outputs - left <= k + 1 < outputs else self.fresh("v") for k in range(outputs)]
        node = helper.make_node(kind, given, names, name=self.fresh("n"), domain=domain, **attrs)
        try:
            found = evaluated(node, self.values, self.opset)
        except Exception:
            return
        if kind in _NEVER_EMPTY and _vanishes(kind, self.values[given[0]], found[0]):
            return
        if kind.startswith("Reduce") and found[0].dtype != self.values[given[0]].dtype:
            return  # the reference sums squares of i32 in i64, which ONNX does not say
        self._keep([node], found, rough, decided, late)

    def add_several(self, nodes: Sequence[onnx.NodeProto], *, rough: bool = False) -> None:
        """Name nodes and append them, of which the last one's results are values, if onnxruntime can evaluate them together; the reference
        gives optionals one more axis."""
        for node in nodes:
            node.name = self.fresh("n")
        try:
            model = _alone(nodes, self.values, self.opset)
            feeds = {n: self.values[n] for n in reads(nodes)}
            found = _by_runtime(model, feeds)
        except Exception:
            return
        self._keep(nodes, found, rough, False, False)

    def _keep(self, nodes: Sequence[onnx.NodeProto], found: Sequence[Array], rough: bool, decided: bool, late: bool) -> None:
        if any(a.size > 600 or a.dtype not in _BY_NUMPY for a in found):
            return
        read_rough = any(n in self.rough for n in reads(nodes))
        made_rough = rough or read_rough
        if not late and any(not _is_sound(a, read_rough or (rough and not (decided and a.dtype.kind in "iub"))) for a in found):
            return
        self.nodes += nodes
        for name, a in zip([n for n in nodes[-1].output if n], found, strict=True):
            (self.late if late else self.values)[name] = a
            if late or (made_rough and a.dtype.kind not in "iub"):
                self.rough.add(name)

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))


def _vanishes(kind: str, x: Array, result: Array) -> bool:
    """Tell whether nothing is left of an axis that windows slide along, or of one that had elements before it was resized."""
    if kind in ("Resize", "Upsample"):
        return any(after == 0 < before for before, after in zip(x.shape, result.shape, strict=True))
    return 0 in result.shape[2:]


def _is_sound(a: Array, rough: bool) -> bool:
    """Tell whether a computed value can be compared: exact, or rough and finite."""
    return bool(np.isfinite(a.astype(np.float64)).all()) if rough and type_of(a) in EXACT else not rough and _is_exact(a)


def _is_exact(a: Array) -> bool:
    dtype = type_of(a)
    if dtype not in EXACT:
        return True
    wide = a.astype(np.float64)
    return bool(np.isfinite(wide).all() and (wide == np.round(wide)).all() and (np.abs(wide) <= EXACT[dtype]).all())


def pruned(net: Net) -> Net:
    """Return the net without what its outputs do not need."""
    needed, kept = set(net.outputs), []
    for node in reversed(net.nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(reads([node]))
    return Net(
        tuple(reversed(kept)),
        tuple(n for n in net.feeds if n in needed),
        tuple(n for n in net.constants if n in needed),
        net.outputs,
        net.values,
        net.rough,
        net.opset,
    )


# ---------------------------------------------------------------- operators


def _unary(d: NetDrawing) -> None:
    kind = d.random.choice(("Neg", "Abs", "Relu", "Identity", "Sign", "Identity"))
    signed = kind in ("Neg", "Relu")
    d.add(kind, [d.some(*FLOATS, *(t for t in WHOLE if t[0] != "u" or not signed), exact=kind == "Sign")])


def _rough(d: NetDrawing) -> None:
    x = d.some("f32", "f32", "f16", "f64")
    kind = d.random.choice(("Exp", "Sigmoid", "Tanh", "Softmax", "Softplus", "Erf"))
    if x is not None and (kind != "Softmax" or d.values[x].ndim):
        attrs = {"axis": d.random.randrange(-d.values[x].ndim, d.values[x].ndim)} if kind == "Softmax" else {}
        d.add(kind, [x], rough=True, **attrs)


def _binary(d: NetDrawing) -> None:
    x = d.some(*FLOATS, *WHOLE)
    if x is not None:
        a = d.values[x]
        shape = a.shape if d.random.random() < 0.5 else tuple(n if d.random.random() < 0.6 else 1 for n in a.shape)
        shape = shape[d.random.choice((0, 0, 0, 1)) :]
        y = d.operand(type_of(a), shape)
        pair: list[str | None] = [x, y] if d.random.random() < 0.6 else [y, x]
        d.add(d.random.choice(("Add", "Add", "Sub", "Mul", "Mul", "Min", "Max")), pair)


def _same(d: NetDrawing) -> None:
    x = d.some(*FLOATS, *WHOLE)
    d.add(d.random.choice(("Add", "Mul", "Sub", "Max", "Sum")), [x, x])


def _compare(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64", "i32", "i64", exact=True)
    if x is not None:
        a = d.values[x]
        d.add(d.random.choice(("Equal", "Less", "Greater", "LessOrEqual")), [x, d.operand(type_of(a), a.shape)])


def _logic(d: NetDrawing) -> None:
    x = d.some("bool")
    if x is not None and d.random.random() < 0.3:
        d.add("Not", [x])
    elif x is not None:
        d.add(d.random.choice(("And", "Or", "Xor")), [x, d.operand("bool", d.values[x].shape)])


def _where(d: NetDrawing) -> None:
    x = d.some(*FLOATS, *WHOLE)
    if x is not None:
        a = d.values[x]
        shape = a.shape if d.random.random() < 0.7 else a.shape[-1:]
        other = d.operand(type_of(a), d.random.choice((a.shape, ())))
        d.add("Where", [d.operand("bool", shape), x, other])


def _cast(d: NetDrawing) -> None:
    x = d.some(*TYPES)
    if x is not None:
        exact = x not in d.rough
        to = d.random.choice([t for t in TYPES if exact or t in FLOATS])
        if _fits(d.values[x], to):
            d.add("Cast", [x], to=TYPES[to][0])


def _fits(a: Array, to: str) -> bool:
    """Tell whether ONNX says what casting `a` gives: nothing of floats that an integer type cannot hold."""
    if to not in WHOLE or a.dtype.kind in "iub" or not a.size:
        return True
    limits, wide = np.iinfo(TYPES[to][1]), a.astype(np.float64)
    return bool(wide.min() >= limits.min and wide.max() <= limits.max)


def _transpose(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=2)
    if x is not None:
        perm = list(range(d.values[x].ndim))
        d.random.shuffle(perm)
        d.add("Transpose", [x], perm=perm)


def _view(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    match d.random.randrange(4):
        case 0:
            k = d.random.randint(0, a.ndim)
            d.add("Reshape", [x, d.ints(int(np.prod(a.shape[:k])), int(np.prod(a.shape[k:])))])
        case 1:
            d.add("Reshape", [x, d.ints(-1)])
        case 2:
            d.add("Unsqueeze", [x, d.ints(d.random.randint(0, a.ndim))])
        case _:
            d.add("Flatten", [x], axis=d.random.randint(0, a.ndim))


def _split(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axis = d.random.randrange(a.ndim)
    extent = a.shape[axis]
    if extent < 2:
        return
    first = d.random.randint(1, extent - 1)
    parts = [first, extent - first] if d.random.random() < 0.7 or extent < 3 else [1, 1, extent - 2]
    parts = [p for p in parts if p]
    d.add("Split", [x, d.ints(*parts)], len(parts), axis=axis - d.random.choice((0, a.ndim)))


def _concat(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axis = d.random.randrange(a.ndim)
    like = [
        n
        for n, b in d.values.items()
        if b.dtype == a.dtype
        and b.ndim == a.ndim
        and all(p == q for k, (p, q) in enumerate(zip(a.shape, b.shape, strict=True)) if k != axis)
    ]
    d.add("Concat", [x, *(d.random.choice(like) for _ in range(d.random.choice((1, 1, 2))))], axis=axis)


def _slice(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axis = d.random.randrange(a.ndim)
    start, end, step = d.random.choice(((0, -1, 1), (1, 2**31, 1), (-1, -(2**31), -1), (0, 2**31, 2), (-2, 2**31, 1)))
    d.add("Slice", [x, d.ints(start), d.ints(end), d.ints(axis), d.ints(step)])


def _gather(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axis = d.random.randrange(a.ndim)
    if not a.shape[axis]:
        return
    rng = np.random.default_rng(d.random.getrandbits(32))
    ids = rng.integers(-a.shape[axis], a.shape[axis], d.random.choice(((), (2,), (3,), (2, 2)))).astype(
        d.random.choice((np.int64, np.int32))
    )
    d.add("Gather", [x, d.constant(ids) if d.random.random() < 0.5 else d.feed(ids)], axis=axis)


def _reduce(d: NetDrawing) -> None:
    x = d.some("f32", "f32", "f16", "f64", "i32", "i64", least=1)
    if x is None:
        return
    axis = d.random.randrange(d.values[x].ndim)
    kind = d.random.choice(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSumSquare"))
    rough = kind == "ReduceMean" and d.values[x].dtype.kind == "f"
    d.add(kind, [x, d.ints(axis)], keepdims=d.random.choice((0, 1)), rough=rough)


def _matmul(d: NetDrawing) -> None:
    x = d.some("f32", "f32", "f16", "bf16", "f64", "i32", least=2)
    if x is None:
        return
    a = d.values[x]
    n = d.random.choice((1, 2, 4, 8, 16))
    if d.random.random() < 0.3 and a.ndim == 2:
        bias = d.operand(type_of(a), (n,))
        d.add("Gemm", [x, d.operand(type_of(a), (n, a.shape[-1])), bias], transB=1)
    else:
        d.add("MatMul", [x, d.operand(type_of(a), (a.shape[-1], n))])


def _conv(d: NetDrawing) -> None:
    x = d.some("f32", "f32", "f16", least=3, most=4)
    if x is None:
        return
    a = d.values[x]
    rank, size = a.ndim - 2, d.random.choice((1, 2, 3))
    w = d.operand(type_of(a), (d.random.choice((1, 2, 4)), a.shape[1], *[size] * rank))
    stride, pad = d.random.choice((1, 1, 2)), d.random.choice((0, 1))
    if all(n + 2 * pad >= size for n in a.shape[2:]):
        d.add("Conv", [x, w], strides=[stride] * rank, pads=[pad] * (2 * rank))


def _pool(d: NetDrawing) -> None:
    x = d.some("f32", "f16", least=3, most=4)
    if x is not None:
        rank = d.values[x].ndim - 2
        d.add(d.random.choice(("MaxPool", "GlobalMaxPool")), [x]) if rank < 1 else d.add(
            "MaxPool", [x], kernel_shape=[2] * rank, strides=[1] * rank
        )


def _others(d: NetDrawing) -> None:
    x = d.some("f32", "i32", "i64", "f16", least=1, exact=True)
    if x is None:
        return
    a = d.values[x]
    axis = d.random.randrange(a.ndim)
    match d.random.randrange(8):
        case 0:
            d.add("ArgMax", [x], axis=axis, keepdims=d.random.choice((0, 1)))
        case 1:
            d.add("CumSum", [x, d.constant(np.array(axis, np.int64))], reverse=d.random.choice((0, 1)))
        case 2:
            d.add("Pad", [x, d.ints(*([1] * a.ndim), *([0] * a.ndim))], mode=d.random.choice(("constant", "edge")))
        case 3:
            d.add("Expand", [x, d.ints(2, *a.shape)])
        case 4:
            d.add("Tile", [x, d.ints(*(d.random.choice((1, 2)) for _ in a.shape))])
        case 5:
            d.add("Clip", [x, d.constant(np.array(-1, a.dtype)), d.constant(np.array(2, a.dtype))])
        case 6:
            d.add("TopK", [x, d.ints(1)], 2, axis=axis)
        case _:
            d.add("Mod", [x, d.constant(np.array(2, a.dtype))], fmod=int(a.dtype.kind == "f"))


def _quotient(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64")
    if x is not None:
        d.add("Div", [x, d.constant(np.array(d.random.choice((2, 3, 4)), d.values[x].dtype))], rough=True)


Rule: TypeAlias = Callable[[NetDrawing], None]
RULES: tuple[Rule, ...] = (
    *(_unary, _unary, _rough, _binary, _binary, _binary, _same, _compare, _logic, _where, _cast, _cast, _cast),
    *(
        _transpose,
        _view,
        _view,
        _split,
        _split,
        _concat,
        _concat,
        _slice,
        _gather,
        _reduce,
        _matmul,
        _matmul,
        _conv,
        _pool,
        _others,
        _quotient,
    ),
)
