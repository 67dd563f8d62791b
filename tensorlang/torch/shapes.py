"""The types of an operator's results from those of its arguments, whose extents may be torch's symbolic integers.

The operator is checked for a sample of each extent, with its own sizes left open; what these are follows from the arguments' shapes, and
the results' shapes from them. So an extent is compared with a number only where the operator itself needs one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import torch

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import And, Cond, Expr, Name
from tensorlang.check.bindings import Binding
from tensorlang.check.instantiate import ArgType, signature
from tensorlang.check.values import Tensor
from tensorlang.diagnostics import Diagnostic, exception
from tensorlang.runtime.operator import Operator

Extent: TypeAlias = Any
"""An int or a `torch.SymInt`."""
Type: TypeAlias = "tuple[DType, tuple[Extent, ...]]"
Argument: TypeAlias = "Type | tuple[Type, ...] | None"

_UNSAID = 7919
"""The first sample for extents of which torch knows no example."""


@dataclass(slots=True)
class ResultTypes:
    """What an operator returns for arguments of given types; checked signatures are kept."""

    operator: Operator
    _signatures: dict[object, Binding] = field(default_factory=dict)

    def __call__(self, arguments: Sequence[Argument], attrs: Mapping[str, Any], sizes: Mapping[str, Any]) -> list[Type]:
        """Return the types of the results; torch is told which extents have to be equal. Raises CompileError R02xx for arguments that do
        not fit the operator."""
        samples = _Samples()
        types = tuple(_sampled(a, samples) for a in arguments)
        given = {name: samples.of_size(size) for name, size in sizes.items()}
        key = (types, repr(sorted(attrs.items())), repr(sorted(given.items())))
        found = self._signatures.get(key)
        if found is None:
            declared = self.operator
            found = self._signatures[key] = signature(declared.module, declared.name, types, dict(attrs), given)
        env = dict(_named_sizes(sizes))
        self._solve(found, [shape for _, shape in _flat(arguments)], env)
        return [_type(t, env) for result in found.results.values() for t in (result if isinstance(result, tuple) else (result,))]

    def _solve(self, found: Binding, shapes: Sequence[tuple[Extent, ...]], env: dict[str, Extent]) -> None:
        """Enter what the sizes of a signature are for these shapes of its parameters, and tell torch what has to be equal."""
        dimensions = [
            ([tensor.shape[k] for k in group], extent, tensor.name)
            for tensor, shape in zip(found.parameters, shapes, strict=True)
            for group, extent in zip(tensor.groups, shape, strict=True)
        ]
        while left := [d for d in dimensions if any(n not in env for e in d[0] for n in affine.names(e))]:
            if not any(_enter(factors, extent, env) for factors, extent, _ in left):
                break
        for factors, extent, name in dimensions:
            if all(n in env for e in factors for n in affine.names(e)):
                expected = prod(affine.evaluate(e, env) for e in factors)
                torch._check(extent == expected, lambda name=name: f"`{self.operator.name}`: `{name}` has another shape")
        for condition in _conjuncts(found.context):
            if all(n in env for n in affine.names(condition)):
                torch._check(affine.holds(condition, env), lambda: f"`{self.operator.name}`: its conditions do not hold")


class _Samples:
    """Numbers that stand for extents: what torch has as an example, or one that is like no other."""

    def __init__(self) -> None:
        self._unsaid: dict[str, int] = {}

    def of(self, extent: Extent) -> int:
        if isinstance(extent, int):
            return extent
        node = extent.node
        if node.has_hint():
            return int(node.hint)
        return self._unsaid.setdefault(str(node.expr), _UNSAID + len(self._unsaid))

    def of_size(self, size: Any) -> Any:
        return tuple(map(self.of, size)) if isinstance(size, tuple | list) else self.of(size)


def _sampled(argument: Argument, samples: _Samples) -> ArgType | tuple[ArgType, ...] | None:
    match argument:
        case None:
            return None
        case (DType() as dtype, shape):
            return ArgType(dtype, tuple(map(samples.of, shape)))
        case _:
            return tuple(ArgType(dtype, tuple(map(samples.of, shape))) for dtype, shape in argument)


def _flat(arguments: Sequence[Argument]) -> Iterator[Type]:
    for argument in arguments:
        if argument is not None:
            yield from (argument,) if isinstance(argument[0], DType) else argument


def _named_sizes(sizes: Mapping[str, Any]) -> Iterator[tuple[str, Extent]]:
    for name, size in sizes.items():
        if isinstance(size, tuple | list):
            yield from ((f"{name}.{k}", n) for k, n in enumerate(size))
        else:
            yield name, size


def _enter(factors: Sequence[Expr], extent: Extent, env: dict[str, Extent]) -> bool:
    """Enter the one size that a dimension tells, the only unknown of its factors; tell whether it did."""
    unknown = {n for e in factors for n in affine.names(e) if n not in env}
    open_ = [e for e in factors if any(n in unknown for n in affine.names(e))]
    if len(unknown) != 1 or len(open_) != 1:
        return False
    (name,) = unknown
    for factor in factors:
        if factor is not open_[0]:
            extent = extent // affine.evaluate(factor, env)
    atoms, offset = affine.terms(open_[0])
    if Name(name) not in atoms or any(name in affine.name_set(atom) for atom in atoms if atom != Name(name)):
        return False
    rest = offset + sum(factor * affine.evaluate(atom, env) for atom, factor in atoms.items() if atom != Name(name))
    env[name] = (extent - rest) // atoms[Name(name)]
    return True


def _conjuncts(condition: Cond) -> Iterator[Cond]:
    if isinstance(condition, And):
        for part in condition.conds:
            yield from _conjuncts(part)
    else:
        yield condition


def _type(tensor: Tensor, env: Mapping[str, Extent]) -> Type:
    assert tensor.dtype is not None
    missing = [n for dim in tensor.dims for e in dim.sizes for n in affine.names(e) if n not in env]
    if missing:
        title = f"the shape of `{tensor.name}` depends on `{missing[0]}`, which no argument tells"
        raise exception(Diagnostic("R0313", title, help=f"give the size by name: `{missing[0]}=…`"))
    return tensor.dtype, tuple(prod(affine.evaluate(e, env) for e in dim.sizes) for dim in tensor.dims)
