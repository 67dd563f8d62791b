"""Derivatives of operators as operators: `ops.blur.gradient("x")`.

    d_x = ops.blur.gradient("x")(x, w, d_y)

It takes the parameters of the operator and, for each of its results, the derivative of a number by it, and returns the derivatives of that
number by the parameters that are named. Its equations are made for the types of a call, checked and proven like those of a file, and
compiled like them. docs/gradients.md says how they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from codegen.dtypes import DTYPES
from tensorlang.check.instantiate import bound
from tensorlang.check.module import Module
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Label, exception
from tensorlang.runtime.arguments import Call, no_argument
from tensorlang.runtime.operator import Operator
from tensorlang.runtime.protocol import Tools
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import header
from tensorlang.tensor import printer
from tensorlang.tensor.gradient import gradient
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove
from tensorlang.tensor.walk import Fresh, tensor_table


class GradientOperator(Operator):
    """The derivatives of a number by some parameters of an operator, from those by its results."""

    def __init__(
        self,
        forward: Operator,
        by: tuple[str, ...],
        given: Schedule | sx.Schedule | None = None,
        knobs: Mapping[str, int] | None = None,
    ) -> None:
        """`by`: the tensor parameters of `forward` whose derivatives are returned, in order.

        Raises CompileError T0180 for one whose type has no derivatives, and R0312 for what is no tensor parameter."""
        _check_parameters(forward.declaration, by)
        self.forward, self.by = forward, by
        module, name = _with_gradient(forward.module, forward.name, by)
        super().__init__(name, module, forward.tools, forward.roles, given, knobs or {}, forward.sizes)

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[object, ...]]:
        return GradientOperator, (self.forward, self.by, self.given, dict(self.knobs))

    @property
    def names(self) -> dict[str, str]:
        """What the derivatives by results and parameters of the operator are called."""
        return _names(self.forward.declaration, self.by)

    def _under(self, given: Schedule | sx.Schedule | None, knobs: Mapping[str, int]) -> Operator:
        return GradientOperator(self.forward, self.by, given, knobs)

    def compiled_by(self, tools: Tools) -> Operator:
        return GradientOperator(self.forward.compiled_by(tools), self.by, self.given, self.knobs)

    def text(self, /, *args: Any, **named: Any) -> str:
        """Return the equations for arguments like these as a program, or for symbolic sizes where no arguments are given."""
        program = self.program(*args, **named) if args else self.symbolic_program(named)
        return printer.show(program)

    def symbolic_program(self, given: Mapping[str, Any]) -> Program:
        """Do as that of `Operator` does. Raises CompileError T0180 for what is not differentiable."""
        made = self._reversed(self.forward.symbolic_program(given))
        prove(made)
        return made

    def _checked(self, call: Call, symbolic: bool, static: frozenset[str] = frozenset(), ahead: bool = False) -> Program:
        made = self._reversed(self.forward._checked(self._forward_call(call), symbolic, static, ahead))
        prove(made)
        return made

    def _meant(self, call: Call) -> Program:
        return self._reversed(self.forward._meant(self._forward_call(call)))

    def _forward_call(self, call: Call) -> Call:
        """Return the call of the operator that a call of its gradient is of. Raises CompileError R02xx where that does not fit, R0313 where
        what derivatives are by is left out."""
        bound(self.module, self.name, call.types, call.attrs, call.sizes)
        tensors = [p for p in self.forward.declaration.params if p.kind == "tensor"]
        types = call.types[: len(tensors)]
        missing = [p.name for p, t in zip(tensors, types, strict=True) if t is None and p.name in self.by]
        if missing:
            title = f"`{self.name}` is not given `{missing[0]}`, whose derivative it returns"
            raise exception(
                Diagnostic("R0313", title, help=f"give it, or ask for the derivatives by the others alone: {self._others(missing)}")
            )
        return replace(call, types=types)

    def _others(self, missing: Sequence[str]) -> str:
        rest = [f'"{name}"' for name in self.by if name not in missing]
        return f"`{self.forward.name}.gradient({', '.join(rest)})`"

    def _reversed(self, program: Program) -> Program:
        found = self.names
        several = {p.name for p in (*self.forward.declaration.params, *self.forward.declaration.results) if p.each}
        table = tensor_table(program)
        by = [t for name in self.by for t in _tensors_of(name, (p.name for p in program.params), several)]
        results = [t for name in found if name not in self.by for t in _tensors_of(name, program.results, several)]
        names = {t: t.replace(name, new, 1) for name, new in found.items() for t in _tensors_of(name, table, several)}
        return gradient(program, by, {t: names[t] for t in (*by, *results)}, self.name)


def _tensors_of(name: str, tensors: Iterable[str], several: Container[str]) -> list[str]:
    """Return the tensors of a program that a parameter or result of its operator is: `x.0`, `x.1`, … where it is `each` of several."""
    if name not in several:
        return [name]
    return [t for t in tensors if t.startswith(f"{name}.") and t.removeprefix(f"{name}.").isdecimal()]


def _check_parameters(declaration: sx.Operator, by: tuple[str, ...]) -> None:
    tensors = {p.name: p for p in declaration.params if p.kind == "tensor"}
    if not by:
        help = f'name the parameters: `{declaration.name}.gradient("{next(iter(tensors), "x")}")`'
        raise exception(Diagnostic("R0313", f"`{declaration.name}.gradient` is not given the name of a parameter", help=help))
    for name in by:
        if name not in tensors:
            raise no_argument(declaration, name, list(tensors))
        if by.count(name) > 1:
            raise exception(Diagnostic("R0312", f"`{declaration.name}.gradient` is given `{name}` twice"))
        if not _may_be_float(declaration, tensors[name]):
            why = "derivatives are by floats"
            raise _refused(f"`{name}` of `{declaration.name}` is not differentiated", tensors[name], why)
    if declaration.extern and not declaration.clauses:
        why = "it has no body, and of a kernel nobody knows the equations"
        raise _refused(f"`{declaration.name}` is not differentiated", tensors[by[0]], why)
    if not any(_may_be_float(declaration, r) for r in declaration.results):
        raise _refused(f"`{declaration.name}` is not differentiated", declaration.results[0], "none of its results is of floats")


def _refused(title: str, param: sx.Param, why: str) -> CompileError:
    labels = () if param.span is NOWHERE else (Label(param.span, "declared here"),)
    return exception(Diagnostic("T0180", title, labels, (why,)))


def _may_be_float(declaration: sx.Operator, param: sx.Param) -> bool:
    """Tell whether a tensor may have elements that are floats: of a type variable that is known only when it is called."""
    dtype = param.type.dtype if isinstance(param.type, sx.TensorType) else ""
    if dtype in DTYPES:
        return DTYPES[dtype].is_float
    kind = next((g.bound for g in declaration.generics if g.name == dtype), dtype)
    return kind not in ("int", "signed", "unsigned", "int8")


def _names(declaration: sx.Operator, by: Sequence[str]) -> dict[str, str]:
    """Return what the derivatives by results and parameters are called."""
    fresh = Fresh({p.name for p in (*declaration.params, *declaration.results)})
    results = [r.name for r in declaration.results if _may_be_float(declaration, r)]
    return {name: fresh(f"d_{name}") for name in (*results, *by)}


def _with_gradient(module: Module, name: str, by: tuple[str, ...]) -> tuple[Module, str]:
    """Return the module with the gradient of an operator declared, and what it is called. The declaration has the equations that the
    derivatives are of, which may say how long packs are."""
    forward = module.operators[name]
    names, own = _names(forward, by), Fresh(set(module.operators))(f"{name}_gradient")
    wanted = [replace(r, name=names[r.name], range=None) for r in forward.results if r.name in names]
    results = tuple(replace(p, name=names[p.name], range=None, default=None) for p in forward.params if p.name in by)
    ordered = sorted(results, key=lambda r: by.index(next(p for p in by if names[p] == r.name)))
    declared = replace(forward, name=own, params=(*forward.params, *wanted), results=tuple(ordered), extern=False, doc="")
    declared = replace(declared, doc=f"The derivatives of `{header(forward).split('(')[0]}` by {', '.join(by)}.")
    defining = {**module.defining_modules, own: module.defining_module(name)}
    operators = {**module.operators, own: declared}
    return replace(module, operators=operators, defining_modules=defining), own
