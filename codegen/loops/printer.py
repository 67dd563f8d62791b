"""Loop IR as text for people. `parser.parse(show(f)) == f`.

    func matmul(M, N)(a: f32[M, 8], b: f32[8, N], out c: f32[M, N] align 64) {
        for i in 0 .. M parallel {
            alloc acc: f32[16] registers
            for j in 0 .. min(16, N - 16*i) vector 16 {
                acc[j] = fma(a[i, 0], b[0, j], acc[j])
            }
        }
    }

`index(e)` is an index used as a value and `value(e)` a value used as an index. Literals carry their type: `1.0_f32`, `-0x1.8p+70_f64`,
`inf_f32`, `7_i8`, `true`. A name that is not an identifier, or that is a word of the notation, stands in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from codegen.dtypes import DTYPES
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Binary,
    BinaryOp,
    Box,
    Boxes,
    Buffer,
    Call,
    Cast,
    Commit,
    Compare,
    Const,
    Dot,
    Expr,
    FloorDiv,
    Fma,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Max,
    Min,
    Mma,
    Mod,
    Mul,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.notes import Note

_WORDS = """
    func out for in serial parallel unroll vector tensor tile
    alloc param heap stack registers tiles shared align swizzle let if else prefetch
    write locality require barrier across stream later commit wait matrix mma transposed of products
    boxes release reclaim producer by every cluster
    true false and or not min max abs fma dot select index value sat inf nan
"""
KEYWORDS = frozenset(_WORDS.split())
_RESERVED = KEYWORDS | DTYPES.keys()
_SYMBOLS: dict[BinaryOp, str] = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
_LEVELS: dict[BinaryOp, int] = {
    "or": 1,
    "and": 2,
    "bitor": 5,
    "bitxor": 6,
    "bitand": 7,
    "shl": 8,
    "shr": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "//": 10,
    "%": 10,
}
_NOT, _COMPARE, _UNARY, _ATOM = 3, 4, 11, 12
_SUM, _PRODUCT = 1, 2
_INDENT = "    "


def show(function: Function) -> str:
    """Return `function` as text, with a newline at the end."""
    sizes = ", ".join(map(_name, function.sizes))
    params = ", ".join(("out " if p.name in function.written else "") + show_buffer(p) for p in function.params)
    return f"func {_name(function.name)}({sizes})({params}) {_block(function.body, '')}\n"


def show_stmt(s: Stmt, indent: str = "") -> str:
    """Return `s` as text, its further lines indented by `indent`."""
    match s:
        case For(var, lo, hi, body, kind, extent, notes):
            mark = "" if kind == "serial" and extent is None else f" {kind}" if extent is None else f" {kind} {extent}"
            return f"for {_name(var)} in {show_index(lo)} .. {show_index(hi)}{mark}{_notes(notes)} {_block(body, indent)}"
        case Store(buffer, index, value, stream, across, later):
            marks = f"{' stream' if stream else ''}{' across' if across else ''}{' later' if later else ''}"
            return f"{_name(buffer)}{_subscript(index)} = {show_expr(value)}{marks}"
        case Let(name, value):
            return f"let {_name(name)} = {show_expr(value)}"
        case If(cond, then, orelse):
            tail = f" else {_block(orelse, indent)}" if orelse else ""
            return f"if {show_expr(cond)} {_block(then, indent)}{tail}"
        case Alloc(buffer):
            return f"alloc {show_buffer(buffer)}"
        case Prefetch(buffer_name, index, write, locality):
            return f"prefetch {'write ' if write else ''}{_name(buffer_name)}{_subscript(index)} locality {locality}"
        case Require(cond, code):
            return f"require {show_expr(cond)} else {code}"
        case Barrier(of):
            return "barrier" + " cluster" * (of == "cluster")
        case Boxes(barriers, group, boxes):
            return f"boxes {_name(barriers)}[{show_index(group)}] {', '.join(map(_box, boxes))}"
        case WaitBoxes(barriers, group):
            return f"wait {_name(barriers)}[{show_index(group)}]"
        case Release(barriers, group, blocks):
            return f"release {_name(barriers)}[{show_index(group)}]" + f" cluster {blocks}" * (blocks > 1)
        case Reclaim(barriers, group):
            return f"reclaim {_name(barriers)}[{show_index(group)}]"
        case Producer(body, registers):
            return f"{_producer(registers)} {_block(body, indent)}"
        case Commit(of):
            return "commit" + " products" * (of == "products")
        case Wait(pending, of):
            return f"wait {pending}" + " products" * (of == "products")
        case LoadMatrix(buffer, index, lane, source, count, transposed):
            turned = " transposed" if transposed else ""
            return f"matrix {count}{turned} {_name(buffer)}{_subscript(index)} = {show_expr(source)} of {_name(lane)}"
        case Mma(name, sums, rows, columns):
            return f"mma {_name(name)} {', '.join(map(show_expr, (sums, rows, columns)))}"
        case _:
            assert_never(s)


def _box(b: Box) -> str:
    order, steps = (f" {word} {_numbers(n)}" if n else "" for word, n in (("in", b.order), ("every", b.steps)))
    shared = f" cluster {b.blocks}" if b.blocks > 1 else ""
    return f"{show_expr(b.target)} = {show_expr(b.source)} by {_numbers(b.extents)}{order}{steps}{shared}"


def _numbers(numbers: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _producer(registers: tuple[int, ...]) -> str:
    return "".join(("producer", *(" registers" for _ in registers[:1]), *(f" {count}" for count in registers)))


def _notes(notes: tuple[Note, ...]) -> str:
    return f" ({', '.join(map(str, notes))})" if notes else ""


def show_buffer(b: Buffer) -> str:
    """Return the declaration of `b` as text."""
    space = "" if b.space == "param" else f" {b.space}"
    align = "" if b.align == 1 else f" align {b.align}"
    swizzle = f" swizzle {b.swizzle}" if b.swizzle else ""
    return f"{_name(b.name)}: {b.dtype.name}{_subscript(b.shape)}{space}{align}{swizzle}{_notes(b.notes)}"


def show_index(e: Index) -> str:
    """Return `e` as infix text with the fewest parentheses that keep its shape."""
    return _index(e, _SUM)


def show_expr(e: Expr) -> str:
    """Return `e` as infix text with the fewest parentheses that keep its shape."""
    return _expr(e, 0)


def _block(body: Iterable[Stmt], indent: str) -> str:
    inner = indent + _INDENT
    lines = [f"{inner}{show_stmt(s, inner)}\n" for s in body]
    return "{\n" + "".join(lines) + indent + "}" if lines else "{}"


def _name(name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None and name not in _RESERVED
    return name if plain else f"`{name}`"


def _subscript(index: tuple[Index, ...]) -> str:
    return "[" + ", ".join(map(show_index, index)) + "]"


# ---------------------------------------------------------------- index expressions


def _index(e: Index, level: int) -> str:
    """Return `e` as text, in parentheses when it binds less tightly than `level`."""
    match e:
        case Int(value):
            return str(value)
        case Var(name):
            return _name(name)
        case Add(lhs, rhs):
            return _parens(_sum(lhs, rhs), level > _SUM)
        case Mul(lhs, rhs):
            return _parens(f"{_index(lhs, _PRODUCT)}*{_index(rhs, _ATOM)}", level > _PRODUCT)
        case FloorDiv(lhs, rhs):
            return _parens(f"{_index(lhs, _PRODUCT)} // {_index(rhs, _ATOM)}", level > _PRODUCT)
        case Mod(lhs, rhs):
            return _parens(f"{_index(lhs, _PRODUCT)} % {_index(rhs, _ATOM)}", level > _PRODUCT)
        case Min(lhs, rhs):
            return f"min({show_index(lhs)}, {show_index(rhs)})"
        case Max(lhs, rhs):
            return f"max({show_index(lhs)}, {show_index(rhs)})"
        case ValueIndex(value):
            return f"value({show_expr(value)})"
        case _:
            assert_never(e)


def _sum(lhs: Index, rhs: Index) -> str:
    """Return `lhs + rhs`; `x + -3`, `x + -16*y` and `x + -1*y` are written as differences, which the parser reads back the same way."""
    left = _index(lhs, _SUM)
    match rhs:
        case Int(value) if value < 0:
            return f"{left} - {-value}"
        case Mul(Int(-1), Int() | Mul(Int(), _)):
            return f"{left} + {_index(rhs, _PRODUCT)}"
        case Mul(Int(-1), factor):
            return f"{left} - {_index(factor, _PRODUCT)}"
        case Mul(Int(scale), factor) if scale < 0:
            return f"{left} - {-scale}*{_index(factor, _ATOM)}"
        case _:
            return f"{left} + {_index(rhs, _PRODUCT)}"


# ---------------------------------------------------------------- values


def _expr(e: Expr, level: int) -> str:
    """Return `e` as text, in parentheses when it binds less tightly than `level`."""
    match e:
        case Const():
            return _const(e)
        case Load(buffer, index):
            return f"{_name(buffer)}{_subscript(index)}"
        case IndexValue(index_value):
            return f"index({show_index(index_value)})"
        case Name(name):
            return _name(name)
        case Unary("abs", value):
            return f"abs({show_expr(value)})"
        case Unary("not", value):
            return _parens(f"not {_expr(value, _NOT)}", level > _NOT)
        case Unary("neg", Const() as value):
            return _parens(f"-({_const(value)})", level > _UNARY)
        case Unary(op, value):
            return _parens(f"{'-' if op == 'neg' else '~'}{_expr(value, _UNARY)}", level > _UNARY)
        case Binary(("min" | "max") as fn, lhs, rhs):
            return f"{fn}({show_expr(lhs)}, {show_expr(rhs)})"
        case Binary(binary, lhs, rhs):
            own = _LEVELS[binary]
            return _parens(f"{_expr(lhs, own)} {_SYMBOLS.get(binary, binary)} {_expr(rhs, own + 1)}", level > own)
        case Compare(compare, lhs, rhs):
            return _parens(f"{_expr(lhs, _COMPARE + 1)} {compare} {_expr(rhs, _COMPARE + 1)}", level > _COMPARE)
        case Select(cond, then, orelse):
            return _call("select", (cond, then, orelse))
        case Cast(dtype, value, saturate):
            return f"{dtype.name}{'.sat' if saturate else ''}({show_expr(value)})"
        case Call(fn, args):
            return _call(_name(fn), args)
        case Fma(a, b, c):
            return _call("fma", (a, b, c))
        case Dot(count, a, b, c):
            return f"dot({count}, {show_expr(a)}, {show_expr(b)}, {show_expr(c)})"
        case _:
            assert_never(e)


def _call(fn: str, args: tuple[Expr, ...]) -> str:
    return f"{fn}({', '.join(map(show_expr, args))})"


def _const(e: Const) -> str:
    if e.dtype.kind == "bool":
        return "true" if e.value else "false"
    if not e.dtype.is_float:
        return f"{int(e.value)}_{e.dtype.name}"
    return f"{_float(float(e.value))}_{e.dtype.name}"


def _float(value: float) -> str:
    """Return a text that reads back as `value`: decimal where it is short, otherwise hexadecimal."""
    decimal = repr(value)
    return decimal if len(decimal) <= 9 else re.sub(r"\.?0*p", "p", value.hex())


def _parens(text: str, wanted: bool) -> str:
    return f"({text})" if wanted else text
