"""What the parameters of an operator stand for in one instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from codegen.dtypes import DType
from polyhedral import expr as px
from tensorlang.check.packs import Pattern
from tensorlang.check.problems import NeedsStatic
from tensorlang.check.values import Tensor, Value
from tensorlang.diagnostics import Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir


@dataclass(frozen=True, slots=True)
class Arg:
    """A tensor argument: the language type of an element, and the sizes of each dimension (several for a composite one)."""

    dtype: DType
    dims: tuple[tuple[px.Expr, ...], ...]
    lo: px.Expr | None = None
    hi: px.Expr | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """`values`: sizes, packs and attributes by name. `params` and `results` by declared name, tuples for `each`. `parameters`: as the IR
    declares them. `each_sizes`: the packs that `each N` introduces."""

    operator: sx.Operator
    dtypes: Mapping[str, DType]
    values: Mapping[str, Value]
    params: Mapping[str, Tensor | tuple[Tensor, ...]]
    results: Mapping[str, Tensor | tuple[Tensor, ...]]
    parameters: tuple[ir.Tensor, ...]
    result_names: tuple[str, ...]
    patterns: Mapping[str, Pattern]
    each_sizes: frozenset[str]
    sizes: tuple[str, ...]
    context: px.Cond

    def all_tensors(self) -> Iterator[Tensor]:
        for group in (*self.params.values(), *self.results.values()):
            yield from group if isinstance(group, tuple) else (group,)

    def needs_static(self, sizes: frozenset[str], span: Span, what: str) -> NeedsStatic:
        return NeedsStatic(sizes, span, what)


@dataclass(frozen=True, slots=True)
class Inlined:
    """The definitions of a callee under the caller's names, and the kernels that it calls."""

    definitions: tuple[ir.Definition, ...]
    context: px.Cond
    externs: tuple[ir.ExternCall, ...] = ()


Call: TypeAlias = Callable[[Any, Any, sx.Apply], Inlined]
"""Inlines an operator call: (body, equation, call) -> definitions. The results are entered into the body's tensors."""
