"""Loads shared libraries of other processors in Unicorn, as the loader of an operating system would, and calls their functions.

library = EmulatedLibrary(data, {"far": lambda x: x + 1})      what it imports is functions of Python, of integers
library.call("f", 3)                                           the low 64 bits of what comes back
library.data("other", 8)                                       the address of eight bytes that it imports by that name
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import unicorn
from unicorn import arm64_const as arm
from unicorn import riscv_const as riscv
from unicorn import x86_const as x86

_LIBRARY, _IMPORTS, _DATA, _STACK = 0x40_0000_0000, 0x1000_0000, 0x2000_0000, 0x3000_0000
_STACK_BYTES, _DATA_BYTES = 1 << 16, 1 << 24
_RETURN = _IMPORTS


class _Kind(NamedTuple):
    """A processor: registers of arguments, of the result, of the stack and of where a call returns to (None: on the stack); the instruction
    that returns; relocations that bind a name, and those that only move with the library."""

    arch: int
    mode: int
    arguments: tuple[int, ...]
    result: int
    stack: int
    link: int | None
    returns: bytes
    by_name: tuple[int, ...]
    relative: int


def _x86() -> _Kind:
    registers = (x86.UC_X86_REG_RDI, x86.UC_X86_REG_RSI, x86.UC_X86_REG_RDX, x86.UC_X86_REG_RCX)
    return _Kind(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64, registers, x86.UC_X86_REG_RAX, x86.UC_X86_REG_RSP, None, b"\xc3", (1, 6), 8)


def _arm() -> _Kind:
    registers = tuple(getattr(arm, f"UC_ARM64_REG_X{k}") for k in range(4))
    stack, link, returns = arm.UC_ARM64_REG_SP, arm.UC_ARM64_REG_LR, b"\xc0\x03\x5f\xd6"
    return _Kind(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM, registers, registers[0], stack, link, returns, (257, 1025), 1027)


def _riscv() -> _Kind:
    registers = tuple(getattr(riscv, f"UC_RISCV_REG_A{k}") for k in range(4))
    stack, link, returns = riscv.UC_RISCV_REG_SP, riscv.UC_RISCV_REG_RA, b"\x67\x80\0\0"
    return _Kind(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64, registers, registers[0], stack, link, returns, (2,), 3)


_KINDS = {62: _x86, 183: _arm, 243: _riscv}
"""By machine of ELF."""


class EmulatedLibrary:
    def __init__(self, image: bytes, imports: Mapping[str, Callable[..., int]]) -> None:
        self._kind = _KINDS[struct.unpack_from("<H", image, 18)[0]]()
        self.machine: Any = unicorn.Uc(self._kind.arch, self._kind.mode)
        if self._kind.arch == unicorn.UC_ARCH_ARM64:
            self.machine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
            self.machine.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vectors are allowed
        for start, size in ((_IMPORTS, 4096), (_DATA, _DATA_BYTES), (_STACK, _STACK_BYTES)):
            self.machine.mem_map(start, size)
        self.write(_IMPORTS, self._kind.returns.ljust(16) * 256)
        self._functions = dict(imports)
        self._places: dict[str, int] = {}
        self._free = _DATA
        self.symbols: dict[str, int] = {}
        self._load(image)
        self.machine.hook_add(unicorn.UC_HOOK_CODE, self._imported, begin=_IMPORTS + 16, end=_IMPORTS + 4095)

    def call(self, name: str, *arguments: int) -> int:
        """Return what a function returns for integers and addresses."""
        for register, value in zip(self._kind.arguments, arguments, strict=False):
            self.machine.reg_write(register, value)
        self.machine.reg_write(self._kind.stack, _STACK + _STACK_BYTES - 4096)
        if self._kind.link is None:
            self.machine.reg_write(self._kind.stack, _STACK + _STACK_BYTES - 4096 - 8)
            self.write(_STACK + _STACK_BYTES - 4096 - 8, struct.pack("<Q", _RETURN))
        else:
            self.machine.reg_write(self._kind.link, _RETURN)
        self.machine.emu_start(self.symbols[name], _RETURN)
        return int(self.machine.reg_read(self._kind.result))

    def room(self, size: int) -> int:
        """Return the address of so many bytes of memory, all zeros, aligned to 128."""
        at = self._free
        self._free += -(-size // 128) * 128
        assert self._free <= _DATA + _DATA_BYTES
        return at

    def placed(self, content: bytes) -> int:
        """Return the address at which some bytes lie from now on."""
        at = self.room(len(content))
        self.write(at, content)
        return at

    def write(self, at: int, content: bytes) -> None:
        self.machine.mem_write(at, content)

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.machine.mem_read(at, size))

    def text(self, at: int) -> str:
        """Return the text that ends with a zero."""
        content = bytearray()
        while (byte := self.read(at + len(content), 1)) != b"\0":
            content += byte
        return content.decode()

    def data(self, name: str, size: int) -> int:
        """Return the address of data that the library imports by a name."""
        return self._place(name, size)

    def _place(self, name: str, size: int = 8) -> int:
        if name not in self._places:
            self._places[name] = _IMPORTS + 16 * (1 + len(self._places)) if name in self._functions else self.room(size)
        return self._places[name]

    def _load(self, image: bytes) -> None:
        (at,) = struct.unpack_from("<Q", image, 32)
        (count,) = struct.unpack_from("<H", image, 56)
        segments = [struct.unpack_from("<IIQQQQQQ", image, at + 56 * k) for k in range(count)]
        for kind, rights, offset, address, _, in_file, in_memory, page in segments:
            if kind == 1:
                start, end = address // page * page, -(-(address + in_memory) // page) * page
                of_unicorn = (rights & 4 and unicorn.UC_PROT_READ) | (rights & 2) | (rights & 1 and unicorn.UC_PROT_EXEC)
                self.machine.mem_map(_LIBRARY + start, end - start, of_unicorn)
                self.machine.mem_write(_LIBRARY + address, image[offset : offset + in_file])
        dynamic = next(s for s in segments if s[0] == 2)
        table = dict(struct.iter_unpack("<qQ", image[dynamic[2] : dynamic[2] + dynamic[5]]))
        chains = struct.unpack_from("<2I", image, table[4])[1]
        names: list[str] = []
        for k in range(chains):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, table[6] + 24 * k)
            start = table[5] + name
            names.append(image[start : image.index(b"\0", start)].decode())
            if section:
                self.symbols[names[-1]] = _LIBRARY + value
        for k in range(table[8] // 24):
            place, about, addend = struct.unpack_from("<QQq", image, table[7] + 24 * k)
            if about & 0xFFFFFFFF == self._kind.relative:
                value = _LIBRARY + addend
            else:
                assert about & 0xFFFFFFFF in self._kind.by_name
                value = self._place(names[about >> 32]) + addend
            self.write(_LIBRARY + place, struct.pack("<Q", value))

    def _imported(self, machine: Any, address: int, _size: int, _user: object) -> None:
        """Carry out a function of Python where code has jumped to one; what stands there returns to its caller."""
        name = next(name for name, place in self._places.items() if place == address)
        function = self._functions[name]
        values = [machine.reg_read(register) for register in self._kind.arguments[: function.__code__.co_argcount]]
        machine.reg_write(self._kind.result, function(*values))
