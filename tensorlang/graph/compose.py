"""One program for a group of kernels: what pointwise members compute is written where it is read.

    before   t[n, (g, f)] = sum(c) x[n, (g, c)] * w[(g, f), c]     u[n, k] = t[n, k] + s[n, k]     y[n, k] = u[n, k] * tanh(u[n, k])
    after    t[n, (g, f)] = sum(c) x[n, (g, c)] * w[(g, f), c]     y[n, (g, f)] = let u = t[n, g, f] + s[n, F*g + f] in u * tanh(u)

The definitions of the anchor stay as they are; what reads its result in place takes over its axes, so that code generation sees one box.
A value that is read several times in place is bound once. No rounding is lost: a value of a narrow float type is cast to that type where
the tensor that rounded it was, unless it is an element of that type, which is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Int
from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.programs import expressions, here, is_pointwise, is_single, reads_in_place, same_box
from tensorlang.tensor import notation, walk
from tensorlang.tensor.absorb import absorb
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Idiom, Let, Name, Piece, Program, Read, Slot, Tensor
from tensorlang.tensor.renaming import rename_program
from tensorlang.tensor.simplify import rounded
from tensorlang.tensor.types import Types
from tensorlang.tensor.unit_binders import drop_unit_axes
from tensorlang.tensor.walk import Fresh


def composed(graph: Graph, group: tuple[Kernel, ...], kept: tuple[str, ...] = ()) -> tuple[Program, tuple[str, ...]]:
    """Return the program of a group whose last member defines its one result, after those of `kept`, values of other members that are
    needed elsewhere, too; and the values bound to its parameters."""
    state = _State(shared=_shared(group))
    for node in group:
        _add(state, node, last=node is group[-1] or node.outputs[0] in kept)
    name = "_".join(dict.fromkeys(node.program.name for node in group))
    program = Program(
        name[:60].rstrip("_"),
        tuple(dict.fromkeys(size for node in group for size in node.program.sizes)),
        tuple(param for _, param in state.params),
        tuple(state.made[value].tensor.name for value in (*kept, group[-1].outputs[0])),
        tuple(state.definitions),
        affine.conj(*(node.program.context for node in group)),
        group[0].program.mode,
        tuple(state.idioms),
    )
    return absorb(redefined(program, map(drop_unit_axes, program.definitions))), tuple(value for value, _ in state.params)


@dataclass(frozen=True, slots=True)
class _Made:
    """How a value of the group is read: as a tensor, by its `name` where it is bound, or, with `value` over `axes`, by computing it and
    rounding it as the tensor does."""

    tensor: Tensor
    axes: tuple[str, ...] = ()
    value: Expr | None = None
    bound: Name | None = None


@dataclass(slots=True)
class _State:
    shared: frozenset[str]
    fresh: Fresh = field(default_factory=Fresh)
    params: list[tuple[str, Tensor]] = field(default_factory=list)
    """Values, each with the parameter that it is bound to; with several where these are declared to lie in different ranges."""
    made: dict[str, _Made] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)
    idioms: list[Idiom] = field(default_factory=list)


def _add(state: _State, node: Kernel, *, last: bool) -> None:
    used = walk.program_names(node.program) - set(node.program.sizes)  # which all programs of the graph share
    program = rename_program(node.program, {name: state.fresh(name) for name in sorted(used)})
    bound = dict(zip((p.name for p in program.params), node.inputs, strict=True))
    if is_single(program) and is_pointwise(program):
        program = _on_the_box_of_what_it_reads(state, program, bound)
    sources = {p.name: (p, _source(state, p, bound[p.name])) for p in program.params}

    def read(r: Read) -> Expr:
        return _read(state, r, *sources[r.tensor]) if r.tensor in sources else r

    program = walk.map_values(program, lambda e: walk.substitute_reads(e, read))
    table = walk.tensor_table(program)
    if not last and is_single(program) and is_pointwise(program):
        [definition] = program.definitions
        [result], value = definition.tensors, definition.pieces[0].value
        name = Name(state.fresh(result.name)) if node.outputs[0] in state.shared else None
        types = Types({t.name: t.dtype for t in (*(t for _, t in state.params), *(m.tensor for m in state.made.values()))})
        state.made[node.outputs[0]] = _Made(result, definition.axes, rounded(value, result.dtype, types), name)
        return
    if last and is_single(program):
        program = replace(program, definitions=(_with_bindings(state, program.definitions[0]),))
    state.definitions += program.definitions
    state.idioms += program.idioms
    state.made |= {value: _Made(table[name]) for value, name in zip(node.outputs, program.results, strict=True)}


def _source(state: _State, param: Tensor, value: str) -> _Made:
    if value in state.made:
        return state.made[value]
    declared = param.declared_range
    for k, (other, known) in enumerate(state.params):
        if other == value and (declared is None or known.declared_range in (None, declared)):
            if known.declared_range is None and declared is not None:
                state.params[k] = value, replace(known, declared_range=declared, span=param.span)
            return _Made(known)
    state.params.append((value, param))
    return _Made(param)


def _read(state: _State, r: Read, param: Tensor, source: _Made) -> Expr:
    """Return what stands for the read `r` of `param` when the value comes from `source`."""
    index = reindexed(r.index, param, source.tensor)
    if source.value is None:
        return replace(r, tensor=source.tensor.name, index=index)
    if source.bound is not None:
        return source.bound
    plain = tuple(slot for slot in index if not isinstance(slot, Dynamic))
    if len(plain) != len(index):
        raise InternalError("fuse", f"`{source.tensor.name}` is read by a data-dependent index and was not stored")
    return walk.refresh(walk.substitute(source.value, dict(zip(source.axes, plain, strict=True))), state.fresh)


def _with_bindings(state: _State, definition: Definition) -> Definition:
    """Return the last definition with every shared value bound around it, the first outermost; where one has other axes for the same
    dimensions, at the place that those of the last are."""
    [last], value = definition.tensors, definition.pieces[0].value
    for made in reversed(state.made.values()):
        if made.bound is not None and made.value is not None:
            place = reindexed(here(definition.axes), last, made.tensor)
            to = {axis: slot for axis, slot in zip(made.axes, place, strict=True) if not isinstance(slot, Dynamic)}
            value = Let(made.bound.name, walk.substitute(made.value, to), value)
    return replace(definition, pieces=(Piece(value),))


def _shared(group: tuple[Kernel, ...]) -> frozenset[str]:
    """Return the values of pointwise members that are read more than once, always in place, on all ways to the last member's result."""
    straight = {group[-1].name} if is_single(group[-1].program) and is_pointwise(group[-1].program) else set[str]()
    shared = []
    for node in reversed(group[:-1]):
        value = node.outputs[0]
        reads = [(r, p.name) for r in group for p, v in zip(r.program.params, r.inputs, strict=True) if v == value]
        if not is_pointwise(node.program) or not all(r.name in straight and reads_in_place(r.program, p) for r, p in reads):
            continue
        straight.add(node.name)
        if sum(e.tensor == p for r, p in reads for e in expressions(r.program) if isinstance(e, Read)) > 1:
            shared.append(value)
    return frozenset(shared)


# ---------------------------------------------------------------- groups of axes


def reindexed(index: tuple[Slot, ...], source: Tensor, target: Tensor) -> tuple[Slot, ...]:
    """Return the index into `target` of the element at `index` of `source`, two ways to divide the same dimensions into axes."""
    if same_box(source, target):
        return index
    out: list[Slot] = []
    for mine, theirs in zip(source.groups, target.groups, strict=True):
        slots, extents = [index[k] for k in mine], [target.shape[k] for k in theirs]
        if [source.shape[k] for k in mine] == extents:
            out += slots
        elif len(mine) == 1 and isinstance(slots[0], Dynamic):
            raise InternalError("fuse", f"`{source.name}` is read by a data-dependent index along axes that are divided")
        else:
            out += _divided(_merged(slots, [source.shape[k] for k in mine]), extents)
    return tuple(out)


def _merged(slots: list[Slot], extents: list[Affine]) -> Affine:
    """Return the row-major position of an index in a box, whose outermost extent says nothing about that."""
    total: Affine = Int(0)
    for slot, extent in zip(slots, extents, strict=True):
        if isinstance(slot, Dynamic):
            raise InternalError("fuse", "a data-dependent index along axes that are divided")
        total = slot if total == Int(0) else affine.add(affine.scale(_integer(extent), total), slot)
    return total


def _divided(position: Affine, extents: list[Affine]) -> list[Affine]:
    """Return the index of a row-major position in a box."""
    out: list[Affine] = []
    inner = 1
    for k in range(len(extents) - 1, -1, -1):
        quotient = affine.floor(position, inner) if inner > 1 else position
        if extents[k] == Int(1):
            out.append(Int(0))
        elif all(e == Int(1) for e in extents[:k]):
            out.append(quotient)
            break
        else:
            n = _integer(extents[k])
            out.append(affine.mod(quotient, n))
            inner *= n
    out += [Int(0)] * (len(extents) - len(out))
    return out[::-1]


def _integer(e: Affine) -> int:
    if not isinstance(e, Int):
        raise InternalError("fuse", f"axes of the open size {notation.show(e)} are divided")
    return e.value


def _on_the_box_of_what_it_reads(state: _State, program: Program, bound: Mapping[str, str]) -> Program:
    """Return a pointwise program over the axes of the tensor that it reads in place, if that tensor is of the group and divides its
    dimensions in another way."""
    [definition] = program.definitions
    [result] = definition.tensors
    for param in program.params:
        made = state.made.get(bound[param.name])
        if made is None or same_box(made.tensor, result) or not reads_in_place(program, param.name):
            continue
        axes = tuple(state.fresh(f"{definition.axes[0] if definition.axes else 'i'}{k}") for k in range(len(made.tensor.shape)))
        to: dict[str, Affine] = {}
        for mine, theirs in zip(result.groups, made.tensor.groups, strict=True):
            position = _merged([slot for k in theirs for slot in here((axes[k],))], [made.tensor.shape[k] for k in theirs])
            parts = _divided(position, [result.shape[k] for k in mine])
            to |= dict(zip((definition.axes[k] for k in mine), parts, strict=True))
        alike = {p.name for p in program.params if _is_on_the_box(state, program, p.name, bound[p.name], made.tensor)}

        def read(r: Read, names: frozenset[str] = frozenset(alike), place: tuple[Slot, ...] = here(axes)) -> Expr:
            return replace(r, index=place) if r.tensor in names else r

        value = walk.substitute_reads(walk.substitute(definition.pieces[0].value, to), read)
        tensor = replace(result, shape=made.tensor.shape, grouping=made.tensor.grouping)
        params = tuple(replace(p, shape=tensor.shape, grouping=tensor.grouping) if p.name in alike else p for p in program.params)
        return replace(program, params=params, definitions=(Definition((tensor,), axes, (Piece(value),)),))
    return program


def _is_on_the_box(state: _State, program: Program, param: str, value: str, box: Tensor) -> bool:
    """Tell whether a pointwise program reads a value of the group in place that has the axes of `box`."""
    made = state.made.get(value)
    return made is not None and same_box(made.tensor, box) and reads_in_place(program, param)
