"""Runs kernels that were compiled for other processors, in this process: AArch64 in Unicorn, WebAssembly in wasmtime.

`computed(program, target, arrays)` returns what a program computes there. Nothing but kernels is run: no C library is at hand.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import unicorn
import wasmtime
from unicorn import arm64_const as arm

from codegen.dtypes import DTYPES
from codegen.llvm.stamp import of_object
from codegen.llvm.target import Target
from codegen.llvm.wasm import PAGE, linked
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.driver import compile_kernel
from tensorlang.graph.programs import result_tensors
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import caller_shape

Array = np.ndarray[Any, Any]
_CODE, _DATA, _STACK, _BACK = 0x10_0000, 0x1000_0000, 0x4000_0000, 0x5000_0000
_STACK_BYTES = 1 << 20


def computed(program: Program, target: Target, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of a program of known sizes, compiled for `target` and run there."""
    made = compile_kernel(program, target)
    results = {t.name: np.zeros(caller_shape(t, {}), t.dtype.numpy) for t in result_tensors(program)}
    given = {**arrays, **results}
    memory = b"".join(_padded(given[name].tobytes()) for name in made.params)
    starts, at = [], 0
    for name in made.params:
        starts.append(at)
        at += len(_padded(given[name].tobytes()))
    scratch, size = at, at + made.workspace_bytes(1) + 64
    sys.audit("tensorlang.load", of_object(made.object))
    run = _in_wasmtime if target.is_wasm else _in_unicorn
    after = run(made, memory.ljust(size, b"\xab"), starts, scratch)
    for name, start in zip(made.params, starts, strict=True):
        if name in results:
            flat = np.frombuffer(after[start : start + results[name].nbytes], results[name].dtype)
            results[name] = flat.reshape(results[name].shape)
    return results


def run_module(
    folder: Path, name: str, target: str, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Return what the module of a folder computes that was built for WebAssembly, called as its JavaScript does. Raises ValueError with the
    text of what is refused."""
    [line] = [line for line in (folder / f"{name}.js").read_text("utf-8").splitlines() if line.startswith("const ABOUT = ")]
    about = json.loads(line.removeprefix("const ABOUT = ").rstrip(";"))
    level = next(level for level in about["levels"] if level["target"] == target)
    store = wasmtime.Store(_ENGINE)
    exports = wasmtime.Instance(store, wasmtime.Module(_ENGINE, (folder / level["code"]).read_bytes()), []).exports(store)
    own: Any = exports["memory"]
    base = -(-exports["__heap_base"].value(store) // 64) * 64  # type: ignore[union-attr]
    both = [*about["inputs"], *about["outputs"]]
    shapes, numbers = [a["shape"] for a in both], []
    if about["sizes"]:
        words = sum(map(len, shapes)) + level["numbers"]
        own.grow(store, -(-8 * (len(about["sizes"]) + words) // PAGE))
        own.write(store, struct.pack(f"<{len(about['sizes'])}q", *((sizes or {})[n] for n in about["sizes"])), base)
        measure: Any = exports["sizes"]
        place = base + 8 * len(about["sizes"])
        if refused := measure(store, base, place):
            raise ValueError(level["refused"][str(refused)])
        told = iter(struct.unpack(f"<{words}q", own.read(store, place, place + 8 * words)))
        shapes, numbers = [[next(told) for _ in shape] for shape in shapes], list(told)
    shapes = [*shapes[len(inputs) :], *shapes[: len(inputs)]]
    both = [*about["outputs"], *about["inputs"]]
    weights = (folder / level["weights"]).read_bytes() if level["weights"] else b""
    data = [b"" for _ in about["outputs"]] + [inputs[i["name"]].tobytes() for i in about["inputs"]] + [weights, b""]
    lengths: list[int | None] = [int(np.prod(shape)) * a["bytes"] for a, shape in zip(both, shapes, strict=True)]
    starts, memory = [], bytearray()
    for content, length in zip(data, [*lengths, level["weightsBytes"], level["arenaBytes"]], strict=True):
        if length is not None:
            starts.append(base + len(memory))
            memory += _padded(content.ljust(length, b"\xab"))
    starts[-1:-1] = numbers
    table = struct.pack(f"<{len(starts)}q", *starts)
    own.grow(store, -(-(base + len(memory) + len(table)) // PAGE))
    own.write(store, bytes(memory) + table, base)
    call: Any = exports["run"]
    if code := call(store, base + len(memory)):
        raise ValueError(level["checks"][code >> level["bits"]][(code & (1 << level["bits"]) - 1) - 1])
    found = {}
    for output, shape, start in zip(about["outputs"], shapes, starts, strict=False):
        dtype = DTYPES[output["dtype"]].numpy
        flat = own.read(store, start, start + int(np.prod(shape)) * dtype.itemsize)
        found[output["name"]] = np.frombuffer(bytes(flat), dtype).reshape(shape)
    return found


def _padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // 64) * 64 + 64, b"\xab")


def _in_wasmtime(made: Artifact, memory: bytes, starts: list[int], scratch: int) -> bytes:
    store = wasmtime.Store(_ENGINE)
    module = wasmtime.Module(_ENGINE, linked([made.object], [made.symbol]))
    exports = wasmtime.Instance(store, module, []).exports(store)
    own: Any = exports["memory"]
    base = -(-exports["__heap_base"].value(store) // 64) * 64  # type: ignore[union-attr]
    table = struct.pack(f"<{len(starts)}q", *(base + start for start in starts))
    own.grow(store, -(-(base + len(memory) + len(table)) // PAGE))
    own.write(store, memory + table, base)
    call: Any = exports[made.symbol]
    assert call(store, base + len(memory), base + scratch) == 0
    return bytes(own.read(store, base, base + len(memory)))


_ENGINE = wasmtime.Engine()


def _in_unicorn(made: Artifact, memory: bytes, starts: list[int], scratch: int) -> bytes:
    image, symbols = arm_image(made.object)
    machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    machine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
    table = struct.pack(f"<{len(starts)}q", *(_DATA + start for start in starts))
    for start, content in ((_CODE, image), (_DATA, memory + table), (_STACK, bytes(_STACK_BYTES)), (_BACK, bytes(4096))):
        machine.mem_map(start, -(-len(content) // 4096) * 4096)
        machine.mem_write(start, content)
    machine.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vectors are allowed
    for register, value in (
        (arm.UC_ARM64_REG_X0, _DATA + len(memory)),
        (arm.UC_ARM64_REG_X1, _DATA + scratch),
        (arm.UC_ARM64_REG_SP, _STACK + _STACK_BYTES - 64),
        (arm.UC_ARM64_REG_LR, _BACK),
    ):
        machine.reg_write(register, value)
    machine.emu_start(_CODE + symbols[made.symbol], _BACK)
    assert machine.reg_read(arm.UC_ARM64_REG_X0) & 0xFFFFFFFF == 0
    return bytes(machine.mem_read(_DATA, len(memory)))


# ---------------------------------------------------------------- objects of AArch64

_ABS64, _PREL32, _PAGE, _ADD, _CALL, _JUMP = 257, 261, 275, 277, 283, 282
_LOADS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
"""Relocations of loads and stores, with how far their offset is shifted."""


def arm_image(data: bytes) -> tuple[bytes, dict[str, int]]:
    """Return an ELF object as it lies in memory from `_CODE` on, and where its symbols are in that."""
    offset, size, count = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<2H", data, 58))
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + k * size) for k in range(count)]
    image, starts = bytearray(), {}
    for k, (_, kind, flags, _, at, length, *_rest) in enumerate(sections):
        if flags & 2 and kind in (1, 8):  # in memory: as in the file, or zeros
            image += bytes(-len(image) % 64)
            starts[k] = len(image)
            image += data[at : at + length] if kind == 1 else bytes(length)
    table = next(s for s in sections if s[1] == 2)
    names = sections[table[6]][4]
    symbols, places = {}, []
    for at in range(table[4], table[4] + table[5], 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, at)
        text = data[names + name : data.index(b"\0", names + name)].decode()
        places.append((text, starts[section] + value if section in starts else None))
        if section in starts:
            symbols[text] = starts[section] + value
    for section in (s for s in sections if s[1] == 4 and s[7] in starts):
        for at in range(section[4], section[4] + section[5], 24):
            where, about, addend = struct.unpack_from("<QQq", data, at)
            name, place = places[about >> 32]
            assert place is not None, f"nothing here is called `{name}`"
            _relocate(image, starts[section[7]] + where, about & 0xFFFFFFFF, _CODE + place + addend)
    return bytes(image), symbols


def _relocate(image: bytearray, where: int, kind: int, target: int) -> None:
    (word,) = struct.unpack_from("<I", image, where)
    here = _CODE + where
    match kind:
        case _ if kind == _ABS64:
            struct.pack_into("<Q", image, where, target)
            return
        case _ if kind == _PREL32:
            struct.pack_into("<i", image, where, target - here)
            return
        case _ if kind == _PAGE:
            pages = (target >> 12) - (here >> 12)
            word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
        case _ if kind == _ADD:
            word |= (target & 0xFFF) << 10
        case _ if kind in (_CALL, _JUMP):
            word |= (target - here) >> 2 & 0x3FFFFFF
        case _:
            word |= (target & 0xFFF) >> _LOADS[kind] << 10
    struct.pack_into("<I", image, where, word)
