"""Shared libraries of ELF, written from one relocatable object whose relocations are few and known.

    [ headers, symbols, read-only data | code, stubs of imports | tables of addresses, data, zeros ]      each part on pages of its own

In the file parts lie one behind the other, however large the pages are: an address is its place in the file and a number of whole pages.
What is imported is bound when the library is loaded (no lazy binding), by the names of symbols, in the libraries that are `needed` or in
whatever the process has loaded already. How a processor's instructions hold addresses is in `codegen/elf/machines.py`; relocations that
are not there are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from codegen.elf.machines import Field, Of, machine_of
from codegen.elf.objects import EXECUTE, WRITE, Object, ObjectError, Relocation, Section

_READ, _WRITE, _RUN = 4, 2, 1
_STUB = 16
_ALIGNED = 64
"""Multiples of which parts begin at in the file."""
_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


def shared_library(made: Object, exported: Sequence[str], name: str, needed: Sequence[str] = ()) -> bytes:
    """Return a shared library with the symbols in `exported`, to be called `name`; `needed` are the libraries that it loads.

    Raises ObjectError for relocations that position-independent code has no use for, and for a machine that there are none for."""
    return _Linked(made, tuple(exported), name, tuple(needed)).written()


@dataclass(slots=True)
class _Part:
    """Pages with the same rights: sections, and tables of this library's own, by their names. What it has up to `file_end` lies at `offset`
    in the file."""

    rights: int
    start: int
    end: int
    file_end: int
    offset: int


class _Linked:
    def __init__(self, made: Object, exported: tuple[str, ...], name: str, needed: tuple[str, ...]) -> None:
        self.made, self.exported, self.name, self.needed = made, exported, name, needed
        self.imports = made.undefined
        self._end = self._file_end = 0
        self.machine = machine_of(made.machine)
        self.slots = self._slots()
        self.places: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.dynamic: list[tuple[int, int, int, int]] = []
        """Relocations that the loader carries out: place, type, number of the symbol, addend."""

    def _slots(self) -> list[int]:
        """Return the symbols that need an entry in the table of addresses, by their numbers."""
        found: dict[int, None] = {}
        for section in self.made.sections:
            for r in section.relocations:
                of = None if r.kind == self.machine.absolute else self._field(section, r).of
                if of is Of.SLOT or (of is Of.CALLED and self.made.symbols[r.symbol].section is None):
                    found[r.symbol] = None
        return list(found)

    def written(self) -> bytes:
        texts, self.strings = self._strings()
        fixed = self._count_dynamic()
        tables = {
            "hash": 8 + 4 * (1 + len(self._dynamic_names) + 1),
            "symbols": _SYMBOL.size * (1 + len(self._dynamic_names)),
            "strings": len(texts),
            "relocations": _RELOCATION.size * fixed,
        }
        by_rights: dict[int, list[int]] = {_READ: [], _READ | _RUN: [], _READ | _WRITE: []}
        for k, section in enumerate(self.made.sections):
            rights = _READ | (_RUN if section.flags & EXECUTE else 0) | (_WRITE if section.flags & WRITE else 0)
            by_rights.setdefault(rights, []).append(k)
        if set(by_rights) != {_READ, _READ | _RUN, _READ | _WRITE}:
            raise ObjectError("a section is both written and run")
        parts = [self._laid_out(rights, by_rights[rights], tables) for rights in by_rights]
        return self._image(parts, texts)

    # ------------------------------------------------------------ what lies where

    def _laid_out(self, rights: int, sections: Sequence[int], tables: dict[str, int]) -> _Part:
        own: dict[str, tuple[int, int]] = {}
        if rights == _READ:
            at = _HEAD.size + 5 * _SEGMENT.size
            own = {name: (size, 8) for name, size in tables.items()}
            start = 0
        else:
            start = at = -(-self._end // self.machine.page) * self.machine.page + self._file_end % self.machine.page
            if rights & _RUN:
                own = {"stubs": (_STUB * len(self.slots), 16)}
            else:
                own = {"table": (8 * len(self.slots), 8), "dynamic": (16 * (11 + len(self.needed)), 8)}
        for name, (size, align) in own.items():
            at = -(-at // align) * align
            self.places[name], self.sizes[name] = at, size
            at += size
        file_end = at
        for k in sorted(sections, key=lambda k: self.made.sections[k].is_zero):
            section = self.made.sections[k]
            at = -(-at // section.align) * section.align
            self.places[f"section {k}"] = at
            at += section.size
            file_end = file_end if section.is_zero else at
        part = _Part(rights, start, at, file_end, self._file_end)
        self._end, self._file_end = at, -(-(part.offset + file_end - start) // _ALIGNED) * _ALIGNED
        return part

    def _address(self, symbol: int) -> int:
        found = self.made.symbols[symbol]
        if found.section is None:
            raise ObjectError(f"the address of `{found.name}` is not known before it is loaded")
        return self.places[f"section {found.section}"] + found.value

    # ------------------------------------------------------------ symbols and names

    @property
    def _dynamic_names(self) -> tuple[str, ...]:
        return (*self.imports, *self.exported)

    def _strings(self) -> tuple[bytes, dict[str, int]]:
        text, places = b"\0", dict[str, int]()
        for name in (*self._dynamic_names, *self.needed, self.name):
            if name not in places:
                places[name] = len(text)
                text += name.encode() + b"\0"
        return text, places

    def _dynamic_symbols(self) -> bytes:
        rows = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        rows += [_SYMBOL.pack(self.strings[name], 0x12, 0, 0, 0, 0) for name in self.imports]
        numbers = {s.name: k for k, s in enumerate(self.made.symbols) if s.section is not None}
        for name in self.exported:
            symbol = self.made.symbols[numbers[name]]
            rows.append(_SYMBOL.pack(self.strings[name], 0x10 | symbol.kind, 0, 0xFFF1, self._address(numbers[name]), symbol.size))
        # Of all that is defined it is said to lie in the first section: only whether it is defined counts.
        return b"".join(_with_section(row, k > len(self.imports)) for k, row in enumerate(rows))

    def _hash(self) -> bytes:
        """Return the table by which loaders find symbols: one chain of all."""
        count = 1 + len(self._dynamic_names)
        chain = [0, *(k + 1 if k + 1 < count else 0 for k in range(1, count))]
        return struct.pack(f"<{3 + count}I", 1, count, 1 if count > 1 else 0, *chain)

    def _count_dynamic(self) -> int:
        return len(self.slots) + sum(r.kind == self.machine.absolute for s in self.made.sections for r in s.relocations)

    # ------------------------------------------------------------ bytes

    def _image(self, parts: Sequence[_Part], texts: bytes) -> bytes:
        image = bytearray(parts[-1].file_end)
        for k, section in enumerate(self.made.sections):
            at = self.places[f"section {k}"]
            image[at : at + len(section.data)] = section.data
        self._relocate(image)
        for n, symbol in enumerate(self.slots):
            slot, stub = self.places["table"] + 8 * n, self.places["stubs"] + _STUB * n
            image[stub : stub + _STUB] = self.machine.stub(stub, slot)
            self._bound(image, slot, symbol, 0, self.machine.imported)

        def put(name: str, data: bytes) -> None:
            if len(data) != self.sizes[name]:
                raise ObjectError(f"the {name} of a shared library came out as {len(data)} bytes, not {self.sizes[name]}")
            image[self.places[name] : self.places[name] + len(data)] = data

        put("hash", self._hash())
        put("symbols", self._dynamic_symbols())
        put("strings", texts)
        put("relocations", b"".join(_RELOCATION.pack(at, s << 32 | kind, addend) for at, kind, s, addend in self.dynamic))
        put("dynamic", self._dynamic_section())
        end = self._file_end
        table, count = self._section_table(end, parts)
        self._heads(image, parts, end, count)
        file = bytearray(end)
        for part in parts:
            file[part.offset : part.offset + part.file_end - part.start] = image[part.start : part.file_end]
        return bytes(file) + table

    def _relocate(self, image: bytearray) -> None:
        """Write all addresses, or let the loader write them. Lower bits of an address are counted from the instruction that holds its upper
        ones."""
        split: dict[int, int] = {}
        lower: list[tuple[Field, int, int]] = []
        for k, section in enumerate(self.made.sections):
            for r in section.relocations:
                at = self.places[f"section {k}"] + r.offset
                if r.kind == self.machine.absolute:
                    if not section.flags & WRITE:
                        raise ObjectError(f"an address in `{section.name}`, which is only read")
                    self._bound(image, at, r.symbol, r.addend, r.kind)
                    continue
                field = self._field(section, r)
                if field.of is Of.PAIRED:
                    lower.append((field, at, self._address(r.symbol)))
                else:
                    split[at] = self._meant(field.of, r.symbol) + r.addend
                    field.write(image, at, split[at], at)
        for field, at, origin in lower:
            if origin not in split:
                raise ObjectError("lower bits of an address without upper ones")
            field.write(image, at, split[origin], origin)

    def _field(self, section: Section, r: Relocation) -> Field:
        if r.kind not in self.machine.fields:
            raise ObjectError(f"relocation type {r.kind} in `{section.name}` is not supported")
        return self.machine.fields[r.kind]

    def _meant(self, of: Of, symbol: int) -> int:
        """Return the address that a field is to hold."""
        if of is Of.SLOT:
            return self.places["table"] + 8 * self.slots.index(symbol)
        if of is Of.CALLED and self.made.symbols[symbol].section is None:
            return self.places["stubs"] + _STUB * self.slots.index(symbol)
        return self._address(symbol)

    def _bound(self, image: bytearray, at: int, symbol: int, addend: int, kind: int) -> None:
        """Let the loader write the address of a symbol at a place."""
        found = self.made.symbols[symbol]
        if found.section is None:
            self.dynamic.append((at, kind, 1 + self.imports.index(found.name), addend))
        else:
            self.dynamic.append((at, self.machine.relative, 0, self._address(symbol) + addend))

    def _dynamic_section(self) -> bytes:
        place, size = self.places, self.sizes
        entries = [
            *((1, self.strings[name]) for name in self.needed),
            (14, self.strings[self.name]),
            (4, place["hash"]),
            (5, place["strings"]),
            (6, place["symbols"]),
            (10, size["strings"]),
            (11, _SYMBOL.size),
            (7, place["relocations"]),
            (8, size["relocations"]),
            (9, _RELOCATION.size),
            (24, 0),  # bind now
            (0, 0),
        ]
        return b"".join(struct.pack("<qQ", *entry) for entry in entries)

    def _section_table(self, start: int, parts: Sequence[_Part]) -> tuple[bytes, int]:
        """Return the table of sections that lies at `start`, with the names behind it, and how many these are. Loaders do not look at it;
        linkers find symbols by it."""
        code = next((k for k, s in enumerate(self.made.sections) if s.flags & EXECUTE), None)
        if code is None:
            raise ObjectError("a library without code")
        at, size = self.places, self.sizes
        rows = [
            (".text", 1, 6, at[f"section {code}"], self.made.sections[code].size, 0, 0, 16, 0),
            (".dynsym", 11, 2, at["symbols"], size["symbols"], 3, 1, 8, _SYMBOL.size),
            (".dynstr", 3, 2, at["strings"], size["strings"], 0, 0, 1, 0),
            (".hash", 5, 2, at["hash"], size["hash"], 2, 0, 8, 4),
            (".dynamic", 6, 3, at["dynamic"], size["dynamic"], 3, 0, 8, 16),
        ]
        names, offsets = b"\0", []
        for name in (*(row[0] for row in rows), ".shstrtab"):
            offsets.append(len(names))
            names += name.encode() + b"\0"
        count = len(rows) + 2
        packed = [_SECTION.pack(*(0,) * 10)]
        for offset, (_, kind, flags, address, length, link, info, align, each) in zip(offsets, rows, strict=False):
            packed.append(_SECTION.pack(offset, kind, flags, address, _in_file(address, parts), length, link, info, align, each))
        packed.append(_SECTION.pack(offsets[-1], 3, 0, 0, start + count * _SECTION.size, len(names), 0, 0, 1, 0))
        return b"".join(packed) + names, count

    def _heads(self, image: bytearray, parts: Sequence[_Part], table: int, count: int) -> None:
        segments = [(1, p.rights, p.offset, p.start, p.start, p.file_end - p.start, p.end - p.start, self.machine.page) for p in parts]
        dynamic = self.places["dynamic"]
        segments.append((2, _READ | _WRITE, _in_file(dynamic, parts), dynamic, dynamic, self.sizes["dynamic"], self.sizes["dynamic"], 8))
        segments.append((0x6474E551, _READ | _WRITE, 0, 0, 0, 0, 0, 16))  # no executable stack
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        head = (
            3,
            self.made.machine,
            1,
            0,
            _HEAD.size,
            table,
            self.made.flags,
            _HEAD.size,
            _SEGMENT.size,
            len(segments),
            64,
            count,
            count - 1,
        )
        _HEAD.pack_into(image, 0, ident, *head)
        for k, (kind, rights, offset, address, physical, in_file, in_memory, align) in enumerate(segments):
            row = (kind, rights, offset, address, physical, in_file, in_memory, align)
            _SEGMENT.pack_into(image, _HEAD.size + k * _SEGMENT.size, *row)


def _in_file(address: int, parts: Sequence[_Part]) -> int:
    """Return where in the file something lies."""
    part = next(p for p in reversed(parts) if p.start <= address)
    return part.offset + address - part.start


def _with_section(row: bytes, defined: bool) -> bytes:
    name, info, other, _, value, size = _SYMBOL.unpack(row)
    return _SYMBOL.pack(name, info, other, 1 if defined else 0, value, size)
