"""Tensors that are defined through each other share a loop.

    hs[t + 1, j] = f(cs[t + 1, j])     cs[t + 1, j] = g(z[t, j])     z[t, j] = h(hs[t, ..])

Along their first axis each tensor gets an offset so that no value is needed before its turn: the least solution of off(reader) - off(read)
>= c for every read of `read[t + c, ..]` at `reader[t, ..]`. Reads at equal turns order the tensors within a turn. Here: cs, hs at t and z
at t + 1, in the order z, cs, hs.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyhedral.expr import Name
from tensorlang.diagnostics import error
from tensorlang.schedule.plan import Change, Stage, full, make_stage
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Definition, Dynamic
from tensorlang.tensor.scop import Stages
from tensorlang.tensor.walk import reads


def shared_stage(stages: Stages, group: tuple[Definition, ...]) -> Stage:
    """Return one stage for definitions that need each other, their first axes run as one loop.

    Raises CompileError S0210 when no offsets along the first axes order them."""
    offsets = _offsets(group)
    ordered = _within_a_turn(group, offsets) if offsets is not None else None
    if offsets is None or ordered is None:
        names = ", ".join(f"`{d.tensors[0].name}`" for d in group)
        raise error("S0210", f"{names} need each other and no common loop over their first axes orders them", group[0].span)
    parts = [make_stage(stages, d) for d in ordered]
    name = parts[0].name
    shared = full(name, ordered[0].axes[0])
    joint = Stage(
        name, tuple(ordered), tuple(s for p in parts for s in p.statements), [shared], {shared: set()}, {shared: None}, set(), {}, {}
    )
    joint.forward[shared] = Name(ordered[0].axes[0])
    for part, definition in zip(parts, ordered, strict=True):
        own = part.loops[0]
        offset = offsets[definition.tensors[0].name]
        for loop in part.loops[1:]:
            joint.loops.append(loop)
            joint.extents[loop], joint.owned[loop], joint.forward[loop] = part.extents[loop], part.owned[loop], part.forward[loop]
        joint.reductions |= part.reductions
        joint.owned[shared] |= part.owned[own]
        for statement, changes in part.base.items():
            joint.base[statement] = (*changes, _turn(own, shared, offset))
    return joint


def _turn(own: str, shared: str, offset: int) -> Change:
    def apply(nest):  # type: ignore[no-untyped-def]  # Nest -> Nest, as Change says
        moved = nest.shift(own, offset) if offset else nest
        return moved.rename(own, shared) if own != shared else moved

    return Change((own,), apply)


def _edges(group: tuple[Definition, ...]) -> Iterator[tuple[str, str, int | None]]:
    """Yield (reader, read, c) for reads of `read[t + c, ..]` at `reader[t, ..]`; c None when the distance is not constant."""
    primary = {t.name: d.tensors[0].name for d in group for t in d.tensors}
    for definition in group:
        for piece in definition.pieces:
            for read in reads(piece.value):
                if read.tensor in primary:
                    slot = read.index[0] if read.index else None
                    distance = None if slot is None or isinstance(slot, Dynamic) else affine.difference(slot, Name(definition.axes[0]))
                    yield definition.tensors[0].name, primary[read.tensor], distance


def _offsets(group: tuple[Definition, ...]) -> dict[str, int] | None:
    """Return the least offsets (longest paths; Bellman 1958), or None when a cycle asks for the future."""
    offsets = {d.tensors[0].name: 0 for d in group}
    edges = list(_edges(group))
    if any(c is None for _, _, c in edges):
        return None
    for _ in range(len(group) + 1):
        changed = False
        for reader, read, c in edges:
            if c is not None and offsets[reader] < offsets[read] + c:
                offsets[reader], changed = offsets[read] + c, True
        if not changed:
            return offsets
    return None


def _within_a_turn(group: tuple[Definition, ...], offsets: dict[str, int]) -> list[Definition] | None:
    """Return the definitions so that those read in the same turn come first, or None when they go in a circle."""
    before = {(read, reader) for reader, read, c in _edges(group) if c is not None and offsets[reader] == offsets[read] + c}
    left = list(group)
    out: list[Definition] = []
    while left:
        ready = next((d for d in left if not any((o.tensors[0].name, d.tensors[0].name) in before for o in left if o is not d)), None)
        if ready is None:
            return None
        left.remove(ready)
        out.append(ready)
    return out
