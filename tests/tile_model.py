"""A model of tile registers in software: what the instructions for tiles do, as the processor's manual says it, for code to be run with.

The IR that is emitted for a processor with tiles calls intrinsics. Here they are functions instead, called back from native code, so that
the whole sequence runs where there are no tiles: the configuration, the strides, which register holds what. Everything but tiles is emitted
for this machine.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from codegen.dtypes import bf16
from codegen.llvm.emit import emit
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.pool import pool_imports
from codegen.llvm.target import Target, host, named
from codegen.llvm.workspace import workspace_bytes
from codegen.loops.nodes import Function

_NAMES = ("ldtilecfg", "tilerelease", "tileloadd64", "tilestored64", "tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
_BYTE, _LONG, _PTR = ctypes.c_uint8, ctypes.c_int64, ctypes.c_void_p


class Fault(Exception):
    """What the processor would not do."""


@dataclass
class _File:
    """The tile registers of a thread."""

    rows: dict[int, int] = field(default_factory=dict)
    width: dict[int, int] = field(default_factory=dict)
    data: dict[int, np.ndarray] = field(default_factory=dict)

    def shape(self, tile: int) -> tuple[int, int]:
        if not self.rows.get(tile) or not self.width.get(tile):
            raise Fault(f"tile {tile} is used and not configured")
        return self.rows[tile], self.width[tile]


@dataclass
class TileModel:
    """Eight registers for each thread. `faults` are those that happened; `count` says how often each instruction ran."""

    files: dict[int, _File] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)

    def imports(self) -> dict[str, int]:
        """Return the addresses of the instructions, by the names that `modelled` calls them by."""
        three = (_BYTE, _BYTE, _BYTE)
        found: dict[str, int] = {}
        for name in _NAMES:
            kinds = {"ldtilecfg": (_PTR,), "tilerelease": ()}.get(name, three if name.startswith("tdp") else (_BYTE, _PTR, _LONG))
            function = ctypes.CFUNCTYPE(None, *kinds)(self._noted(name))
            self.kept.append(function)
            address = ctypes.cast(function, _PTR).value
            assert address is not None
            found[f"model_{name}"] = address
        return found

    def _noted(self, name: str) -> Callable[..., None]:
        def run(*args: int) -> None:
            self.count[name] = self.count.get(name, 0) + 1
            try:
                if name.startswith("tdp"):
                    self._multiply(name, *args)
                else:
                    getattr(self, f"_{name}")(*args)
            except Fault as fault:
                self.faults.append(str(fault))

        return run

    def _ldtilecfg(self, pointer: int) -> None:
        data = ctypes.string_at(pointer, 64)
        if data[0] != 1 or any(data[1:16]) or any(data[32:48]) or any(data[56:64]):
            raise Fault("the configuration is no palette 1 with zeros elsewhere")
        rows = {k: data[48 + k] for k in range(8)}
        width = {k: int.from_bytes(data[16 + 2 * k : 18 + 2 * k], "little") for k in range(8)}
        if max(width.values()) > 64 or max(rows.values()) > 16:
            raise Fault("a tile is too large")
        found = {k: np.zeros((rows[k], width[k]), np.uint8) for k in range(8)}
        self.files[threading.get_ident()] = _File(rows, width, found)

    def _tilerelease(self) -> None:
        self.files[threading.get_ident()] = _File()

    @property
    def _file(self) -> _File:
        return self.files.setdefault(threading.get_ident(), _File())

    def _tileloadd64(self, tile: int, pointer: int, stride: int) -> None:
        rows, width = self._file.shape(tile)
        lines = [np.frombuffer(ctypes.string_at(pointer + r * stride, width), np.uint8) for r in range(rows)]
        self._file.data[tile] = np.stack(lines).copy()

    def _tilestored64(self, tile: int, pointer: int, stride: int) -> None:
        rows, _ = self._file.shape(tile)
        for r in range(rows):
            line = self._file.data[tile][r].tobytes()
            ctypes.memmove(pointer + r * stride, line, len(line))

    def _multiply(self, name: str, c: int, a: int, b: int) -> None:
        (m, n), (rows, depth), (groups, width) = self._file.shape(c), self._file.shape(a), self._file.shape(b)
        if len({a, b, c}) < 3 or m != rows or n != width or depth != 4 * groups:
            raise Fault(f"{name} of tiles that do not fit: {(m, n)}, {(rows, depth)}, {(groups, width)}")
        if name == "tdpbf16ps":
            x, y = (self._file.data[k].view(bf16.numpy).astype(np.float32) for k in (a, b))
            sums = self._file.data[c].view(np.float32)
            for k in range(groups):
                for r in range(2):
                    sums += np.outer(x[:, 2 * k + r], y[k, r::2])
            return
        kinds = {"s": np.int8, "u": np.uint8}
        x, y = self._file.data[a].view(kinds[name[4]]).astype(np.int64), self._file.data[b].view(kinds[name[5]]).astype(np.int64)
        total = sum(np.outer(x[:, 4 * k + r], y[k, r::4]) for k in range(groups) for r in range(4))
        sums32 = self._file.data[c].view(np.int32)
        sums32[:] = (sums32.astype(np.int64) + total).astype(np.int32)


@cache
def here_with_tiles() -> Target:
    """Return this machine as it would be with tiles."""
    tiles = [f for f in named("x86-64-amx").features.split(",") if f.startswith("+amx-")]
    mine = [f for f in host().features.split(",") if f.replace("-", "+", 1) not in tiles]
    return replace(host(), name="x86-64-amx", features=",".join([*mine, *tiles]))


def modelled(ir: str) -> str:
    """Return LLVM IR with calls of the model in the place of instructions for tiles; what it needs has no tiles any more."""
    needs, rest = ir.split("\n", 1)
    return re.sub(r"amx-\w+,?", "", needs) + "\n" + re.sub(rf"@llvm\.x86\.({'|'.join(_NAMES)})\b", r"@model_\1", rest)


def run_modelled(function: Function, arrays: Mapping[str, np.ndarray], threads: int = 1) -> TileModel:
    """Run a function, as it is emitted for this machine with tiles, on this machine with the model of them; writes into `arrays`."""
    model = TileModel()
    library = load([compile_object(modelled(emit(function, here_with_tiles())), host())], {**pool_imports(), **model.imports()})
    _call(library, function, arrays, threads)
    assert not model.faults
    return model


def run_here(function: Function, arrays: Mapping[str, np.ndarray], threads: int = 1) -> None:
    """Run a function as it is emitted for this machine; writes into `arrays`."""
    _call(load([compile_object(emit(function, host()), host())], pool_imports()), function, arrays, threads)


def _call(library: Library, function: Function, arrays: Mapping[str, np.ndarray], threads: int) -> None:
    slots = [arrays[p.name].ctypes.data for p in function.params]
    arguments = (ctypes.c_int64 * len(slots))(*slots)
    workspace = np.full(workspace_bytes(function, threads) + 128, 0xAB, np.uint8)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, _PTR, _PTR)(library.address(function.name))
    assert entry(ctypes.addressof(arguments), -(-workspace.ctypes.data // 64) * 64) == 0
