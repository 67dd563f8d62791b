"""What definitions look like to the schedule of a role: which loops are its `i`, which tensor its `b`.

    schedule role contraction(y, a, b; batch.., i.., j.., k..)     parameters: tensors, then groups of loops
    z[n, h, w] = sum(c) x[n, h, c] * m[w, c]                       y = z, a = x, b = m; batch = (), i = (n, h), j = (w), k = (c)

Which roles there are, what their parameters stand for and what guards and directives may ask for, is described with the shapes: those for
processors in `policy/roles/cpu.py`, those for devices in `policy/roles/gpu.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.bounded_cache import by_identity
from tensorlang.check.problems import did_you_mean
from tensorlang.diagnostics import error
from tensorlang.policy.cpu.register_tiles import WIDTHS, tile_sizes
from tensorlang.policy.deriver import PARALLEL_WORK, Deriver, bytes_of, is_threading_profitable, shared_loops
from tensorlang.policy.groups import FusionGroup, recurs
from tensorlang.policy.roles.cpu import ROLES
from tensorlang.policy.roles.gpu import DEVICE_ROLES, FACTS
from tensorlang.policy.roles.parameters import Form, Loops, Shape
from tensorlang.schedule.expand import Scope
from tensorlang.schedule.guards import Fact
from tensorlang.schedule.pack import pack
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.syntax import nodes as sx
from tensorlang.targets import served
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import index_names, reads, reduces, tensor_table

Tiles: TypeAlias = Callable[[str, tuple[int, ...]], int | None]


@dataclass(frozen=True, slots=True)
class Match:
    """What the names of a role's schedule stand for. `stages`, `extents` and `axes` are of loops named in full."""

    names: Mapping[str, Loops]
    facts: Mapping[str, Fact]
    stages: Mapping[str, str]
    extents: Mapping[str, int | None]
    axes: Mapping[str, str]
    indexed: Mapping[str, frozenset[str]]
    """Tensor → the axes and binders it is read by."""
    tiles: Tiles
    cycles: float
    """As its shape says (`Shape.cycles`)."""


def match_role(d: Deriver, group: FusionGroup, role: sx.Role) -> Match | None:
    """Return what the parameters of `role` stand for in `group`, or None when it has another shape."""
    return matcher(d, group)(role)


def matcher(d: Deriver, group: FusionGroup) -> Callable[[sx.Role], Match | None]:
    """Return `match_role` for one group, whose shape is looked at once for all roles of a name."""
    forms, shapes, recurring = forms_of(d.machine.target), dict[str, Shape | None](), recurs(d.program, group.head)

    def match(role: sx.Role) -> Match | None:
        form = forms.get(role.name)
        if form is None or recurring or not form.fits(role):
            return None
        if role.name not in shapes:
            shapes[role.name] = form.match(d, group)
        found = shapes[role.name]
        return None if found is None else _matched(d, group, role, form, found)

    return match


def _matched(d: Deriver, group: FusionGroup, role: sx.Role, form: Form, found: Shape) -> Match | None:
    """Return what the parameters of `role` stand for in a group of the shape `found`, or None where it has other numbers of loops."""
    classes = [*found.loops[: len(role.groups[1])]]
    if role.name == "contraction" and len(role.groups[1]) < form.most:
        classes[1] = (*found.loops[5], *found.loops[1])
    if role.name == "contraction" and len(role.groups[1]) == form.least:
        own = group.head.tensors[0].name
        binders = [f"{own}.{b.name}" for p in group.head.pieces for r in reduces(p.value) for b in r.binders]
        classes[3] = tuple(b for b in binders if b in found.loops[3] or b in found.loops[4])
    if any(found.loops[len(classes) :]) and role.name != "contraction":
        return None
    names: dict[str, Loops] = {}
    for written, loops in zip((*role.groups[0], *role.groups[1]), (*found.tensors[: len(role.groups[0])], *classes), strict=True):
        if not written.endswith("..") and len(loops) != 1:
            return None
        names[written.removesuffix("..")] = loops
    loops_of = _loops_of(group)
    sizes = loops_of.extents
    facts: dict[str, Fact] = {
        "lanes": found.lanes,
        "registers": d.machine.vector_registers,
        "threads": d.machine.threads,
    }
    facts["cache"] = d.machine.cache_bytes
    facts |= {f"{n.removesuffix('..')}.bytes": bytes_of(d, names[n.removesuffix("..")]) for n in role.groups[0]}
    facts["together"], facts["partial"] = found.together, found.partial
    facts |= found.extra
    for names_of_kind, parameters in zip(role.groups, form.names, strict=True):
        for written, parameter in zip(names_of_kind, parameters, strict=False):
            facts |= {f"{written.removesuffix('..')}.{fact}": value for fact, value in found.facts.get(parameter, {}).items()}
    for written in role.groups[1]:
        name = written.removesuffix("..")
        known = [sizes[loop] for loop in names[name]]
        facts[f"{name}.extent"] = known[-1] if known else 1
        facts[name] = tuple(known)
    tiles = _tiles(found, d.machine.vector_registers)
    return Match(names, facts, loops_of.stages, sizes, loops_of.axes, loops_of.indexed, tiles, found.cycles)


@dataclass(frozen=True, slots=True)
class _Loops:
    """The loops of a group by their full names, and what its tensors are read by."""

    extents: Mapping[str, int | None]
    stages: Mapping[str, str]
    axes: Mapping[str, str]
    indexed: Mapping[str, frozenset[str]]


@by_identity(64)
def _loops_of(group: FusionGroup) -> _Loops:
    named = [(m.tensors[0].name, n, e) for m in group.members for n, e in extents(m).items()]
    sizes = {f"{stage}.{n}": e for stage, n, e in named}
    stages = {f"{stage}.{n}": stage for stage, n, _ in named}
    axes = {loop: loop.removeprefix(stage + ".") for loop, stage in stages.items()}
    indexed = {r.tensor: index_names(r) for m in group.members for p in m.pieces for r in reads(p.value)}
    return _Loops(sizes, stages, axes, indexed)


def guard_facts(role: sx.Role) -> dict[str, Fact]:
    """Return what guards of a role's schedule may ask for, with no values."""
    whether = ("unit", "pack", "stored", "padded", "gathered", "ahead", "across")
    counts = ("bytes", "reuse", "made", "apart", "along", "block", "group", "rows", "depth", "vectors", "tiles")
    of_tensors = [f"{t.removesuffix('..')}.{fact}" for t in role.groups[0] for fact in (*whether, *counts)]
    of_loops = [
        f"{g.removesuffix('..')}.{fact}" for g in role.groups[1] for fact in ("extent", "tile", "block", "warps", "lanes", "times", "each")
    ]
    plain = ("lanes", "registers", "threads", "cache", "together", "partial", *FACTS)
    return {**dict.fromkeys((*plain, *of_tensors, *of_loops)), **{g.removesuffix(".."): () for g in role.groups[1]}}


def _tiles(shape: Shape, registers: int) -> Tiles:
    """Return the choice of the knobs `mr` and `nv`, rows and vectors of the register tile: the best listed ones for the extents."""
    chosen: dict[str, int] = {}

    def pick(knob: str, values: tuple[int, ...]) -> int | None:
        if shape.tile is None or knob not in ("mr", "nv"):
            return None
        heights = _heights(shape, values if knob == "mr" else None) if "mr" not in chosen else (chosen["mr"],)
        widths = (chosen["nv"],) if "nv" in chosen else values if knob == "nv" else WIDTHS
        m, v = tile_sizes(*shape.tile, shape.lanes, registers, heights, widths)
        chosen[knob] = m if knob == "mr" else v
        return chosen[knob]

    return pick


def _heights(shape: Shape, listed: tuple[int, ...] | None) -> tuple[int, ...] | range | None:
    """Return the heights to choose from: the listed ones that suit the shape, all listed ones when none does."""
    if listed is None or shape.heights is None:
        return listed or shape.heights
    return tuple(h for h in listed if h in shape.heights) or listed


def spread_over(d: Deriver, group: FusionGroup, scope: Scope) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """Return the meaning of `spread`: the outer loops that together have iterations for every thread, and the copies; none of what is
    too little to share."""

    def pick(names: Sequence[str]) -> tuple[str, ...]:
        loops = [name for name in names if name in scope.stages]
        copies = [f"{name}.pack" for name in names if name in scope.copied and _is_large(d, name)]
        if not is_threading_profitable(d, group.members):
            return ()
        return (*shared_loops(loops, [scope.extents.get(loop) or OPEN_EXTENT for loop in loops], d.machine.threads), *copies)

    return pick


def copies_of(d: Deriver) -> Callable[[str], tuple[str, Mapping[str, int | None]]]:
    """Return what names the copy that `pack` makes of a tensor, and the extents of its loops, which run as the tensor is stored; copies are
    asked for in order."""
    made: list[Program] = [d.program]

    def copy_of(tensor: str) -> tuple[str, Mapping[str, int | None]]:
        packed = pack(made[-1], tensor)
        if isinstance(packed, str):
            return tensor, {}
        program, name = packed
        made.append(program)
        copy = next(x for x in program.definitions if x.tensors[0].name == name)
        to = dict(zip(d.axes[tensor], copy.axes, strict=True)) if tensor in d.axes else {}
        stored = [to.get(e.name) for e in d.layouts[tensor].dims if isinstance(e, Name)] if tensor in d.layouts else []
        sizes = extents(copy)
        return name, {axis: sizes[axis] for axis in (*(a for a in copy.axes if a not in stored), *(a for a in stored if a is not None))}

    return copy_of


def _is_large(d: Deriver, tensor: str) -> bool:
    shape = tensor_table(d.program)[tensor].shape
    return prod(affine.constant(s) or OPEN_EXTENT for s in shape) >= PARALLEL_WORK


def form_of(target: str, role: sx.Role) -> Form:
    """Return the role that `role` names. Raises CompileError S0511 where schedules for `target` have none of that name, S0512 where it has
    other parameters."""
    forms = forms_of(target)
    form = forms.get(role.name)
    if form is None:
        help = did_you_mean(role.name, forms, f"the roles are {', '.join(forms)}")
        raise error("S0511", f"there is no role `{role.name}` for `{target}`", role.span, help=help)
    if not form.fits(role):
        raise error("S0512", f"role `{role.name}` has other parameters", role.span, help=f"write `role {form.text}`")
    return form


def forms_of(target: str) -> Mapping[str, Form]:
    """Return the roles that schedules for `target` may have."""
    return DEVICE_ROLES if served(target)[0].on_device else ROLES
