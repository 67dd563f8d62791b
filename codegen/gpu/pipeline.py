"""Copies into shared memory that run ahead of the loop that needs them: what `stages n` on a loop asks for.

    for k in 0 .. K (stages 2) {             alloc a_s: f32[2, 16, 64] shared
        alloc a_s: f32[16, 64] shared        a_s[0, …] = a[… 0 …] later
        a_s[…] = a[… k …]                    commit
        … a_s[…] …                      →    for k in 0 .. K {
    }                                            wait 0
                                                 if k + 1 < K { a_s[(k + 1) % 2, …] = a[… k + 1 …] later }
                                                 commit
                                                 … a_s[k % 2, …] …
                                             }

Each iteration closes one group of copies, so all but the latest n - 2 groups have landed when it needs its own (n - 3 where
products of four warps go on from one iteration to the next, `codegen.gpu.async_mma`). What the device cannot copy
by itself, like elements that are converted or go elsewhere one by one, is fetched into registers before the work of an iteration, and
put in place after it:

    tl_copy …                                if k + 1 < K { a_r[…] = a[… k + 1 …] }
                                             … a_s[k % 2, …] …
                                             if k + 1 < K { a_s[(k + 1) % 2, …] = a_r[…] }

Nothing is proven here: `tensorlang.lower.barriers` puts the barriers, and refuses a wait that does not cover what is read after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from codegen.errors import Unfit
from codegen.gpu.async_mma import DONE, in_flight
from codegen.gpu.box_pipeline import groups_before, number_in, pipeline_boxes
from codegen.gpu.geometry import WARP, geometry
from codegen.gpu.launches import map_blocks
from codegen.gpu.vectors import copied_at_once
from codegen.gpu.warp_specialization import check_roles
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    THREADS,
    Add,
    Alloc,
    Boxes,
    Buffer,
    Commit,
    Compare,
    Expr,
    For,
    Function,
    If,
    IndexValue,
    Int,
    Let,
    Load,
    Mod,
    Mul,
    Stmt,
    Store,
    Var,
    Wait,
)
from codegen.loops.notes import Specialized, Staged
from codegen.loops.simplify import simplify
from codegen.loops.stages import at_stage, pipelined_copies
from codegen.loops.walk import Fresh, fresh_for, noted_loops, stores

REGISTERS = 64
"""How many elements a thread keeps of one copy at most, on their way."""


def pipeline_copies(function: Function, warp: int = WARP) -> Function:
    """Return `function` with the copies of its staged loops ahead of them.

    Raises Unfit for a staged loop that copies nothing into shared memory that could run ahead."""
    if not any(noted_loops(Staged, *function.body)):
        return function
    scratch = [s.buffer for s in function.body if isinstance(s, Alloc)]
    device = {b.name: b for b in (*function.params, *scratch)}
    pass_ = _Pass(fresh_for(function), device, Algebra.of(dict.fromkeys(function.sizes, (0, None))), warp)
    return simplify(map_blocks(function, pass_.whole))


@dataclass(slots=True)
class _Pass:
    fresh: Fresh
    device: Mapping[str, Buffer]
    algebra: Algebra
    warp: int
    """Threads of a warp."""
    threads: int = 0
    memory: list[Stmt] = field(default_factory=list)
    """What the block allocates once for loops that it runs many times."""

    def whole(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return what a block runs."""
        self.threads, self.memory = geometry(body, self.warp).threads, []
        new = self.block(body, ())
        return (*self.memory, *new)

    def block(self, body: tuple[Stmt, ...], around: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(new for s in body for new in self._stmt(s, around))

    def _stmt(self, s: Stmt, around: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        inside = (*around, s)
        match s:
            case For():
                inner = replace(s, body=self.block(s.body, inside))
                return (inner,) if (note := s.note(Staged)) is None else self._pipelined(inner, note, around)
            case If(_, then, orelse):
                return (replace(s, then=self.block(then, inside), orelse=self.block(orelse, inside)),)
            case _:
                return (s,)

    def _pipelined_boxes(self, loop: For, stages: int, around: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return a loop with its boxes ahead of it."""
        before = groups_before(loop, around)
        specialized, loop = loop.note(Specialized), loop.without(Staged, Specialized)
        if specialized is not None:
            check_roles(loop.var, specialized.registers, self.threads)
        going = in_flight(loop.body, self.threads, frozenset()) if stages > 2 or specialized is not None else None
        boxes = pipeline_boxes(loop, stages, specialized, self.fresh, before, going is not None)
        stage = Mod(number_in(loop, before), Int(stages))
        kept = (s for s in going or loop.body if not isinstance(s, Boxes) and not (isinstance(s, Alloc) and s.buffer.name in boxes.copied))
        rest = tuple(at_stage(s, loop, Var(loop.var), stage, set(boxes.copied)) for s in kept)
        new = replace(loop, body=(*boxes.begin, *rest, *boxes.end))
        done = () if going is None else (DONE,)
        if not around and specialized is None:
            return (*boxes.memory, *boxes.before, new, *done, *boxes.after)
        self.memory += boxes.memory
        return (*boxes.before, new, *done, *boxes.after)

    def _pipelined(self, loop: For, asked: Staged, around: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        stages = asked.stages
        if asked.boxes:
            return self._pipelined_boxes(loop, stages, around)
        loop = loop.without(Staged)
        copies = pipelined_copies(loop, frozenset({"shared"}))
        if not copies:
            why = f"not supported yet: `{loop.var}` has stages, and copies nothing into shared memory that could run ahead of it"
            raise Unfit(why, loop.var)
        copied = {s.buffer for s in stores(*copies)}
        going = in_flight(loop.body, self.threads, copied) if stages > 2 else None
        ahead = stages - 1 - (going is not None)
        loop = loop if going is None else replace(loop, body=going)
        targets = {s.buffer.name: s.buffer for s in loop.body if isinstance(s, Alloc) and s.buffer.name in copied}
        by_device = [self._by_device(c, targets) for c in copies]
        rest = tuple(s for s in loop.body if s not in copies and not (isinstance(s, Alloc) and s.buffer.name in copied))
        allocs = tuple(Alloc(replace(b, shape=(Int(stages), *b.shape))) for b in targets.values())
        asynchronous = any(f is not None for f in by_device)
        out: list[Stmt] = [*allocs]
        for k in range(ahead):
            at = Add(loop.lo, Int(k))
            first = tuple(at_stage(f or c, loop, at, Int(k), copied) for c, f in zip(copies, by_device, strict=True))
            out += [_if(Compare("<", IndexValue(at), IndexValue(loop.hi)), first), *([Commit()] if asynchronous else [])]
        at = Add(Var(loop.var), Int(ahead))
        number = Add(Var(loop.var), Mul(Int(-1), loop.lo))
        stage = Mod(Add(number, Int(ahead)), Int(stages))
        more = Compare("<", IndexValue(at), IndexValue(loop.hi))
        body: list[Stmt] = []
        if asynchronous:
            begun = tuple(at_stage(f, loop, at, stage, copied) for f in by_device if f is not None)
            body += [Wait(ahead - 1), _if(more, begun), Commit()]
        halves = [_Halves(self.fresh, targets).split(c) for c, f in zip(copies, by_device, strict=True) if f is None]
        body += [Alloc(b) for _, _, kept in halves for b in kept]
        if halves:
            body.append(_if(more, tuple(at_stage(fetch, loop, at, stage, copied) for fetch, _, _ in halves)))
        body += (at_stage(s, loop, Var(loop.var), Mod(number, Int(stages)), copied) for s in rest)
        if halves:
            body.append(_if(more, tuple(at_stage(put, loop, at, stage, copied) for _, put, _ in halves)))
        done = () if going is None else (DONE,)
        return (*out, replace(loop, body=tuple(body)), *done)

    def _by_device(self, copy: Stmt, targets: Mapping[str, Buffer]) -> Stmt | None:
        """Return `copy` as the device makes it by itself, or None where it goes through registers: what lies together and is read at once,
        but for more than a thread can keep, and what the device cannot copy."""
        together = _later(copy, self, targets, single=False)
        if together is not None or _kept(copy) <= REGISTERS:
            return together
        return _later(copy, self, targets, single=True)


def _if(cond: Expr, then: tuple[Stmt, ...]) -> Stmt:
    return If(cond, then)


# ---------------------------------------------------------------- by the device itself


def _kept(s: Stmt) -> int:
    """Return how many elements of a copy each thread would have on their way."""
    match s:
        case For(kind=kind) if kind in THREADS:
            return sum(map(_kept, s.body))
        case For(extent=extent):
            return (REGISTERS + 1 if extent is None else extent) * sum(map(_kept, s.body))
        case If(_, then, orelse):
            return sum(map(_kept, (*then, *orelse)))
        case Store():
            return 1
        case _:
            return 0


def _later(copy: Stmt, pass_: _Pass, targets: Mapping[str, Buffer], *, single: bool) -> Stmt | None:
    """Return `copy` with its stores marked `later`, or None where the device does not copy like that; `single`: element by element."""
    buffers = {**pass_.device, **targets}

    def stmt(s: Stmt, around: tuple[For, ...]) -> Stmt | None:
        match s:
            case For():
                body = [stmt(inner, (*around, s)) for inner in s.body]
                return None if None in body else replace(s, body=tuple(b for b in body if b is not None))
            case If(_, then, ()):
                body = [stmt(inner, around) for inner in then]
                return None if None in body else replace(s, then=tuple(b for b in body if b is not None))
            case Store() if copied_at_once(s, around[-1] if around and not single else None, buffers, pass_.algebra):
                return replace(s, later=True)
            case _:
                return None

    return stmt(copy, ())


# ---------------------------------------------------------------- through registers


@dataclass(slots=True)
class _Halves:
    """A copy cut into what fetches its elements and what puts them in place."""

    fresh: Fresh
    targets: Mapping[str, Buffer]
    kept: list[Buffer] = field(default_factory=list)

    def split(self, copy: Stmt) -> tuple[Stmt, Stmt, tuple[Buffer, ...]]:
        """Return both halves, and the registers between them."""
        fetch, put = self._stmt(copy, ())
        assert fetch is not None and put is not None, "a copy stores something"
        return fetch, put, tuple(self.kept)

    def _stmt(self, s: Stmt, around: tuple[For, ...]) -> tuple[Stmt | None, Stmt | None]:
        match s:
            case For(kind=kind) if kind in THREADS:
                return self._both(s, s.body, around)
            case For(lo=Int(0), extent=int()):
                loop = s if s.kind in ("unroll", "vector") else replace(s, kind="unroll")
                return self._both(loop, s.body, (*around, loop))
            case If(_, then, ()):
                fetch, put = self._block(then, around)
                return (replace(s, then=fetch) if fetch else None), (replace(s, then=put) if put else None)
            case Let():
                return s, None
            case Store(buffer, index, value):
                target = self.targets[buffer]
                extents = [outer.extent for outer in around if outer.extent is not None]
                if prod(extents) > REGISTERS:
                    raise Unfit(f"not supported yet: {prod(extents)} elements of `{buffer}` a thread, copied in stages", buffer)
                kept = Buffer(self.fresh(f"{buffer}_r"), target.dtype, tuple(Int(e) for e in extents), "registers")
                self.kept.append(kept)
                place = tuple(Var(outer.var) for outer in around)
                return Store(kept.name, place, value), Store(buffer, index, Load(kept.name, place))
            case _:
                raise Unfit("not supported yet: a copy in stages that is no nest of loops around stores")

    def _both(self, loop: For, body: tuple[Stmt, ...], around: tuple[For, ...]) -> tuple[Stmt | None, Stmt | None]:
        fetch, put = self._block(body, around)
        return (replace(loop, body=fetch) if fetch else None), (replace(loop, body=put) if put else None)

    def _block(self, body: tuple[Stmt, ...], around: tuple[For, ...]) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
        halves = [self._stmt(s, around) for s in body]
        return tuple(f for f, _ in halves if f is not None), tuple(p for _, p in halves if p is not None)
