"""Barriers: put where threads of a block would otherwise meet in a cell, and nowhere else.

    for ko {                                          for ko {
        for t thread { a_s[…] = a[…] }                    for t thread { a_s[…] = a[…] }
                                              →           barrier                               # written before it is read
        for t thread { acc[] += a_s[…] }                  for t thread { acc[] += a_s[…] }
    }                                                     barrier                               # read before it is written again
                                                      }

Every pair of accesses of different threads to one cell, one of them writing, is found exactly (`polyhedral.threads`). A barrier goes
between two that nothing separates, until there are none; then each barrier without which nothing would meet is taken out again. So every
barrier that is left has two threads, a cell and sizes that need it: `exposed` names them when it is deleted.

A store marked `later` touches its cell at any time until its thread waits for its group: what another thread does with the cell needs a
barrier after that wait, and the thread itself needs the wait. Waits are not put here but held to that: one that is missing, or leaves one
group more under way than it may, is refused, and `exposed` names the cell that it gives away. Products of four warps touch their operands
and their sums like that until they have been waited for.

A thread beside those of the block comes to none of their barriers: what it overwrites it has to have reclaimed, what it brings the others
have to have waited for. Numbers of what is given and taken go up one by one (`polyhedral.signals`), or `exposed` names one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from codegen.errors import Unfit
from codegen.gpu import matrix
from codegen.gpu.geometry import WARP, Geometry
from codegen.gpu.launches import BlockCode, launches, map_blocks
from codegen.gpu.matrix import MATRIX_ROW
from codegen.loops import nodes as loops
from codegen.loops.walk import children, walk
from codegen.loops.walk import loads as loads_of
from codegen.loops.walk import stores as stores_of
from polyhedral import affine
from polyhedral import expr as sets
from polyhedral.clusters import Cluster, Grid, Part, RemoteConflict
from polyhedral.signals import Numbered, Signals, signal_fault
from polyhedral.threads import THREAD, Block, Conflict, ThreadAccess
from polyhedral.verdict import Unknown
from polyhedral.waits import Ending, Moment, Signal
from tensorlang.lower.sets import to_cond, to_expr, within

Path = tuple[int, ...]
"""Where a statement stands among those that all threads of a block run together: child numbers, outermost first."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """Two threads of a block touch one cell of `memory` with no barrier between them; or one does, before its own copy has landed."""

    memory: str
    cell: tuple[int, ...]
    threads: tuple[int, int]
    sizes: Mapping[str, int]
    """Sizes of the function, and the block's place in the grid."""
    under: loops.Under = "copies"
    """What goes on beside a thread that meets itself."""
    owner: int | None = None
    """The block of a cluster whose memory it is, where the numbers are those of two blocks that touch it, the second by a shared box."""

    def __str__(self) -> str:
        cell = ", ".join(map(str, self.cell))
        where = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        first, second = self.threads
        if self.owner is not None:
            told = f"block {second} copies into `{self.memory}[{cell}]` of block {self.owner}, which block {first} may not be done with"
            return f"{told}{f', with {where}' if where else ''}"
        if first == second:
            beside = "copy" if self.under == "copies" else "product"
            return f"thread {first} touches `{self.memory}[{cell}]` while its {beside} is under way{f' with {where}' if where else ''}"
        return f"threads {first} and {second} share `{self.memory}[{cell}]`{f' with {where}' if where else ''}"


@dataclass(frozen=True, slots=True)
class BarrierMismatch:
    """A number of what threads of two kinds hand each other at `barriers` comes too early, twice or not at all."""

    barriers: str
    number: int
    why: str
    sizes: Mapping[str, int]

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        return f"`{self.barriers}[{self.number}]` is {self.why}{f' with {where}' if where else ''}"


def with_barriers(function: loops.Function, warp: int = WARP) -> loops.Function:
    """Return `function`, whose blocks have their buffers in place, with the barriers that its threads, so many of which are a warp, need
    and no other."""
    found = launches(function, warp)
    blocks, device = iter(found.blocks), set(found.buffers)

    def completed(body: tuple[loops.Stmt, ...]) -> tuple[loops.Stmt, ...]:
        block = replace(next(blocks), body=body)
        return _completed(block, (*function.sizes, *block.told), device)

    return map_blocks(function, completed)


def exposed(function: loops.Function, warp: int = WARP) -> Exposed | BarrierMismatch | Unknown | None:
    """Return two accesses that the barriers of `function` leave unordered, or a number that is not handed over as it has to be; None when
    there are none."""
    found = launches(function, warp)
    for block in found.blocks:
        analysed = _analysed(block, (*function.sizes, *block.told), set(found.buffers))
        wrong = _miscounted(analysed)
        if wrong is not None:
            return wrong
        clash = _clash(analysed, dict(_barriers(block.body)))
        if isinstance(clash, Unknown):
            return clash
        if clash is not None:
            return _told(analysed, clash)
    return None


# ---------------------------------------------------------------- insertion


def _completed(block: BlockCode, sizes: tuple[str, ...], device: set[str]) -> tuple[loops.Stmt, ...]:
    analysed = _analysed(block, sizes, device)
    wrong = _miscounted(analysed)
    if wrong is not None:
        raise Unfit(str(wrong))
    first: loops.Together = "block" if analysed.cluster is None else "cluster"
    placed: dict[Path, loops.Together] = {(*path[:-1], path[-1] + 1): first for path in analysed.waits}
    while (clash := _clash(analysed, placed)) is not None:
        if isinstance(clash, Unknown):
            if analysed.endings or any(t.group is not None for t in analysed.touches):
                raise Unfit(f"not supported yet: copies in stages that are too much to prove: {clash}")
            return _inserted(block.body, dict.fromkeys(_everywhere(analysed), "block"))
        told = _told(analysed, clash)
        if isinstance(clash, Conflict) and clash.threads[0] == clash.threads[1]:
            raise Unfit(str(told), told.memory)
        beside = any(analysed.touches[n].by_producer for n in (clash.first, clash.second))
        path, of = None if beside else _between(analysed, clash), _who(clash)
        if path is None or placed.get(path) in (of, "cluster"):
            raise Unfit(f"{told}, and no barrier can part them", told.memory)
        placed[path] = of
    for path, of in list(placed.items()):
        fewer = {p: o for p, o in placed.items() if p != path}
        less: list[dict[Path, loops.Together]] = [fewer, {**placed, path: "block"}] if of == "cluster" else [fewer]
        placed = next((other for other in less if _is_ordered(analysed, other)), placed)
    return _inserted(block.body, placed)


def _clash(analysed: _Analysed, barriers: Mapping[Path, loops.Together]) -> Conflict | RemoteConflict | Unknown | None:
    """Return two accesses that barriers leave unordered, of threads of one block or of blocks of a cluster."""
    clash = analysed.block.exposed([_moment(analysed, path) for path in barriers])
    return clash if clash is not None else _clash_of_blocks(analysed, barriers)


def _is_ordered(analysed: _Analysed, barriers: Mapping[Path, loops.Together]) -> bool:
    """Tell whether barriers leave no two accesses unordered."""
    ordered = analysed.block.is_ordered([_moment(analysed, path) for path in barriers])
    return ordered and _clash_of_blocks(analysed, barriers) is None


def _clash_of_blocks(analysed: _Analysed, barriers: Mapping[Path, loops.Together]) -> RemoteConflict | Unknown | None:
    if analysed.cluster is None:
        return None
    return analysed.cluster.exposed([_moment(analysed, path) for path, of in barriers.items() if of == "cluster"])


def _who(clash: Conflict | RemoteConflict) -> loops.Together:
    """Return whose threads have to wait for each other."""
    return "block" if isinstance(clash, Conflict) else "cluster"


def _between(analysed: _Analysed, clash: Conflict | RemoteConflict) -> Path | None:
    """Return where a barrier parts the two touches of a clash: before the later one, or at the end of the loop that carries it."""
    first, second = clash.times
    for level in range(0, len(first), 2):
        path = tuple((p - 1) // 2 for p in second[:level:2])
        if first[level] != second[level]:
            return (*path, (second[level] - 1) // 2)
        if level + 1 < len(first) and first[level + 1] != second[level + 1]:
            inside = (*path, (second[level] - 1) // 2)
            return (*inside, len(analysed.together[inside]))
    return None


def _everywhere(analysed: _Analysed) -> Iterator[Path]:
    """Yield every place where a barrier can stand."""
    for path, body in analysed.together.items():
        yield from ((*path, k) for k in range(len(body) + bool(path)))


def _inserted(body: tuple[loops.Stmt, ...], at: Mapping[Path, loops.Together], here: Path = ()) -> tuple[loops.Stmt, ...]:
    out: list[loops.Stmt] = []
    for k, stmt in enumerate(body):
        inside = (*here, k)
        if inside in at:
            out.append(loops.Barrier(at[inside]))
        below = {p: of for p, of in at.items() if p[: len(inside)] == inside and len(p) > len(inside)}
        match stmt:
            case loops.For() if below:
                out.append(replace(stmt, body=_inserted(stmt.body, below, inside)))
            case loops.If() if below:
                out.append(replace(stmt, then=_inserted(stmt.then, below, inside)))
            case _:
                out.append(stmt)
    last = (*here, len(body))
    return (*out, loops.Barrier(at[last])) if last in at else tuple(out)


def _barriers(body: tuple[loops.Stmt, ...], here: Path = ()) -> Iterator[tuple[Path, loops.Together]]:
    """Yield where barriers stand, as places before statements, and whose they are."""
    for k, stmt in enumerate(body):
        match stmt:
            case loops.Barrier(of):
                yield (*here, k), of
            case loops.For():
                yield from _barriers(stmt.body, (*here, k))
            case loops.If():
                yield from _barriers(stmt.then, (*here, k))
            case _:
                pass


# ---------------------------------------------------------------- what the threads of a block touch


_NONE = sets.Int(0)
UNDER: tuple[loops.Under, ...] = ("copies", "products")


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops and conditions around a statement, as sets see them."""

    variables: tuple[str, ...] = ()
    when: tuple[sets.Cond, ...] = ()
    time: tuple[sets.Expr, ...] = ()
    places: frozenset[loops.LoopKind] = frozenset()
    groups: Mapping[loops.Under, sets.Expr | None] = field(default_factory=lambda: dict.fromkeys(UNDER, _NONE))
    """How many groups of copies, and of products, have been closed before; None: that is no quasi-affine expression."""
    flying: bool = False
    """Products go on beyond the statement."""
    beside: bool = False
    """The thread beside those of the block runs it."""


@dataclass(slots=True)
class _Analysed:
    code: BlockCode
    threads: Geometry
    block: Block = field(init=False)
    cluster: Cluster | None = None
    touches: list[ThreadAccess] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    waits: list[Path] = field(default_factory=list)
    """Where threads wait for copies."""
    signals: dict[type[loops.Stmt], list[Signal]] = field(default_factory=dict)
    told: list[Signal] = field(default_factory=list)
    """What is given to all blocks of a cluster."""
    pairs: dict[str, str] = field(default_factory=dict)
    """Barriers at which boxes are counted → those where their places are given back, if they are."""
    parts: dict[int, Part] = field(default_factory=dict)
    """What a block asks for of boxes that a cluster shares, by the positions of touches."""
    together: dict[Path, tuple[loops.Stmt, ...]] = field(default_factory=dict)
    """Path → the statements of a block that all threads run together."""
    around: dict[Path, _Around] = field(default_factory=dict)


def _analysed(code: BlockCode, sizes: tuple[str, ...], device: set[str]) -> _Analysed:
    analysed = _Analysed(code, code.geometry)
    written = {s.buffer for s in stores_of(*code.body)}
    shared = {n.buffer.name: n.buffer for n in walk(*code.body) if isinstance(n, loops.Alloc) and n.buffer.space == "shared"}
    multiplied = [n for n in walk(*code.body) if isinstance(n, loops.Mma) and matrix.named(n.name).warps > 1]
    products = {o.buffer for n in multiplied for o in (n.sums, n.rows)} - set(shared)
    collector = _Collector(analysed, set(shared) | (device & written), products, shared)
    collector.together(code.body, (), _Around())
    params = (*sizes, *(loop.var for loop in code.blocks))
    grid: list[sets.Cond] = []
    for loop in code.blocks:
        grid += within(loop.var, loop.lo, loop.hi)
    released, reclaimed = (analysed.signals.get(kind, []) for kind in (loops.Release, loops.Reclaim))
    analysed.block = Block(analysed.touches, params, affine.conj(*grid), analysed.threads.threads, analysed.endings, released, reclaimed)
    along = code.cluster_loop
    if along is not None and analysed.parts:
        low = to_expr(along.lo)
        assert low is not None, "where blocks of a cluster begin is known"
        grid_of = Grid(params, along.var, low, along.cluster, affine.conj(*grid), analysed.threads.threads)
        analysed.cluster = Cluster(analysed.touches, analysed.parts, grid_of, analysed.endings, analysed.told, reclaimed)
    return analysed


def _miscounted(analysed: _Analysed) -> BarrierMismatch | None:
    """Return a number that is not asked for, waited for, released and reclaimed in turn."""
    block = analysed.block
    for full, empty in analysed.pairs.items():
        asked, landed = (_numbered(analysed, kind, full) for kind in (loops.Boxes, loops.WaitBoxes))
        released, reclaimed = (_numbered(analysed, kind, empty) for kind in (loops.Release, loops.Reclaim))
        wrong = signal_fault(Signals(full, empty, asked, landed, released, reclaimed))
        if wrong is not None:
            return BarrierMismatch(wrong.name, wrong.number, wrong.why, dict(zip(block.params, wrong.params, strict=True)))
    return None


def _numbered(analysed: _Analysed, kind: type[loops.Stmt], of: str) -> Numbered:
    return analysed.block.numbered([s for s in analysed.signals.get(kind, []) if s.of == of])


@dataclass(slots=True)
class _Collector:
    analysed: _Analysed
    memory: set[str]
    products: set[str]
    """Registers that products of four warps add to, or read."""
    shared: Mapping[str, loops.Buffer]

    def together(self, body: tuple[loops.Stmt, ...], path: Path, around: _Around) -> None:
        """Note what stands where all threads are together, and what each of its statements touches."""
        self.analysed.together[path] = body
        self.analysed.around[path] = around
        groups = around.groups
        for k, stmt in enumerate(body):
            at = replace(around, time=(*around.time, sets.Int(2 * k + 1)), groups=groups)
            groups = {of: _plus(count, _closed(stmt, of)) for of, count in groups.items()}
            match stmt:
                case loops.For(kind=kind) if kind not in loops.THREADS and _uniform(stmt.lo, stmt.hi):
                    self._reads((stmt.lo, stmt.hi), at)
                    inner = _inside(stmt, at, self.analysed.threads)
                    before = {of: _so_far(stmt, count, of) for of, count in at.groups.items()}
                    inner = replace(inner, time=(*at.time, sets.Name(stmt.var)), groups=before)
                    self.together(stmt.body, (*path, k), inner)
                case loops.Wait(pending, of):
                    count = at.groups[of]
                    if count is not None:
                        ended = affine.add(count, sets.Int(-pending))
                        self.analysed.endings.append(Ending(at.time, at.variables, affine.conj(*at.when), ended, of))
                        self.analysed.waits += [(*path, k)] if of == "copies" else []
                case loops.WaitBoxes(barriers, group):
                    ended = affine.add(self._signal(stmt, barriers, group, at), sets.Int(1))
                    self.analysed.endings.append(Ending(at.time, at.variables, affine.conj(*at.when), ended, barriers, of_others=True))
                    self.analysed.waits.append((*path, k))
                    # Who has waited has to be there before the barrier counts what comes next.
                    self._touch(barriers, (self._counter(barriers, group),), False, replace(at, time=(*at.time, sets.Int(1))))
                case loops.Release(barriers, group, blocks):
                    self._signal(stmt, barriers, group, at)
                    if blocks > 1:
                        self.analysed.told.append(self.analysed.signals[loops.Release][-1])
                case loops.Reclaim(barriers, group) | loops.Boxes(barriers, group) if around.beside:
                    self._signal(stmt, barriers, group, at)
                    self._apart(stmt, at)
                case loops.Boxes(barriers, group):
                    self._signal(stmt, barriers, group, at)
                    self._apart(stmt, replace(at, when=(*at.when, _zero(None, 1))))
                case loops.Producer(inside):
                    self._paired(inside)
                    self.together(inside, (*path, k), replace(at, time=(*at.time, sets.Int(0)), beside=True))
                case loops.Commit():
                    pass
                case loops.If(cond, then, ()) if not any(True for _ in loads_of(cond)) and to_cond(cond) is not None:
                    known = to_cond(cond)
                    assert known is not None
                    self.together(then, (*path, k), replace(at, when=(*at.when, known), time=(*at.time, sets.Int(0))))
                case _:
                    self._apart(stmt, replace(at, flying=not _is_done(stmt)))

    def _signal(self, stmt: loops.Stmt, barriers: str, group: loops.Index, at: _Around) -> sets.Expr:
        """Note a number that is given, or waited for; return it."""
        number = to_expr(group)
        if number is None:
            raise Unfit("not supported yet: boxes whose number is no quasi-affine expression")
        signal = Signal(barriers, at.time, at.variables, affine.conj(*at.when), number)
        self.analysed.signals.setdefault(type(stmt), []).append(signal)
        if isinstance(stmt, loops.Boxes):
            self.analysed.pairs.setdefault(barriers, "")
        return number

    def _paired(self, body: tuple[loops.Stmt, ...]) -> None:
        """Note which barriers give back the place of the boxes in `body`."""
        full, empty = ({n.barriers for n in walk(*body) if isinstance(n, kind)} for kind in (loops.Boxes, loops.Reclaim))
        if len(full) != 1 or len(empty) > 1:
            raise Unfit("not supported yet: boxes that a thread beside the others asks for, counted at several barriers")
        for name in full:
            self.analysed.pairs[name] = next(iter(empty), "")

    def _counter(self, barriers: str, group: loops.Index) -> loops.Index:
        """Return which of the barriers counts a group."""
        return loops.Mod(group, self.shared[barriers].shape[0])

    def _apart(self, stmt: loops.Stmt, around: _Around) -> None:
        """Note what `stmt` touches, whose threads go through it each on its own."""
        match stmt:
            case loops.For():
                self._reads((stmt.lo, stmt.hi), around)
                inner = _inside(stmt, around, self.analysed.threads)
                for s in stmt.body:
                    self._apart(s, inner)
            case loops.If(cond, then, orelse):
                self._reads((cond,), around)
                known = to_cond(cond)
                for block, here in ((then, known), (orelse, None if known is None else sets.Not(known))):
                    for s in block:
                        self._apart(s, around if here is None else replace(around, when=(*around.when, here)))
            case loops.LoadMatrix(_, _, lane, source, count):
                # Whoever gives the address of a row, all lanes read all rows.
                element = f"{lane} element"
                sides = (lane, 8 * count), (element, MATRIX_ROW // self.shared[source.buffer].dtype.size_bytes)
                bounds = (b for name, count in sides for b in within(name, loops.Int(0), loops.Int(count)))
                rows = replace(around, variables=(*around.variables, lane, element), when=(*around.when, *bounds))
                last = loops.Add(source.index[-1], loops.Var(element))
                self._touch(source.buffer, (*source.index[:-1], last), False, rows)
            case loops.Mma(name, sums, rows, columns) if matrix.named(name).warps > 1:
                # All threads of the four warps wait for what reads all of both.
                instruction = matrix.named(name)
                height, width, depth = instruction.shape
                for operand, count, across in zip((rows, columns), (height, width), instruction.across, strict=True):
                    axes = [("product row", count), ("product element", depth)]
                    if across:
                        panel = self._row(operand.buffer)
                        axes = [("product panel", -(-count // panel)), ("product element", depth), ("product row", min(panel, count))]
                    bounds = (b for side, extent in axes for b in within(side, loops.Int(0), loops.Int(extent)))
                    read = replace(around, variables=(*around.variables, *(side for side, _ in axes)), when=(*around.when, *bounds))
                    at = (loops.Add(e, loops.Var(side)) for e, (side, _) in zip(operand.index[-len(axes) :], axes, strict=True))
                    self._touch(operand.buffer, (*operand.index[: -len(axes)], *at), False, read, self._under(around), "products")
                if around.flying:
                    self._touch(sums.buffer, sums.index, True, around, self._under(around), "products")
            case loops.Boxes(barriers, number, boxes):
                which = to_expr(number)
                assert which is not None, "it has been noted as a signal"
                self._touch(barriers, (self._counter(barriers, number),), True, around, which, barriers)
                for box in boxes:
                    self._boxed(box, around, which, barriers)
            case loops.Reclaim():
                pass
            case loops.WaitBoxes() | loops.Release() | loops.Producer():
                raise Unfit("not supported yet: boxes where not all threads of the block come")
            case loops.Commit("products") | loops.Wait(0, "products"):
                pass
            case loops.Wait(of="products"):
                raise Unfit("not supported yet: products of four warps that go on where not all threads of the block come")
            case loops.Commit() | loops.Wait():
                raise Unfit("not supported yet: copies in stages where not all threads of the block come")
            case loops.Store(buffer, index, _) if stmt.later and around.groups["copies"] is None:
                why = f"not supported yet: how many copies into `{buffer}` are under way is no quasi-affine expression"
                raise Unfit(why, buffer)
            case loops.Store(buffer, index, _):
                group = around.groups["copies"] if stmt.later else None
                once = [_zero(m, n) for m, n in self.analysed.threads.gaps(around.places)]
                storing = replace(around, when=(*around.when, *once))
                self._reads(children(stmt), around if stmt.across or stmt.later or buffer not in self.memory else storing, group)
                self._touch(buffer, index, True, storing, group)
            case _:
                self._reads(children(stmt), around)

    def _row(self, buffer: str) -> int:
        """Return how many elements a row of a shared buffer has."""
        last = self.shared[buffer].shape[-1]
        assert isinstance(last, loops.Int), "buffers in shared memory have constant extents"
        return last.value

    def _under(self, around: _Around) -> sets.Expr | None:
        """Return the group of a product that is not waited for where it stands, None for one that is."""
        if not around.flying:
            return None
        if around.groups["products"] is None:
            raise Unfit("not supported yet: how many groups of products are under way is no quasi-affine expression")
        return around.groups["products"]

    def _boxed(self, box: loops.Box, around: _Around, group: sets.Expr, of: str) -> None:
        """Note what a box touches: all of a part of a shared buffer, by the thread that has it copied."""
        sides = [(f"box element {k}", n) for k, n in enumerate(n for n in (box.extents[axis] for axis in box.axes) if n > 1)]
        bounds = (b for side, n in sides for b in within(side, loops.Int(0), loops.Int(n)))
        inside = replace(around, variables=(*around.variables, *(side for side, _ in sides)), when=(*around.when, *bounds))
        at, left = list(box.target.index), sides
        for k, extent in reversed(list(enumerate(self.shared[box.target.buffer].shape))):
            if not left or extent == loops.Int(1):
                continue
            whole = extent == loops.Int(left[-1][1])
            at[k] = loops.Var(left[-1][0]) if whole else loops.Add(at[k], _number(left))
            left = left[:-1] if whole else []
        if box.blocks > 1:
            first, length = sides[0]
            self.analysed.parts[len(self.analysed.touches)] = Part(first, length // box.blocks)
        self._touch(box.target.buffer, tuple(at), True, inside, group, of)

    def _reads(self, nodes: tuple[loops.Stmt | loops.Expr | loops.Index, ...], around: _Around, group: sets.Expr | None = None) -> None:
        for load in loads_of(*nodes):
            self._touch(load.buffer, load.index, False, around, group)

    def _touch(
        self,
        buffer: str,
        index: tuple[loops.Index, ...],
        writes: bool,
        around: _Around,
        group: sets.Expr | None = None,
        of: str = "copies",
    ) -> None:
        when = affine.conj(*around.when)
        if buffer in self.memory:
            cell = tuple(map(to_expr, index))
            touch = ThreadAccess(buffer, cell, writes, around.time, around.variables, when, group, of, by_producer=around.beside)
            self.analysed.touches.append(touch)
        elif buffer in self.products:
            # A product adds to registers that follow each other along the last axis.
            cell = tuple(map(to_expr, index[:-1]))
            of = of if group is not None else ""
            self.analysed.touches.append(ThreadAccess(buffer, cell, writes, around.time, around.variables, when, group, of, private=True))


def _number(sides: list[tuple[str, int]]) -> loops.Index:
    """Return the number of an element, in the order in which sides, outermost first, are gone through."""
    out: loops.Index = loops.Int(0)
    for side, extent in sides:
        out = loops.Add(loops.Mul(loops.Int(extent), out), loops.Var(side))
    return out


def _plus(a: sets.Expr | None, b: sets.Expr | None) -> sets.Expr | None:
    return None if a is None or b is None else affine.add(a, b)


def _is_done(stmt: loops.Stmt) -> bool:
    """Tell whether `stmt` waits for its products itself."""
    return loops.Wait(0, "products") in walk(stmt)


def _closed(stmt: loops.Stmt, of: loops.Under) -> sets.Expr | None:
    """Return how many groups of copies or products `stmt` closes, but for those it waits for, or None where that is no quasi-affine
    expression."""
    match stmt:
        case loops.Commit(under):
            return sets.Int(int(under == of))
        case loops.For(kind=kind) if kind in loops.THREADS and of == "products":
            return sets.Int(0) if _is_done(stmt) or loops.Commit("products") not in walk(stmt) else None
        case loops.For(_, lo, hi, body):
            count, first, last = _closed_by(body, of), to_expr(lo), to_expr(hi)
            if count == 0:
                return sets.Int(0)
            if count is None or first is None or last is None:
                return None
            return affine.scale(count, affine.maximum(sets.Int(0), affine.sub(last, first)))
        case loops.If(_, then, orelse):
            return sets.Int(0) if _closed_by(then, of) == 0 and _closed_by(orelse, of) == 0 else None
        case _:
            return sets.Int(0)


def _closed_by(body: tuple[loops.Stmt, ...], of: loops.Under) -> int | None:
    """Return how many groups `body` closes, where that is a constant."""
    counts = [affine.linear(count) if (count := _closed(s, of)) is not None else None for s in body]
    known = [count.constant for count in counts if count is not None and not count.terms]
    return sum(known) if len(known) == len(counts) else None


def _so_far(loop: loops.For, before: sets.Expr | None, of: loops.Under) -> sets.Expr | None:
    """Return how many groups have been closed when an iteration of `loop` begins, `before` of them before the loop."""
    count, first = _closed_by(loop.body, of), to_expr(loop.lo)
    if count == 0:
        return before
    if count is None or first is None or before is None:
        return None
    return affine.add(before, affine.scale(count, affine.sub(sets.Name(loop.var), first)))


def _uniform(*bounds: loops.Index) -> bool:
    return all(to_expr(b) is not None for b in bounds)


def _inside(loop: loops.For, around: _Around, threads: Geometry) -> _Around:
    when = [*around.when, *within(loop.var, loop.lo, loop.hi)]
    places = around.places
    if loop.kind in loops.THREADS:
        digit = threads.digit(loop.kind)
        number: sets.Expr = sets.Floor(sets.Name(THREAD), digit.stride)
        number = number if digit.extent is None else sets.Mod(number, digit.extent)
        low = to_expr(loop.lo)
        if low is not None:
            when.append(sets.Compare("==", sets.Name(loop.var), sets.Add(low, number)))
        places |= {loop.kind}
    return replace(around, variables=(*around.variables, loop.var), when=tuple(when), places=places)


def _zero(modulus: int | None, below: int) -> sets.Cond:
    number: sets.Expr = sets.Name(THREAD) if modulus is None else sets.Mod(sets.Name(THREAD), modulus)
    return sets.Compare("<", number, sets.Int(below))


def _moment(analysed: _Analysed, path: Path) -> Moment:
    around = analysed.around[path[:-1]]
    return Moment((*around.time, sets.Int(2 * path[-1])), around.variables, affine.conj(*around.when))


def _told(analysed: _Analysed, clash: Conflict | RemoteConflict) -> Exposed:
    first = analysed.touches[clash.first]
    if isinstance(clash, RemoteConflict):
        return Exposed(first.memory, clash.cell, clash.blocks, clash.params, owner=clash.owner)
    return Exposed(first.memory, clash.cell, clash.threads, clash.params, "products" if first.of == "products" else "copies")
