"""Complex numbers as pairs of real ones, before anything else reads a graph.

    before   z: c64[n, m]      w = mul(z, z)          y = abs(w)
    after    z: f32[n, m, 2]   re = z_re * z_re - z_im * z_im   …   y = hypot(re, im)

The language has no complex numbers. What moves elements does so to both parts; what computes is written out; a Fourier transform is a
product with a matrix of cosines and sines, or, where its length has factors, one along each of them with a turn of every element in between
(Cooley and Tukey 1965). What comes in or goes out has the parts along a last axis, as `torch.view_as_real` has them. Other operators are
refused (O010).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isqrt, log
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from tensorlang.diagnostics import CompileError, error

aten = torch.ops.aten

_MATRIX_MOST = 32
"""Up to this length a transform is one product: below it, factors save less than their turns cost."""
_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
Node: TypeAlias = Any
"""A node of a graph of torch's, which has no types for whoever reads this without torch."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """The real and the imaginary part of a value, both of its shape."""

    re: Node
    im: Node


def as_real(module: Any) -> Any:
    """Return a graph of torch's without complex numbers, the same one where it has none. Raises CompileError O010 for operators of complex
    numbers that nothing is there for."""
    nodes = module.graph.nodes
    if not any(_has_number(node) or any(map(is_complex, _values_of(node, module))) for node in nodes):
        return module
    return _Rewriting(module).run()


def parts_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of real numbers: where it is complex, both parts along a last axis, which are not copied but for views that
    conjugate."""
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor


def place_of(node: Node) -> str:
    """Return the line of Python that a node comes from; below it Python points at a part of the line."""
    lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines()]
    return next((line for line in reversed(lines) if line.strip("^~")), "")


def complex_outputs(module: Any) -> frozenset[int]:
    """Return which outputs of a graph are complex."""
    (returned,) = next(node for node in module.graph.nodes if node.op == "output").args
    return frozenset(
        k for k, node in enumerate(returned) if isinstance(node, torch.fx.Node) and any(map(is_complex, _values_of(node, module)))
    )


def is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _has_number(node: Node) -> bool:
    """Tell whether a complex number is among the arguments of a node."""
    return any(isinstance(x, complex) for x in pytree.tree_leaves((node.args, node.kwargs)))


def _values_of(node: Node, module: Any) -> tuple[Any, ...]:
    value = _held(module, node.target) if node.op == "get_attr" else node.meta.get("val")
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _mapped(arguments: Any, f: Callable[[Node], Any]) -> Any:
    """Return arguments with what a function makes of each node in them."""
    match arguments:
        case torch.fx.Node():
            return f(arguments)
        case tuple() | list():
            return type(arguments)(_mapped(a, f) for a in arguments)
        case dict():
            return {name: _mapped(a, f) for name, a in arguments.items()}
        case _:
            return arguments


def _held(module: Any, target: Any) -> Any:
    for part in str(target).split("."):
        module = getattr(module, part)
    return module


class _Rewriting:
    def __init__(self, module: Any) -> None:
        self.module, self.graph = module, torch.fx.Graph()
        values = [value for node in module.graph.nodes for value in _values_of(node, module)]
        self.mode = torch._guards.detect_fake_mode([v for v in values if isinstance(v, torch.Tensor)]) or FakeTensorMode()
        self.found: dict[Node, Any] = {}
        """What the values of the old graph are: nodes of the new one, pairs, or several of these."""
        self.held: dict[str, torch.Tensor] = {}
        self.place, self.trace = "", None

    def run(self) -> Any:
        for node in self.module.graph.nodes:
            self.place, self.trace = place_of(node), node.meta.get("stack_trace")
            self.found[node] = self._rewritten(node)
        root = {n.target: self.held.get(n.target, None) for n in self.graph.nodes if n.op == "get_attr"}
        return torch.fx.GraphModule(
            {name: _held(self.module, name) if tensor is None else tensor for name, tensor in root.items()}, self.graph
        )

    def _rewritten(self, node: Node) -> Any:
        has_complex = any(map(is_complex, _values_of(node, self.module))) or _has_number(node)
        match node.op:
            case "placeholder" if has_complex:
                given = self.graph.placeholder(node.target)
                given.meta = {**node.meta, "val": self._computed(parts_of, node.meta["val"])}
                return self._pair_of(given)
            case "get_attr" if has_complex:
                held = _held(self.module, node.target)
                with unset_fake_temporarily():
                    parts = parts_of(held)
                return self._pair_of(self._constant(parts))
            case "output":
                return self.graph.output(_mapped(node.args[0], lambda n: self._joined(self.found[n])))
            case "call_function" if has_complex or any(isinstance(self.found[a], _Pair | tuple) for a in node.all_input_nodes):
                return self._complex_call(node)
            case _:
                copied = self.graph.node_copy(node, self.found.__getitem__)
                if node.op == "get_attr" and isinstance(held := _held(self.module, node.target), torch.Tensor):
                    copied.meta.setdefault("val", self.mode.from_tensor(held))
                return copied

    def _complex_call(self, node: Node) -> Any:
        args, named = _mapped((tuple(node.args), dict(node.kwargs)), self.found.__getitem__)
        if getattr(node.target, "__name__", "") == "getitem":
            return args[0][args[1]]
        name = str(node.target).removeprefix("aten.").removeprefix("prims.")
        rule = _RULES.get(name, _RULES.get(name.split(".")[0]))
        try:
            if rule is not None:
                return rule(self, node, *args, **named)
        except TypeError as problem:
            if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                raise
        raise self.missing(f"operator {name} of complex numbers")

    def missing(self, what: str) -> CompileError:
        written = f", written as {self.place}" if self.place else ""
        return error("O010", "this model needs what is not supported yet", notes=(what + written,))

    # ------------------------------------------------------------ new nodes

    def _computed(self, op: Callable[..., Any], *args: Any, **named: Any) -> Any:
        with self.mode:
            return op(*args, **named)

    def call(self, op: Any, *args: Any, **named: Any) -> Node:
        """Return a node that calls an operator, with what torch says of its result."""
        node = self.graph.call_function(op, args, named)
        values, named_values = _mapped((args, named), lambda n: n.meta["val"])
        node.meta = {"val": self._computed(op, *values, **named_values), "stack_trace": self.trace}
        return node

    def _constant(self, tensor: torch.Tensor) -> Node:
        name = f"_real_{len(self.held)}"
        self.held[name] = tensor
        node = self.graph.get_attr(name)
        node.meta = {"val": self.mode.from_tensor(tensor)}
        return node

    def table(self, elements: np.ndarray[Any, Any], like: Node) -> Node:
        """Return known elements, in the element type of a value."""
        with unset_fake_temporarily():  # torch captures in a mode in which no tensor has elements
            return self._constant(torch.from_numpy(np.ascontiguousarray(elements)).to(like.meta["val"].dtype))

    def _pair_of(self, x: Node) -> _Pair:
        return _Pair(self.call(aten.select.int, x, -1, 0), self.call(aten.select.int, x, -1, 1))

    def _joined(self, found: Any) -> Any:
        return self.call(aten.stack.default, [found.re, found.im], -1) if isinstance(found, _Pair) else found

    def shape(self, x: Node) -> list[Any]:
        """Return the extents of a value: numbers, and nodes for those that are not known."""
        sizes = x.meta["val"].shape
        return [n if isinstance(n, int) else self.call(aten.sym_size.int, x, k) for k, n in enumerate(sizes)]

    def of_one_shape(self, *operands: Node) -> tuple[Node, ...]:
        """Return operands, each repeated so that all have the shape that they broadcast to."""
        if len({str(x.meta["val"].shape) for x in operands}) == 1:
            return operands
        shapes = [self.shape(x) for x in operands]
        rank = max(map(len, shapes))
        columns = zip(*([1] * (rank - len(shape)) + shape for shape in shapes), strict=True)
        extents = [next((extent for extent in column if extent != 1), 1) for column in columns]
        return tuple(self.call(aten.expand.default, x, extents) for x in operands)

    # ------------------------------------------------------------ arithmetic

    def like(self, *operands: Any) -> Node:
        """Return a value of the element type that numbers beside operands have: the real part of a pair, or a real operand."""
        pairs = _pairs(operands)
        x: Node = pairs[0].re if pairs else next(x for x in operands if isinstance(x, torch.fx.Node))
        return x if x.meta["val"].is_floating_point() else self.call(aten._to_copy.default, x, dtype=torch.get_default_dtype())

    def numbers(self, *operands: Any) -> list[Any]:
        """Return operands with complex numbers among them as pairs."""
        return [self.pair(x, self.like(*operands)) if isinstance(x, complex) else x for x in operands]

    def pair(self, x: Any, like: Node) -> _Pair:
        """Return an operand as a pair; `like` tells the element type of numbers."""
        if isinstance(x, _Pair):
            return x
        if isinstance(x, torch.fx.Node):
            re = x if x.meta["val"].is_floating_point() else self.call(aten._to_copy.default, x, dtype=like.meta["val"].dtype)
            return _Pair(re, self.call(aten.zeros_like.default, re))
        dtype = like.meta["val"].dtype
        return _Pair(*(self.call(aten.full.default, [], float(part), dtype=dtype) for part in (complex(x).real, complex(x).imag)))

    def sum(self, op: Any, a: Any, b: Any, **named: Any) -> _Pair:
        """Return a sum or a difference of complex operands."""
        like = self.like(a, b)
        a, b = self.pair(a, like), self.pair(b, like)
        return _Pair(self.call(op, a.re, b.re, **named), self.call(op, a.im, b.im, **named))

    def mul(self, a: Any, b: Any) -> Any:
        return self.product(aten.mul.Tensor, a, b)

    def product(self, op: Any, a: Any, b: Any) -> Any:
        """Return what is linear in two operands, each a pair or real."""
        match a, b:
            case _Pair(), _Pair():
                re = self.call(aten.sub.Tensor, self.call(op, a.re, b.re), self.call(op, a.im, b.im))
                return _Pair(re, self.call(aten.add.Tensor, self.call(op, a.re, b.im), self.call(op, a.im, b.re)))
            case _Pair(), _:
                return _Pair(self.call(op, a.re, b), self.call(op, a.im, b))
            case _, _Pair():
                return _Pair(self.call(op, a, b.re), self.call(op, a, b.im))
            case _:
                return self.call(op, a, b)

    def quotient(self, a: Any, b: Any) -> Any:
        """Return a quotient, one of whose operands is a pair."""
        if not isinstance(b, _Pair):
            return _Pair(self.call(aten.div.Tensor, a.re, b), self.call(aten.div.Tensor, a.im, b))
        return self.mul(a, self.reciprocal(b))

    def reciprocal(self, z: _Pair) -> _Pair:
        square = self.call(aten.add.Tensor, self.call(aten.mul.Tensor, z.re, z.re), self.call(aten.mul.Tensor, z.im, z.im))
        return _Pair(self.call(aten.div.Tensor, z.re, square), self.call(aten.neg.default, self.call(aten.div.Tensor, z.im, square)))

    def polar(self, radius: Any, angle: Node) -> _Pair:
        turn = _Pair(self.call(aten.cos.default, angle), self.call(aten.sin.default, angle))
        return self.mul(radius, turn)  # type: ignore[no-any-return]

    def size(self, z: _Pair) -> Node:
        return self.call(aten.hypot.default, z.re, z.im)

    def angle(self, z: _Pair) -> Node:
        return self.call(aten.atan2.default, z.im, z.re)

    def logarithm(self, z: _Pair) -> _Pair:
        return _Pair(self.call(aten.log.default, self.size(z)), self.angle(z))

    def exponential(self, z: _Pair) -> _Pair:
        return self.polar(self.call(aten.exp.default, z.re), z.im)

    def tanh(self, z: _Pair) -> _Pair:
        tanh, tan = self.call(aten.tanh.default, z.re), self.call(aten.tan.default, z.im)
        one = self.call(aten.ones_like.default, tanh)
        return self.quotient(_Pair(tanh, tan), _Pair(one, self.call(aten.mul.Tensor, tanh, tan)))  # type: ignore[no-any-return]

    def conjugate(self, z: _Pair) -> _Pair:
        return _Pair(z.re, self.call(aten.neg.default, z.im))

    # ------------------------------------------------------------ Fourier transforms

    def transform(self, z: Any, sign: int) -> _Pair:
        """Return the sums of `z[.., j] * exp(sign * 2 pi i j k / n)` over the last axis, for each k; `z` is a pair, or real."""
        first = z.re if isinstance(z, _Pair) else z
        n = first.meta["val"].shape[-1]
        if not isinstance(n, int):
            return self.product(aten.matmul.default, z, self._open_turns(first, sign))  # type: ignore[no-any-return]
        low = next((a for a in range(isqrt(n), 1, -1) if n % a == 0), 1)
        if n <= _MATRIX_MOST or low == 1:
            return self.product(aten.matmul.default, z, self._turns(n, n, n, sign, first))  # type: ignore[no-any-return]
        high = n // low
        outer = self.shape(first)[:-1]
        split = self.each(z, lambda x: self.call(aten.view.default, x, [*outer, high, low]))
        rows = self.transform(self._swapped(split), sign)  # [.., low, high]: along the digits that count `low` elements each
        turned = self.mul(rows, self._turns(low, high, n, sign, first))
        columns = self.transform(self._swapped(turned), sign)  # [.., high, low]
        swapped = self._swapped(columns)
        return self.each(swapped, lambda x: self.call(aten.reshape.default, x, [*outer, n]))  # type: ignore[no-any-return]

    def _swapped(self, z: Any) -> Any:
        return self.each(z, lambda x: self.call(aten.transpose.int, x, -2, -1))

    def each(self, z: Any, f: Callable[[Node], Node]) -> Any:
        return _Pair(f(z.re), f(z.im)) if isinstance(z, _Pair) else f(z)

    def _turns(self, rows: int, columns: int, n: int, sign: int, like: Node) -> _Pair:
        """Return `exp(sign * 2 pi i j k / n)`, with zeros and ones that are exact at quarters of a turn: sums of real numbers that are real
        have no trace of an imaginary part, whose sign their angle would depend on."""
        share = np.outer(np.arange(rows), np.arange(columns)) % n / n
        past = np.abs(share - np.round(share))
        cosine, sine = np.sin((0.25 - past) * 2 * np.pi), np.sin((0.25 - np.abs(past - 0.25)) * 2 * np.pi)
        signed = np.where(share > 0.5, -sign, sign) * sine + 0.0  # no zero has a sign
        return _Pair(self.table(cosine, like), self.table(signed, like))

    def _open_turns(self, x: Node, sign: int) -> _Pair:
        n = self.shape(x)[-1]
        k = self.call(aten.arange.start_step, 0, n, 1, dtype=torch.int64)
        steps = self.call(aten.mul.Tensor, self.call(aten.unsqueeze.default, k, 1), k)
        count = self.call(aten._to_copy.default, self.call(aten.remainder.Tensor, steps, self._number(n)), dtype=torch.float64)
        share = self.call(aten.div.Tensor, count, self._number(n))
        past = self.call(aten.abs.default, self.call(aten.sub.Tensor, share, self.call(aten.round.default, share)))
        half = self.call(aten.abs.default, self.call(aten.sub.Tensor, past, 0.25))
        sides = self.call(
            aten.where.ScalarOther, self.call(aten.gt.Scalar, share, 0.5), self.call(aten.full_like.default, share, -sign), sign
        )
        return _Pair(self._sine(past, 1, x), self._sine(half, sides, x))

    def _sine(self, short: Node, factor: Any, like: Node) -> Node:
        """Return the sine of what is `short` of a quarter of a turn, times a factor."""
        angle = self.call(aten.mul.Tensor, self.call(aten.rsub.Scalar, short, 0.25), 2 * np.pi)
        sine = self.call(aten.mul.Tensor, self.call(aten.sin.default, angle), factor)
        return self.call(aten._to_copy.default, sine, dtype=like.meta["val"].dtype)

    def _number(self, n: Any) -> Node:
        return self.call(aten.full.default, [], n, dtype=torch.int64)

    def along(self, z: Any, dim: int, sign: int) -> _Pair:
        """Return a transform along any axis."""
        first = z.re if isinstance(z, _Pair) else z
        rank = first.meta["val"].dim()
        if dim % rank == rank - 1:
            return self.transform(z, sign)
        moved = self.each(z, lambda x: self.call(aten.transpose.int, x, dim, -1))
        return self.each(self.transform(moved, sign), lambda x: self.call(aten.transpose.int, x, dim, -1))  # type: ignore[no-any-return]

    def half(self, x: Node, dim: int) -> Any:
        """Return how many elements of the transform of real numbers tell all of them."""
        return self.integer(operator.add, self.integer(operator.floordiv, self.shape(x)[dim], 2), 1)

    def integer(self, op: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """Return what an operator of Python makes of integers, each known or a node."""
        return self.call(op, a, b) if isinstance(a, torch.fx.Node) or isinstance(b, torch.fx.Node) else op(a, b)

    def normalised(self, z: Any, mode: int, extents: Sequence[Any]) -> Any:
        """`mode` 1 divides by the root of the number of elements, 2 by that number."""
        if mode == 0:
            return z
        count = reduce(lambda a, b: self.integer(operator.mul, a, b), extents, 1)
        if isinstance(count, int):
            return self.each(z, lambda x: self.call(aten.mul.Tensor, x, count ** (-0.5 if mode == 1 else -1.0)))
        number = self.call(aten.full.default, [], count, dtype=torch.float64)
        number = self.call(aten.sqrt.default, number) if mode == 1 else number
        return self.each(z, lambda x: self.call(aten.div.Tensor, x, number))


Rule: TypeAlias = Callable[..., Any]

# ---------------------------------------------------------------- what moves or adds elements does so to both parts


def _of_both(r: _Rewriting, node: Node, *args: Any, **named: Any) -> Any:
    def part(a: Any, im: bool) -> Any:
        match a:
            case _Pair():
                return a.im if im else a.re
            case tuple() | list():
                return [part(x, im) for x in a]
            case torch.fx.Node() if im and isinstance(a.meta.get("val"), torch.Tensor) and a.meta["val"].is_floating_point():
                return r.call(aten.zeros_like.default, a)
            case complex():
                return a.imag if im else a.real
            case _:
                return a

    re, im = (r.call(node.target, *(part(a, im) for a in args), **{k: part(a, im) for k, a in named.items()}) for im in (False, True))
    value = node.meta["val"]
    if not isinstance(value, tuple | list):
        return _Pair(re, im)
    return tuple(_Pair(r.call(operator.getitem, re, k), r.call(operator.getitem, im, k)) for k in range(len(value)))


def _with_value(place: int) -> Rule:
    """Return the rule for what writes a value, the argument number `place`: where that is a number, its imaginary part is written, too."""

    def rule(r: _Rewriting, node: Node, *args: Any) -> Any:
        numbers = [complex(a) if k == place and isinstance(a, int | float) else a for k, a in enumerate(args)]
        return _of_both(r, node, *numbers)

    return rule


def _where(r: _Rewriting, node: Node, condition: Node, *values: Any) -> Any:
    return _of_both(r, node, condition, *(r.pair(x, r.like(*values)) for x in values))


def _cat(r: _Rewriting, node: Node, parts: Sequence[Any], *args: Any) -> Any:
    return _of_both(r, node, [r.pair(x, r.like(*parts)) for x in parts], *args)


def _pairs(given: Any) -> list[_Pair]:
    match given:
        case _Pair():
            return [given]
        case tuple() | list():
            return [p for part in given for p in _pairs(part)]
        case dict():
            return _pairs(list(given.values()))
        case _:
            return []


def _sum(r: _Rewriting, node: Node, a: Any, b: Any, *, alpha: Any = 1) -> _Pair:
    return r.sum(node.target, a, b, alpha=alpha)


# ---------------------------------------------------------------- what computes


def _difference_from(r: _Rewriting, node: Node, a: Any, b: Any, alpha: Any = 1) -> _Pair:
    return r.sum(aten.sub.Tensor, b, a, alpha=alpha)


def _mul(r: _Rewriting, node: Node, a: Any, b: Any) -> Any:
    return r.mul(*r.numbers(a, b))


def _div(r: _Rewriting, node: Node, a: Any, b: Any) -> Any:
    like = r.like(a, b)
    return r.quotient(r.pair(a, like), r.pair(b, like) if isinstance(b, complex) else b)


def _matmul(r: _Rewriting, node: Node, a: Any, b: Any) -> Any:
    return r.product(node.target, a, b)


def _addmm(r: _Rewriting, node: Node, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    bias, product = (
        x if factor == 1 else r.mul(*r.numbers(x, factor)) for x, factor in ((bias, beta), (r.product(aten.matmul.default, a, b), alpha))
    )
    return r.sum(aten.add.Tensor, bias, product)


def _pow(r: _Rewriting, node: Node, z: Any, exponent: Any) -> Any:
    if exponent == 2:
        return r.mul(z, z)
    z, exponent = r.pair(z, r.like(z, exponent)), r.numbers(z, exponent)[1]
    return r.exponential(r.mul(r.logarithm(z), exponent))


def _lerp(r: _Rewriting, node: Node, a: Any, b: Any, weight: Any) -> _Pair:
    return r.sum(aten.add.Tensor, a, r.mul(*r.numbers(r.sum(aten.sub.Tensor, b, a), weight)))


def _addcmul(r: _Rewriting, node: Node, z: Any, a: Any, b: Any, *, value: Any = 1) -> _Pair:
    return r.sum(aten.add.Tensor, z, r.mul(*r.numbers(r.mul(a, b), value)))


def _fill(r: _Rewriting, node: Node, z: _Pair, value: Any) -> _Pair:
    filling = r.pair(value, z.re)
    return _Pair(*(r.call(aten.copy.default, x, part) for x, part in ((z.re, filling.re), (z.im, filling.im))))


def _of_logarithm(base: float) -> Rule:
    return lambda r, node, z: r.each(r.logarithm(z), lambda x: r.call(aten.div.Tensor, x, log(base)))


def _turned(r: _Rewriting, z: _Pair) -> _Pair:
    """Return a number times the imaginary unit."""
    return _Pair(r.call(aten.neg.default, z.im), z.re)


def _sinh(r: _Rewriting, node: Node, z: _Pair) -> _Pair:
    return _Pair(*(r.call(aten.mul.Tensor, r.call(f, z.re), r.call(g, z.im)) for f, g in ((_SINH, _COS), (_COSH, _SIN))))


def _cosh(r: _Rewriting, node: Node, z: _Pair) -> _Pair:
    return _Pair(*(r.call(aten.mul.Tensor, r.call(f, z.re), r.call(g, z.im)) for f, g in ((_COSH, _COS), (_SINH, _SIN))))


_SIN, _COS, _SINH, _COSH = aten.sin.default, aten.cos.default, aten.sinh.default, aten.cosh.default


def _of_turned(hyperbolic: Rule) -> Rule:
    """Return the rule of sin and tan: `f(z) = -i * hyperbolic(i * z)`."""

    def rule(r: _Rewriting, node: Node, z: _Pair) -> _Pair:
        found = hyperbolic(r, node, _turned(r, z))
        return _Pair(found.im, r.call(aten.neg.default, found.re))

    return rule


def _tanh(r: _Rewriting, node: Node, z: _Pair) -> _Pair:
    return r.tanh(z)


def _sigmoid(r: _Rewriting, node: Node, z: _Pair) -> _Pair:
    half = r.tanh(r.mul(z, 0.5))
    return r.sum(aten.add.Tensor, r.mul(half, 0.5), 0.5)


def _var(r: _Rewriting, node: Node, z: _Pair, *args: Any, **named: Any) -> Node:
    return r.call(aten.add.Tensor, *(r.call(aten.var.correction, x, *args, **named) for x in (z.re, z.im)))


def _norm(r: _Rewriting, node: Node, z: _Pair, *args: Any, **named: Any) -> Node:
    return r.call(node.target, r.size(z), *args, **named)


def _either(op: Any, joined: Any) -> Rule:
    return lambda r, node, z: r.call(joined, r.call(op, z.re), r.call(op, z.im))


def _sqrt(r: _Rewriting, node: Node, z: _Pair) -> _Pair:
    half = r.call(aten.mul.Tensor, r.angle(z), 0.5)
    return r.polar(r.call(aten.sqrt.default, r.size(z)), half)


def _sgn(r: _Rewriting, node: Node, z: _Pair) -> _Pair:
    size = r.size(z)
    at_zero = r.call(aten.eq.Scalar, size, 0)
    return r.each(z, lambda x: r.call(aten.where.self, at_zero, x, r.call(aten.div.Tensor, x, size)))  # type: ignore[no-any-return]


def _equal(r: _Rewriting, node: Node, a: Any, b: Any) -> Node:
    like = r.like(a, b)
    a, b = r.pair(a, like), r.pair(b, like)
    joined = aten.logical_and.default if "eq" in str(node.target) else aten.logical_or.default
    return r.call(
        joined, *(r.call(aten.eq.Tensor if "eq" in str(node.target) else aten.ne.Tensor, x, y) for x, y in ((a.re, b.re), (a.im, b.im)))
    )


# ---------------------------------------------------------------- what makes and takes pairs


def _to(r: _Rewriting, node: Node, z: Any, dtype: Any = None, **named: Any) -> Any:
    wanted = node.meta["val"].dtype
    if not wanted.is_complex:  # the imaginary part is left out
        return r.call(aten._to_copy.default, z.re, dtype=wanted)
    part = _PARTS[wanted]
    z = z if isinstance(z, _Pair) else r.pair(r.call(aten._to_copy.default, z, dtype=part), z)
    return r.each(z, lambda x: r.call(aten._to_copy.default, x, dtype=part))


def _filled(value: complex | None = None) -> Rule:
    """Return the rule for tensors of one value, of a shape or like another tensor; None: the value is the next argument."""

    def rule(r: _Rewriting, node: Node, of: Any, *rest: Any, **_: Any) -> Any:
        number = complex(rest[0] if value is None else value)
        dtype = node.meta["val"].dtype
        shape = r.shape(of.re if isinstance(of, _Pair) else of) if isinstance(of, _Pair | torch.fx.Node) else list(of)
        if not dtype.is_complex:
            return r.call(aten.full.default, shape, number.real, dtype=dtype)
        return _Pair(*(r.call(aten.full.default, shape, part, dtype=_PARTS[dtype]) for part in (number.real, number.imag)))

    return rule


def _r2c(r: _Rewriting, node: Node, x: Node, dims: Sequence[int], mode: int, onesided: bool) -> Any:
    *others, last = dims
    z = r.along(x, last, -1)
    if onesided:
        z = r.each(z, lambda part: r.call(aten.slice.Tensor, part, last, 0, r.half(x, last)))
    for dim in reversed(others):
        z = r.along(z, dim, -1)
    return r.normalised(z, mode, [r.shape(x)[d] for d in dims])


def _c2c(r: _Rewriting, node: Node, z: Any, dims: Sequence[int], mode: int, forward: bool) -> Any:
    first = z.re if isinstance(z, _Pair) else z
    found = z
    for dim in reversed(dims):
        found = r.along(found, dim, -1 if forward else 1)
    return r.normalised(found, mode, [r.shape(first)[d] for d in dims])


def _c2r(r: _Rewriting, node: Node, z: _Pair, dims: Sequence[int], mode: int, last: Any) -> Any:
    """The other half of the last axis are conjugates, in the order backwards."""
    *others, dim = dims
    for other in reversed(others):
        z = r.along(z, other, 1)
    extents = r.shape(z.re)
    end = r.integer(operator.add, r.integer(operator.sub, last, extents[dim]), 1)
    mirrored = r.each(z, lambda x: r.call(aten.flip.default, r.call(aten.slice.Tensor, x, dim, 1, end), [dim]))
    mirrored = r.conjugate(mirrored)
    whole = _Pair(*(r.call(aten.cat.default, [a, b], dim) for a, b in ((z.re, mirrored.re), (z.im, mirrored.im))))
    found = r.along(whole, dim, 1).re
    return r.normalised(found, mode, [*(extents[d] for d in others), last])


_BOTH = (
    "_unsafe_view alias as_strided clone copy cumsum detach diagonal expand flip gather index index_add index_put index_select "
    "lift_fresh_copy mean neg permute repeat reshape roll select select_scatter slice slice_scatter split split_with_sizes squeeze "
    "sum t transpose tril triu unbind unfold unsqueeze view"
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_BOTH.split(), _of_both),
    **dict.fromkeys(("constant_pad_nd", "masked_fill"), _with_value(2)),
    "scatter": _with_value(3),
    "where": _where,
    **dict.fromkeys(("cat", "stack"), _cat),
    "add.Tensor": _sum,
    "sub.Tensor": _sum,
    "mul.Tensor": _mul,
    "mul.Scalar": _mul,
    "div.Tensor": _div,
    "div.Scalar": _div,
    "reciprocal": lambda r, node, z: r.reciprocal(z),
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot"), _matmul),
    "addmm": _addmm,
    "addcmul": _addcmul,
    "lerp": _lerp,
    "rsub": _difference_from,
    "pow": _pow,
    "sqrt": _sqrt,
    "rsqrt": lambda r, node, z: r.reciprocal(_sqrt(r, node, z)),
    "exp": lambda r, node, z: r.exponential(z),
    "expm1": lambda r, node, z: r.sum(aten.sub.Tensor, r.exponential(z), 1),
    "log": lambda r, node, z: r.logarithm(z),
    "log1p": lambda r, node, z: r.logarithm(r.sum(aten.add.Tensor, z, 1)),
    "log2": _of_logarithm(2),
    "log10": _of_logarithm(10),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "sin": _of_turned(_sinh),
    "cos": lambda r, node, z: _cosh(r, node, _turned(r, z)),
    "tan": _of_turned(_tanh),
    "sigmoid": _sigmoid,
    "var": _var,
    "std": lambda r, node, *args, **named: r.call(aten.sqrt.default, _var(r, node, *args, **named)),
    "linalg_vector_norm": _norm,
    "isnan": _either(aten.isnan.default, aten.logical_or.default),
    "isinf": _either(aten.isinf.default, aten.logical_or.default),
    "isfinite": _either(aten.isfinite.default, aten.logical_and.default),
    "sgn": _sgn,
    "abs": lambda r, node, z: r.size(z),
    "angle": lambda r, node, z: r.angle(z),
    **dict.fromkeys(
        ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset"), lambda r, node, z, *dim: r.call(node.target, z.re, *dim)
    ),
    "eq": _equal,
    "ne": _equal,
    **dict.fromkeys(("_conj", "conj_physical", "_conj_physical"), lambda r, node, z: r.conjugate(z)),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda r, node, z: z),
    "view_as_real": lambda r, node, z: r._joined(z),
    "view_as_complex": lambda r, node, x: r._pair_of(x),
    "real": lambda r, node, z: z.re,
    "imag": lambda r, node, z: z.im,
    "complex": lambda r, node, re, im: _Pair(*r.of_one_shape(re, im)),
    "polar": lambda r, node, radius, angle: r.polar(radius, angle),
    **dict.fromkeys(("_to_copy", "convert_element_type", "to"), _to),
    "full": _filled(),
    "full_like": _filled(),
    "new_full": lambda r, node, z, size, value, **_: _filled(value)(r, node, size),
    "fill": _fill,
    "scalar_tensor": lambda r, node, value, **_: _filled(value)(r, node, []),
    **dict.fromkeys(("zeros", "zeros_like", "empty", "empty_like"), _filled(0)),
    **dict.fromkeys(("new_zeros", "new_empty"), lambda r, node, z, size, **_: _filled(0)(r, node, size)),
    **dict.fromkeys(("ones", "ones_like"), _filled(1)),
    "_fft_r2c": _r2c,
    "_fft_c2c": _c2c,
    "_fft_c2r": _c2r,
}
"""By name and overload, or by name alone."""
