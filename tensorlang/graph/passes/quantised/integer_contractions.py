"""Contractions of dequantised bytes as contractions of the bytes.

    before   x = (i32(q) - 3) * 0.02     w = i32(v) * s[f]     y[n,f,p] = b[f] + sum(c, r) x[n,c,p+r | 0] * w[f,c,r]
    after    y[n,f,p] = f32(k[f] + sum(c, r) i32(q[n,c,p+r | 3]) * i32(v[f,c,r])) * (0.02*s)[f] + b[f]     k[f] = -3 * sum(c, r) v[f,c,r]

An identity of the numbers meant: the products are the same, and the integer sum is exact, so what is left of rounding is one product and
one sum of f32 for an element. What the zero points add is known for constant operands, unless their numbers less the zero point take more
than a byte; for these and the others it is the sum of the other operand's bytes, a kernel of its own. Where the result is quantised at
once, its scale is multiplied into the factor and the bias.

The first operand is made unsigned and the second signed, the form in which processors multiply bytes: `q - 128` and `zero - 128` stand
for the same number as `q` and `zero`, so `choose_signs` lets whoever quantises a value do either. Operators on integers, which take
the zero points off before they multiply, become the same products; the zero point of their first operand may be known at run time alone.
Left alone are programs in `strict` mode, values dequantised with numbers that are not known, scales along a reduced dimension, and sums
that could leave i32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from codegen.dtypes import DType, f32, i8, i32, u8
from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.graph.bytes import Array, ByteContraction, Operand, State, byte_contraction
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.quantised import (
    Quantising,
    dequantise_program,
    dequantising,
    quantise_program,
    quantised,
    quantising,
)
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Cast,
    Const,
    Definition,
    Dynamic,
    Expr,
    Holds,
    Piece,
    Program,
    Read,
    Reduce,
    Reducer,
    Select,
    Tensor,
)
from tensorlang.tensor.nodes import Name as Bound
from tensorlang.tensor.walk import Fresh, fresh_for

SUM = Reducer("sum", ("a",), ("b",), (i32,), (Binary("+", Bound("a"), Bound("b")),), (Const(0, i32),), True, "sum")
GROUP, FEW_CHANNELS = 4, 16
"""How many neighbours processors multiply and add at once, and below how many channels these lie along rows of pictures."""
LARGEST_SUM = (1 << 31) // (255 * 128)
"""How many products of bytes an i32 always holds."""


def integer_contractions(graph: Graph) -> Graph:
    """Return the graph with every contraction of dequantised values done in integers."""
    state = State.of(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        made = _integer(state, node) if isinstance(node, Kernel) else None
        nodes += [_plain(state, node)] if made is None else made
    nodes = [n for n in nodes if n.name not in state.gone]
    return state.rebuilt(nodes)


def _plain(state: State, node: Node) -> Node:
    """Return a kernel that quantises or dequantises with its numbers written in its program."""
    if not isinstance(node, Kernel) or node.program.mode == "strict":
        return node
    graph = state.graph
    found, back = quantising(graph, node), dequantising(graph, node)
    if found is not None:
        program = quantise_program(graph.values[found.source].shape, found.scale, found.zero, found.dtype)
        return replace(node, program=program, inputs=(found.source,))
    value = None if back is None else graph.values[back.source]
    plain = None if back is None or value is None else dequantise_program(value.dtype, value.shape, back)
    return node if plain is None or back is None else replace(node, program=plain, inputs=(back.source,))


def _integer(state: State, node: Kernel) -> list[Node] | None:
    found = byte_contraction(state, node)
    if found is None:
        return None
    built = _Building(state, node, found)
    if not built.possible():
        return None
    filled = built.filled()
    return _Building(state, node, found if filled is None else filled[0], weight=None if filled is None else filled[1]).nodes()


# ---------------------------------------------------------------- what takes its place


@dataclass(slots=True)
class _Building:
    state: State
    node: Kernel
    found: ByteContraction
    weight: Array | None = None
    """The constant operand less its zero points, if it is not the node's own."""
    fresh: Fresh = field(init=False)
    params: list[tuple[Tensor, str]] = field(default_factory=list)
    before: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = fresh_for(self.found.program)

    # ---- may it be done

    def possible(self) -> bool:
        a, b, reduce = self.found.a, self.found.b, self.found.reduce
        count = prod(_extent(x) for x in reduce.binders)
        if count == 0 or (count >= LARGEST_SUM and not self.whole_numbers) or a.bytes.dim is not None:
            return False
        if b.unknown is not None or (a.unknown is not None and not self.constant(b)):
            return False
        if self.constant(b):
            known = self.slots(b, b.bytes.dim) is not None if b.bytes.dim is not None else True
            return known and self.whole(b) and (self.weights() is not None or count < LARGEST_SUM // 2)
        return a.inside is None and b.bytes.dim is None

    def whole(self, operand: Operand) -> bool:
        """Tell whether the reduction reads all of the operand's axes but those of the result, each by an index of its own."""
        ranges = {x.name: _extent(x) for x in self.found.reduce.binders if x.lo == Int(0)}
        axes = self.found.program.definitions[0].axes
        slots = [(s, n) for s, n in zip(operand.read.index, operand.tensor.shape, strict=True) if not _is_axis(s, axes) and n != Int(1)]
        names = [s.name for s, _ in slots if isinstance(s, Name)]
        plain = all(isinstance(s, Name) and ranges.get(s.name) == _count(n) for s, n in slots)
        unit = {n for n, extent in ranges.items() if extent == 1}
        return plain and len(set(names)) == len(names) and {*names} | unit == {x.name for x in self.found.reduce.binders}

    @property
    def whole_numbers(self) -> bool:
        """Whether the sum itself is asked for: it may wrap, as it would anyway."""
        return self.found.program.definitions[0].tensors[0].dtype == i32

    def constant(self, operand: Operand) -> bool:
        return operand.bytes.source in self.state.graph.constants

    def to(self, dtype: DType, operand: Operand, number: int) -> int:
        """Return what stands for the byte `number` of the operand in bytes of `dtype`."""
        have = self.dtype(operand)
        return number if have == dtype else number + 128 if dtype == u8 else number - 128

    def dtype(self, operand: Operand) -> DType:
        return self.state[operand.bytes.source].dtype

    def slots(self, operand: Operand, dim: int) -> tuple[int, ...] | None:
        """Return the axes of the operand's tensor that make up `dim`, if the program reads them at axes of its own."""
        axes, found = self.found.program.definitions[0].axes, operand.tensor.groups[dim]
        plain = all(_is_axis(operand.read.index[k], axes) or operand.tensor.shape[k] == Int(1) for k in found)
        return found if plain else None

    # ---- the second operand, constant

    def weights(self) -> Array | None:
        """Return the constant operand less its zero points, if it fits signed bytes then."""
        if self.weight is not None:
            return self.weight
        array = self.less_zero()
        fits = array.size == 0 or (int(array.min()) >= -128 and int(array.max()) <= 127)
        return array if fits else None

    def less_zero(self) -> Array:
        """Return the constant operand less its zero points."""
        b = self.found.b
        array, zero = (x.astype(np.int32) for x in (self.state.graph.constants[b.bytes.source], b.bytes.zero))
        return array - (zero if b.bytes.dim is None else zero.reshape([-1 if k == b.bytes.dim else 1 for k in range(array.ndim)]))

    def filled(self) -> tuple[ByteContraction, Array] | None:
        """Return the same sum with weights of zero behind each row of a window, so that its taps fill whole groups, where these are what
        lies next to each other: in pictures of few channels, which do not fill whole groups themselves."""
        a, b, reduce = self.found.a, self.found.b, self.found.reduce
        array = self.weights() if self.constant(b) else None
        slot, last = a.read.index[-1], reduce.binders[-1]
        if array is None or isinstance(slot, Dynamic) or len(a.read.index) < 4 or Name(last.name) not in b.read.index:
            return None
        form = affine.affine_form(slot)
        channels = prod(_extent(x) for x in reduce.binders if not _is_tap(x, a.read))
        few = channels < FEW_CHANNELS and channels % GROUP
        missing = -_extent(last) % GROUP
        if form is None or form[0].get(last.name) != 1 or not few or not missing or last.lo != Int(0):
            return None
        axis = b.read.index.index(Name(last.name))
        width = _extent(last) + missing
        dim = b.tensor.dimension_of(axis)
        shape = tuple(Int(width) if k == axis else n for k, n in enumerate(b.tensor.shape))
        padding = [(0, missing) if k == dim else (0, 0) for k in range(array.ndim)]
        inside = affine.within(slot, 0, a.tensor.shape[-1])
        if isinstance(a.inside, Holds):
            inside = affine.conj(a.inside.cond, inside)
        elif a.inside is not None:
            return None
        wider = replace(
            self.found,
            reduce=replace(reduce, binders=(*reduce.binders[:-1], replace(last, hi=Int(width)))),
            a=replace(a, inside=Holds(inside)),
            b=replace(b, tensor=replace(b.tensor, shape=shape)),
        )
        return wider, np.pad(array, padding)

    # ---- all of it

    def nodes(self) -> list[Node]:
        state, found = self.state, self.found
        a, b = found.a, found.b
        za = self.to(u8, a, int(a.bytes.zero))
        self.params.append((replace(a.tensor, dtype=u8), self.as_bytes(a, u8)))
        terms: list[Expr] = []
        if self.constant(b):
            fitting = self.weights()
            same = self.dtype(b) == i8 and (fitting is None or (self.weight is None and not b.bytes.zero.any()))
            array = self.less_zero() if fitting is None else fitting
            held = array if fitting is not None else state.graph.constants[b.bytes.source].astype(np.int32) - 128
            self.params.append((replace(b.tensor, dtype=i8), b.bytes.source if same else state.constant(b.bytes.source, held, i8)))
            if fitting is None:
                terms.append(Binary("*", self.zeros(), self.sum_of(a, self.params[0], za)))
            if za:
                terms.append(self.known_sum(array, za))
            if a.unknown is not None:
                terms.append(Binary("*", a.unknown, self.known_sum(array, 1)))
        else:
            self.params.append((replace(b.tensor, dtype=i8), self.as_bytes(b, i8)))
            zb = self.to(i8, b, int(b.bytes.zero))
            terms += self.sums(za, zb)
        total: Expr = Reduce(SUM, found.reduce.binders, (Binary("*", self.factor(a, za), self.factor(b, 0)),))
        for term in terms:
            total = Binary("+", term, total)
        return [*self.before, self.kernel(total)]

    def factor(self, operand: Operand, zero: int) -> Expr:
        dtype = u8 if operand is self.found.a else i8
        read: Expr = operand.read
        return Cast(i32, read if operand.inside is None else Select(operand.inside, read, Const(zero, dtype)))

    def as_bytes(self, operand: Operand, dtype: DType) -> str:
        """Return the value with the operand's bytes in `dtype`."""
        name = operand.bytes.source
        if self.dtype(operand) == dtype:
            return name
        value = self.state.graph.values[name]
        made = self.state.value(f"{name} as {dtype}", dtype, value.shape)
        axes = tuple(f"i{k}" for k in range(len(value.shape)))
        read = Cast(i32, Read("x", tuple(Name(x) for x in axes)))
        moved = Cast(dtype, Binary("+", read, Const(self.to(dtype, operand, 0), i32)))
        source, result = (Tensor(n, t, tuple(Int(s) for s in value.shape)) for n, t in (("x", value.dtype), ("y", dtype)))
        program = Program("shift", (), (source,), ("y",), (Definition((result,), axes, (Piece(moved),)),))
        self.before.append(Kernel(f"shift {made}", program, (name,), (made,), members=members(self.node)))
        return made

    def known_sum(self, array: Array, za: int) -> Expr:
        """Return the sum of the constant operand over the reduced indices, times minus the first operand's zero point."""
        b = self.found.b
        full = array.reshape([_count(n) for n in b.tensor.shape])
        reduced = tuple(k for k, s in enumerate(b.read.index) if not _is_axis(s, self.found.program.definitions[0].axes))
        kept = [k for k in range(full.ndim) if k not in reduced]
        return self.read_known("sum of weights", -za * full.sum(axis=reduced, dtype=np.int64), i32, kept)

    def read_known(self, stem: str, array: Array, dtype: DType, kept: list[int]) -> Expr:
        """Return the read of a new constant, one element for each index of the second operand's axes `kept`."""
        b = self.found.b
        tensor = Tensor(self.fresh(stem.replace(" ", "_")), dtype, tuple(b.tensor.shape[k] for k in kept))
        shaped = array.reshape([_count(n) for n in tensor.shape])
        self.params.append((tensor, self.state.constant(f"{stem} of {self.node.name}", shaped, dtype)))
        return Read(tensor.name, tuple(b.read.index[k] for k in kept))

    def sums(self, za: int, zb: int) -> Iterator[Expr]:
        """Yield what the zero points of two operands that are not constant add to the sum of products."""
        count = prod(_extent(x) for x in self.found.reduce.binders)
        if zb:
            yield Binary("*", Const(-zb, i32), self.sum_of(self.found.a, self.params[0], za))
        if za:
            yield Binary("*", Const(-za, i32), self.sum_of(self.found.b, self.params[1], zb))
        if za and zb:
            yield Const(za * zb * count, i32)

    def zeros(self) -> Expr:
        """Return minus the zero points of the constant operand as signed bytes: one number, or one for each index of an axis."""
        b = self.found.b
        numbers = [-self.to(i8, b, int(z)) for z in b.bytes.zero.flat]
        kept = None if b.bytes.dim is None else self.slots(b, b.bytes.dim)
        return Const(numbers[0], i32) if kept is None else self.read_known("zero points", np.array(numbers), i32, list(kept))

    def sum_of(self, operand: Operand, param: tuple[Tensor, str], zero: int) -> Expr:
        """Return the read of the sum of an operand's bytes over the reduced indices, `zero` around them: a kernel before this one."""
        definition = self.found.program.definitions[0]
        used = walk.index_names(operand.read)
        axes = tuple(n for n in definition.axes if n in used)
        extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
        shape = tuple(extents[n] for n in axes)
        # The read sits at the operand's own place; binders are renamed so that the two programs share nothing.
        binders = tuple(x for x in self.found.reduce.binders if x.name in used)
        unused = prod(_extent(x) for x in self.found.reduce.binders if x.name not in used)
        body = self.factor(operand, zero)
        value: Expr = Reduce(SUM, binders, (body,)) if binders else body
        if unused != 1:
            value = Binary("*", value, Const(unused, i32))
        result = Tensor(self.fresh("total"), i32, shape)
        program = Program("sum_bytes", (), (param[0],), (result.name,), (Definition((result,), axes, (Piece(value),)),))
        name = self.state.value(f"sum of {param[1]}", i32, tuple(_count(n) for n in shape))
        label = f"sum {operand.tensor.name} of {self.node.name}"
        self.before.append(Kernel(label, program, (param[1],), (name,), members=members(self.node)))
        self.params.append((result, name))
        return Read(result.name, tuple(Name(n) for n in axes))

    # ---- what is done to the sum

    def kernel(self, total: Expr) -> Kernel:
        found, node = self.found, self.node
        definition = found.program.definitions[0]
        after = None if self.whole_numbers else self.quantised_at_once()
        inverse = np.float64(1) if after is None else 1 / np.float64(after.scale)
        value: Expr = total if self.whole_numbers else Binary("*", Cast(f32, total), self.scale(inverse))
        for term in found.rest:
            value = Binary("+", value, self.rest(term, inverse))
        result, output, also = definition.tensors[0], node.outputs[0], tuple[str, ...]()
        if after is not None:
            [reader] = self.state.readers[output]
            assert isinstance(reader, Kernel)
            value = quantised(value, 1, after.zero, after.dtype)
            result, output, also = replace(result, dtype=after.dtype), reader.outputs[0], members(reader)
            self.state.gone.add(reader.name)
        inputs = node.bound
        used = walk.tensor_names(value)
        for param in found.program.params:
            if param.name in used and param.name not in {t.name for t, _ in self.params}:
                self.params.append((param, inputs[param.name]))
        program = replace(
            found.program,
            params=tuple(t for t, _ in self.params),
            definitions=(Definition((result,), definition.axes, (Piece(value),)),),
        )
        made = replace(node, program=program, inputs=tuple(v for _, v in self.params), outputs=(output,), operator="", attrs=())
        return replace(made, members=(*members(node), *also))

    def quantised_at_once(self) -> Quantising | None:
        """Return how the result is quantised, when that is all that is done with it and every other term is known."""
        output = self.node.outputs[0]
        readers = self.state.readers[output]
        if output in self.state.graph.outputs or len(readers) != 1 or not isinstance(readers[0], Kernel):
            return None
        found = quantising(self.state.graph, readers[0])
        return found if found is not None and all(self.known(t) is not None for t in self.found.rest) else None

    def known(self, term: Expr) -> Array | None:
        """Return the constant that a term reads at axes of its own."""
        bound = self.node.bound
        match term:
            case Read(name, index) if bound.get(name) in self.state.graph.constants and not any(isinstance(s, Dynamic) for s in index):
                return self.state.graph.constants[bound[name]]
            case _:
                return None

    def rest(self, term: Expr, inverse: np.float64) -> Expr:
        array = self.known(term)
        if inverse == 1 or array is None:
            return term
        assert isinstance(term, Read)
        old = next(p for p in self.found.program.params if p.name == term.tensor)
        tensor = replace(old, name=self.fresh("bias"))
        self.params.append((tensor, self.state.constant(f"bias of {self.node.name}", array * inverse, f32)))
        return replace(term, tensor=tensor.name)

    def scale(self, inverse: np.float64) -> Expr:
        a, b = self.found.a.bytes, self.found.b.bytes
        product = np.float64(a.scale) * b.scale.astype(np.float64) * inverse
        if b.dim is None:
            return Const(float(np.float32(product)), f32)
        kept = self.slots(self.found.b, b.dim)
        assert kept is not None
        return self.read_known("scale", product, f32, list(kept))


def _is_tap(binder: Binder, read: Read) -> bool:
    """Tell whether the binder moves along with another index in some slot: a place in a window."""
    slots = [s for s in read.index if not isinstance(s, Dynamic) and binder.name in set(affine.names(s))]
    return any(not isinstance(s, Name) for s in slots)


def _extent(binder: Binder) -> int:
    return LARGEST_SUM if binder.extent is None else binder.extent


def _count(e: object) -> int:
    return e.value if isinstance(e, Int) else LARGEST_SUM


def _is_axis(slot: object, axes: tuple[str, ...]) -> bool:
    return isinstance(slot, Name) and slot.name in axes
