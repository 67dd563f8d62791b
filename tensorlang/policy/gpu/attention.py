"""A schedule on a graphics processor for attention in one pass over the keys (`tensorlang.tensor.online`).

A block of threads takes a block of rows of one head and goes through the blocks of keys. In each it copies keys and values into shared
memory, multiplies, and keeps scores, running maxima and sums, and the rows of the result in registers. Sixteen neighbouring threads share
a row, each every sixteenth of its keys, so that what a warp reads of the copies lies in different banks. Weights go through shared memory:
a thread has those of its keys and needs those of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Compare
from polyhedral.expr import Expr as Affine
from tensorlang.schedule.pack import pack
from tensorlang.schedule.schedule import Instruction, Schedule
from tensorlang.schedule.shape import extents
from tensorlang.tensor.idioms import Online
from tensorlang.tensor.nodes import Definition, Dynamic, Holds, Program
from tensorlang.tensor.online import Sizes
from tensorlang.tensor.walk import index_names, nodes, reads, reduces, tensor_table

TEAM = 16
"""Threads that share a row."""
EACH = 4
"""Rows of a thread, and neighbours along a row of the result."""


PAD = 4
"""Elements after a row of queries or keys, which keep sixteen bytes together and put neighbours down a column into different banks."""
BLOCKS = ((64, 64), (64, 32), (32, 32), (32, 16), (16, 16))
"""Rows and keys of a block, the most that fit. Only what is multiplied in 16 bits takes as many keys as rows: lanes then hold enough."""
SHARED_BYTES = 56 << 10
MOST_BYTES = 96 << 10
"""What a block may have on every device that multiplies matrices of 16 bits."""
LEAST_ROWS = 8
"""Fewer rows do not occupy the threads of a block."""


def blocks(sizes: Sizes) -> tuple[int, int] | None:
    """Return how many rows and keys a block of threads takes at a time, or None where there are few rows, or their elements are
    too long for its memory."""
    if sizes.rows < LEAST_ROWS:
        return None
    narrow = sizes.element_bytes < 4
    for rows, keys in BLOCKS[not narrow :]:
        kept = (rows + keys) * (sizes.depth + PAD) + keys * sizes.width + rows * keys
        needless = (rows > 16 and rows // 2 >= sizes.rows) or (keys > 16 and keys // 2 >= sizes.keys)
        if kept * max(4, sizes.element_bytes) <= (MOST_BYTES if narrow else SHARED_BYTES) and not needless:
            return rows, keys
    return None


def derive_online(schedule: Schedule, program: Program, online: Online) -> Schedule:
    """Return `schedule` with the directives of attention in one pass."""
    row, block = online.row, online.block
    rows = _block_of_rows(online)
    column = online.sums.axes[-1]
    width = extents(online.sums)[column] or 1
    running = (online.largest, online.totals, online.sums)
    s, first = schedule, _name(online.largest)
    for d in (*running, online.result):
        name = _name(d)
        s = s.split(f"{name}.{row}", rows, (f"{row}.o", f"{row}.i"))
        own = [a for a in d.axes if a not in (*online.heads, row, block)]
        lead = [*online.heads, f"{row}.o", *([block] if d is not online.result else []), f"{row}.i", *own]
        s = s.order(*(f"{name}.{loop}" for loop in lead)) if len(lead) > 1 else s
        s = _one_loop(s, name, online.heads)
    shared = ("head",) if online.heads else ()
    s = s.together(*(_name(d) for d in running), into=(*shared, "rows", "keys"))
    s = s.together(first, _name(online.result), into=(*shared, "rows"))
    for d in (online.product, online.scores, online.tops, online.weights):
        s = s.at(_name(d), f"{first}.keys")
    for d in running:
        for tensor in d.tensors:
            s = s.fold(tensor.name, block, 1)
    s = s.trim(f"{first}.keys") if _ends_early(online) else s
    s = s.bind(*(f"{first}.{loop}" for loop in (*shared, "rows")), to=("block.y", "block.x")[1 - len(shared) :])
    instruction = _instruction(s, program, online, rows)
    s = _copies(s, program, online, first, PAD if instruction is None else 8)
    if instruction is None:
        return _by_threads(s, online, width)
    s = s.stages(f"{first}.keys", 2) if _fits_twice(online, rows) else s
    return _by_warps(s, online, instruction)


def _ends_early(online: Online) -> bool:
    """Tell whether rows do without some blocks of keys."""
    last, *begins = _ends(online)
    return affine.constant(last) != (extents(online.sums)[online.block] or 0) - 1 or any(online.row in affine.names(e) for e in begins)


def _by_threads(s: Schedule, online: Online, width: int) -> Schedule:
    """Return `s` with products by threads, each of them some rows and columns of a block."""
    row, first, column = online.row, _name(online.largest), online.sums.axes[-1]
    s = _product(s, online)
    for d in (online.scores, online.weights):
        s = _team(_rows_of(s, _name(d), row), _name(d), d.axes[-1])
        s = s.order(*(f"{_name(d)}.{loop}" for loop in (f"{row}.t", f"{d.axes[-1]}.t", f"{row}.r", f"{d.axes[-1]}.c")))
        s = _bound(s, _name(d), row, d.axes[-1]).unroll(f"{_name(d)}.{row}.r", f"{_name(d)}.{d.axes[-1]}.c")
    for d, loop in ((online.tops, row), (online.totals, f"{row}.i")):
        [reduce] = [r for p in d.pieces for r in reduces(p.value)]
        binder = reduce.binders[0].name
        s = _team(_rows_of(s, _name(d), loop), _name(d), binder)
        s = s.order(*(f"{_name(d)}.{n}" for n in (f"{loop}.t", f"{loop}.r", f"{binder}.t", f"{binder}.c")))
        s = _bound(s, _name(d), loop, binder).unroll(f"{_name(d)}.{loop}.r", f"{_name(d)}.{binder}.c")
    s = _rows_of(s, first, f"{row}.i").bind(f"{first}.{row}.i.t", to="thread.y").unroll(f"{first}.{row}.i.r")
    s = _wide(s, online.sums, f"{row}.i", column, width)
    return _wide(s, online.result, f"{row}.i", column, width)


def _name(d: Definition) -> str:
    return d.tensors[0].name


def _block_of_rows(online: Online) -> int:
    """Return how many rows make a block: no more than agree on which blocks of keys they see."""
    count = extents(online.largest)[online.row] or 1
    ends = [[affine.evaluate(e, {online.row: i, online.block: 0}) for i in range(count)] for e in _ends(online)]
    alike = (n for n in (64, 32, 16, 8, 4, 2) if count % n == 0 and all(end[i] == end[i - i % n] for end in ends for i in range(count)))
    return next(alike, 1)


def _ends(online: Online) -> list[Affine]:
    """Return, in terms of the row, the last block of keys that it sees, and those before which its pass begins."""
    last = [r.index[-2] for p in online.result.pieces for r in reads(p.value) if r.tensor == _name(online.sums)]
    begins = [c for p in online.largest.pieces for e in nodes(p.value) if isinstance(e, Holds) for c in affine.conjuncts(e.cond)]
    return [e for e in last if not isinstance(e, Dynamic)] + [e for c in begins if isinstance(c, Compare) for e in (c.lhs, c.rhs)]


def _fits_twice(online: Online, rows: int) -> bool:
    """Tell whether there are several blocks of keys, and a block has memory for the next keys and values while it works on these."""
    [reduce] = [r for p in online.product.pieces for r in reduces(p.value)]
    keys, depth = extents(online.scores)[online.scores.axes[-1]] or 0, extents(online.product)[reduce.binders[-1].name] or 0
    width = extents(online.sums)[online.sums.axes[-1]] or 0
    kept = 2 * (rows * (depth + 8) + 2 * keys * (depth + width + 16))
    return (extents(online.sums)[online.block] or 0) > 1 and kept <= MOST_BYTES


def _one_loop(s: Schedule, name: str, loops: Sequence[str]) -> Schedule:
    """Return `s` with the outermost loops of a tensor as one."""
    for k, inner in enumerate(loops[1:]):
        s = s.fuse(f"{name}.{f'heads{k - 1}' if k else loops[0]}", f"{name}.{inner}", f"heads{k}")
    return s


def _rows_of(s: Schedule, name: str, loop: str) -> Schedule:
    return s.split(f"{name}.{loop}", EACH, (f"{loop}.t", f"{loop}.r"))


def _team(s: Schedule, name: str, loop: str) -> Schedule:
    return s.split(f"{name}.{loop}", TEAM, (f"{loop}.c", f"{loop}.t"))


def _bound(s: Schedule, name: str, row: str, column: str) -> Schedule:
    return s.bind(f"{name}.{row}.t", f"{name}.{column}.t", to=("thread.y", "thread.x"))


def _copies(s: Schedule, program: Program, online: Online, first: str, pad: int) -> Schedule:
    """Return `s` with copies of what the products read: queries once, keys and values in each block."""
    for d in (online.product, online.sums):
        own = {m.tensors[0].name for m in online.members}
        for read in dict.fromkeys(r for p in d.pieces for reduce in reduces(p.value) for b in reduce.body for r in reads(b)):
            if read.tensor in own:
                continue
            made = pack(program, read.tensor)
            if isinstance(made, str):
                continue
            program, copy = made
            axes = next(x.axes for x in program.definitions if x.tensors[0].name == copy)
            turning = [
                a for a, slot in zip(axes, read.index, strict=False) if not index_names(replace(read, index=(slot,))) <= {*online.heads}
            ]
            at = f"{first}.rows" if online.row in index_names(read) else f"{first}.keys"
            s = s.cache(read.tensor, "shared", turning, at=at, pad=pad if d is online.product or pad != PAD else 0)
    return s


def _product(s: Schedule, online: Online) -> Schedule:
    name, row, key = _name(online.product), online.row, online.product.axes[-1]
    [reduce] = [r for p in online.product.pieces for r in reduces(p.value)]
    depth = reduce.binders[-1].name
    s = _team(_rows_of(s, name, row), name, key).split(f"{name}.{depth}", EACH, (f"{depth}.o", f"{depth}.i"))
    others = [b.name for b in reduce.binders[:-1]]
    loops = (f"{row}.t", f"{key}.t", *others, f"{depth}.o", f"{depth}.i", f"{row}.r", f"{key}.c")
    s = _bound(s.order(*(f"{name}.{loop}" for loop in loops)), name, row, key)
    return s.unroll(f"{name}.{depth}.i", f"{name}.{row}.r", f"{name}.{key}.c")


def _wide(s: Schedule, d: Definition, row: str, column: str, width: int) -> Schedule:
    """Return `s` with the columns of rows of `d` in groups of neighbours, as many as it takes for a team."""
    name = _name(d)
    lanes = next(n for n in (EACH, 2, 1) if width >= n * TEAM or n == 1)
    s = _rows_of(s, name, row).split(f"{name}.{column}", lanes * TEAM, (f"{column}.h", f"{column}.q"))
    s = s.split(f"{name}.{column}.q", lanes, (f"{column}.t", f"{column}.v"))
    binders = [b.name for p in d.pieces for r in reduces(p.value) for b in r.binders]
    inner: list[str] = []
    for binder in binders:
        s = s.split(f"{name}.{binder}", EACH, (f"{binder}.o", f"{binder}.i"))
        inner += [f"{binder}.o", f"{binder}.i"]
    s = s.order(*(f"{name}.{loop}" for loop in (f"{row}.t", f"{column}.t", *inner, f"{row}.r", f"{column}.h", f"{column}.v")))
    s = s.unroll(*(f"{name}.{loop}" for loop in (*inner[1:], f"{row}.r", f"{column}.h")))
    return _bound(s, name, row, column).vectorize(f"{name}.{column}.v")


# ---------------------------------------------------------------- by warps


def _instruction(s: Schedule, program: Program, online: Online, rows: int) -> Instruction | None:
    """Return the instruction that multiplies what both products read, or None where there is none or they are no whole tiles of it."""
    table = tensor_table(program)
    found = [[r for p in d.pieces for e in reduces(p.value) for b in e.body for r in reads(b)] for d in (online.product, online.sums)]
    dtypes = {table[r.tensor].dtype for pair in found for r in pair}
    depths = [extents(d)[r.binders[-1].name] or 0 for d in (online.product, online.sums) for p in d.pieces for r in reduces(p.value)]
    width = extents(online.sums)[online.sums.axes[-1]] or 0
    keys = extents(online.scores)[online.scores.axes[-1]] or 0
    whole = all(len(pair) == 2 for pair in found) and all(d % 16 == 0 for d in (*depths, rows)) and keys % 8 == width % 8 == 0
    if not whole or len(dtypes) != 1:
        return None
    return next((i for i in s.instructions if i.name == f"mma_m16n8k16_{next(iter(dtypes))}"), None)


def _by_warps(s: Schedule, online: Online, instruction: Instruction) -> Schedule:
    """Return `s` with products by the lanes of warps, each of them sixteen rows. What else is done to a row its lanes do where they have
    it."""
    row, first, column = online.row, _name(online.largest), online.sums.axes[-1]
    s = _multiplied(s, online.product, row, online.product.axes[-1], instruction)
    s = _multiplied(s, online.sums, f"{row}.i", column, instruction)
    for d, loop, along in (
        (online.scores, row, online.scores.axes[-1]),
        (online.weights, row, online.weights.axes[-1]),
        (online.result, f"{row}.i", column),
    ):
        s = _lanes(_rows_of_lanes(s, _name(d), loop), _name(d), along)
        s = s.order(*(f"{_name(d)}.{n}" for n in (f"{loop}.w", f"{loop}.g", f"{along}.t", f"{loop}.h", f"{along}.n", f"{along}.p")))
        s = s.bind(*(f"{_name(d)}.{n}" for n in (f"{loop}.w", f"{loop}.g", f"{along}.t")), to=("warp", "lane.y", "lane.x"))
        s = s.unroll(f"{_name(d)}.{loop}.h", f"{_name(d)}.{along}.n").vectorize(f"{_name(d)}.{along}.p")
    for d, loop in ((online.tops, row), (online.totals, f"{row}.i")):
        [reduce] = [r for p in d.pieces for r in reduces(p.value)]
        along = reduce.binders[0].name
        s = _lanes(_rows_of_lanes(s, _name(d), loop), _name(d), along)
        s = s.order(*(f"{_name(d)}.{n}" for n in (f"{loop}.w", f"{loop}.g", f"{loop}.h", f"{along}.t", f"{along}.n", f"{along}.p")))
        s = s.bind(*(f"{_name(d)}.{n}" for n in (f"{loop}.w", f"{loop}.g", f"{along}.t")), to=("warp", "lane.y", "lane.x"))
        s = s.unroll(f"{_name(d)}.{loop}.h", f"{_name(d)}.{along}.n", f"{_name(d)}.{along}.p")
    s = _rows_of_lanes(s, first, f"{row}.i")
    s = s.order(*(f"{first}.{row}.i.{n}" for n in ("w", "g", "h")))
    s = s.bind(f"{first}.{row}.i.w", f"{first}.{row}.i.g", to=("warp", "lane.y"))
    return s.unroll(f"{first}.{row}.i.h")


def _multiplied(s: Schedule, d: Definition, row: str, column: str, instruction: Instruction) -> Schedule:
    name = _name(d)
    [reduce] = [r for p in d.pieces for r in reduces(p.value)]
    depth = reduce.binders[-1].name
    s = s.split(f"{name}.{row}", 16, (f"{row}.w", f"{row}.m")).split(f"{name}.{column}", 8, (f"{column}.o", f"{column}.m"))
    s = s.split(f"{name}.{depth}", 16, (f"{depth}.o", f"{depth}.m"))
    s = s.order(*(f"{name}.{n}" for n in (f"{row}.w", f"{depth}.o", f"{column}.o", f"{row}.m", f"{column}.m", f"{depth}.m")))
    s = s.bind(f"{name}.{row}.w", to="warp").unroll(f"{name}.{depth}.o", f"{name}.{column}.o")
    return s.tensorize(*(f"{name}.{n}" for n in (f"{row}.m", f"{column}.m", f"{depth}.m")), by=instruction)


def _rows_of_lanes(s: Schedule, name: str, loop: str) -> Schedule:
    s = s.split(f"{name}.{loop}", 16, (f"{loop}.w", f"{loop}.q"))
    return s.split(f"{name}.{loop}.q", 8, (f"{loop}.h", f"{loop}.g"))


def _lanes(s: Schedule, name: str, loop: str) -> Schedule:
    s = s.split(f"{name}.{loop}", 8, (f"{loop}.n", f"{loop}.q"))
    return s.split(f"{name}.{loop}.q", 2, (f"{loop}.t", f"{loop}.p"))
