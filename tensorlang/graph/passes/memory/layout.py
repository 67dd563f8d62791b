"""Layouts: keep values in the order in memory that the kernels around them want.

    before   t = conv(x, w)             u = relu(pool(t))    v = conv(u, k)          output v
    after    t = conv(x, w') blocked    u = ... blocked      v = conv(u, k')         output v, row-major          w', k' laid out now

`preferred_layouts(graph)` says of each kernel which layouts it prefers for its parameters and its result, by the names of its program.
Constants are laid out at compile time; a result gets the layout that its kernel prefers. Kernels without preferences read whatever is
there. Their result takes over the layout of what they read element by element or near by (pointwise, pooling, concatenation), or else the
one that a reader prefers.

Where a reader prefers another order than a value has, one copy is inserted for all of them. Inputs, outputs and views are row-major: what
a kernel would rather write in blocks is copied once more when the graph returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from polyhedral import affine
from polyhedral.expr import Expr, Floor, Int, Mod, Name
from tensorlang.diagnostics import InternalError
from tensorlang.graph.edit import fresh, reads, rebuilt, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, Value, View
from tensorlang.graph.programs import constant_params, copy_program, is_contraction, program_key, recurs, samples_in, single_value
from tensorlang.graph.sizes import Symbols, is_one, is_open, laid_out, same, same_shape, sample_of
from tensorlang.schedule.layout import Layout
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Dynamic, Program, Read, Slot, Tensor

PreferredLayouts: TypeAlias = Callable[[Graph], Callable[[Kernel], Mapping[str, Layout]]]
Derive: TypeAlias = Callable[[Program, frozenset[str], frozenset[str], Mapping[str, Layout], Mapping[str, int]], Mapping[str, Layout]]
"""The layouts that a schedule of a program would be derived for: of parameters that are constants, and of what is row-major whatever it is
derived for, the names are given; what has its layout already; and samples of open sizes."""
Array = np.ndarray[Any, Any]


def layout(graph: Graph, preferred_layouts: PreferredLayouts) -> Graph:
    """Return the graph with layouts assigned, constants laid out, and copies where they meet."""
    preferred_by = preferred_layouts(graph)
    preferred = {node.name: _canonical(graph, node, preferred_by(node)) for node in graph.nodes if isinstance(node, Kernel)}
    state = _State(graph, dict(graph.values), preferred, _demands(graph, preferred))
    for node in graph.nodes:
        match node:
            case View():
                state.nodes.append(replace(node, input=state.arranged(node.input, None)))
            case Kernel():
                _kernel(state, node)
            case Extern() | Loop():
                state.nodes.append(replace(node, inputs=tuple(state.arranged(v, None) for v in node.inputs)))
            case Join() | Part():
                raise InternalError("layout", f"`{node.name}` is about the memory of values whose layouts are still to be chosen")
    return rebuilt(graph, state.nodes, values=state.values.values(), constants=state.constants)


def prefer_derived(derive: Derive) -> PreferredLayouts:
    """Return the preferred layouts that `derive` gives, which is asked once for equal kernels."""

    def of_graph(graph: Graph) -> Callable[[Kernel], Mapping[str, Layout]]:
        row_major, known = RowMajor.of(graph), dict[object, Mapping[str, Layout]]()

        def of_kernel(kernel: Kernel) -> Mapping[str, Layout]:
            constants, fixed = constant_params(graph, kernel), row_major.names(kernel)
            key = program_key(kernel.program), constants, fixed, kernel.forms
            if key not in known:
                samples, derived = samples_in(graph, kernel.program), partial(_derived, derive, constants, fixed)
                known[key] = _preferred(graph.symbols, kernel.program, samples, derived)
                unread = {p.name for p in kernel.program.params}.difference(*map(walk.definition_reads, kernel.program.definitions))
                for form in kernel.forms:
                    others = _preferred(graph.symbols, form.program, {**samples, **dict(form.at)}, derived)
                    known[key] = {**known[key], **{name: layout for name, layout in others.items() if name in unread}}
            return known[key]

        return of_kernel

    return of_graph


def _preferred(
    symbols: Symbols | None,
    program: Program,
    samples: Mapping[str, int],
    derive: Callable[[Program, Mapping[str, Layout], Mapping[str, int]], Mapping[str, Layout]],
) -> Mapping[str, Layout]:
    """Return the layouts that a program prefers. Of what has open sizes they are those that it would have for the samples."""
    if symbols is None or not program.sizes:
        return derive(program, {}, {})
    from tensorlang.graph.merged_axes import merged_axes

    known = {name: Int(n) for name, n in samples.items()}
    at_samples, table = derive(walk.substitute_sizes(program, known), {}, {}), walk.tensor_table(program)
    shapes: dict[str, tuple[Any, ...]] = {name: symbols.shape(table[name]) for name in at_samples}
    found = {name: retargeted(at_samples[name], shape) for name, shape in shapes.items() if is_open(shape)}
    chosen = {name: layout for name, layout in found.items() if layout is not None}
    flat, moved = merged_axes(program, {name: laid_out(layout) for name, layout in chosen.items()}, symbols)
    merged = {name for name, tensor in walk.tensor_table(flat).items() if tensor.shape != table[name].shape}
    derived = derive(flat, moved, {**symbols.samples_of(flat.sizes), **samples})
    return {**{name: layout for name, layout in derived.items() if name not in merged}, **chosen}


def _derived(
    derive: Derive,
    constants: frozenset[str],
    fixed: frozenset[str],
    program: Program,
    given: Mapping[str, Layout],
    samples: Mapping[str, int],
) -> Mapping[str, Layout]:
    return derive(program, constants, fixed, given, samples)


def layouts_of(graph: Graph, kernel: Kernel) -> dict[str, Layout]:
    """Return the layouts of the kernel's parameters and results by the names of its program; row-major ones are absent. A size that has to
    be equal to another may be written as that in the program: its blocks are as large as the program says."""
    names = (*(p.name for p in kernel.program.params), *kernel.program.results)
    pairs = zip(names, (*kernel.inputs, *kernel.outputs), strict=True)
    found = {name: (layout, graph.values[v].shape) for name, v in pairs if (layout := graph.values[v].layout) is not None}
    table = walk.tensor_table(kernel.program) if any(is_open(shape) for _, shape in found.values()) else {}
    return {name: laid_out(_for_program(layout, shape, table.get(name), graph.symbols)) for name, (layout, shape) in found.items()}


def _for_program(layout: Layout, shape: tuple[int, ...], tensor: Tensor | None, symbols: Symbols | None) -> Layout:
    """Return the layout of a value of this shape for the tensor that a program has for it."""
    if tensor is None or symbols is None:
        return layout
    return _moved(layout, shape, symbols.shape(tensor))


def _moved(layout: Layout, shape: tuple[Any, ...], to: tuple[Any, ...]) -> Layout:
    """Return the layout of a tensor of `shape` for the same tensor where its shape is written `to`."""
    return layout if same_shape(shape, to) else retargeted(layout, to) or layout


@dataclass(frozen=True, slots=True)
class RowMajor:
    """The values of a graph that are row-major whatever kernels prefer: what the graph takes and returns, views, and what kernels that are
    not in the language read and write; and samples of them,
    which are written in one order as in another. `read` and `written`: by which side of a kernel."""

    read: frozenset[str]
    written: frozenset[str]

    @staticmethod
    def of(graph: Graph) -> RowMajor:
        """Return such values of a graph."""
        fixed = [node for node in graph.nodes if isinstance(node, View | Extern | Loop)]
        given = {*graph.inputs, *(name for node in fixed for name in writes(node))} - graph.constants.keys()
        samples = (n for n in graph.nodes if isinstance(n, Kernel) and set(n.inputs) <= given and isinstance(single_value(n.program), Read))
        given |= {v for node in list(samples) for v in node.outputs}
        return RowMajor(frozenset(given), frozenset({*graph.outputs, *(name for node in fixed for name in reads(node))}))

    def names(self, kernel: Kernel) -> frozenset[str]:
        """Return the parameters and results of a kernel that are such values, by the names of its program."""
        params = (p.name for p, v in zip(kernel.program.params, kernel.inputs, strict=True) if v in self.read)
        results = (r for r, v in zip(kernel.program.results, kernel.outputs, strict=True) if v in self.written)
        return frozenset((*params, *results))


Preference: TypeAlias = dict[str, Layout | None]
"""What a kernel would like, by the names of values; None is row-major."""


def _canonical(graph: Graph, node: Kernel, preferred: Mapping[str, Layout]) -> Preference:
    """Return the layouts that a kernel prefers, for values whose shapes may be written with other sizes than its program has for them."""
    names = zip((*(p.name for p in node.program.params), *node.program.results), (*node.inputs, *node.outputs), strict=True)
    shapes = {v: (preferred[name], name, graph.values[v].shape) for name, v in names if name in preferred}
    symbols = graph.symbols if any(is_open(shape) for _, _, shape in shapes.values()) else None
    if symbols is None:
        return {v: canonical(layout, shape) for v, (layout, _, shape) in shapes.items()}
    table = walk.tensor_table(node.program)
    return {v: canonical(_moved(layout, symbols.shape(table[name]), shape), shape) for v, (layout, name, shape) in shapes.items()}


def _demands(graph: Graph, preferred: Mapping[str, Preference]) -> dict[str, Layout]:
    """Return the layouts that readers prefer for values, the first preference for each; values that are returned or viewed are left out."""
    out: dict[str, Layout] = {}
    fixed = set(graph.outputs) | {name for node in graph.nodes if isinstance(node, View | Extern | Loop) for name in reads(node)}
    for node in graph.nodes:
        for name, found in preferred.get(node.name, {}).items():
            if found is not None and name not in fixed and name in reads(node):
                out.setdefault(name, found)
    return out


@dataclass(slots=True)
class _State:
    graph: Graph
    values: dict[str, Value]
    preferred: Mapping[str, Preference]
    demands: Mapping[str, Layout]
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    copies: dict[tuple[str, Layout | None], str] = field(default_factory=dict)

    def arranged(self, name: str, wanted: Layout | None) -> str:
        """Return the value with the elements of `name` in the layout `wanted`: itself, or a copy that is made once."""
        value = self.values[name]
        if value.layout == wanted:
            return name
        if (name, wanted) not in self.copies:
            copy = replace(value, name=fresh(self.values, f"{name} laid out"), layout=wanted)
            self.values[copy.name] = copy
            self.copies[name, wanted] = copy.name
            if name in self.graph.constants and wanted is not None:
                self.constants[copy.name] = self.graph.constants[name]
            else:
                self.nodes.append(Kernel(f"lay out {copy.name}", copy_program(value.dtype, value.shape), (name,), (copy.name,)))
        return self.copies[name, wanted]


def _kernel(state: _State, node: Kernel) -> None:
    preference = state.preferred[node.name]
    results: Preference = {v: None if v in state.graph.outputs else preference.get(v) for v in node.outputs}
    if not preference and len(node.outputs) == 1 and node.outputs[0] not in state.graph.outputs:
        results[node.outputs[0]] = _taken_over(state, node) or state.demands.get(node.outputs[0])
    kept = {found for found in results.values() if found is not None}
    inputs = []
    for name in node.inputs:
        now = state.values[name].layout
        fits = not preference or (now is not None and any(retargeted(now, state.graph.values[v].shape) in kept for v in node.outputs))
        inputs.append(state.arranged(name, preference.get(name, now if fits else None)))
    for name, found in results.items():
        state.values[name] = replace(state.values[name], layout=found)
    state.nodes.append(replace(node, inputs=tuple(inputs)))
    _return_row_major(state, preference)


def _return_row_major(state: _State, preference: Preference) -> None:
    """Let the last kernel write what the graph returns in the layout it prefers, and copy from there."""
    node = state.nodes[-1]
    assert isinstance(node, Kernel)
    for name in node.outputs:
        wanted = preference.get(name)
        if name in state.graph.outputs and wanted is not None:
            value = state.values[name]
            blocked = replace(value, name=fresh(state.values, f"{name} to lay out"), layout=wanted)
            state.values[blocked.name] = blocked
            outputs = tuple(blocked.name if v == name else v for v in node.outputs)
            node = replace(node, outputs=outputs)
            state.nodes[-1:] = [node]
            copy = Kernel(f"lay out {name}", copy_program(value.dtype, value.shape), (blocked.name,), (name,))
            state.nodes.append(copy)
            return


def _taken_over(state: _State, node: Kernel) -> Layout | None:
    """Return the layout of the largest input that the kernel reads in the order of its result and that the result can have."""
    if recurs(node.program) or is_contraction(node.program):
        return None
    shape = state.graph.values[node.outputs[0]].shape
    found = [(p.name, state.values[v]) for p, v in zip(node.program.params, node.inputs, strict=True)]
    for param, value in sorted(found, key=lambda item: -sample_of(prod(item[1].shape))):
        fits = value.layout is not None and len(value.shape) == len(shape) and _in_order(node.program, param)
        if value.layout is not None and fits and _divides(value.layout, shape):
            return retargeted(value.layout, shape)
    return None


def _in_order(program: Program, param: str) -> bool:
    """Tell whether every read of `param` is near the element being defined: each index moves with the axis at its own position alone."""
    reads_of = ((d, e) for d in program.definitions for p in d.pieces for e in walk.reads(p.value) if e.tensor == param)
    return all(_near(slot, k, d.axes) for d, e in reads_of for k, slot in enumerate(e.index))


def _near(slot: Slot, position: int, axes: tuple[str, ...]) -> bool:
    own = axes[position : position + 1]
    return not isinstance(slot, Dynamic) and not (set(affine.names(slot)) & set(axes)).difference(own)


def _divides(layout: Layout, shape: tuple[int, ...]) -> bool:
    """Tell whether the blocks of `layout` cut a tensor of `shape` without a rest."""
    extents = dict(zip(layout.axes, shape, strict=True))
    return all(
        not is_open((extents[n],)) and extents[n] % e.divisor == 0 for e in layout.dims if isinstance(e, Floor) for n in affine.names(e)
    )


# ---------------------------------------------------------------- layouts


def retargeted(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """Return the same arrangement for a tensor of another shape, or None when it has gaps or borders and its block cannot be told."""
    if len(shape) != len(layout.axes):
        return None
    extents = dict(zip(layout.axes, shape, strict=True))
    block = [_extent(e, extents) for e in layout.dims]
    return None if None in block else replace(layout, shape=tuple(n for n in block if n is not None))


def _extent(e: Expr, extents: Mapping[str, int]) -> int | None:
    match e:
        case Name(name):
            return extents[name]
        case Floor(value=Name(name), divisor=divisor):
            return None if is_open((extents[name],)) else -(-extents[name] // divisor)
        case Mod(value=Name(), divisor=divisor):
            return divisor
        case _:
            return None


def canonical(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """Return the simplest layout with the same memory, its axes called d0, d1, …; None when that is row-major order.

    Storage dimensions of one cell go, and a quotient next to its remainder is the axis itself."""
    to: dict[str, Expr] = {axis: Name(f"d{k}") for k, axis in enumerate(layout.axes)}
    extents = {f"d{k}": n for k, n in enumerate(shape)}
    dims: list[tuple[Expr, int]] = []
    for e, n in zip((affine.substitute(e, to) for e in layout.dims), layout.shape, strict=True):
        if is_one(n) and e == Int(0):
            continue
        before = dims[-1] if dims else None
        match e, before:
            case Mod(value=Name(name), divisor=inner), (Floor(value=Name(other), divisor=outer), m) if (
                name == other and inner == outer == n and same(m * n, extents[name])
            ):
                dims[-1] = (Name(name), m * n)
            case _:
                dims.append((e, n))
    found = Layout(tuple(extents), tuple(e for e, _ in dims), tuple(n for _, n in dims))
    plain = [Name(d) for d, n in extents.items() if not is_one(n)]
    return None if [e for e, n in dims if not is_one(n)] == plain and same(prod(found.shape), prod(shape)) else found
