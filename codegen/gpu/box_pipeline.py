"""Boxes of tensors some iterations ahead of the loop that needs them: asked for by one of the threads of a block, or by one beside them.

    for k in 0 .. K stages 3 boxes {               for k in 0 .. K {
        alloc a_s: bf16[128, 64] shared                beside {
        boxes a_s[0, 0] = a[…, 64*k]                       reclaim empty[k - 3]
        … a_s[…] …                             →           boxes full[k] a_s[k % 3, 0, 0] = a[…, 64*k]
    }                                                  }
                                                       landed full[k]
                                                       … a_s[k % 3, …] …
                                                       release empty[k]
                                                   }

Group g of boxes is the one of iteration g, of all that the block runs, and counts at barrier g % n. What a thread beside the others asks
for stands where it is needed: that thread runs ahead by itself, as far as there is place. One of the block's threads asks n - 1 iterations
ahead, in the text as well. Where products of four warps go on in the next iteration (`codegen.gpu.async_mma`), places are free one later.
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
    Beside,
    Box,
    Boxes,
    Buffer,
    Compare,
    For,
    If,
    Index,
    IndexValue,
    Int,
    Landed,
    Load,
    Mod,
    Mul,
    Reclaim,
    Release,
    Stmt,
    Store,
    Var,
)
from codegen.loops.walk import Fresh, substitute_index, walk


@dataclass(frozen=True, slots=True)
class Ahead:
    """What stands before a loop, in the beginning and at the end of each of its iterations, and after it; what lands, and its memory."""

    memory: tuple[Stmt, ...]
    before: tuple[Stmt, ...]
    begin: tuple[Stmt, ...]
    end: tuple[Stmt, ...]
    after: tuple[Stmt, ...]
    landing: frozenset[str]


def groups_before(loop: For, around: tuple[Stmt, ...]) -> Index:
    """Return how many groups of boxes the loop has asked for before it runs; `around` are the loops and conditions it stands in.

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


def staged(loop: For, fresh: Fresh, before: Index, flying: bool) -> Ahead:
    """Return how the boxes of a loop are asked for some iterations ahead: by one of the threads of the block, or by one beside them.
    Where they land, and what reads it, does not say which stage yet.

    `before`: how many groups there were when the loop begins; `flying`: products of an iteration end in the next one."""
    boxes = tuple(box for s in loop.body if isinstance(s, Boxes) for box in s.boxes)
    landing = frozenset(box.target.buffer for box in boxes)
    stores = {n.buffer for s in loop.body if not isinstance(s, Boxes) for n in walk(s) if isinstance(n, Store)}
    if stores & landing:
        raise Unfit(f"not supported yet: `{min(stores & landing)}`, a box of a tensor, is written by threads too", loop.var)
    full = Buffer(fresh("full"), u64, (Int(loop.stages),), "shared", 8)
    homes = [s.buffer for s in loop.body if _is_home(s, landing)]
    memory = (*(Alloc(replace(b, shape=(Int(loop.stages), *b.shape))) for b in homes), Alloc(full))
    return (_among if loop.beside is None else _beside)(_Asking(loop, boxes, landing, memory, full.name, before, flying), fresh)


@dataclass(frozen=True, slots=True)
class _Asking:
    """The boxes of a loop, what lands, and the barriers that count it."""

    loop: For
    boxes: tuple[Box, ...]
    landing: frozenset[str]
    memory: tuple[Stmt, ...]
    full: str
    before: Index
    flying: bool

    @property
    def number(self) -> Index:
        """Return the number of an iteration's group."""
        return number_in(self.loop, self.before)

    def of(self, at: Index, number: Index) -> Boxes:
        """Return the boxes of iteration `at`, as group `number`."""
        return _at(Boxes(self.full, number, self.boxes), self.loop, at, Mod(number, Int(self.loop.stages)))


def _among(asking: _Asking, fresh: Fresh) -> Ahead:
    """Return boxes that a thread of the block asks for some iterations ahead."""
    loop = asking.loop
    ahead = loop.stages - 1 - asking.flying
    before: list[Stmt] = []
    for k in range(ahead):
        at = Add(loop.lo, Int(k))
        before.append(_if(at, loop, asking.of(at, Add(asking.before, Int(k)))))
    later = Add(Var(loop.var), Int(ahead))
    more = _if(later, loop, asking.of(later, Add(asking.number, Int(ahead))))
    return Ahead(asking.memory, tuple(before), (Landed(asking.full, asking.number), more), (), (), asking.landing)


def _beside(asking: _Asking, fresh: Fresh) -> Ahead:
    """Return boxes that a thread beside the block asks for when their place has been released."""
    loop, number = asking.loop, asking.number
    assert loop.beside is not None, "somebody has asked for a thread beside the others"
    empty = Buffer(fresh("empty"), u64, (Int(loop.stages),), "shared", 8)
    place = Reclaim(empty.name, Add(number, Int(-loop.stages)))
    asked = Beside((place, asking.of(Var(loop.var), number)), loop.beside)
    end: Stmt = Release(empty.name, number)
    after: tuple[Stmt, ...] = ()
    if asking.flying:
        last = substitute_index(number, {loop.var: Add(loop.hi, Int(-1))})
        end = If(Compare(">", IndexValue(Var(loop.var)), IndexValue(loop.lo)), (Release(empty.name, Add(number, Int(-1))),))
        after = (If(Compare("<", IndexValue(loop.lo), IndexValue(loop.hi)), (Release(empty.name, last),)),)
    return Ahead((*asking.memory, Alloc(empty)), (), (asked, Landed(asking.full, number)), (end,), after, asking.landing)


def _is_home(s: Stmt, landing: frozenset[str]) -> TypeGuard[Alloc]:
    return isinstance(s, Alloc) and s.buffer.name in landing


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
