"""`tensorize`: the innermost loops of a sum become an instruction, once they are seen to compute what it is declared to compute.

    instruction bf16_dot(c: f32[L], a: bf16[2], b: bf16[L, 2]) -> (d: f32[L]) for avx512bf16 {
        d[l] = c[l] + sum(r in 0..2) f32(a[r]) * f32(b[l, r])
    }

    y[i, j] = sum(k) x[i, k] * w[k, j]          tensorize jv, kr with bf16_dot
              the product of the sum is that of the instruction, with x for a and w for b; x does not move along jv, as a does not along l;
              x and w are stored so that steps along kr go to the next element, and w so that steps along jv skip no element

What an instruction means is written as an equation, so nothing is trusted: a schedule with `tensorize` is refused where the equations
differ. A processor without the instruction computes the same by other instructions.

Of an instruction for tiles, `tensorize iv, jv, kp, kr with tile_bf16`, rows may lie any distance apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import NoReturn

from codegen.loops import dots
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.diagnostics import error
from tensorlang.schedule import warps
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import DONE
from tensorlang.schedule.forms import Form, Refusal, Site, factors_of, form_of, intrinsic_of, unequal, unmatched
from tensorlang.schedule.plan import Named, Plan, Stage, Storage
from tensorlang.schedule.schedule import Instruction
from tensorlang.schedule.state import Request, State, loop_of, put
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.targets import target_of
from tensorlang.tensor.nodes import Dynamic, Read
from tensorlang.tensor.scop import StatementInfo
from tensorlang.tensor.walk import tensor_table

SIDE = 16
"""Rows, columns and groups along the sum that a tile has at most."""

# ---------------------------------------------------------------- the directive


def tensorize(state: State, directive: syntax.Directive) -> None:
    """Mark the loops; whether they are the instruction's is seen when all loops are in place."""
    found = [loop_of(state, directive, n) for n in operands.names(directive, directive.operands, 1)]
    stage = found[0][0]
    for other, loop in found:
        if other is not stage:
            raise error("S0205", f"`{loop}` belongs to `{other.name}`, `{found[0][1]}` to `{stage.name}`", directive.span)
    known = {i.name: i for i in state.instructions if i.on_device == target_of(state.target).on_device}
    chosen = tuple(known.values())
    if operands.phrase(directive, "with") is not None:
        name = operands.name(directive, operands.the(directive, "with"))
        if name not in known:
            names = ", ".join(f"`{n}`" for n in known) or "none"
            raise error("S0216", f"there is no instruction `{name}`", directive.span, help=f"the instructions are {names}")
        chosen = (known[name],)
    loops = tuple(loop for _, loop in found)
    lanes = [loop for loop in loops if loop not in stage.reductions][-1:]
    for loop in loops:
        mark = stage.marks.get(loop)
        if mark not in (None, "vector"):
            title = f"`{loop}` is {DONE.get(mark, mark)} already, so `tensorize` cannot change it"
            raise error("S0213", title, directive.span, help="leave it to the instruction")
        by_warp = any(i.on_device for i in chosen)
        stage = stage.marked(loop, "tile" if by_warp else "tensor" if loop in stage.reductions else "vector" if loop in lanes else "unroll")
    state.tensorized.append(Request(put(state, stage), loops, chosen, directive))


def _finish(plan: Plan, state: State) -> Plan:
    """Return the plan with the instructions that LLVM is asked for by name, once the loops of every request are seen to compute what one
    of its instructions is declared to compute.

    Raises CompileError S0215 that says what differs, S0216 for instructions that are no sums of products."""
    found: dict[Named, None] = {}
    for asked in state.tensorized:
        request = replace(asked, stage=state.stages.get(asked.stage.name, asked.stage))
        site = Site(plan, request, {copy: t for t, copy in state.copies.items()})
        answers = [(i, _refusal(site, i)) for i in request.chosen]
        fitting = next((i for i, refusal in answers if refusal is None), None)
        if fitting is None:
            _refuse(request, [r for _, r in answers if r is not None])
        if fitting.llvm is not None:
            found[_named(fitting, request)] = None
    return replace(plan, named=tuple(found))


def _named(instruction: Instruction, request: Request) -> Named:
    form = form_of(instruction)
    assert form is not None, "it has been compared"
    intrinsic = intrinsic_of(instruction, form)
    assert not isinstance(intrinsic, Refusal), "it has been compared"
    return Named(instruction.program, intrinsic, request.directive.span)


def _refuse(request: Request, refusals: list[Refusal]) -> NoReturn:
    if not refusals:
        raise error("S0216", "there is no instruction to put in the place of loops", request.directive.span, help="declare one")
    closest = max(refusals, key=lambda r: r.rank)
    names = " or ".join(f"`{i.name}`" for i in request.chosen[:3])
    title = f"{', '.join(f'`{loop}`' for loop in request.loops)} cannot become {names}: {closest.why}"
    raise error("S0215", title, request.directive.span, help=closest.help)


def _refusal(site: Site, instruction: Instruction) -> Refusal | None:
    form = form_of(instruction)
    if form is not None and instruction.on_device:
        return warps.refusal(site, instruction, form)
    known = (1, 1) if instruction.llvm is None else (1, 0)
    if form is None or form.rounded or (len(form.axes), len(form.binders)) not in ((1, 1), (2, 2), known):
        return Refusal("not supported yet: an instruction that is neither `d[l] = c[l] + sum(r) a[r] * b[l, r]` nor a tile of such sums")
    if instruction.llvm is not None:
        intrinsic = intrinsic_of(instruction, form)
        if isinstance(intrinsic, Refusal):
            return intrinsic
    elif dots.accumulator(form.types[form.lhs.tensor], form.types[form.rhs.tensor]) != form.dtype:
        return Refusal("not supported yet: an instruction of these element types")
    request, names = site.request, (*form.axes, *form.binders)
    stage = request.stage
    if len(request.loops) != len(names):
        return Refusal(f"it has {len(names)} loops", "name the loops of its results, then those of its sum")
    if not set(request.loops) <= set(stage.loops):
        return Refusal("they have been changed since", "tensorize loops once they have their shape", 1)
    for loop, name in zip(request.loops, names, strict=True):
        extent, wanted = stage.extents[loop], form.extents[name]
        lanes = name == form.axes[-1]
        if (
            extent is None
            or (wanted is not None and extent != wanted)
            or (lanes and extent & (extent - 1))
            or (form.is_tile and extent > SIDE)
        ):
            given = "no constant number of" if extent is None else str(extent)
            need = f"{wanted}" if wanted is not None else "a power of two" if lanes else f"at most {SIDE}"
            return Refusal(f"`{loop}` has {given} iterations, the instruction {need}", f"split it by {wanted or 16} first", 1)
    if tuple(stage.loops[-len(names) :]) != request.loops:
        return Refusal("they are not the innermost loops, in this order", f"the order is now {', '.join(stage.loops)}", 1)
    updates = [s for s in stage.statements if s.phase == "update" and s.name in stage.members[request.loops[-1]]]
    if not updates:
        return Refusal(f"`{request.loops[-1]}` is no loop of a sum", None, 1)
    return next((r for s in updates if (r := _difference(site, form, s)) is not None), None)


def _difference(site: Site, form: Form, update: StatementInfo) -> Refusal | None:
    """Return how the update of a sum differs from the instruction."""
    assert update.accumulator is not None
    reduce = update.accumulator.reduce
    factors = factors_of(reduce)
    if factors is None:
        return Refusal("what is added is not a product of two elements", None, 2)
    refused = unequal(site, form, reduce)
    if refused is not None:
        return refused
    return unmatched(site, form, factors, lambda own, read: _misplaced(site, form, update, own, read))


def _misplaced(site: Site, form: Form, update: StatementInfo, own: Read, read: Read) -> Refusal | None:
    """Return why the elements of `read` do not lie as the instruction wants those of its operand `own`."""
    loops = dict(zip((*form.axes, *form.binders), site.request.loops, strict=True))
    stage, moves = site.request.stage, _address(site.plan, update, read)
    name = site.originals.get(read.tensor, read.tensor)
    order = [slot.name for slot in own.index if isinstance(slot, AffineName)]
    if moves is None:
        return Refusal(f"`{name}` is read at indices from data", None, 3)
    for start in _samples(stage, site.request.loops):
        for index, loop in reversed(loops.items()):
            extent = stage.extents[loop] or 1
            steps = [_distance(moves, start, {loop: n}) for n in range(1, extent)]
            if index not in order:
                if any(d != 0 for d in steps):
                    return Refusal(f"`{name}` is not the same for all of `{loop}`", None, 3)
                continue
            inner = [loops[n] for n in order[order.index(index) + 1 :]]
            pitch = prod(stage.extents[n] or 1 for n in inner)
            if form.is_tile and index == order[0] and steps:  # rows of a tile may lie any distance apart
                if all(d is None for d in steps):
                    continue
                pitch = steps[0] or 0
            if steps != [n * pitch for n in range(1, extent)]:
                places = ", ".join(stage.local(n) for n in (loop, *inner))
                return Refusal(f"elements of `{name}` along `{loop}` are not next to each other", f"`pack {name} as […, {places}]`", 4)
    return None


# ---------------------------------------------------------------- where elements lie


@dataclass(frozen=True, slots=True)
class _Address:
    """The storage index of an element over loops, outermost dimension first, and the extents of the storage where they are constant."""

    dims: tuple[Affine, ...]
    shape: tuple[int | None, ...]


def _address(plan: Plan, update: StatementInfo, read: Read) -> _Address | None:
    slots: list[Affine] = []
    for slot in read.index:
        if isinstance(slot, Dynamic):
            return None
        slots.append(slot)
    iters = next(n for n in plan.placed.nests.values() if n.statement == update.name).iter_exprs()
    tensor = tensor_table(plan.program)[read.tensor]
    axes = next((d.axes for d in plan.program.definitions for t in d.tensors if t.name == read.tensor), None)
    storage = plan.layouts.get(read.tensor)
    names = axes or tuple(f"a{k}" for k in range(len(slots)))
    if storage is None:
        storage = Storage(tuple(affine.to_expr(n) for n in names), tensor.shape)
    at: dict[str, Affine] = {n: affine.substitute(s, iters) for n, s in zip(names, slots, strict=True)}
    return _Address(tuple(affine.substitute(d, at) for d in storage.dims), tuple(affine.constant(s) for s in storage.shape))


def _distance(address: _Address, start: Mapping[str, int], moved: Mapping[str, int]) -> int | None:
    """Return by how many elements the address grows, or None when that depends on a size. Loops of other stages around it, where `start`
    has none of them, count as in their first iteration."""
    around = dict.fromkeys((n for d in address.dims for n in affine.names(d)), 0)
    before, after = ([affine.evaluate(d, e) for d in address.dims] for e in ({**around, **start}, {**around, **start, **moved}))
    total, pitch = 0, 1
    for x, y, extent in reversed(list(zip(before, after, address.shape, strict=True))):
        if x != y:
            if pitch < 0:
                return None
            total += (y - x) * pitch
        pitch = -1 if extent is None or pitch < 0 else pitch * extent
    return total


def _samples(stage: Stage, inner: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """Yield values of the loops at which addresses are compared: the first iterations of each, those of the instruction at 0. Whoever puts
    the instruction into code proves its own step again, for all iterations."""
    for first, second in product((0, 1), repeat=2):
        values = {}
        for k, loop in enumerate(stage.loops[: -len(inner)]):
            extent = stage.extents[loop]
            values[loop] = min((first, second)[k % 2], (extent or 2) - 1)
        yield values | dict.fromkeys(inner, 0)


TENSORIZE = Kind(
    "tensorize",
    FORMS["tensorize"],
    tensorize,
    finish=_finish,
)
