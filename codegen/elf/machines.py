"""What shared libraries need to know of a processor: how its instructions hold addresses, and what its loaders write.

    MACHINES[machine].fields[kind]     the field that a relocation type stands for: of which address, and how it is written

Position-independent code of LLVM uses these types and no others (System V ABI for x86-64, ELF for the Arm 64-bit architecture, RISC-V ELF
psABI).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from codegen.elf.objects import AARCH64, RISCV, X86_64, ObjectError

_CODE_PAGE = 4096
"""What `adrp` counts in, however large the pages of the system are."""


class Of(Enum):
    """Whose address a field holds."""

    SYMBOL = auto()
    CALLED = auto()
    """The symbol, or, where it is imported, code that jumps there."""
    SLOT = auto()
    """The place in the table of addresses at which that of the symbol stands."""
    PAIRED = auto()
    """Whatever the instruction at the symbol holds the upper bits of."""


Write = Callable[[bytearray, int, int, int], None]
"""`write(image, at, address, origin)` writes an address at a place of an image, or how far it is from `origin`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an instruction, or of data, that holds an address."""

    of: Of
    write: Write


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor. `page`: the largest pages that its systems have. `absolute`, `imported`, `relative`: the relocation types for a whole
    address, for that of an import in the table, and for one that only moves with the library. `stub(at, slot)`: 16 bytes of code that jump
    to the address in a slot."""

    page: int
    fields: Mapping[int, Field]
    absolute: int
    imported: int
    relative: int
    stub: Callable[[int, int], bytes]


def machine_of(number: int) -> Machine:
    """Return the processor of a number of ELF. Raises ObjectError for one that no shared libraries are written for."""
    if number not in MACHINES:
        raise ObjectError(f"shared libraries are not written for machine {number} of ELF")
    return MACHINES[number]


# ---------------------------------------------------------------- bits


def _fitting(value: int, bits: int, step: int = 1) -> int:
    """Return a distance counted in steps, as a number of so many bits. Raises ObjectError where it does not fit."""
    if value % step or not -(1 << bits - 1) <= value // step < 1 << bits - 1:
        raise ObjectError("parts of a library are too far apart: put the weights beside the code")
    return value // step & (1 << bits) - 1


def _or32(image: bytearray, at: int, bits: int, cleared: int = 0) -> None:
    """Write bits into an instruction of 32 bits, in place of those in `cleared`."""
    (before,) = struct.unpack_from("<I", image, at)
    struct.pack_into("<I", image, at, before & ~cleared | bits)


def _distance32(image: bytearray, at: int, address: int, origin: int) -> None:
    struct.pack_into("<I", image, at, _fitting(address - origin, 32))


def _distance64(image: bytearray, at: int, address: int, origin: int) -> None:
    struct.pack_into("<q", image, at, address - origin)


# ---------------------------------------------------------------- x86-64


def _jump_of_x86(at: int, slot: int) -> bytes:
    return (b"\xff\x25" + struct.pack("<i", slot - at - 6)).ljust(16, b"\0")  # jmp *slot(%rip)


_X86_64 = Machine(
    4096,
    {
        2: Field(Of.SYMBOL, _distance32),  # PC32
        4: Field(Of.CALLED, _distance32),  # PLT32
        24: Field(Of.SYMBOL, _distance64),  # PC64
        9: Field(Of.SLOT, _distance32),  # GOTPCREL, and what linkers may make shorter
        41: Field(Of.SLOT, _distance32),
        42: Field(Of.SLOT, _distance32),
    },
    absolute=1,
    imported=6,
    relative=8,
    stub=_jump_of_x86,
)

# ---------------------------------------------------------------- AArch64


def _page_bits(address: int, origin: int) -> int:
    """Return the immediate of `adrp`: the distance between two pages."""
    pages = _fitting(address // _CODE_PAGE - origin // _CODE_PAGE, 21)
    return (pages & 3) << 29 | pages >> 2 << 5


def _page(image: bytearray, at: int, address: int, origin: int) -> None:
    _or32(image, at, _page_bits(address, origin))


def _within_page(step: int) -> Write:
    """Return what writes where in its page an address lies, counted in elements of `step` bytes."""

    def write(image: bytearray, at: int, address: int, _origin: int) -> None:
        if address % step:
            raise ObjectError(f"an element of {step} bytes lies at {address:#x}")
        _or32(image, at, address % _CODE_PAGE // step << 10)

    return write


def _branch(first: int, bits: int) -> Write:
    """Return what writes the distance of a jump, of so many bits from bit `first` on, in instructions."""
    return lambda image, at, address, origin: _or32(image, at, _fitting(address - origin, bits, 4) << first)


def _jump_of_aarch64(at: int, slot: int) -> bytes:
    adrp = 0x90000010 | _page_bits(slot, at)  # adrp x16, slot
    load = 0xF9400211 | slot % _CODE_PAGE // 8 << 10  # ldr x17, [x16, slot]
    return struct.pack("<4I", adrp, load, 0xD61F0220, 0xD503201F)  # br x17; nop


_AARCH64 = Machine(
    1 << 16,
    {
        260: Field(Of.SYMBOL, _distance64),  # PREL64
        261: Field(Of.SYMBOL, _distance32),  # PREL32
        275: Field(Of.SYMBOL, _page),  # ADR_PREL_PG_HI21
        277: Field(Of.SYMBOL, _within_page(1)),  # ADD_ABS_LO12_NC, and of loads and stores of 8 to 128 bits
        278: Field(Of.SYMBOL, _within_page(1)),
        284: Field(Of.SYMBOL, _within_page(2)),
        285: Field(Of.SYMBOL, _within_page(4)),
        286: Field(Of.SYMBOL, _within_page(8)),
        299: Field(Of.SYMBOL, _within_page(16)),
        279: Field(Of.CALLED, _branch(5, 14)),  # TSTBR14
        280: Field(Of.CALLED, _branch(5, 19)),  # CONDBR19
        282: Field(Of.CALLED, _branch(0, 26)),  # JUMP26
        283: Field(Of.CALLED, _branch(0, 26)),  # CALL26
        311: Field(Of.SLOT, _page),  # ADR_GOT_PAGE
        312: Field(Of.SLOT, _within_page(8)),  # LD64_GOT_LO12_NC
    },
    absolute=257,
    imported=1025,
    relative=1027,
    stub=_jump_of_aarch64,
)

# ---------------------------------------------------------------- RISC-V

_UPPER, _LOWER_OF_LOAD, _LOWER_OF_STORE = 0xFFFFF000, 0xFFF00000, 0xFE000F80


def _halves(distance: int) -> tuple[int, int]:
    """Return a distance as what `auipc` adds and what the instruction behind it adds, which is signed."""
    lower = (distance + 0x800) % 4096 - 0x800
    return _fitting(distance - lower, 32), lower & 0xFFF


def _upper(image: bytearray, at: int, address: int, origin: int) -> None:
    _or32(image, at, _halves(address - origin)[0], _UPPER)


def _lower_of_load(image: bytearray, at: int, address: int, origin: int) -> None:
    _or32(image, at, _halves(address - origin)[1] << 20, _LOWER_OF_LOAD)


def _lower_of_store(image: bytearray, at: int, address: int, origin: int) -> None:
    lower = _halves(address - origin)[1]
    _or32(image, at, lower >> 5 << 25 | (lower & 31) << 7, _LOWER_OF_STORE)


def _call(image: bytearray, at: int, address: int, origin: int) -> None:
    """Write the distance of a call into `auipc` and the `jalr` behind it."""
    _upper(image, at, address, origin)
    _lower_of_load(image, at + 4, address, origin)


def _term(bits: int, sign: int) -> Write:
    """Return what adds an address to a number in data, or takes it off: differences of two places are made of both."""
    size = bits // 8

    def write(image: bytearray, at: int, address: int, _origin: int) -> None:
        before = int.from_bytes(image[at : at + size], "little")
        image[at : at + size] = (before + sign * address & (1 << bits) - 1).to_bytes(size, "little")

    return write


def _jump_of_riscv(at: int, slot: int) -> bytes:
    upper, lower = _halves(slot - at)
    return struct.pack("<4I", 0xE17 | upper, 0xE3E03 | lower << 20, 0xE0367, 0x13)  # auipc t3; ld t3, slot(t3); jalr t1, t3; nop


_RISCV = Machine(
    4096,
    {
        19: Field(Of.CALLED, _call),  # CALL_PLT
        20: Field(Of.SLOT, _upper),  # GOT_HI20
        23: Field(Of.SYMBOL, _upper),  # PCREL_HI20
        24: Field(Of.PAIRED, _lower_of_load),  # PCREL_LO12_I
        25: Field(Of.PAIRED, _lower_of_store),  # PCREL_LO12_S
        35: Field(Of.SYMBOL, _term(32, 1)),  # ADD32
        36: Field(Of.SYMBOL, _term(64, 1)),  # ADD64
        39: Field(Of.SYMBOL, _term(32, -1)),  # SUB32
        40: Field(Of.SYMBOL, _term(64, -1)),  # SUB64
        57: Field(Of.SYMBOL, _distance32),  # 32_PCREL
    },
    absolute=2,
    imported=2,
    relative=3,
    stub=_jump_of_riscv,
)

MACHINES: Mapping[int, Machine] = {X86_64: _X86_64, AARCH64: _AARCH64, RISCV: _RISCV}
