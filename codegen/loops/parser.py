"""Reads the notation of `printer.py` back, for tests, golden files and experiments by hand. `#` starts a comment."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, VisitError

from codegen.dtypes import DTYPES, bool_
from codegen.errors import InternalError
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Binary,
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
from codegen.loops.notes import read as read_note

_OPERATORS = {"&": "bitand", "|": "bitor", "^": "bitxor", "<<": "shl", ">>": "shr"}


def parse(text: str) -> Function:
    """Return the function that `text` describes.

    Raises InternalError with line and column when the text does not follow the grammar in loops.lark."""
    function: Function = _parse("function", text)
    return function


def parse_index(text: str) -> Index:
    """Return the index expression that `text` describes."""
    index: Index = _parse("sum", text)
    return index


def parse_expr(text: str) -> Expr:
    """Return the value that `text` describes."""
    expr: Expr = _parse("expr", text)
    return expr


def _parse(start: str, text: str) -> Any:
    try:
        return _Builder().transform(_lark().parse(text, start=start))
    except UnexpectedInput as error:
        where = f"line {error.line}, column {error.column}"
        raise InternalError("parse loops", f"{where}: unexpected text\n{error.get_context(text)}") from error
    except VisitError as error:
        raise InternalError("parse loops", str(error.orig_exc)) from error


@cache
def _lark() -> Lark:
    grammar = Path(__file__).with_name("loops.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", start=["function", "sum", "expr"], maybe_placeholders=True)


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Builds nodes bottom-up; one method per rule or alias of the grammar."""

    def name(self, word: Token) -> str:
        return str(word).strip("`")

    def function(self, name: str, sizes: tuple[str, ...], params: tuple[tuple[Buffer, bool], ...], body: tuple[Stmt, ...]) -> Function:
        written = frozenset(buffer.name for buffer, is_written in params if is_written)
        return Function(name, sizes, tuple(buffer for buffer, _ in params), body, written)

    def names(self, *names: str | None) -> tuple[str, ...]:
        return tuple(name for name in names if name is not None)

    def params(self, *params: tuple[Buffer, bool] | None) -> tuple[tuple[Buffer, bool], ...]:
        return tuple(param for param in params if param is not None)

    def read_param(self, buffer: Buffer) -> tuple[Buffer, bool]:
        return buffer, False

    def written_param(self, buffer: Buffer) -> tuple[Buffer, bool]:
        return buffer, True

    def buffer(
        self,
        name: str,
        dtype: Token,
        shape: tuple[Index, ...],
        space: Any,
        align: Token | None,
        swizzle: Token | None,
        notes: tuple[Note, ...] | None,
    ) -> Buffer:
        where, multiple, span = str(space) if space else "param", int(align) if align else 1, int(swizzle) if swizzle else 0
        return Buffer(name, DTYPES[dtype], shape, where, multiple, span, notes or ())  # type: ignore[arg-type]

    def notes(self, *notes: Note) -> tuple[Note, ...]:
        return notes

    def note(self, word: Token, *parts: Token) -> Note:
        return read_note(str(word), [int(part) if part.type == "INT" else str(part) for part in parts])

    def block(self, *body: Stmt) -> tuple[Stmt, ...]:
        return body

    def subscript(self, *index: Index | None) -> tuple[Index, ...]:
        return tuple(e for e in index if e is not None)

    # -- statements

    def for_(
        self,
        var: str,
        lo: Index,
        hi: Index,
        kind: Any,
        extent: Token | None,
        notes: tuple[Note, ...] | None,
        body: tuple[Stmt, ...],
    ) -> For:
        mark = str(kind) if kind else "serial"
        return For(var, lo, hi, body, mark, int(extent) if extent else None, notes or ())  # type: ignore[arg-type]

    def store(
        self, buffer: str, index: tuple[Index, ...], value: Expr, stream: Token | None, across: Token | None, later: Token | None
    ) -> Store:
        return Store(buffer, index, value, stream is not None, across is not None, later is not None)

    def let(self, name: str, value: Expr) -> Let:
        return Let(name, value)

    def if_(self, cond: Expr, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...] | None) -> If:
        return If(cond, then, orelse or ())

    def alloc(self, buffer: Buffer) -> Alloc:
        return Alloc(buffer)

    def prefetch(self, write: Token | None, buffer: str, index: tuple[Index, ...], locality: Token) -> Prefetch:
        return Prefetch(buffer, index, write is not None, int(locality))

    def require(self, cond: Expr, code: Token) -> Require:
        return Require(cond, int(code))

    def barrier(self) -> Barrier:
        return Barrier()

    def cluster_barrier(self) -> Barrier:
        return Barrier("cluster")

    def numbers(self, *numbers: Token) -> tuple[int, ...]:
        return tuple(map(int, numbers))

    def box(
        self,
        target: str,
        place: tuple[Index, ...],
        source: str,
        at: tuple[Index, ...],
        extents: tuple[int, ...],
        order: tuple[int, ...] | None,
        steps: tuple[int, ...] | None,
        blocks: Token | None,
    ) -> Box:
        return Box(Load(target, place), Load(source, at), extents, order or (), steps or (), int(blocks) if blocks else 1)

    def boxes(self, barriers: str, group: tuple[Index, ...], *boxes: Box) -> Boxes:
        return Boxes(barriers, group[0], boxes)

    def wait_boxes(self, barriers: str, group: tuple[Index, ...]) -> WaitBoxes:
        return WaitBoxes(barriers, group[0])

    def release(self, barriers: str, group: tuple[Index, ...], blocks: Token | None) -> Release:
        return Release(barriers, group[0], int(blocks) if blocks else 1)

    def reclaim(self, barriers: str, group: tuple[Index, ...]) -> Reclaim:
        return Reclaim(barriers, group[0])

    def producer(self, *registers: Token | None) -> tuple[int, ...]:
        return tuple(int(n) for n in registers if n is not None)

    def producer_block(self, registers: tuple[int, ...], body: tuple[Stmt, ...]) -> Producer:
        return Producer(body, registers)

    def commit(self, products: Token | None) -> Commit:
        return Commit("products" if products else "copies")

    def wait(self, pending: Token, products: Token | None) -> Wait:
        return Wait(int(pending), "products" if products else "copies")

    def matrix(
        self,
        count: Token,
        transposed: Token | None,
        buffer: str,
        index: tuple[Index, ...],
        source: str,
        place: tuple[Index, ...],
        lane: str,
    ) -> LoadMatrix:
        return LoadMatrix(buffer, index, lane, Load(source, place), int(count), transposed is not None)

    def mma(self, name: str, *operands: Any) -> Mma:
        sums, rows, columns = (Load(buffer, index) for buffer, index in zip(operands[::2], operands[1::2], strict=True))
        return Mma(name, sums, rows, columns)

    # -- index expressions

    def int(self, digits: Token) -> Int:
        return Int(int(digits))

    def minus_int(self, digits: Token) -> Int:
        return Int(-int(digits))

    def var(self, name: str) -> Var:
        return Var(name)

    def index_add(self, lhs: Index, rhs: Index) -> Add:
        return Add(lhs, rhs)

    def index_sub(self, lhs: Index, rhs: Index) -> Add:
        match rhs:
            case Int(value):
                return Add(lhs, Int(-value))
            case Mul(Int(scale), factor):
                return Add(lhs, Mul(Int(-scale), factor))
            case _:
                return Add(lhs, Mul(Int(-1), rhs))

    def index_mul(self, lhs: Index, rhs: Index) -> Mul:
        return Mul(lhs, rhs)

    def index_div(self, lhs: Index, rhs: Index) -> FloorDiv:
        return FloorDiv(lhs, rhs)

    def index_mod(self, lhs: Index, rhs: Index) -> Mod:
        return Mod(lhs, rhs)

    def index_min(self, lhs: Index, rhs: Index) -> Min:
        return Min(lhs, rhs)

    def index_max(self, lhs: Index, rhs: Index) -> Max:
        return Max(lhs, rhs)

    def value_index(self, value: Expr) -> ValueIndex:
        return ValueIndex(value)

    # -- values

    def const(self, word: Token) -> Const:
        return _const(word, 1)

    def minus_const(self, word: Token) -> Const:
        return _const(word, -1)

    def bool(self, word: Token) -> Const:
        return Const(word == "true", bool_)

    def value_name(self, name: str) -> Name:
        return Name(name)

    def load(self, buffer: str, index: tuple[Index, ...]) -> Load:
        return Load(buffer, index)

    def index_value(self, index: Index) -> IndexValue:
        return IndexValue(index)

    def neg(self, value: Expr) -> Unary:
        return Unary("neg", value)

    def not_(self, value: Expr) -> Unary:
        return Unary("not", value)

    def bitnot(self, value: Expr) -> Unary:
        return Unary("bitnot", value)

    def abs(self, value: Expr) -> Unary:
        return Unary("abs", value)

    def binary(self, lhs: Expr, op: Token, rhs: Expr) -> Binary:
        return Binary(_OPERATORS.get(op, str(op)), lhs, rhs)  # type: ignore[arg-type]

    def min_max(self, op: Token, lhs: Expr, rhs: Expr) -> Binary:
        return Binary(str(op), lhs, rhs)  # type: ignore[arg-type]

    def compare(self, lhs: Expr, op: Token, rhs: Expr) -> Compare:
        return Compare(str(op), lhs, rhs)  # type: ignore[arg-type]

    def select(self, cond: Expr, then: Expr, orelse: Expr) -> Select:
        return Select(cond, then, orelse)

    def fma(self, a: Expr, b: Expr, c: Expr) -> Fma:
        return Fma(a, b, c)

    def dot(self, count: Token, a: Expr, b: Expr, c: Expr) -> Dot:
        if not isinstance(a, Load) or not isinstance(b, Load):
            raise ValueError("`dot` takes two elements in memory")
        return Dot(int(count), a, b, c)

    def cast(self, dtype: Token, saturate: Token | None, value: Expr) -> Cast:
        return Cast(DTYPES[dtype], value, saturate is not None)

    def call(self, fn: str, *args: Expr | None) -> Call:
        return Call(fn, tuple(arg for arg in args if arg is not None))


def _const(word: str, sign: int) -> Const:
    digits, _, dtype_name = word.rpartition("_")
    dtype = DTYPES[dtype_name]
    if not dtype.is_float:
        return Const(sign * int(digits), dtype)
    return Const(sign * (float.fromhex(digits) if digits.startswith("0x") else float(digits)), dtype)
