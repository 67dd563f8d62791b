"""Runs kernel text on the CPU: every thread of a block a fibre, every access watched. For tests; it needs g++ and no GPU.

    library = build(program.kernels)                      compiled once, kept on disk
    for seed in SEEDS:
        run(program, sizes, arrays, seed=seed, outputs=("y",), library=library)

`prelude/emulator.h` says what it finds: races, divergent barriers, deadlocks, misaligned and out-of-bounds accesses, reads of what nobody
has written, copies that nobody waited for. All of it is one exception, `EmulatorError`, with kernel, block and thread.

A seed is an order of threads and a mode of asynchronous copies; `SEEDS` has each pair once. Races are found from the accesses, on any
seed, as long as text uses `TL_IN`, `TL_OUT` and `TL_SHARED_ARRAY` for what it points to (`codegen/cuda/prelude/cuda.h`). Scratch, shared
memory and the arrays named as outputs are filled with ones in every bit, which is NaN for floats.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from codegen.gpu import prelude
from codegen.gpu.dispatch import bound_map
from codegen.gpu.program import Kernel, Launch, Program, TensorMap
from codegen.loops.interp import evaluate_index
from codegen.store import default_directory, key_of, private_directory, private_opener

Array: TypeAlias = np.ndarray[Any, Any]

SEEDS = range(9)
"""Every order of threads with every mode of copies."""

_GUARD = 256
"""Bytes before and after every buffer that nobody may write; also what buffers are aligned to."""

_COMPILE = (
    *("-std=c++17", "-fPIC", "-w", "-fvisibility=hidden", "-fno-gnu-unique"),
    *("-fno-exceptions", "-fno-rtti", "-ffp-contract=off", "-fno-strict-aliasing"),
)
_KERNELS = ("-Og",)
"""Kernels are compiled for a few runs: `-O1` takes a third longer, and what it makes runs no faster."""
_EMULATOR = ("-O1", "-DTL_EMULATOR")
"""The emulator itself is compiled once for all libraries, and so is what it declares to kernels."""
_CHECKS = ("-fsanitize=bounds,signed-integer-overflow", "-fno-sanitize-recover=all")


class EmulatorError(Exception):
    """A kernel did what it must not do, or could not be run. `block` and `thread` are (x, y, z), where one is to blame."""

    def __init__(
        self, problem: str, kernel: str, block: tuple[int, int, int] | None = None, thread: tuple[int, int, int] | None = None
    ) -> None:
        where = f"kernel `{kernel}`" + (f", block {block}, thread {thread}" if block is not None else "")
        super().__init__(f"{where}: {problem}")
        self.problem = problem
        self.kernel = kernel
        self.block = block
        self.thread = thread


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("cluster", ctypes.c_int32 * 3),
        ("clocks", ctypes.c_int32),
        ("shared_bytes", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
    )


class _Argument(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("value", ctypes.c_int64),
        ("name", ctypes.c_char_p),
        ("cells", ctypes.c_void_p),
        ("element_bytes", ctypes.c_int32),
        ("unset", ctypes.c_int32),
    )


class _Map(ctypes.Structure):
    """A tensor map; axes from the innermost on."""

    _fields_ = (
        ("buffer", _Argument),
        ("region", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("element_bytes", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("swizzle", ctypes.c_int32),
        ("box", ctypes.c_int32 * 5),
        ("extents", ctypes.c_int64 * 5),
        ("strides", ctypes.c_int64 * 5),
    )


class _Fault(ctypes.Structure):
    _fields_ = (
        ("happened", ctypes.c_int32),
        ("block", ctypes.c_int32 * 3),
        ("thread", ctypes.c_int32 * 3),
        ("problem", ctypes.c_char * 512),
    )


@dataclass(frozen=True, slots=True)
class Library:
    """Kernels compiled for the emulator."""

    path: Path
    code: ctypes.CDLL

    @property
    def cell_bytes(self) -> int:
        return int(self.code.tl_emulator_cell_bytes())


class _Buffer:
    """A buffer of the emulated device: elements between guards, and what is known about each."""

    def __init__(self, name: str, dtype: np.dtype[Any], count: int, cell_bytes: int, unset: bool) -> None:
        self.name = name
        self.unset = unset
        size = count * dtype.itemsize
        self._memory = np.full(size + 3 * _GUARD, 0xFF, np.uint8)
        self._start = _GUARD + -self._memory.ctypes.data % _GUARD
        self.elements: Array = self._memory[self._start : self._start + size].view(dtype)
        self.cells = np.zeros(count * cell_bytes, np.uint8)

    def argument(self) -> _Argument:
        data = self.elements
        cells = self.cells.ctypes.data if self.cells.size else None
        return _Argument(self._memory.ctypes.data + self._start, data.nbytes, self.name.encode(), cells, data.itemsize, int(self.unset))

    def damaged(self) -> str | None:
        """Return what was written beyond the elements, or None."""
        before, after = self._memory[: self._start], self._memory[self._start + self.elements.nbytes :]
        if (before != 0xFF).any():
            first = int(np.flatnonzero(before != 0xFF)[0])
            return f"out of bounds: writes {self._start - first} bytes before the start of {self.name}"
        if (after != 0xFF).any():
            return f"out of bounds: writes byte {int(np.flatnonzero(after != 0xFF)[0])} after the end of {self.name}"
        return None


def build(kernels: Iterable[Kernel], directory: Path | None = None, *, terms: bool = False) -> Library:
    """Return the kernels, whose names differ, compiled into one library, which is kept in `directory` (the cache of the user unless given).
    `terms`: floats are what they were computed from instead of numbers (`codegen/gpu/traces.py`).

    Raises EmulatorError when there is no g++, or when it does not understand the text."""
    wanted = tuple(kernels)
    names = ", ".join(k.name for k in wanted)
    compiler = shutil.which("g++")
    if compiler is None:
        raise EmulatorError("g++ is needed to run kernel text without a GPU and was not found; install it (Debian, Ubuntu: g++)", names)
    kept = directory or default_directory() / "emulator"
    try:
        private_directory(kept)
    except OSError as problem:
        raise EmulatorError(f"the libraries of the emulator cannot be kept: {problem}", names) from None
    text, itself = source(wanted, terms=terms), prelude.emulator(terms=terms, warp=_warp(wanted))
    command = (compiler, *_COMPILE, *_CHECKS, *(("-ftrivial-auto-var-init=pattern",) if _version(compiler) >= 12 else ()))
    how = (itself, str(_version(compiler)), *command, *_KERNELS, *_EMULATOR)

    before = _kept(kept, ".h", how, lambda path: path.write_text(itself, "utf-8"))

    def precompiled(path: Path) -> None:
        _called((*command, *_KERNELS, "-x", "c++-header", str(before), "-o", str(path)), names)

    def emulator(path: Path) -> None:
        _called((*command, *_EMULATOR, "-c", "-x", "c++", str(before), "-o", str(path)), names)

    def library(path: Path) -> None:
        _kept(kept, ".h.gch", how, precompiled)  # which g++ finds beside what is included
        compiled = str(path.with_suffix(".o"))
        _called((*command, *_KERNELS, "-include", str(before), "-c", "-x", "c++", "-", "-o", compiled), names, text)
        # Linked apart: the checks bring their own handlers, and no library of g++.
        _called((compiler, "-shared", "-Wl,-z,defs", compiled, str(_kept(kept, ".o", how, emulator)), "-o", str(path)), names)

    path = _kept(kept, ".so", (text, *how), library)
    return Library(path, _loaded(path))


def _kept(directory: Path, ending: str, parts: Iterable[str], make: Callable[[Path], object]) -> Path:
    """Return the file of `directory` for what is made of `parts`. Where there is none, `make` writes it to the path that it is given; then
    it is there, whole or not at all."""
    path = directory / f"{key_of(parts)}{ending}"
    if not _is_ours(path):
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            made = Path(folder) / f"made{ending}"
            make(made)
            made.chmod(0o700)
            os.replace(made, path)
    return path


def _is_ours(path: Path) -> bool:
    try:
        with open(path, "rb", opener=private_opener):
            return True
    except OSError:
        return False


_LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|0x[\da-f]+(?:\.[\da-f]*)?p[-+]?\d+)(f?)\b")


def source(kernels: Sequence[Kernel], *, terms: bool = False) -> str:
    """Return what g++ compiles after the prelude: each kernel and its entry. Lines count from the first of a kernel's text. With `terms`
    floats are a class, and so is what is written as a number."""
    texts = "".join(f'\n#line 1 "{k.name}"\n{k.text}\nTL_EXPORT({k.name})\n' for k in kernels)
    if terms:
        texts = _LITERAL.sub(lambda found: f"tl_{'f32' if found[1] else 'f64'}({found[0]})", texts)
    return prelude.instructions(texts) + texts


def _warp(kernels: Sequence[Kernel]) -> int:
    """Return how many threads the warps of these kernels have, which is the same for all."""
    (threads,) = {k.warp for k in kernels} or {32}
    return threads


def run(
    program: Program,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Array],
    *,
    seed: int = 0,
    outputs: Collection[str] = (),
    library: Library | None = None,
) -> int:
    """Run the launches of `program` and return the status word: 0, or the code of the requirement that was not met.

    `arrays` are the params by name, contiguous; those that may be written hold what the program writes when it returns. Those in `outputs`
    are filled with NaN first, and a kernel that reads an element of them before one has written it is at fault. Nothing is written when
    it raises.

    Raises EmulatorError when a kernel does what `prelude/emulator.h` lists."""
    compiled = library or build(program.kernels)
    cell_bytes = compiled.cell_bytes
    buffers = {name: _filled(name, arrays[name], cell_bytes, name in outputs) for name in program.params}
    for s in program.scratch:
        buffers[s.name] = _Buffer(s.name, s.dtype.numpy, evaluate_index(s.elements, sizes), cell_bytes, unset=True)
    status = _filled("status", np.zeros(1, np.int32), cell_bytes, unset=False)
    try:
        for launch in program.launches:
            _run_launch(program.kernel(launch.kernel), launch, launch.told(sizes), buffers, status, compiled, seed)
    finally:
        compiled.code.tl_emulator_release()
    for name in program.params:
        if arrays[name].flags.writeable:
            arrays[name].reshape(-1)[...] = buffers[name].elements
    return int(status.elements[0])


def _run_launch(
    kernel: Kernel, launch: Launch, sizes: Mapping[str, int], buffers: Mapping[str, _Buffer], status: _Buffer, library: Library, seed: int
) -> None:
    grid = tuple(evaluate_index(extent, sizes) for extent in launch.grid)
    if min(grid) < 1:
        return
    used = [buffers[name] for name in kernel.buffers] + [status] * kernel.checks
    maps = [_map(m, sizes, buffers[m.buffer]) for m in kernel.maps]
    arguments = [b.argument() for b in used[: len(kernel.buffers)]]
    arguments += [_Argument(ctypes.addressof(m), name=described.name.encode()) for m, described in zip(maps, kernel.maps, strict=True)]
    arguments += [_Argument(value=sizes[size], name=size.encode()) for size in kernel.sizes]
    arguments += [status.argument()] * kernel.checks
    fault = _Fault()
    entry = getattr(library.code, f"tl_emulate_{kernel.name}")
    clocks = prelude.orders_in_parts(kernel.text)
    how = _Launch(_three(grid), _three(kernel.block), _three(kernel.cluster), clocks, kernel.shared_bytes, seed)
    if entry(ctypes.byref(how), (_Argument * len(arguments))(*arguments), len(arguments), ctypes.byref(fault)):
        raise EmulatorError(fault.problem.decode(errors="replace"), kernel.name, _place(fault.block), _place(fault.thread))
    for buffer in (*used, *(buffers[m.buffer] for m in kernel.maps)):
        if (problem := buffer.damaged()) is not None:
            raise EmulatorError(problem, kernel.name)


def _three(numbers: Sequence[int]) -> Any:
    return (ctypes.c_int32 * 3)(*numbers)


def _map(described: TensorMap, sizes: Mapping[str, int], buffer: _Buffer) -> _Map:
    """Return what the emulator takes for a tensor map. Raises ValueError when no device would take it."""
    bound = bound_map(described, sizes)
    problem = bound.problem
    if problem is not None:
        raise ValueError(f"tensor map `{described.name}`: {problem}")
    argument = buffer.argument()
    made = _Map(argument, None, argument.data + bound.offset_bytes, bound.element_bytes, len(bound.box), bound.swizzle)
    made.box[: len(bound.box)] = tuple(reversed(bound.box))
    made.extents[: len(bound.box)] = tuple(reversed(bound.extents))
    made.strides[: len(bound.box)] = (bound.element_bytes, *reversed(bound.strides_bytes))
    return made


def _filled(name: str, array: Array, cell_bytes: int, unset: bool) -> _Buffer:
    if not array.flags.c_contiguous:
        raise ValueError(f"array `{name}` is not contiguous")
    buffer = _Buffer(name, array.dtype, array.size, cell_bytes, unset)
    if not unset:
        buffer.elements[...] = array.reshape(-1)
    return buffer


def _place(numbers: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = numbers
    return x, y, z


def _called(command: Sequence[str], names: str, text: str = "") -> None:
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise EmulatorError(f"g++ refuses the text:\n{result.stderr}", names)


@functools.cache
def _version(compiler: str) -> int:
    printed = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True, check=True).stdout
    return int(printed.split(".")[0])


@functools.cache
def _loaded(path: Path) -> ctypes.CDLL:
    code = ctypes.CDLL(str(path))
    code.tl_emulator_cell_bytes.restype = ctypes.c_int
    return code
