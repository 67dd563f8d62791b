"""Kernels that nobody wrote in the language: what stands for an `extern op`, as a value.

    tl.c_symbol("libsort.so", "topk_{T}")     a function of a shared library
    tl.llvm_ir(text, "topk_f32")              a function of a module of LLVM IR
    tl.cuda_source(text, "topk")              a function in CUDA C, run by the threads of a grid
    tl.python_function(f)                     a function of Python, which is passed arrays of NumPy; `f` alone says the same

`{T}` in the name of a function stands for the element type `T` of a call: one function for each. Nothing is loaded here; the back end of
the target does that when a call is compiled. What a kernel computes is trusted, never proven: reports say so.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from tensorlang.diagnostics import error

_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z_0-9]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")


class ForeignKernel:
    """What stands for an operator: a `CSymbol`, an `LLVMText`, a `CUDASource` or a `PythonFunction`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CSymbol(ForeignKernel):
    """A function of a shared library, or of the process where `path` is "". `content` is a digest of the library's file."""

    path: str
    symbol: str
    content: str

    target = "cpu"

    def __str__(self) -> str:
        return f"`{self.symbol}` of {self.path or 'this process'}"


@dataclass(frozen=True, slots=True)
class LLVMText(ForeignKernel):
    """A function of a module of LLVM IR. `needs`: what the processor has to have for it, by LLVM's names."""

    text: str = field(repr=False)
    symbol: str
    content: str
    needs: tuple[str, ...] = ()

    target = "cpu"

    def __str__(self) -> str:
        return f"`{self.symbol}` of LLVM IR {self.content[:12]}"


@dataclass(frozen=True, slots=True)
class CUDASource(ForeignKernel):
    """A function in CUDA C that the threads of a grid run, `threads` in a block; `blocks` None: one thread for each element of the largest
    result."""

    text: str = field(repr=False)
    symbol: str
    content: str
    threads: int = 256
    blocks: int | None = None

    target = "cuda"

    def __str__(self) -> str:
        return f"`{self.symbol}` of CUDA C {self.content[:12]}"


_COUNT = count()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PythonFunction(ForeignKernel):
    """A function of this process, which no text tells: what calls it is never kept for another one. `out`: it is passed the results to
    write into, and returns nothing. `number` tells it from all others."""

    function: Callable[..., Any]
    out: bool = False
    number: int = field(default_factory=lambda: next(_COUNT), init=False)

    target = "cpu"

    @property
    def symbol(self) -> str:
        """What it is called, which is no name that another function may not have."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def content(self) -> str:
        return str(self.number)

    def __str__(self) -> str:
        module = getattr(self.function, "__module__", None)
        return f"`{self.symbol}` of Python{f', module {module}' if module else ''}"

    def __repr__(self) -> str:
        return f"PythonFunction({self.symbol}, {self.number})"

    def __reduce__(self) -> tuple[Callable[..., PythonFunction], tuple[object, ...]]:
        return PythonFunction, (self.function, self.out)


NativeKernel: TypeAlias = CSymbol | LLVMText | PythonFunction
"""What the back end for processors runs."""
Kernel: TypeAlias = CSymbol | LLVMText | CUDASource | PythonFunction
Given: TypeAlias = ForeignKernel | Callable[..., Any]
Externs: TypeAlias = Mapping[str, Given | Sequence[Given]]
"""Kernels by the names of the operators that they stand for; of several, the first that is for the target."""


def c_symbol(path: str | os.PathLike[str] | None, symbol: str) -> CSymbol:
    """Return the function `symbol` of a shared library as a kernel; `path` None is this process, with the libraries it has loaded.

    Raises CompileError C0114 where there is no such file, C0113 for a name that no function has."""
    _check_symbol(symbol)
    if path is None:
        return CSymbol("", symbol, "")
    if not isinstance(path, (str, os.PathLike)):
        raise error(
            "C0113", f"a path is expected, not {type(path).__name__}", help="name the file of the library, or None for this process"
        )
    try:
        whole = str(Path(path).resolve(strict=True))
        return CSymbol(whole, symbol, hashlib.sha256(Path(whole).read_bytes()).hexdigest())
    except (OSError, ValueError, RuntimeError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise error("C0114", f"the library `{os.fspath(path)}` cannot be read: {why}", help="build it, or correct the path") from None


def llvm_ir(text: str, symbol: str, *, needs: Sequence[str] = ()) -> LLVMText:
    """Return the function `symbol` of a module of LLVM IR as a kernel. It may call what the process has loaded, the C library for one.
    Where the processor lacks a feature of `needs`, `avx512f` for one, another kernel serves, or the operator's body.

    Raises CompileError C0113 for what is no text, or a name that no function has."""
    _check_symbol(symbol)
    if isinstance(needs, str) or not all(isinstance(feature, str) for feature in needs):
        raise error("C0113", f"`needs` is {needs!r}", help='list features of processors as LLVM names them: `needs=["avx512f"]`')
    return LLVMText(_check_text(text, "LLVM IR"), symbol, _content(text), tuple(needs))


def cuda_source(text: str, symbol: str, *, threads: int = 256, blocks: int | None = None) -> CUDASource:
    """Return a kernel of CUDA C, a `__global__` or `__device__` function that returns nothing. A grid of `blocks` blocks of `threads`
    threads runs it; `blocks` None: as many as have a thread for each element of the largest result.

    Raises CompileError C0113 for what is no text, a name that no kernel has, or numbers that no grid has."""
    _check_symbol(symbol)
    _check_text(text, "CUDA C")
    for name, number, most in (("threads", threads, 1024), ("blocks", 1 if blocks is None else blocks, (1 << 31) - 1)):
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
            raise error("C0113", f"`{name}` is {number!r}", help=f"give a whole number from 1 to {most}")
    return CUDASource(text, symbol, _content(text), threads, blocks)


def python_function(function: Callable[..., Any], *, out: bool = False) -> PythonFunction:
    """Return a function of Python as a kernel. It is called with the tensors that the operator takes, in order: arrays of NumPy that are
    read-only and C-contiguous, None for one that a call leaves out, a list of arrays for `each` of several. The operator's attributes and
    the sizes that it declares as `size` are passed by name. What it returns is the result, of the declared type and shape; a tuple where
    there are several.

    With `out`, the results are passed by this name, an array or a tuple of arrays; the function writes into them and returns nothing.

    Raises CompileError C0113 for what cannot be called."""
    if not callable(function):
        raise error("C0113", f"a function is expected, not {type(function).__name__}", help="pass one: `tl.python_function(np.sort)`")
    if not isinstance(out, bool):
        raise error("C0113", f"`out` is {out!r}", help="it is `True` for a function that writes its results into arrays which it is passed")
    return PythonFunction(function, out)


def kernels_of(externs: Externs | None) -> dict[str, tuple[Kernel, ...]]:
    """Return the kernels that are given for each operator. Raises CompileError C0113 for what gives none."""
    if externs is None:
        return {}
    if not isinstance(externs, Mapping):
        help = 'give kernels by the names of operators: `externs={"f": tl.c_symbol("libf.so", "f")}`'
        raise error("C0113", f"`externs` is a {type(externs).__name__}", help=help)
    return {name: tuple(_several(name, given)) for name, given in externs.items()}


def _several(name: str, given: object) -> Iterator[Kernel]:
    for kernel in given if isinstance(given, (tuple, list)) else (given,):
        if isinstance(kernel, CSymbol | LLVMText | CUDASource | PythonFunction):
            yield kernel
        elif callable(kernel) and not isinstance(kernel, type):
            yield PythonFunction(kernel)
        else:
            help = "give a function of Python, or make a kernel with `tl.c_symbol`, `tl.llvm_ir` or `tl.cuda_source`"
            raise error("C0113", f"what is given for `{name}` is a {type(kernel).__name__}, no kernel", help=help)


def types_in(symbol: str) -> tuple[str, ...]:
    """Return the element types that the name of a function is made of."""
    return tuple(dict.fromkeys(_FIELD.findall(symbol)))


def named_for(symbol: str, types: Mapping[str, str]) -> str:
    """Return the name of the function for these element types."""
    return _FIELD.sub(lambda found: types[found[1]], symbol)


def _check_symbol(symbol: object) -> None:
    if not isinstance(symbol, str) or not _NAME.fullmatch(_FIELD.sub("T", symbol)):
        help = "it is a word, with `{T}` for the element type `T`: `topk_{T}`"
        raise error("C0113", f"{symbol!r} is no name of a function", help=help)


def _check_text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise error("C0113", f"{what} is expected as text, not {type(text).__name__}", help="pass the text of a module")
    return text


def _content(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
