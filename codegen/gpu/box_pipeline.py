"""Software pipelines of bulk copies: boxes of tensors are copied iterations before the loop needs them, by a thread of the block or by a
producer (`codegen.gpu.warp_specialization`).

    for k in 0 .. K (stages 3 boxes) {             for k in 0 .. K {
        alloc a_s: bf16[128, 64] shared                producer {
        boxes a_s[0, 0] = a[…, 64*k]                       reclaim empty[k - 3]
        … a_s[…] …                             →           boxes full[k] a_s[k % 3, 0, 0] = a[…, 64*k]
    }                                                  }
                                                       wait full[k]
                                                       … a_s[k % 3, …] …
                                                       release empty[k]
                                                   }

Group g of boxes is the one of iteration g, of all that the block runs, and counts at barrier g % n. A producer copies in the iteration that
needs the boxes, in the order of the text: it runs ahead by itself as far as there are free stages. Without one, a thread of the block
starts copies n - 1 iterations earlier, in the text as well. Where asynchronous products go on in the next iteration
(`codegen.gpu.async_mma`), a stage is free one iteration later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

from codegen.dtypes import u64
from codegen.errors import Unfit
from codegen.loops.indices import simplify_index
from codegen.loops.nodes import (
    THREADS,
    Add,
    Alloc,
    Box,
    Boxes,
    Buffer,
    Compare,
    For,
    If,
    Index,
    IndexValue,
    Int,
    Load,
    Mod,
    Mul,
    Producer,
    Reclaim,
    Release,
    Stmt,
    Store,
    Var,
    WaitBoxes,
)
from codegen.loops.notes import Specialized
from codegen.loops.walk import Fresh, substitute_index, walk


@dataclass(frozen=True, slots=True)
class BoxPipeline:
    """What runs before a loop, at the beginning and the end of each iteration, and after it; the buffers that are copied to, and memory."""

    memory: tuple[Stmt, ...]
    before: tuple[Stmt, ...]
    begin: tuple[Stmt, ...]
    end: tuple[Stmt, ...]
    after: tuple[Stmt, ...]
    copied: frozenset[str]


def groups_before(loop: For, around: tuple[Stmt, ...]) -> Index:
    """Return how many groups of boxes the loop has copied before it runs; `around` are the loops and conditions it stands in.

    Raises Unfit where that depends on what earlier runs did."""
    each = simplify_index(Add(loop.hi, Mul(Int(-1), loop.lo)), {})
    loops = [s for s in around if isinstance(s, For)]
    if not loops:
        return Int(0)
    many = f"not supported yet: boxes of tensors in `{loop.var}`, which runs more than once in a block"
    if any(s.kind in THREADS for s in loops):
        raise Unfit(f"not supported yet: boxes of tensors in `{loop.var}`, which not all threads of a block run together", loop.var)
    if any(isinstance(s, If) for s in around[around.index(loops[0]) :]):
        raise Unfit(f"{many}, but not always", loop.var)
    before: Index = Int(0)
    for outer in reversed(loops):
        if not isinstance(each, Int):
            raise Unfit(f"{many}, each time for another number of iterations", loop.var)
        before = Add(before, Mul(each, Add(Var(outer.var), Mul(Int(-1), outer.lo))))
        each = simplify_index(Mul(each, Add(outer.hi, Mul(Int(-1), outer.lo))), {})
    return simplify_index(before, {})


def number_in(loop: For, before: Index) -> Index:
    """Return the number of the group of an iteration, `before` of them before the loop."""
    return Add(before, Add(Var(loop.var), Mul(Int(-1), loop.lo)))


def pipeline_boxes(loop: For, stages: int, specialized: Specialized | None, fresh: Fresh, before: Index, async_mma: bool) -> BoxPipeline:
    """Return how the boxes of a loop are copied some iterations ahead.
    Accesses to the buffers that they are copied to do not name a stage yet.

    `before`: how many groups there were when the loop begins; `async_mma`: products of an iteration end in the next one."""
    boxes = tuple(box for s in loop.body if isinstance(s, Boxes) for box in s.boxes)
    copied = frozenset(box.target.buffer for box in boxes)
    stores = {n.buffer for s in loop.body if not isinstance(s, Boxes) for n in walk(s) if isinstance(n, Store)}
    if stores & copied:
        raise Unfit(f"not supported yet: `{min(stores & copied)}`, a box of a tensor, is written by threads too", loop.var)
    full = Buffer(fresh("full"), u64, (Int(stages),), "shared", 8)
    targets = [s.buffer for s in loop.body if _is_target(s, copied)]
    memory = (*(Alloc(replace(b, shape=(Int(stages), *b.shape))) for b in targets), Alloc(full))
    copies = _Copies(loop, stages, boxes, copied, memory, full.name, before, async_mma)
    return _by_consumers(copies) if specialized is None else _by_producer(copies, specialized.registers, fresh)


@dataclass(frozen=True, slots=True)
class _Copies:
    """The boxes of a loop, the buffers they are copied to, and the barriers that count them."""

    loop: For
    stages: int
    boxes: tuple[Box, ...]
    copied: frozenset[str]
    memory: tuple[Stmt, ...]
    full: str
    before: Index
    async_mma: bool

    @property
    def number(self) -> Index:
        """Return the number of an iteration's group."""
        return number_in(self.loop, self.before)

    def of(self, at: Index, number: Index) -> Boxes:
        """Return the boxes of iteration `at`, as group `number`."""
        return _at(Boxes(self.full, number, self.boxes), self.loop, at, Mod(number, Int(self.stages)))


def _by_consumers(copies: _Copies) -> BoxPipeline:
    """Return boxes that a thread of the block copies some iterations ahead."""
    loop = copies.loop
    ahead = copies.stages - 1 - copies.async_mma
    before: list[Stmt] = []
    for k in range(ahead):
        at = Add(loop.lo, Int(k))
        before.append(_if(at, loop, copies.of(at, Add(copies.before, Int(k)))))
    later = Add(Var(loop.var), Int(ahead))
    more = _if(later, loop, copies.of(later, Add(copies.number, Int(ahead))))
    return BoxPipeline(copies.memory, tuple(before), (WaitBoxes(copies.full, copies.number), more), (), (), copies.copied)


def _by_producer(copies: _Copies, registers: tuple[int, ...], fresh: Fresh) -> BoxPipeline:
    """Return boxes that the producer copies when their stage has been released."""
    loop, number = copies.loop, copies.number
    empty = Buffer(fresh("empty"), u64, (Int(copies.stages),), "shared", 8)
    place = Reclaim(empty.name, Add(number, Int(-copies.stages)))
    produced = Producer((place, copies.of(Var(loop.var), number)), registers)
    end: Stmt = Release(empty.name, number)
    after: tuple[Stmt, ...] = ()
    if copies.async_mma:
        last = substitute_index(number, {loop.var: Add(loop.hi, Int(-1))})
        end = If(Compare(">", IndexValue(Var(loop.var)), IndexValue(loop.lo)), (Release(empty.name, Add(number, Int(-1))),))
        after = (If(Compare("<", IndexValue(loop.lo), IndexValue(loop.hi)), (Release(empty.name, last),)),)
    return BoxPipeline((*copies.memory, Alloc(empty)), (), (produced, WaitBoxes(copies.full, number)), (end,), after, copies.copied)


def _is_target(s: Stmt, copied: frozenset[str]) -> TypeGuard[Alloc]:
    return isinstance(s, Alloc) and s.buffer.name in copied


def _if(at: Index, loop: For, boxes: Boxes) -> Stmt:
    return If(Compare("<", IndexValue(at), IndexValue(loop.hi)), (boxes,))


def _at(boxes: Boxes, loop: For, at: Index, stage: Index) -> Boxes:
    """Return boxes as iteration `at` copies them, to `stage`."""
    moved = (
        replace(
            b,
            target=Load(b.target.buffer, (stage, *b.target.index)),
            source=Load(b.source.buffer, tuple(substitute_index(e, {loop.var: at}) for e in b.source.index)),
        )
        for b in boxes.boxes
    )
    return Boxes(boxes.barriers, boxes.group, tuple(moved))
