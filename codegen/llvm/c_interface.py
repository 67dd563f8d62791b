"""The functions by which C calls what was compiled, as LLVM IR: they take nothing on trust, and need no compiler to be made.

    i32 NAME_create_with(ptr context, ptr options)     a context: memory, weights, threads; all that is ever allocated
    i32 NAME_run(ptr context, ptr inputs, ptr outputs) one run; each field of `inputs` (sizes, then arrays) and of `outputs` is 8 bytes
    void NAME_destroy(ptr context)
    i32 NAME_extents(ptr sizes, ptr extents)           the extents of all arrays for some sizes
    ptr NAME_error_text(i32 code)                      what a result means
    ptr NAME_level(ptr context)                        the level of instructions that was chosen
    i32 NAME_check_weights(ptr context)                whether all weights are as they were made; where there are any

Each `Level` is the same program compiled for other processors, the best one first: `create` takes the first that the processor can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import assert_never

from codegen.dtypes import DType
from codegen.errors import InternalError
from codegen.llvm import feature_test
from codegen.llvm.builder import bytes_text, text_constant
from codegen.llvm.target import Needs, Target
from codegen.loops.nodes import (
    Add,
    Binary,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Index,
    IndexValue,
    Int,
    Max,
    Min,
    Mod,
    Mul,
    Unary,
    ValueIndex,
    Var,
)

LARGEST = 2**48
HEAD_BYTES = 64
_MAGIC = 0x74656E736F726C61
_ALIGN = 128
_CONTEXT_BYTES = 128
_MAGIC_AT, _LEVEL_AT, _WEIGHTS_AT, _ARENA_AT, _BUSY_AT, _BLOCK_AT, _MAPPED_AT, _MAPPED_BYTES_AT, _ENTRY_AT, _POOL_AT = range(10)
_HEADER, _THREADS, _PINNED, _WEIGHTS, _WEIGHTS_BYTES, _PATH, _PARALLEL_FOR, _USER = range(8)
OPTIONS = 8
"""How many fields of 8 bytes the options have."""
CHECKSUM_STEP = 0x9E3779B97F4A7C15
"""The checksum of weights is the sum of all words of 8 bytes, word k times `k * CHECKSUM_STEP | 1`: times an odd number different words
stay different, and large steps tell places from each other."""


class Code(IntEnum):
    """Results that every library has; those that follow are about its own arguments and checks."""

    OK = 0
    NULL_ARGUMENT = 1
    HEADER = 2
    PROCESSOR = 3
    MEMORY = 4
    THREADS = 5
    WEIGHTS_MISSING = 6
    WEIGHTS_CHANGED = 7
    CONTEXT = 8
    BUSY = 9
    ROOM = 10
    PIECES = 11


FIRST_OWN = 32


@dataclass(frozen=True, slots=True)
class Size:
    """A size that each run tells: at least 0, at most `most`."""

    name: str
    most: int = LARGEST


@dataclass(frozen=True, slots=True)
class Argument:
    """An array that a run reads or writes, row-major. `extents` are over the sizes."""

    name: str
    dtype: DType
    extents: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """What has to hold of the sizes, and what is wrong where it does not."""

    holds: Expr
    text: str


@dataclass(frozen=True, slots=True)
class Level:
    """The program for processors with some instructions. `entry` takes outputs, inputs, weights where it `takes_weights`, numbers and the
    arena. `room`: what of the arena a run needs, where that depends on sizes. `checks`: for each call of the entry, what its checks say.
    `parallel`: whether it has loops that threads share."""

    needs: Needs
    entry: str
    numbers: tuple[Index, ...]
    arena_bytes: int
    room: Index | None
    weights: tuple[int, int] | None
    """Where its weights begin in the file of weights, and how many bytes these are; None where there are none."""
    checks: tuple[tuple[str, ...], ...]
    code_bits: int
    takes_weights: bool
    parallel: bool


@dataclass(frozen=True, slots=True)
class Interface:
    """All that the functions are made from. `identity`: 64 bits that tell this interface from another; `weights_head`: what the file of
    weights begins with; `weights_checksum`: that of all of it; `weights_symbol`: where they lie, if inside. `threads`: how many a context
    may be asked for at most; it makes some only where a level is `parallel`."""

    name: str
    identity: int
    sizes: tuple[Size, ...]
    conditions: tuple[Condition, ...]
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    levels: tuple[Level, ...]
    threads: int = 1
    weights_head: bytes = b""
    weights_bytes: int = 0
    weights_checksum: int = 0
    weights_symbol: str | None = None

    @property
    def parallel(self) -> bool:
        """Whether contexts have threads."""
        return any(level.parallel for level in self.levels)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that others link to."""
        functions = ("create_with", "run", "destroy", "extents", "error_text", "level", *(("check_weights",) if self.weights_head else ()))
        return tuple(f"{self.name}_{f}" for f in functions)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (*self.inputs, *self.outputs)


# ---------------------------------------------------------------- results


def error_texts(interface: Interface) -> dict[int, str]:
    """Return what each result means."""
    of = interface
    texts = {
        Code.OK: "no error",
        Code.NULL_ARGUMENT: "an argument of the function is NULL",
        Code.HEADER: "the header is that of another library or version: compile against the one that lies beside the library",
        Code.PROCESSOR: f"this processor cannot run the code, which is for {' or '.join(level.needs.target for level in of.levels)}",
        Code.MEMORY: "there is not enough memory",
        Code.THREADS: f"the number of threads is not between 0 (the processors that may be used) and {of.threads}",
        Code.WEIGHTS_MISSING: "the weights are missing: the file cannot be read, or no memory was given",
        Code.WEIGHTS_CHANGED: "the weights are not those of this library: another file, or one that is not whole",
        Code.CONTEXT: "this is no context, or one that was destroyed",
        Code.BUSY: "the context is running already: each thread that calls takes one of its own",
        Code.ROOM: "the arrays of these sizes are larger than any memory, or need more than the context has",
        Code.PIECES: "`parallel_for` left pieces of a loop out, or ran some twice, outside of the loop or with the number of no thread",
    }
    out = {int(code): text for code, text in texts.items()}
    out |= dict(enumerate(_own_texts(of), start=FIRST_OWN))
    return out


def _own_texts(of: Interface) -> Iterator[str]:
    for size in of.sizes:
        yield f"the size `{size.name}` is not between 0 and {size.most}"
    for condition in of.conditions:
        yield condition.text
    for argument in of.arguments:
        yield f"the array `{argument.name}` is NULL"
        yield f"the array `{argument.name}` is not aligned to {argument.dtype.size_bytes} bytes, the size of its elements"
    for argument in of.outputs:
        yield f"the output `{argument.name}` shares memory with another array"
    for level in of.levels:
        for checks in level.checks:
            yield from checks


class _Codes:
    """Where the results of one kind begin."""

    def __init__(self, of: Interface) -> None:
        self.sizes = FIRST_OWN
        self.conditions = self.sizes + len(of.sizes)
        self.arguments = self.conditions + len(of.conditions)
        self.overlaps = self.arguments + 2 * len(of.arguments)
        self.checks = self.overlaps + len(of.outputs)


# ---------------------------------------------------------------- text


@dataclass(slots=True)
class _Function:
    """The lines of a function, with names for what it computes."""

    lines: list[str] = field(default_factory=list)
    _count: int = 0

    def new(self, operation: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {operation}")
        return name

    def label(self) -> str:
        self._count += 1
        return f"l{self._count}"

    def do(self, line: str) -> None:
        self.lines.append("  " + line)

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def require(self, condition: str, code: int) -> None:
        """Return `code` from the function unless `condition` holds."""
        good, bad = self.label(), self.label()
        self.do(f"br i1 {condition}, label %{good}, label %{bad}")
        self.begin(bad)
        self.do(f"ret i32 {code}")
        self.begin(good)

    def word(self, base: str, k: int, kind: str = "i64") -> str:
        """Return field number k of a structure of fields of 8 bytes."""
        return self.new(f"load {kind}, ptr {self.place(base, k)}, align 8")

    def place(self, base: str, k: int) -> str:
        return self.new(f"getelementptr i64, ptr {base}, i64 {k}")

    def put(self, base: str, k: int, value: str) -> None:
        self.do(f"store {value}, ptr {self.place(base, k)}, align 8")

    def index(self, e: Index, env: Mapping[str, str]) -> str:
        """Return an index expression over named sizes, an i64."""
        match e:
            case Int(value):
                return str(value)
            case Var(name):
                return env[name]
            case Add(lhs, rhs):
                return self.new(f"add i64 {self.index(lhs, env)}, {self.index(rhs, env)}")
            case Mul(lhs, rhs):
                return self.new(f"mul i64 {self.index(lhs, env)}, {self.index(rhs, env)}")
            case Min(lhs, rhs):
                return self.new(f"call i64 @llvm.smin.i64(i64 {self.index(lhs, env)}, i64 {self.index(rhs, env)})")
            case Max(lhs, rhs):
                return self.new(f"call i64 @llvm.smax.i64(i64 {self.index(lhs, env)}, i64 {self.index(rhs, env)})")
            case FloorDiv(lhs, rhs):
                return self._divided(self.index(lhs, env), self.index(rhs, env))
            case Mod(lhs, rhs):
                a, b = self.index(lhs, env), self.index(rhs, env)
                whole = self.new(f"mul i64 {self._divided(a, b)}, {b}")
                return self.new(f"sub i64 {a}, {whole}")
            case ValueIndex():
                raise InternalError("link", "a size that depends on elements")
            case _:
                assert_never(e)

    def _divided(self, a: str, b: str) -> str:
        """Return a / b rounded down, for b > 0."""
        quotient = self.new(f"sdiv i64 {a}, {b}")
        back = self.new(f"mul i64 {quotient}, {b}")
        above = self.new(f"icmp sgt i64 {back}, {a}")
        return self.new(f"sub i64 {quotient}, {self.new(f'zext i1 {above} to i64')}")

    def truth(self, e: Expr, env: Mapping[str, str]) -> str:
        """Return a condition on sizes, an i1."""
        match e:
            case Const(value, _):
                return "true" if value else "false"
            case Compare(op, IndexValue(lhs), IndexValue(rhs)):
                return self.new(f"icmp {_RELATIONS[op]} i64 {self.index(lhs, env)}, {self.index(rhs, env)}")
            case Binary("and" | "or" as op, lhs, rhs):
                return self.new(f"{op} i1 {self.truth(lhs, env)}, {self.truth(rhs, env)}")
            case Unary("not", value):
                return self.new(f"xor i1 {self.truth(value, env)}, true")
            case _:
                raise InternalError("link", f"a condition on sizes has {type(e).__name__}")


_MINIMA = "declare i64 @llvm.smin.i64(i64, i64)\ndeclare i64 @llvm.smax.i64(i64, i64)"
_RELATIONS = {"<": "slt", "<=": "sle", "==": "eq", "!=": "ne", ">=": "sge", ">": "sgt"}


def interface_ir(of: Interface, target: Target) -> str:
    """Return the functions as LLVM IR for `target`, the least of the processors that a level is for."""
    asks = not target.is_wasm
    texts = error_texts(of)
    parts = [
        f'target triple = "{target.triple}"\n',
        "declare ptr @malloc(i64)\ndeclare void @free(ptr)",
        _MINIMA,
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        *(f"declare i32 @{level.entry}(ptr)" for level in of.levels),
        _strings(texts, of),
    ]
    if asks:
        parts += [feature_test.has_ir(target.family), *(_features(k, level) for k, level in enumerate(of.levels))]
    if of.weights_head:
        parts.append(_weights_ir(of))
    if of.parallel:
        parts.append(_POOL)
    codes, first = _Codes(of), 0
    for k, level in enumerate(of.levels):
        parts.append(_level_ir(of, k, codes.checks + first))
        first += sum(map(len, level.checks))
    parts += [_create_ir(of, asks), _run_ir(of, codes), _destroy_ir(of), _extents_ir(of, codes), _text_ir(of, texts), _name_ir(of)]
    return "\n".join(parts)


_POOL = """
declare i64 @tl_pool_bytes()
declare i32 @tl_pool_create(ptr, i64, i64, i64, ptr, ptr)
declare void @tl_pool_destroy(ptr)
declare ptr @tl_pool_enter(ptr)
declare void @tl_pool_leave(ptr)
declare i32 @tl_pool_is_short(ptr)
"""
"""What `context_pool_ir` defines."""


def _strings(texts: Mapping[int, str], of: Interface) -> str:
    lines = [text_constant(f"text{code}", text) for code, text in texts.items()]
    lines.append(text_constant("text.none", "no result of this library"))
    lines += [text_constant(f"level{k}.name", level.needs.target) for k, level in enumerate(of.levels)]
    return "\n".join(lines)


def _features(number: int, level: Level) -> str:
    words = feature_test.mask(level.needs.family, level.needs.features)
    values = ", ".join(f"i32 {word - 2**32 if word >= 2**31 else word}" for word in words)
    return f"@level{number}.features = internal constant [{len(words)} x i32] [{values}], align 4"


# ---------------------------------------------------------------- create, destroy


def _weights_ir(of: Interface) -> str:
    head = bytes_text(of.weights_head)
    where = "" if of.weights_symbol is None else f"@{of.weights_symbol} = external hidden constant i8"
    return f"""
declare i32 @open(ptr, i32, ...)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @close(i32)
declare i32 @memcmp(ptr, ptr, i64)
@weights.head = internal constant [{len(of.weights_head)} x i8] c"{head}", align 64
{where}"""


def _create_ir(of: Interface, asks: bool) -> str:
    f = _Function()
    name = f"{of.name}_create_with"
    for argument in ("%out", "%options"):
        f.require(f.new(f"icmp ne ptr {argument}, null"), Code.NULL_ARGUMENT)
    f.do("store ptr null, ptr %out, align 8")
    f.require(f.new(f"icmp eq i64 {f.word('%options', _HEADER)}, {_signed(of.identity)}"), Code.HEADER)
    asked = f.word("%options", _THREADS)
    callback = f.word("%options", _PARALLEL_FOR, "ptr")
    f.require(f.new(f"icmp ule i64 {asked}, {of.threads}"), Code.THREADS)
    level = _chosen(f, of, asks)
    f.require(f.new(f"icmp sge i64 {level}, 0"), Code.PROCESSOR)
    pool_bytes = f.new("call i64 @tl_pool_bytes()") if of.parallel else "0"
    arena = _by_level(f, level, [x.arena_bytes for x in of.levels])
    wanted = f.new(f"add i64 {arena}, {_CONTEXT_BYTES + _ALIGN}")
    wanted = f.new(f"add i64 {wanted}, {pool_bytes}")
    block = f.new(f"call ptr @malloc(i64 {wanted})")
    f.require(f.new(f"icmp ne ptr {block}, null"), Code.MEMORY)
    number = f.new(f"ptrtoint ptr {block} to i64")
    past = f.new(f"add i64 {number}, {_ALIGN - 1}")
    start = f.new(f"and i64 {past}, {-_ALIGN}")
    gap = f.new(f"sub i64 {start}, {number}")
    context = f.new(f"getelementptr i8, ptr {block}, i64 {gap}")
    pool = f.new(f"getelementptr i8, ptr {context}, i64 {_CONTEXT_BYTES}")
    memory = f.new(f"getelementptr i8, ptr {pool}, i64 {pool_bytes}")
    f.do(f"call void @llvm.memset.p0.i64(ptr {context}, i8 0, i64 {_CONTEXT_BYTES}, i1 false)")
    f.put(context, _BLOCK_AT, f"ptr {block}")
    f.put(context, _LEVEL_AT, f"i64 {level}")
    f.put(context, _ARENA_AT, f"ptr {memory}")
    f.put(context, _ENTRY_AT, f"ptr {_by_level_pointer(f, level, [f'level{k}.run' for k in range(len(of.levels))])}")
    if of.weights_head:
        code = f.new(f"call i32 @weights(ptr {context}, ptr %options)")
        _unless(f, f.new(f"icmp eq i32 {code}, 0"), [f"call void @free(ptr {block})", f"ret i32 {code}"])
    if of.parallel:
        pinned, user = f.word("%options", _PINNED), f.word("%options", _USER, "ptr")
        code = f.new(f"call i32 @tl_pool_create(ptr {pool}, i64 {asked}, i64 {of.threads}, i64 {pinned}, ptr {callback}, ptr {user})")
        undo = [f"call void @{of.name}_free(ptr {context})", f"ret i32 {int(Code.MEMORY)}"]
        _unless(f, f.new(f"icmp eq i32 {code}, 0"), undo)
        f.put(context, _POOL_AT, f"ptr {pool}")
    f.put(context, _MAGIC_AT, f"i64 {_MAGIC}")
    f.do(f"store ptr {context}, ptr %out, align 8")
    f.do("ret i32 0")
    text = f"define i32 @{name}(ptr %out, ptr %options) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"
    return text + _free_ir(of) + (_taken_ir(of) + _check_weights_ir(of) if of.weights_head else "")


def _unless(f: _Function, condition: str, undo: Sequence[str]) -> None:
    good, bad = f.label(), f.label()
    f.do(f"br i1 {condition}, label %{good}, label %{bad}")
    f.begin(bad)
    for line in undo:
        f.do(line)
    f.begin(good)


def _chosen(f: _Function, of: Interface, asks: bool) -> str:
    """Return the number of the first level that the processor can run, -1 for none."""
    if not asks:
        return "0"
    found = "-1"
    for k in reversed(range(len(of.levels))):
        has = f.new(f"call i1 @tl_has(ptr @level{k}.features)")
        found = f.new(f"select i1 {has}, i64 {k}, i64 {found}")
    return found


def _by_level(f: _Function, level: str, values: Sequence[int]) -> str:
    found = str(values[0])
    for k, value in enumerate(values[1:], start=1):
        found = f.new(f"select i1 {f.new(f'icmp eq i64 {level}, {k}')}, i64 {value}, i64 {found}")
    return found


def _by_level_pointer(f: _Function, level: str, names: Sequence[str]) -> str:
    found = f"@{names[0]}"
    for k, name in enumerate(names[1:], start=1):
        found = f.new(f"select i1 {f.new(f'icmp eq i64 {level}, {k}')}, ptr @{name}, ptr {found}")
    return found


def _taken_ir(of: Interface) -> str:
    """Return the function that finds the weights: inside, in memory that is given, or in a file that it maps."""
    total = of.weights_bytes
    inside = f"@{of.weights_symbol}" if of.weights_symbol is not None else "null"
    offsets = [level.weights[0] if level.weights else 0 for level in of.levels]
    f = _Function()
    level = f.word("%context", _LEVEL_AT)
    offset = _by_level(f, level, offsets)
    choose = "\n".join(f.lines)
    return f"""
define internal i32 @weights(ptr %context, ptr %options) nounwind {{
entry:
{choose}
  %gp = getelementptr i64, ptr %options, i64 {_WEIGHTS}
  %given = load ptr, ptr %gp, align 8
  %np = getelementptr i64, ptr %options, i64 {_WEIGHTS_BYTES}
  %bytes = load i64, ptr %np, align 8
  %pp = getelementptr i64, ptr %options, i64 {_PATH}
  %path = load ptr, ptr %pp, align 8
  %has = icmp ne ptr %given, null
  br i1 %has, label %memory, label %look
memory:
  %address = ptrtoint ptr %given to i64
  %low = and i64 %address, 63
  %aligned = icmp eq i64 %low, 0
  %large = icmp eq i64 %bytes, {total}
  %fits = and i1 %aligned, %large
  br i1 %fits, label %compare, label %changed
look:
  %named = icmp ne ptr %path, null
  br i1 %named, label %file, label %within
within:
  %inside = icmp ne ptr {inside}, null
  br i1 %inside, label %compare, label %missing
file:
  %fd = call i32 (ptr, i32, ...) @open(ptr %path, i32 524288)
  %opened = icmp sge i32 %fd, 0
  br i1 %opened, label %measure, label %missing
measure:
  %size = call i64 @lseek(i32 %fd, i64 0, i32 2)
  %whole = icmp eq i64 %size, {total}
  br i1 %whole, label %map, label %short
short:
  %c0 = call i32 @close(i32 %fd)
  br label %changed
map:
  %mapped = call ptr @mmap(ptr null, i64 {total}, i32 1, i32 1, i32 %fd, i64 0)
  %c1 = call i32 @close(i32 %fd)
  %failed = icmp eq ptr %mapped, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %missing, label %keep
keep:
  %mp = getelementptr i64, ptr %context, i64 {_MAPPED_AT}
  store ptr %mapped, ptr %mp, align 8
  %mb = getelementptr i64, ptr %context, i64 {_MAPPED_BYTES_AT}
  store i64 {total}, ptr %mb, align 8
  br label %compare
compare:
  %found = phi ptr [ %given, %memory ], [ {inside}, %within ], [ %mapped, %keep ]
  %own = phi i1 [ false, %memory ], [ false, %within ], [ true, %keep ]
  %order = call i32 @memcmp(ptr %found, ptr @weights.head, i64 {len(of.weights_head)})
  %same = icmp eq i32 %order, 0
  br i1 %same, label %good, label %other
other:
  br i1 %own, label %unmap, label %changed
unmap:
  %u = call i32 @munmap(ptr %found, i64 {total})
  br label %changed
good:
  %here = getelementptr i8, ptr %found, i64 {offset}
  %wp = getelementptr i64, ptr %context, i64 {_WEIGHTS_AT}
  store ptr %here, ptr %wp, align 8
  ret i32 0
missing:
  ret i32 {int(Code.WEIGHTS_MISSING)}
changed:
  ret i32 {int(Code.WEIGHTS_CHANGED)}
}}
"""


def _check_weights_ir(of: Interface) -> str:
    """Return the function that compares the checksum of the weights of a context with that of those that were made."""
    f = _Function()
    f.require(f.new("icmp ne ptr %context, null"), Code.NULL_ARGUMENT)
    f.require(f.new(f"icmp eq i64 {f.word('%context', _MAGIC_AT)}, {_MAGIC}"), Code.CONTEXT)
    here = f.word("%context", _WEIGHTS_AT, "ptr")
    offset = _by_level(f, f.word("%context", _LEVEL_AT), [-level.weights[0] if level.weights else 0 for level in of.levels])
    start = f.new(f"getelementptr i8, ptr {here}, i64 {offset}")
    f.do("br label %before")
    return (
        f"define i32 @{of.name}_check_weights(ptr %context) nounwind {{\nentry:\n"
        + "\n".join(f.lines)
        + f"""
before:
  br label %words
words:
  %k = phi i64 [ 0, %before ], [ %k1, %words ]
  %step = phi i64 [ 0, %before ], [ %step1, %words ]
  %sum = phi i64 [ 0, %before ], [ %sum1, %words ]
  %p = getelementptr i64, ptr {start}, i64 %k
  %word = load i64, ptr %p, align 8
  %factor = or i64 %step, 1
  %product = mul i64 %word, %factor
  %sum1 = add i64 %sum, %product
  %step1 = add i64 %step, {_signed(CHECKSUM_STEP)}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {of.weights_bytes // 8}
  br i1 %more, label %words, label %compare
compare:
  %whole = icmp eq i64 %sum1, {_signed(of.weights_checksum)}
  %code = select i1 %whole, i32 0, i32 {int(Code.WEIGHTS_CHANGED)}
  ret i32 %code
}}
"""
    )


def _free_ir(of: Interface) -> str:
    """Return the function that gives back what a context holds besides its threads."""
    unmap = ""
    if of.weights_head:
        unmap = f"""
  %mp = getelementptr i64, ptr %context, i64 {_MAPPED_AT}
  %mapped = load ptr, ptr %mp, align 8
  %bp = getelementptr i64, ptr %context, i64 {_MAPPED_BYTES_AT}
  %bytes = load i64, ptr %bp, align 8
  %has = icmp ne ptr %mapped, null
  br i1 %has, label %unmap, label %rest
unmap:
  %u = call i32 @munmap(ptr %mapped, i64 %bytes)
  br label %rest
rest:"""
    return f"""
define internal void @{of.name}_free(ptr %context) nounwind {{
entry:{unmap}
  store i64 0, ptr %context, align 8
  %p = getelementptr i64, ptr %context, i64 {_BLOCK_AT}
  %block = load ptr, ptr %p, align 8
  call void @free(ptr %block)
  ret void
}}
"""


def _destroy_ir(of: Interface) -> str:
    stop = ""
    if of.parallel:
        stop = f"""
  %pp = getelementptr i64, ptr %context, i64 {_POOL_AT}
  %pool = load ptr, ptr %pp, align 8
  call void @tl_pool_destroy(ptr %pool)"""
    return f"""
define void @{of.name}_destroy(ptr %context) nounwind {{
entry:
  %null = icmp eq ptr %context, null
  br i1 %null, label %done, label %look
look:
  %magic = load i64, ptr %context, align 8
  %is = icmp eq i64 %magic, {_MAGIC}
  br i1 %is, label %free, label %done
free:{stop}
  call void @{of.name}_free(ptr %context)
  br label %done
done:
  ret void
}}
"""


# ---------------------------------------------------------------- run


def _sizes_checked(f: _Function, of: Interface, codes: _Codes, base: str) -> dict[str, str]:
    """Return the sizes that a structure begins with, by name, checked."""
    env: dict[str, str] = {}
    for k, size in enumerate(of.sizes):
        value = f.word(base, k)
        f.require(f.new(f"icmp ule i64 {value}, {size.most}"), codes.sizes + k)
        env[size.name] = value
    for k, condition in enumerate(of.conditions):
        f.require(f.truth(condition.holds, env), codes.conditions + k)
    return env


def _bytes(f: _Function, argument: Argument, env: Mapping[str, str]) -> str:
    """Return how many bytes an array has; the function returns `ROOM` where that is more than any memory."""
    count: str | int = 1
    for extent in argument.extents:
        if isinstance(extent, Int) and isinstance(count, int):
            count *= extent.value
            continue
        value = f.index(extent, env)
        f.require(f.new(f"icmp ule i64 {value}, {LARGEST}"), Code.ROOM)
        divisor = f.new(f"select i1 {f.new(f'icmp eq i64 {value}, 0')}, i64 1, i64 {value}")
        # By a division: a product of 128 bits is a function of a library, which WebAssembly has not.
        most = f.new(f"udiv i64 {LARGEST}, {divisor}")
        f.require(f.new(f"icmp ule i64 {count}, {most}"), Code.ROOM)
        count = f.new(f"mul i64 {count}, {value}")
    if isinstance(count, int):
        return str(count * argument.dtype.size_bytes)
    return f.new(f"mul i64 {count}, {argument.dtype.size_bytes}")


def _run_ir(of: Interface, codes: _Codes) -> str:
    f = _Function()
    needs = ["%context", *(["%inputs"] if of.sizes or of.inputs else []), *(["%outputs"] if of.outputs else [])]
    for pointer in needs:
        f.require(f.new(f"icmp ne ptr {pointer}, null"), Code.NULL_ARGUMENT)
    f.require(f.new(f"icmp eq i64 {f.word('%context', _MAGIC_AT)}, {_MAGIC}"), Code.CONTEXT)
    env = _sizes_checked(f, of, codes, "%inputs")
    spans: list[tuple[str, str, str]] = []
    for k, argument in enumerate(of.arguments):
        base, place = ("%inputs", len(of.sizes) + k) if k < len(of.inputs) else ("%outputs", k - len(of.inputs))
        address, size = f.word(base, place), _bytes(f, argument, env)
        there, empty = f.new(f"icmp ne i64 {address}, 0"), f.new(f"icmp eq i64 {size}, 0")
        f.require(f.new(f"or i1 {there}, {empty}"), codes.arguments + 2 * k)
        low = f.new(f"and i64 {address}, {argument.dtype.size_bytes - 1}")
        f.require(f.new(f"icmp eq i64 {low}, 0"), codes.arguments + 2 * k + 1)
        end = f.new(f"add i64 {address}, {size}")
        f.require(f.new(f"icmp uge i64 {end}, {address}"), Code.ROOM)  # no array goes on at address 0
        spans.append((address, end, empty))
    for k in range(len(of.outputs)):
        own = len(of.inputs) + k
        for other in range(own):
            (a, a_end, a_empty), (b, b_end, b_empty) = spans[own], spans[other]
            before, after = f.new(f"icmp ule i64 {a_end}, {b}"), f.new(f"icmp ule i64 {b_end}, {a}")
            apart, empty = f.new(f"or i1 {before}, {after}"), f.new(f"or i1 {a_empty}, {b_empty}")
            f.require(f.new(f"or i1 {apart}, {empty}"), codes.overlaps + k)
    busy = f.place("%context", _BUSY_AT)
    swap = f.new(f"cmpxchg ptr {busy}, i32 0, i32 1 acquire monotonic")
    f.require(f.new(f"extractvalue {{ i32, i1 }} {swap}, 1"), Code.BUSY)
    before = "null"
    if of.parallel:
        before = f.new(f"call ptr @tl_pool_enter(ptr {f.word('%context', _POOL_AT, 'ptr')})")
    entry = f.word("%context", _ENTRY_AT, "ptr")
    code = f.new(f"call i32 {entry}(ptr %context, ptr %inputs, ptr %outputs)")
    if of.parallel:
        f.do(f"call void @tl_pool_leave(ptr {before})")
        short = f.new(f"call i32 @tl_pool_is_short(ptr {f.word('%context', _POOL_AT, 'ptr')})")
        is_short = f.new(f"icmp ne i32 {short}, 0")
        code = f.new(f"select i1 {is_short}, i32 {int(Code.PIECES)}, i32 {code}")
    f.do(f"store atomic i32 0, ptr {busy} release, align 4")
    f.do(f"ret i32 {code}")
    return f"define i32 @{of.name}_run(ptr %context, ptr %inputs, ptr %outputs) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"


def _level_ir(of: Interface, number: int, first: int) -> str:
    """Return the function that runs one level on arguments that are checked. `first`: the result for the first of its checks."""
    level, f = of.levels[number], _Function()
    count = len(of.arguments) + level.takes_weights + len(level.numbers) + 1
    f.lines.append(f"  %bases = alloca [{count} x i64], align 8")
    env = {size.name: f.word("%inputs", k) for k, size in enumerate(of.sizes)}
    words = [f.word("%outputs", k) for k in range(len(of.outputs))]
    words += [f.word("%inputs", len(of.sizes) + k) for k in range(len(of.inputs))]
    if level.takes_weights:
        words.append("0" if level.weights is None else f.word("%context", _WEIGHTS_AT))
    words += [f.index(e, env) for e in level.numbers]
    words.append(f.word("%context", _ARENA_AT))
    _room_required(f, level, env)
    for k, word in enumerate(words):
        f.put("%bases", k, f"i64 {word}")
    result = f.new(f"call i32 @{level.entry}(ptr %bases)")
    cases, at = [], first
    for call, checks in enumerate(level.checks):
        for code in range(1, len(checks) + 1):
            cases.append((call << level.code_bits | code, at))
            at += 1
    lines = [f"    i32 {value}, label %check{own}" for value, own in cases]
    f.lines += [f"  switch i32 {result}, label %other [ i32 0, label %fine", *lines, "  ]", "fine:", "  ret i32 0"]
    for _, own in cases:
        f.lines += [f"check{own}:", f"  ret i32 {own}"]
    f.lines += ["other:", f"  ret i32 {int(Code.CONTEXT)}"]
    head = f"define internal i32 @level{number}.run(ptr %context, ptr %inputs, ptr %outputs) nounwind {{\nentry:\n"
    return head + "\n".join(f.lines) + "\n}\n"


def _room_required(f: _Function, level: Level, env: Mapping[str, str]) -> None:
    """Return `ROOM` from the function where the arena is too small for these sizes."""
    if level.room is not None:
        f.require(f.new(f"icmp ule i64 {f.index(level.room, env)}, {level.arena_bytes}"), Code.ROOM)


# ---------------------------------------------------------------- questions


def _extents_ir(of: Interface, codes: _Codes) -> str:
    f = _Function()
    pointers = [*(["%sizes"] if of.sizes else []), *(["%extents"] if any(a.extents for a in of.arguments) else [])]
    for pointer in pointers:
        f.require(f.new(f"icmp ne ptr {pointer}, null"), Code.NULL_ARGUMENT)
    _extents_put(f, of, _sizes_checked(f, of, codes, "%sizes"))
    f.do("ret i32 0")
    return f"define i32 @{of.name}_extents(ptr %sizes, ptr %extents) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"


def _extents_put(f: _Function, of: Interface, env: Mapping[str, str]) -> int:
    """Write the extents of all arrays, whose sizes are looked at, to `%extents`. Return how many there are."""
    extents = []
    for argument in of.arguments:
        _bytes(f, argument, env)
        extents += [f.index(extent, env) for extent in argument.extents]
    for k, extent in enumerate(extents):
        f.put("%extents", k, f"i64 {extent}")
    return len(extents)


def sizes_ir(of: Interface, target: Target) -> str:
    """Return the function of a module of WebAssembly that looks at sizes, as LLVM IR, for an interface of one level:

        i32 sizes(ptr sizes, ptr extents)      the extents of all arrays for some sizes, and behind them the numbers that its entry is told

    What it refuses is a result of `size_texts`."""
    f, codes, [level] = _Function(), _Codes(of), of.levels
    env = _sizes_checked(f, of, codes, "%sizes")
    first = _extents_put(f, of, env)
    for k, number in enumerate(level.numbers, start=first):
        f.put("%extents", k, f"i64 {f.index(number, env)}")
    _room_required(f, level, env)
    f.do("ret i32 0")
    head = f'target triple = "{target.triple}"\n{_MINIMA}\ndefine i32 @sizes(ptr %sizes, ptr %extents) nounwind {{\nentry:\n'
    return head + "\n".join(f.lines) + "\n}\n"


def size_texts(of: Interface) -> dict[int, str]:
    """Return what each result of `sizes_ir` means that refuses sizes."""
    refused = range(FIRST_OWN, _Codes(of).arguments)
    return {code: text for code, text in error_texts(of).items() if code == Code.ROOM or code in refused}


def _text_ir(of: Interface, texts: Mapping[int, str]) -> str:
    cases = "\n".join(f"    i32 {code}, label %is{code}" for code in texts)
    found = "\n".join(f"is{code}:\n  ret ptr @text{code}" for code in texts)
    return f"""
define ptr @{of.name}_error_text(i32 %code) nounwind {{
entry:
  switch i32 %code, label %none [
{cases}
  ]
none:
  ret ptr @text.none
{found}
}}
"""


def _name_ir(of: Interface) -> str:
    f = _Function()
    f.lines += ["  %null = icmp eq ptr %context, null", "  br i1 %null, label %none, label %look", "none:", "  ret ptr null", "look:"]
    f.lines += [
        "  %magic = load i64, ptr %context, align 8",
        f"  %is = icmp eq i64 %magic, {_MAGIC}",
        "  br i1 %is, label %found, label %none",
    ]
    f.begin("found")
    level = f.word("%context", _LEVEL_AT)
    f.do(f"ret ptr {_by_level_pointer(f, level, [f'level{k}.name' for k in range(len(of.levels))])}")
    return f"define ptr @{of.name}_level(ptr %context) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
