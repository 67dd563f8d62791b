"""Tiles at the edges of a product are computed whole, on zeros, where that is proven to change nothing that anybody sees.

    for i in 0 .. min(16, M - 16*io) {                    for i in 0 .. 16 {
        a_s[i] = a[16*io + i]                    →            a_s[i] = select(index(i) < index(min(16, M - 16*io)), a[16*io + i], 0)
    }                                                     }
    for i in 0 .. min(16, M - 16*io) thread.x 16 {        for i in 0 .. 16 thread.x 16 {
        acc[i] = fma(a_s[i], b_s[0], acc[i])                  acc[i] = fma(a_s[i], b_s[0], acc[i])
    }                                                     }
    for i in 0 .. min(16, M - 16*io) thread.x 16 {        as it was
        y[16*io + i] = acc[i]
    }

What more iterations store is harmless in two ways, and each store has to be so in one of them (all by exact sets, for all sizes):

    it lies in cells that nothing stored to before while the buffer lived, so nobody read them;
    it adds the identity of a sum to a cell, because all that it reads are zeros that were filled in.

And what they read has been stored: by a copy, that is filled up with zeros, or by another store that is widened too. Sums may be
rearranged, so that -0.0 + 0.0 is no difference; strict operators are left as they are. Only sums that read what was copied for all threads
of a block are begun with: widening is for them, and for what they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from codegen.gpu.launches import map_blocks, nests
from codegen.loops import nodes as loops
from codegen.loops.nodes import Expr
from codegen.loops.notes import Edge
from codegen.loops.verify import is_reduction
from codegen.loops.walk import noted_loops, walk
from tensorlang.lower.widening import Choice, Local, Path, Proof, Wide, is_copy, sites_of


def whole(function: loops.Function, *, strict: bool = False) -> loops.Function:
    """Return `function`, before its loops are shared out, with the tiles of sums in its blocks computed whole, except along loops that are
    to end early. `strict`: nothing is added to a sum."""
    device = frozenset(b.name for b in function.params) | {s.buffer.name for s in function.body if isinstance(s, loops.Alloc)}
    guarded = frozenset(loop.var for loop, edge in noted_loops(Edge, *function.body) if edge.how == "guard")
    blocks = iter(_grids(function))
    return map_blocks(function, lambda body: _widened(body, next(blocks), device, Choice(function.sizes, strict, guarded)))


def edges(function: loops.Function) -> frozenset[str]:
    """Return the variables of the loops around sums that end early at an edge, or run a number of times that data decide."""
    found: set[str] = set()

    def visit(body: tuple[loops.Stmt, ...], around: tuple[str, ...]) -> None:
        for s in body:
            match s:
                case loops.For(kind=kind):
                    visit(s.body, around if isinstance(s.hi, loops.Int) or kind in loops.BLOCKS else (*around, s.var))
                case loops.If(_, then, orelse):
                    visit((*then, *orelse), around)
                case loops.Store() if is_reduction(s):
                    found.update(around)
                case _:
                    pass

    visit(function.body, ())
    return frozenset(found)


def _widened(body: tuple[loops.Stmt, ...], grid: tuple[loops.For, ...], device: frozenset[str], choice: Choice) -> tuple[loops.Stmt, ...]:
    """Return what a block runs with every loop that may run to its end doing so."""
    allocated = [n.buffer.name for n in walk(*body) if isinstance(n, loops.Alloc)]
    if len(set(allocated)) < len(allocated):
        return body
    locals_: dict[str, Local] = {}
    sites = list(sites_of(body, (), (), (), locals_))
    proof = Proof(choice, grid, device, sites, locals_)
    wide = proof.widenable()
    return _Rewriting(wide, proof.ends, proof.grown(wide), device, locals_).block(body, (), ()) if wide else body


def _grids(function: loops.Function) -> Iterator[tuple[loops.For, ...]]:
    """Yield the loops around what the blocks of each launch run: steps, and those over blocks."""
    for steps, s in nests(function.body):
        around = [*steps]
        while isinstance(s, loops.For) and s.kind in loops.BLOCKS:
            around.append(s)
            if len(s.body) != 1 or not isinstance(s.body[0], loops.For):
                break
            s = s.body[0]
        yield tuple(around)


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """`wide` carried out. What was true of loops before they were widened is `pending` inside them, by their variables."""

    wide: Wide
    ends: Mapping[Path, int]
    shapes: Mapping[str, tuple[int, ...]]
    device: frozenset[str]
    locals: Mapping[str, Local]

    def block(self, body: tuple[loops.Stmt, ...], path: Path, pending: tuple[tuple[str, Expr], ...]) -> tuple[loops.Stmt, ...]:
        return tuple(self._stmt(s, (*path, k), pending) for k, s in enumerate(body))

    def _stmt(self, s: loops.Stmt, path: Path, pending: tuple[tuple[str, Expr], ...]) -> loops.Stmt:
        below = [extra for at, extra in self.wide.items() if at[: len(path)] == path]
        match s:
            case loops.Alloc(buffer):
                return (
                    loops.Alloc(replace(buffer, shape=tuple(map(loops.Int, self.shapes[buffer.name])))) if buffer.name in self.shapes else s
                )
            case _ if not any(below):
                return _if([c for _, c in pending], s)
            case loops.For() if any(s.var in extra for extra in below):
                most = self.ends[path]
                was = loops.Compare("<", loops.IndexValue(loops.Var(s.var)), loops.IndexValue(s.hi))
                return replace(s, hi=loops.Int(most), extent=most, body=self.block(s.body, path, (*pending, (s.var, was))))
            case loops.For():
                return replace(s, body=self.block(s.body, path, pending))
            case loops.If(_, then, orelse):
                return replace(s, then=self.block(then, (*path, 0), pending), orelse=self.block(orelse, (*path, 1), pending))
            case loops.Store():
                return self._store(s, self.wide[path], pending)
            case _:
                return s

    def _store(self, s: loops.Store, extra: frozenset[str], pending: tuple[tuple[str, Expr], ...]) -> loops.Stmt:
        dtype = self.locals[s.buffer].buffer.dtype
        kept = [c for var, c in pending if var not in extra]
        filled = [c for var, c in pending if var in extra] if is_copy(s, self.device) else []
        return _if(kept, replace(s, value=loops.Select(_all(filled), s.value, loops.zero(dtype))) if filled else s)


def _if(conds: list[Expr], s: loops.Stmt) -> loops.Stmt:
    return loops.If(_all(conds), (s,)) if conds else s


def _all(conds: list[Expr]) -> Expr:
    return reduce(lambda a, b: loops.Binary("and", a, b), conds)
