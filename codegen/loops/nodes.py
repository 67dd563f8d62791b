"""Loop IR: what the code generators see. Integers, buffers and loops; no operator names, no sets.

    function ::= "func" name "(" size* ")" "(" buffer* ")" "{" stmt* "}"
    buffer   ::= name ":" dtype "[" index,* "]" space
    stmt     ::= For | Store | Let | If | Alloc | Prefetch | Require | Barrier | Commit | Wait | LoadMatrix | Mma | Boxes | Landed
                | Release | Reclaim | Beside
    index    ::= Int | Var | Add | Mul | FloorDiv | Mod | Min | Max | ValueIndex        64-bit, division rounds towards minus infinity
    expr     ::= Const | Load | IndexValue | Name | Unary | Binary | Compare | Select | Cast | Call | Fma | Dot

Meaning. A function is executed in text order. Marks on loops (`kind`) change how a loop runs, never what it computes; whoever builds
the IR has proven that they may:

    serial    one iteration after the other
    parallel  iterations may run at the same time on several threads; buffers allocated inside the body are private to the iteration
    unroll    expanded by the emitter: `extent` copies, the ones outside [lo, hi) guarded or absent
    vector    at most `extent` lanes evaluated together; lanes outside [lo, hi) are masked off. A store whose address does not depend on
              the lane must have the form `a[..] = a[..] op e` (or Min/Max/Fma) and is a reduction over the lanes, combined in any order,
              or keep a running result (`codegen.loops.running_results`), whose terms are combined in order, grouped in any way.
    tensor    expanded like unroll; somebody has proven that the sum it adds to is the meaning of an instruction, so that
              `codegen.loops.combine` may put a `Dot` in its place
    tile      one of three loops that are a product of tiles (`codegen.loops.tiles.Product`), or one of two that copy a tile; on a graphics
              processor one of three that are an instruction of a warp, or one of two over the rows and columns of its sums

On a graphics processor (`codegen.gpu`) each loop nest of a function's body is a launch:

    block.x|y|z    iterations are blocks: they run at the same time, and share no buffer that is allocated inside
    thread.x|y|z   iterations are threads of a block, numbered x first; `thread` counts all of them, `warp` and `lane` count by 32,
                   `warp.x|y|z` count warps, x first, and `lane.x|y|z` the lanes of a warp; `warpgroup` counts by four warps.
                   A store in such a loop whose address does not depend on the thread is a reduction over the threads, like one over lanes.
                   Between loops over threads nobody waits but at a `Barrier`.

Loops and buffers carry notes (`codegen.loops.notes`), which ask passes for something: `(stages n)` on a loop, for its copies to run n - 1
iterations ahead (`codegen.gpu.pipeline`). A store marked `later` lands some time between where it stands and the first `Wait` of its thread
that covers it.

Arithmetic. Floats are IEEE with round-to-nearest; `Fma` rounds once (on `wasm32-relaxed` once or twice). Integers wrap; `//` and `%` floor,
and `x // 0 == 0 == x % 0`. f16, bf16 and f8 buffers are loaded to f32 explicitly (`Cast(f32, Load)`): no arithmetic node has a narrow float
type but `Dot`.
`Select` evaluates only the chosen side (reads of the other side may be out of bounds). `and`/`or` are lazy too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from codegen.dtypes import DType
from codegen.hashing import HashedOnce, hashed_once
from codegen.loops.notes import N, Note, note_of

# ---------------------------------------------------------------- index expressions (i64)


@dataclass(frozen=True, slots=True)
class Int:
    value: int


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable or a size."""

    name: str


@hashed_once
@dataclass(frozen=True, slots=True)
class Add(HashedOnce):
    lhs: Index
    rhs: Index


@hashed_once
@dataclass(frozen=True, slots=True)
class Mul(HashedOnce):
    lhs: Index
    rhs: Index


@hashed_once
@dataclass(frozen=True, slots=True)
class FloorDiv(HashedOnce):
    """`lhs // rhs`, rhs > 0."""

    lhs: Index
    rhs: Index


@hashed_once
@dataclass(frozen=True, slots=True)
class Mod(HashedOnce):
    """`lhs % rhs`, rhs > 0; the result is in [0, rhs)."""

    lhs: Index
    rhs: Index


@hashed_once
@dataclass(frozen=True, slots=True)
class Min(HashedOnce):
    lhs: Index
    rhs: Index


@hashed_once
@dataclass(frozen=True, slots=True)
class Max(HashedOnce):
    lhs: Index
    rhs: Index


@hashed_once
@dataclass(frozen=True, slots=True)
class ValueIndex(HashedOnce):
    """A data-dependent index: the value of an integer expression, sign-extended (zero-extended if unsigned) to 64 bits."""

    value: Expr


Index: TypeAlias = Int | Var | Add | Mul | FloorDiv | Mod | Min | Max | ValueIndex

# ---------------------------------------------------------------- values

UnaryOp: TypeAlias = Literal["neg", "not", "bitnot", "abs"]
BinaryOp: TypeAlias = Literal["+", "-", "*", "/", "//", "%", "min", "max", "and", "or", "bitand", "bitor", "bitxor", "shl", "shr"]
CompareOp: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True, slots=True)
class Const:
    """A literal of `dtype`. Floats may be inf, -inf, nan; they are printed exactly.

    Equality is that of bits: 0.0 differs from -0.0, and nan equals nan, so that constants can be keys."""

    value: float | int | bool
    dtype: DType

    @property
    def bits(self) -> str:
        """A text that two constants of one type share exactly when they are the same value."""
        return float(self.value).hex() if self.dtype.is_float else str(int(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.dtype == other.dtype and self.bits == other.bits

    def __hash__(self) -> int:
        return hash((self.dtype.name, self.bits))


@dataclass(frozen=True, slots=True)
class Load:
    buffer: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index expression used as an i64 value: it wraps as integers do, unless it is compared with another index."""

    index: Index


@dataclass(frozen=True, slots=True)
class Name:
    """A value bound by `Let`."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    op: UnaryOp
    value: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """Both sides have the same type. `/` is for floats, `//` and `%` floor on integers and floats; `min`/`max` propagate NaN,
    and -0 is less than 0 for them (`minimum` and `maximum` of IEEE 754-2019)."""

    op: BinaryOp
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Compare:
    """Of type bool. Ordered comparison: false when either side is NaN, except `!=`, which is true."""

    op: CompareOp
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, slots=True)
class Select:
    cond: Expr
    then: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True)
class Cast:
    """float→int truncates and saturates, NaN→0; int→int wraps, or saturates when `saturate`; float→float rounds to nearest even,
    and to narrow floats, when `saturate`, gives the largest number in place of what is beyond; anything→bool is `!= 0`."""

    dtype: DType
    value: Expr
    saturate: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """An elementary function of floats: exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh erf floor ceil round (half to even) trunc pow fmod atan2 sigmoid isnan isinf. round_bf16 gives the nearest number that bf16 has,
    zero perhaps in place of a subnormal one; round_tf32, of f32, the nearest with 10 bits after the point, ties away from zero.
    As processors are emitted also popcount, of u32 and u64, the number of bits that are 1 (`codegen.loops.bit_counts`).
    On graphics processors also pack, elements of 8 or 16 bits as one u32, the first lowest, and bits_tf32, the bits of an f32,
    or of one whose bits a u32 holds, rounded to tf32."""

    fn: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Fma:
    """`a * b + c` rounded once."""

    a: Expr
    b: Expr
    c: Expr


@dataclass(frozen=True, slots=True)
class Dot:
    """`a[.., n] * b[.., m] + a[.., n + 1] * b[.., m + 1] + … + c`, `count` products of elements that lie next to each other.

    `a` and `b` name the first elements; they have 32 bits together (see `codegen.loops.dots`). Integers: c is i32, and all of it wraps.
    bf16: c is f32; products are exact, sums are rounded in any order, subnormal operands and results may count as zero."""

    count: int
    a: Load
    b: Load
    c: Expr


Expr: TypeAlias = Const | Load | IndexValue | Name | Unary | Binary | Compare | Select | Cast | Call | Fma | Dot

# ---------------------------------------------------------------- statements

LoopKind: TypeAlias = Literal[
    "serial", "parallel", "unroll", "vector", "tensor", "tile",
    "block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z", "thread",
    "warp", "warp.x", "warp.y", "warp.z", "lane", "lane.x", "lane.y", "lane.z", "warpgroup",
]  # fmt: skip
Under: TypeAlias = Literal["copies", "products"]
"""What goes on beside threads, in groups."""
Together: TypeAlias = Literal["block", "cluster"]
"""Whose threads wait for each other."""
Space: TypeAlias = Literal["param", "heap", "stack", "registers", "tiles", "shared"]
BLOCKS: frozenset[str] = frozenset(("block.x", "block.y", "block.z"))
THREADS: frozenset[str] = frozenset(
    ("warpgroup", *(f"{place}{digit}" for place in ("thread", "warp", "lane") for digit in ("", ".x", ".y", ".z")))
)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Row-major memory of `shape`. `align` is what the address of element 0 is known to be a multiple of, in bytes.

    param      given by the caller; no two parameters overlap unless both are only read
    heap       scratch; placed in the caller's workspace (one copy per thread when allocated inside a parallel loop)
    stack      small scratch, of constant extents
    registers  constant extents; every access has a constant address once unrolled, so the emitter keeps the elements as SSA values;
               on a graphics processor every thread has its own
    tiles      constant extents, the last two those of a tile; touched by loops marked `tile` alone, one whole tile at a time; on a
               graphics processor, spread over the lanes of a warp, each of which keeps its part in registers
    shared     one for each block of a graphics processor, constant extents

    `swizzle` says where in memory the cells of a shared buffer lie (`codegen.loops.swizzle`), and means nothing else: 0 is in order.
    """

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    space: Space = "param"
    align: int = 1
    swizzle: int = 0
    notes: tuple[Note, ...] = ()

    def note(self, kind: type[N]) -> N | None:
        """Return the note of this kind, if there is one."""
        return note_of(self.notes, kind)

    def without(self, *kinds: type[Note]) -> Buffer:
        """Return the buffer without its notes of these kinds."""
        return replace(self, notes=tuple(n for n in self.notes if not isinstance(n, kinds)))


@dataclass(frozen=True, slots=True)
class For:
    """Run `body` for `var` in [lo, hi). `extent` is a constant upper bound of hi - lo; required for unroll, vector and tensor."""

    var: str
    lo: Index
    hi: Index
    body: tuple[Stmt, ...]
    kind: LoopKind = "serial"
    extent: int | None = None
    notes: tuple[Note, ...] = ()

    @property
    def values(self) -> range | None:
        """The values that `var` takes, where numbers say so."""
        return range(self.lo.value, self.hi.value) if isinstance(self.lo, Int) and isinstance(self.hi, Int) else None

    def note(self, kind: type[N]) -> N | None:
        """Return the note of this kind, if there is one."""
        return note_of(self.notes, kind)

    def without(self, *kinds: type[Note]) -> For:
        """Return the loop without its notes of these kinds."""
        return replace(self, notes=tuple(n for n in self.notes if not isinstance(n, kinds)))


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: tuple[Index, ...]
    value: Expr
    stream: bool = False
    """Non-temporal: the data is not read again soon."""
    across: bool = False
    """A reduction over the threads of the loop around, made by `codegen.gpu.reduce` before every thread got cells of its own."""
    later: bool = False
    """A copy into shared memory that nobody waits for here: it reads and writes whenever it likes until a `Wait` that covers it."""


@dataclass(frozen=True, slots=True)
class Let:
    """Bind `name` for the rest of the block."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Alloc:
    """Make `buffer` (uninitialised) available for the rest of the block."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Bring the cache line of an element near. Never faults, even outside the buffer. `locality` 3 = L1, 2 = L2, 1 = L3, 0 = once."""

    buffer: str
    index: tuple[Index, ...]
    write: bool = False
    locality: int = 3


@dataclass(frozen=True, slots=True)
class Require:
    """If `cond` is false the function returns `code` (> 0); what it has written so far is unspecified."""

    cond: Expr
    code: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """No thread of the block goes on before all have come here. Stands where all of them come, the same number of times. `of` a cluster:
    no thread of any of its blocks does, and all of their threads come."""

    of: Together = "block"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a thread has stored `later` since its last `Commit` is one group from here on. Stands where all threads of a block come.

    `of` products: the products of four warps from shared memory since then are one. Stands where all threads of those warps come."""

    of: Under = "copies"


@dataclass(frozen=True, slots=True)
class Wait:
    """A thread goes on when all of its groups but the latest `pending` have landed. Stands where all threads of a block come; `of`
    products, where all threads of four warps do."""

    pending: int = 0
    of: Under = "copies"


@dataclass(frozen=True, slots=True)
class LoadMatrix:
    """The lanes of a warp together fill registers from shared memory: `count` matrices of 8 rows of 16 bytes, one after the other.

    With lane L as `lane`, `source` is the first element of row L % 8 of matrix L // 8. Of matrix i each lane gets 4 bytes in
    `buffer[index + i]` (u32): of row L // 4 the (L % 4)-th; or, `transposed`, for elements of 2 bytes, those in rows 2 * (L % 4) and
    the next of column L // 4."""

    buffer: str
    index: tuple[Index, ...]
    lane: str
    source: Load
    count: int
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Mma:
    """The lanes of a warp together add the product of two matrices to a third, by the instruction of this name (`codegen.gpu.matrix`).
    Each operand is spread over them; it lies in registers that follow each other along the last axis, from the one that is named on.

    An instruction of four warps takes rows and columns from shared memory, where the named element is their first, and goes on beside the
    threads until they have waited for its group of products."""

    name: str
    sums: Load
    rows: Load
    columns: Load


@dataclass(frozen=True, slots=True)
class Box:
    """So many elements along each axis of the tensor of `source`, from there on, to all of a shared buffer, or of one part of it, that
    `target` is the first element of: axes of the buffer other than those of extent 1 take those of the tensor with extents other than 1,
    in the same order, or in `order`. What lies outside of the tensor is 0.

    `steps`: every how manieth element along each axis; every one where it is empty. `blocks`: so many blocks of a cluster share the box:
    each asks for one of as many parts along the first of these axes, in the order of the blocks, and all parts arrive at each of them."""

    target: Load
    source: Load
    extents: tuple[int, ...]
    order: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    blocks: int = 1

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the axes of the tensor in the order in which they lie in the buffer."""
        return self.order or tuple(range(len(self.extents)))

    @property
    def parted(self) -> int:
        """Return the axis of the tensor along which blocks share it: the first of those along which it is longer than one."""
        return next((axis for axis in self.axes if self.extents[axis] > 1), self.axes[-1])

    def step(self, axis: int) -> int:
        return self.steps[axis] if self.steps else 1


@dataclass(frozen=True, slots=True)
class Boxes:
    """One thread of a block has boxes copied into shared memory, as group number `group`. They land any time until `WaitBoxes`.

    `barriers` is a shared buffer of u64; each number is that of one group, and they follow each other from 0 on."""

    barriers: str
    group: Index
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class WaitBoxes:
    """A thread goes on when the boxes of this group have landed; it has waited for all groups with lesser numbers. Stands where all threads
    of a block come. As many groups as there are barriers are under way at most."""

    barriers: str
    group: Index


@dataclass(frozen=True, slots=True)
class Release:
    """A thread needs no more of what the boxes of this group have brought. Stands where all threads of a block come, after `WaitBoxes`.
    Each number is that of one group, and they follow each other from 0 on."""

    barriers: str
    group: Index
    blocks: int = 1
    """So many blocks of a cluster are told, each at its own barriers; each is told by all of them."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """The producer goes on when all other threads have released this group; at once, where there is none of a number so small.
    Each group is reclaimed before the one that comes in its place, and they are reclaimed in order."""

    barriers: str
    group: Index


@dataclass(frozen=True, slots=True)
class Producer:
    """A thread beside those of the block, the producer, runs `body`, with the loops and conditions around it. It runs all such bodies in
    the order of the text, and waits for nothing but what it reclaims: no `Barrier` is one for it.

    `registers` are how many a thread of its four warps has, and how many one of the block has; none: all have as many."""

    body: tuple[Stmt, ...]
    registers: tuple[int, ...] = ()


Stmt: TypeAlias = (
    For
    | Store
    | Let
    | If
    | Alloc
    | Prefetch
    | Require
    | Barrier
    | Commit
    | Wait
    | LoadMatrix
    | Mma
    | Boxes
    | WaitBoxes
    | Release
    | Reclaim
    | Producer
)


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel. `sizes` are 64-bit integers given at run time, `params` the caller's buffers, `written` the names it stores to."""

    name: str
    sizes: tuple[str, ...]
    params: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    written: frozenset[str] = frozenset()


def zero(dtype: DType) -> Const:
    """Return the zero of `dtype`."""
    return Const(dtype.zero, dtype)
