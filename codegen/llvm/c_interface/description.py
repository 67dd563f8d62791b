"""What the functions of a library are made from: its sizes, arrays, levels of instructions and checks, and what each result means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from codegen.dtypes import DType
from codegen.llvm.target import Needs
from codegen.loops.nodes import Expr, Index

LARGEST = 2**48


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


class Codes:
    """Where the results of one kind begin."""

    def __init__(self, of: Interface) -> None:
        self.sizes = FIRST_OWN
        self.conditions = self.sizes + len(of.sizes)
        self.arguments = self.conditions + len(of.conditions)
        self.overlaps = self.arguments + 2 * len(of.arguments)
        self.checks = self.overlaps + len(of.outputs)
