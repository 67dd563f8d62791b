"""Instructions that the lanes of a warp run together: whether the sum of a stage is that of one.

    instruction mma_m16n8k16_bf16(c: f32[16, 8], a: bf16[16, 16], b: bf16[8, 16]) -> (d: f32[16, 8]) for sm_80 {
        d[m, n] = c[m, n] + sum(k in 0..16) f32(a[m, k]) * f32(b[n, k])
    }

    y[i, j] = sum(k) x[i, k] * w[k, j]          tensorize mi, ni, ki with mma_m16n8k16_bf16
              the product of the sum is that of the instruction: x is the same for all of ni, w for all of mi

Elements may lie anywhere: lanes fetch them one by one where rows of them do not lie together. The instruction computes whole matrices.
Where a matrix ends, its rows and columns go on as sums that are no elements of anything, and its sum goes on over zeros; so a sum that goes
over other elements for one row than for another is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from codegen.gpu import matrix
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.check.places import Spread
from tensorlang.schedule.forms import Form, Refusal, Site, factors_of, rounded_factors_of, unequal, unmatched
from tensorlang.schedule.schedule import Instruction
from tensorlang.tensor.nodes import Dynamic, Read, Reduce
from tensorlang.tensor.scop import StatementInfo

_At: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""A place, and the element there."""


def refusal(site: Site, instruction: Instruction, form: Form) -> Refusal | None:
    """Return why the loops of a request do not compute what the instruction of a warp computes, or None when they do."""
    request, names = site.request, (*form.axes, *form.binders)
    stage = request.stage
    free = {name for name, extent in form.extents.items() if extent is None}
    if (len(form.axes), len(form.binders)) != (2, 1) or free - {form.axes[1]}:
        return Refusal("not supported yet: an instruction of a warp other than `d[m, n] = c[m, n] + sum(k) a[m, k] * b[n, k]`")
    if len(request.loops) != len(names):
        return Refusal(f"it has {len(names)} loops", "name the loops of its rows, of its columns and of its sum")
    if not set(request.loops) <= set(stage.loops):
        return Refusal("they have been changed since", "tensorize loops once they have their shape", 1)
    unknown = _unknown(instruction, form, stage.extents[request.loops[1]] or 0)
    if unknown is not None:
        return Refusal(unknown)
    for loop, name in zip(request.loops, names, strict=True):
        extent, wanted = stage.extents[loop], form.extents[name]
        if extent is None or (extent != wanted and wanted is not None):
            given = "no constant number of" if extent is None else str(extent)
            return Refusal(f"`{loop}` has {given} iterations, the instruction {wanted}", f"split it by {wanted} first", 1)
    own = {s for loop in request.loops for s in stage.members[loop]}
    around = [loop for loop in stage.loops if stage.members[loop] & own]
    if tuple(around[-len(names) :]) != request.loops:
        return Refusal("they are not the innermost loops, in this order", f"the order is now {', '.join(around)}", 1)
    if stage.cuts:
        return Refusal("not supported yet: peeled loops", None, 1)
    updates = [s for s in stage.statements if s.phase == "update" and s.name in stage.members[request.loops[-1]]]
    if not updates:
        return Refusal(f"`{request.loops[-1]}` is no loop of a sum", None, 1)
    return next((r for s in updates if (r := _difference(site, form, s)) is not None), None)


def _unknown(instruction: Instruction, form: Form, width: int) -> str | None:
    """Return why no graphics processor has the instruction as it is declared, for `width` columns where it leaves that open, or None when
    the table has it."""
    program = instruction.program
    m, n, k = (form.extents[name] or width for name in (*form.axes, *form.binders))
    rows, columns = (form.lhs, form.rhs) if form.axes[0] in _indices(form.lhs) else (form.rhs, form.lhs)
    known = matrix.instruction_of((m, n, k), form.types[rows.tensor], form.types[columns.tensor], form.dtype, rounded=form.rounded)
    if known is None:
        return f"no graphics processor multiplies {form.types[rows.tensor]} with {form.types[columns.tensor]} in matrices of {m}x{n}x{k}"
    if _indices(rows) != (form.axes[0], form.binders[0]) or _indices(columns) != (form.axes[1], form.binders[0]):
        return "not supported yet: operands with other axes than `a[m, k]` and `b[n, k]`"
    if not set(instruction.needs) <= set(known.architectures):
        return f"`{known.name}` is an instruction of {', '.join(known.architectures)}, not of {', '.join(instruction.needs)}"
    held = {rows.tensor: matrix.row_placement, columns.tensor: matrix.column_placement}
    sums = next(p.name for p in program.params if p.name not in held)
    if known.warps > 1 and instruction.places.keys() & held.keys():
        return "not supported yet: four warps that multiply rows in registers"
    for name, places in ((sums, matrix.sum_placement), *(held.items() if known.warps == 1 else ())):
        spread = instruction.places.get(name)
        threads = "warp" if known.warps == 1 else "warpgroup"
        if spread is None or spread.scope != threads:
            return f"nothing says which {'lane' if known.warps == 1 else 'thread of four warps'} holds what of `{name}`"
        misplaced = _misplaced(spread, places, known)
        if misplaced is not None:
            place, element = misplaced
            where = f"{name}[{', '.join(map(str, element))}]"
            return f"lane {place[0]} holds `{where}` as element {place[1]}, the declaration has it at lane {spread.at(*element)[0]}"
    return None


@lru_cache(maxsize=256)
def _misplaced(spread: Spread, places: Callable[[matrix.Instruction], matrix.Placement], known: matrix.Instruction) -> _At | None:
    """Return the first place of an instruction and the element there that `spread` has elsewhere, None where there is none."""
    return next(((place, element) for place, element in places(known).items() if spread.at(*element) != place), None)


def _indices(read: Read) -> tuple[str, ...]:
    return tuple(n for slot in read.index for n in _names(slot))


def _difference(site: Site, form: Form, update: StatementInfo) -> Refusal | None:
    """Return how the update of a sum differs from the instruction."""
    assert update.accumulator is not None
    reduce = update.accumulator.reduce
    factors = rounded_factors_of(reduce) if form.rounded else factors_of(reduce)
    if factors is None:
        return _no_product(form, reduce)
    refused = unequal(site, form, reduce)
    if refused is not None:
        return refused
    sizes = set(site.plan.program.sizes)
    if not all(set(affine.names(e)) <= sizes for b in reduce.binders for e in (b.lo, b.hi)):
        return Refusal("what the sum goes over is not the same for all elements", None, 2)
    return unmatched(site, form, factors, lambda own, read: _moved(site, form, update, own, read))


def _no_product(form: Form, reduce: Reduce) -> Refusal:
    if form.rounded and factors_of(reduce) is not None:
        help = "where 10 bits after the point are enough, multiply `round_tf32(x) * round_tf32(w)`"
        return Refusal("the instruction rounds what it multiplies to tf32, the sum does not", help, 2)
    if not form.rounded and rounded_factors_of(reduce) is not None:
        return Refusal("the sum rounds what it multiplies to tf32, the instruction does not", "take `mma_m16n8k8_tf32`", 2)
    return Refusal("what is added is not a product of two elements", None, 2)


def _moved(site: Site, form: Form, update: StatementInfo, own: Read, read: Read) -> Refusal | None:
    """Return why `read` is no operand like `own`: it has to stay the same along the loops of the instruction that `own` has no index of."""
    name = site.originals.get(read.tensor, read.tensor)
    iters = next(n for n in site.plan.placed.nests.values() if n.statement == update.name).iter_exprs()
    moving: set[str] = set()
    for slot in read.index:
        if isinstance(slot, Dynamic):
            return Refusal(f"`{name}` is read at indices from data", None, 3)
        moving |= set(affine.names(affine.substitute(slot, iters)))
    indices = {n for slot in own.index for n in _names(slot)}
    for index, loop in zip((*form.axes, *form.binders), site.request.loops, strict=True):
        if index not in indices and loop in moving:
            return Refusal(f"`{name}` is not the same for all of `{loop}`", None, 3)
    return None


def _names(slot: Affine | Dynamic) -> tuple[str, ...]:
    return () if isinstance(slot, Dynamic) else tuple(affine.names(slot))
