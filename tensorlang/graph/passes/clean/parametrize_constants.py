"""Kernels that differ in numbers alone become one.

    before   y[i] = sat[u8](round(x[i] * 21.3) + 128)      z[i] = sat[u8](round(u[i] * 7.9) + 131)        two kernels to compile
    after    y[i] = sat[u8](round(x[i] * n[0]) + n[1])     n = constant f32[2] of 21.3, 128 and of 7.9, 131     one, called twice

A quantised model has as many scales and zero points as layers; without this each layer would be a kernel of its own. Only numbers that
differ are read from a parameter, and only those outside reductions and indices: what a proof or a schedule looks at (limits of an index,
the identity of a reducer, what stands around a tensor) stays as it is, and so does what integers are divided or shifted by. No bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from codegen.dtypes import DType, f32, i32
from polyhedral.expr import Int
from tensorlang.graph.edit import fresh, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node, Value
from tensorlang.graph.passes.memory.layout import layouts_of
from tensorlang.graph.programs import program_key
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Const, Expr, Holds, Program, Read, Reduce, Select, Tensor

READ = (f32, i32)
"""The types of numbers that are read."""


def parametrize_constants(graph: Graph) -> Graph:
    """Return the graph with the numbers that kernels differ in as constants they read."""
    groups: dict[str, list[_Member]] = {}
    known: dict[int, tuple[str, tuple[Const, ...]]] = {}
    for node in graph.nodes:
        if isinstance(node, Kernel):
            text, found = known[id(node.program)] = known.get(id(node.program)) or (_text(node.program), numbers(node.program))
            groups.setdefault(_key(graph, node, text), []).append(_Member(node, found))
    made = _Constants(set(graph.values))
    changed: dict[str, Node] = {}
    for group in groups.values():
        columns = zip(*(member.numbers for member in group), strict=True)
        differing = frozenset(k for k, column in enumerate(columns) if len(set(map(repr, column))) > 1)
        if differing:
            changed |= {member.node.name: _reading(member, differing, made) for member in group}
    nodes = [changed.get(node.name, node) for node in graph.nodes]
    return rebuilt(graph, nodes, values=made.values, constants=made.arrays)


def numbers(program: Program) -> tuple[Const, ...]:
    """Return the numbers of a program that could as well be read, in order."""
    found: list[Const] = []

    def note(number: Const) -> Expr:
        found.append(number)
        return number

    _mapped(program, note)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Member:
    node: Kernel
    numbers: tuple[Const, ...]


@dataclass(slots=True)
class _Constants:
    """The constants made so far. Kernels with equal numbers share them."""

    taken: set[str]
    values: list[Value] = field(default_factory=list)
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    names: dict[tuple[DType, bytes], str] = field(default_factory=dict)

    def named(self, dtype: DType, numbers: Sequence[Const]) -> str:
        """Return the name of the constant that holds `numbers`."""
        array = np.array([number.value for number in numbers], dtype.numpy)
        key = (dtype, array.tobytes())
        if key not in self.names:
            self.names[key] = name = fresh(self.taken, f"numbers {dtype}")
            self.taken.add(name)
            self.values.append(Value(name, dtype, array.shape))
            self.arrays[name] = array
        return self.names[key]


def _reading(member: _Member, differing: frozenset[int], made: _Constants) -> Node:
    """Return the kernel reading those of its numbers whose places are listed."""
    program, inputs = member.node.program, member.node.inputs
    places = {dtype: [k for k in sorted(differing) if member.numbers[k].dtype == dtype] for dtype in READ}
    names: dict[int, Read] = {}
    params: list[Tensor] = []
    taken = walk.program_names(program)
    for dtype, ks in places.items():
        if ks:
            name = fresh(taken, f"numbers_{dtype}")
            params.append(Tensor(name, dtype, (Int(len(ks)),)))
            names |= {k: Read(name, (Int(at),)) for at, k in enumerate(ks)}
            inputs = (*inputs, made.named(dtype, [member.numbers[k] for k in ks]))
    counter = iter(range(len(member.numbers)))
    changed = _mapped(program, lambda number: names.get(next(counter), number))
    return replace(member.node, program=replace(changed, params=(*program.params, *params)), inputs=inputs)


def _text(program: Program) -> str:
    """Return a text that programs share when they are equal but for their numbers."""
    return program_key(_mapped(program, lambda number: replace(number, value=0)))


def _key(graph: Graph, node: Kernel, text: str) -> str:
    """Return a text that kernels share when they are equal but for their numbers; `text` is that of the program."""
    layouts = sorted(layouts_of(graph, node).items(), key=lambda item: item[0])
    constants = [value in graph.constants for value in node.inputs]
    return repr((text, layouts, constants))


def _mapped(program: Program, f: Callable[[Const], Expr]) -> Program:
    """Return the program with `f` applied to the numbers that could as well be read."""

    def visit(e: Expr) -> Expr:
        match e:
            case Const(dtype=dtype):
                return f(e) if dtype in READ else e
            case Reduce() | Read() | Select(cond=Holds()):
                return e
            case Binary("//" | "%" | "shl" | "shr", lhs, Const()):
                return replace(e, lhs=visit(lhs))
            case _:
                return walk.map_children(visit, e)

    return walk.map_values(program, visit)
