"""What is known of an operator's parameters while they are bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.bindings import Arg
from tensorlang.check.module import Module
from tensorlang.check.packs import Lengths, PackNames, dimension_names
from tensorlang.check.problems import counted, error
from tensorlang.check.scalar import value
from tensorlang.check.scope import Context, Scope
from tensorlang.check.values import Idx, Packed, Value
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.notation import bare
from tensorlang.tensor.walk import Fresh

TensorArg = Arg | tuple[Arg, ...] | None


SizeArg = px.Expr | tuple[px.Expr, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller hands over, by parameter name. `named`: sizes stay symbolic under their own names, except those in `static`.
    `declared_ranges`: the ranges of integer parameters are checked when the operator is entered."""

    tensors: Mapping[str, TensorArg]
    attrs: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[str, SizeArg] = field(default_factory=dict)
    named: bool = False
    static: frozenset[str] = frozenset()
    checks_ranges: bool = True


@dataclass
class Binder:
    """The equations solved so far."""

    module: Module
    operator: sx.Operator
    given: Given
    dtypes: dict[str, DType] = field(default_factory=dict)
    sizes: dict[str, px.Expr] = field(default_factory=dict)
    """By name; elements of packs as `D.0`."""
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Which parameter gave a size, and with which shape."""
    lengths: Lengths = field(default_factory=Lengths)
    attrs: dict[str, Value] = field(default_factory=dict)
    packs: frozenset[str] = frozenset()
    each_sizes: frozenset[str] = frozenset()
    context: px.Cond = px.TRUE

    def length(self, name: str) -> int:
        found = self.lengths.get(name)
        if found is None:
            raise error(
                "R0213",
                f"`{self.operator.name}`: it cannot be told how many dimensions `{name}..` stands for",
                self.operator.name_span,
                "in this operator",
                help=f"give it a length: pass a tuple for an attribute or size that goes with `{name}..`",
            )
        return found

    def ctx(self) -> Context:
        names = frozenset(n for e in self.sizes.values() for n in affine.names(e))
        return Context(self.module, self.operator, dict(self.dtypes), Fresh(), value, sizes=names)

    def scope(self) -> Scope:
        values: dict[str, Value] = dict(self.attrs)
        for name in dict.fromkeys(n for n, _ in dimension_names(self.operator)):
            if name in self.packs:
                length = self.lengths.get(name)
                if length is not None and all(f"{name}.{k}" in self.sizes for k in range(length)):
                    values[name] = Packed(tuple(Idx(self.sizes[f"{name}.{k}"], True) for k in range(length)))
            elif name in self.sizes:
                values[name] = Idx(self.sizes[name], True)
        return Scope(values)


def tensor_params(operator: sx.Operator) -> list[sx.Param]:
    return [p for p in operator.params if p.kind == "tensor"]


def args_of(b: Binder, param: sx.Param) -> tuple[Arg, ...]:
    arg = b.given.tensors.get(param.name)
    return () if arg is None else arg if isinstance(arg, tuple) else (arg,)


def pack_names(b: Binder) -> PackNames:
    return PackNames(b.packs, frozenset(), "")


def dims_of(param: sx.Param) -> tuple[sx.Node, ...]:
    return param.type.dims or () if isinstance(param.type, sx.TensorType) else ()


def wrong_rank(b: Binder, param: sx.Param, arg: Arg) -> Exception:
    assert isinstance(param.type, sx.TensorType)
    axes = {name: given for name, given in b.given.attrs.items() if name in ("axis", "axes") and isinstance(given, int | tuple)}
    packed = any(isinstance(dim, sx.Pack) for dim in param.type.dims or ())
    rank = counted(len(param.type.dims or ()), "dimension")
    return error(
        "R0201",
        f"`{b.operator.name}`: `{param.name}` has {counted(len(arg.dims), 'dimension')}, which does not fit its declaration",
        param.span,
        f"given shape [{show_shape(arg)}]",
        notes=tuple(f"`{name}` is {given}" for name, given in axes.items()) if packed else (),
        help="give an argument of the declared rank, or another axis: they count from 0, and from the end below 0"
        if packed and axes
        else "give an argument of the declared rank"
        if packed
        else f"give an array of {rank}: reshape it, or take a part of it",
    )


def show_shape(arg: Arg) -> str:
    return ", ".join("*".join(bare(s) for s in dim) for dim in arg.dims)
