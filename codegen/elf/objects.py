"""Relocatable objects of 64-bit little-endian ELF as values: read from bytes and written to bytes.

    merged(objects, exported)    one object of several, whose symbols are local but for those that are exported

What compilers put in an object for people (names of tools, unwinding of frames, address tables) is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

X86_64, AARCH64, RISCV = 62, 183, 243

PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, INIT_ARRAY = 1, 2, 3, 4, 8, 14
WRITE, ALLOC, EXECUTE = 1, 2, 4
_MERGE_FLAGS = 0x10 | 0x20
_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
LOCAL, GLOBAL = 0, 1
_NO_TYPE = 0


class ObjectError(ValueError):
    """Bytes are no object of this format, or use a part of it that is not supported."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: `section` is the number of the one that it lies in, None where it is not defined here."""

    name: str
    section: int | None
    value: int
    size: int = 0
    binding: int = LOCAL
    kind: int = _NO_TYPE


@dataclass(frozen=True, slots=True)
class Relocation:
    """The field at `offset` is to hold what the relocation type `kind` makes of symbol number `symbol` and `addend`."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section that is loaded. `size` is that of `data`, but for sections that are all zeros, which have none."""

    name: str
    flags: int
    align: int
    data: bytes
    size: int
    relocations: tuple[Relocation, ...] = ()

    @property
    def is_zero(self) -> bool:
        return self.size > 0 and not self.data


@dataclass(frozen=True, slots=True)
class Object:
    """An object file: its machine, with the flags of that, sections and symbols."""

    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    flags: int = 0

    @property
    def undefined(self) -> tuple[str, ...]:
        """The names of what it needs of others, in order."""
        return tuple(dict.fromkeys(s.name for s in self.symbols if s.section is None and s.name))


# ---------------------------------------------------------------- reading


def parse(data: bytes) -> Object:
    """Return the object that `data` begins with. Raises ObjectError."""
    try:
        return _parsed(data)
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise ObjectError(f"not a whole object file: {problem}") from None


def _parsed(data: bytes) -> Object:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ObjectError("not an object file of 64-bit little-endian ELF")
    head = _HEAD.unpack_from(data)
    machine, at, flags, count, names_at = head[2], head[6], head[7], head[12], head[13]
    rows = [_SECTION.unpack_from(data, at + k * _SECTION.size) for k in range(count)]
    names = _strings(data, rows[names_at])
    numbers: dict[int, int] = {}
    sections: list[Section] = []
    for k, row in enumerate(rows):
        section = _section(data, row, _text(names, row[0]))
        if section is not None:
            numbers[k] = len(sections)
            sections.append(section)
    symbols: tuple[Symbol, ...] = ()
    for row in rows:
        if row[1] == SYMTAB:
            symbols = tuple(_symbols(data, row, _strings(data, rows[row[6]]), numbers))
    for row in rows:
        if row[1] == RELA and row[7] in numbers:
            place = numbers[row[7]]
            sections[place] = replace(sections[place], relocations=tuple(_relocations(data, row)))
    return Object(machine, tuple(sections), symbols, flags)


def _section(data: bytes, row: Sequence[int], name: str) -> Section | None:
    """Return a section that is part of the program, None for others."""
    _, kind, flags, _, offset, size, _, _, align, _ = row
    if not flags & ALLOC or name.startswith((".note", ".eh_frame")):
        return None
    if kind not in (PROGBITS, NOBITS):
        raise ObjectError(f"section `{name}` is of type {kind}, which is not supported")
    content = b"" if kind == NOBITS else data[offset : offset + size]
    if kind == PROGBITS and len(content) != size:
        raise ObjectError(f"section `{name}` ends after the file")
    return Section(name, flags & ~_MERGE_FLAGS, max(align, 1), content, size)


def _symbols(data: bytes, row: Sequence[int], names: bytes, numbers: dict[int, int]) -> Iterator[Symbol]:
    for k in range(row[5] // _SYMBOL.size):
        name, info, _, place, value, size = _SYMBOL.unpack_from(data, row[4] + k * _SYMBOL.size)
        section, kind, binding = numbers.get(place), info & 15, LOCAL if info >> 4 == LOCAL else GLOBAL
        absent = section is None and place != 0  # in a section that is not loaded, or the name of a file
        if absent and binding == GLOBAL:
            raise ObjectError(f"symbol `{_text(names, name)}` lies in a section that is not loaded")
        yield Symbol("" if absent else _text(names, name), section, value, size, binding, kind)


def _relocations(data: bytes, row: Sequence[int]) -> Iterator[Relocation]:
    for k in range(row[5] // _RELOCATION.size):
        offset, info, addend = _RELOCATION.unpack_from(data, row[4] + k * _RELOCATION.size)
        yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)


def _strings(data: bytes, row: Sequence[int]) -> bytes:
    return data[row[4] : row[4] + row[5]]


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


# ---------------------------------------------------------------- merging

_KINDS = (".text", ".data.rel.ro", ".rodata", ".data", ".bss")


def data_object(machine: int, name: str, content: bytes, align: int, flags: int = 0) -> Object:
    """Return an object that holds bytes that are only read, under the name of a symbol."""
    section = Section(".rodata", ALLOC, align, content, len(content))
    return Object(machine, (section,), (Symbol("", None, 0), Symbol(name, 0, 0, len(content), GLOBAL, 1)), flags)


def merged(objects: Sequence[Object], exported: Collection[str]) -> Object:
    """Return the objects as one: what one defines and another needs is bound, and only the symbols in `exported` can be seen from outside.

    Raises ObjectError for objects of several machines, and for a symbol that two define."""
    machines = {o.machine for o in objects}
    if len(machines) != 1:
        raise ObjectError("the objects are for several machines")
    draft = _Merged(frozenset(exported))
    for each in objects:
        draft.add(each)
    missing = sorted(set(exported) - draft.defined.keys())
    if missing:
        raise ObjectError(f"nothing defines {', '.join(missing)}")
    return draft.finished(machines.pop(), objects[0].flags)


@dataclass(slots=True)
class _Draft:
    """A section to which others are added."""

    flags: int
    align: int = 1
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    relocations: list[Relocation] = field(default_factory=list)


@dataclass(slots=True)
class _Merged:
    exported: frozenset[str]
    drafts: dict[str, _Draft] = field(default_factory=dict)
    symbols: list[Symbol] = field(default_factory=lambda: [Symbol("", None, 0)])
    defined: dict[str, int] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)

    def add(self, part: Object) -> None:
        places = [self._placed(section) for section in part.sections]
        numbers = [self._numbered(symbol, places) for symbol in part.symbols]
        for section, (name, start) in zip(part.sections, places, strict=True):
            self.drafts[name].relocations += [
                Relocation(r.offset + start, r.kind, numbers[r.symbol], r.addend) for r in section.relocations
            ]

    def _placed(self, section: Section) -> tuple[str, int]:
        """Return the name of the section that one becomes part of, and where it begins there."""
        name = next((kind for kind in _KINDS if section.name == kind or section.name.startswith(kind + ".")), None)
        if name is None:
            raise ObjectError(f"section `{section.name}` is not supported")
        draft = self.drafts.setdefault(name, _Draft(section.flags))
        start = -(-draft.size // section.align) * section.align
        draft.align = max(draft.align, section.align)
        if section.data:
            draft.data += bytes(start - draft.size) + section.data
        draft.size = start + section.size
        return name, start

    def _numbered(self, symbol: Symbol, places: Sequence[tuple[str, int]]) -> int:
        if symbol.section is None:
            return self._undefined(symbol)
        name, start = places[symbol.section]
        placed = replace(symbol, section=list(self.drafts).index(name), value=symbol.value + start)
        if symbol.binding == LOCAL:
            return self._new(placed)
        if symbol.name in self.defined:
            raise ObjectError(f"two objects define `{symbol.name}`")
        found = replace(placed, binding=GLOBAL if symbol.name in self.exported else LOCAL)
        known = self.needed.pop(symbol.name, None)
        if known is None:
            known = self._new(found)
        else:
            self.symbols[known] = found
        self.defined[symbol.name] = known
        return known

    def _undefined(self, symbol: Symbol) -> int:
        if not symbol.name:
            return 0
        if symbol.name in self.defined:
            return self.defined[symbol.name]
        if symbol.name not in self.needed:
            self.needed[symbol.name] = self._new(Symbol(symbol.name, None, 0, binding=GLOBAL))
        return self.needed[symbol.name]

    def _new(self, symbol: Symbol) -> int:
        self.symbols.append(symbol)
        return len(self.symbols) - 1

    def finished(self, machine: int, flags: int) -> Object:
        order = sorted(range(1, len(self.symbols)), key=lambda k: self.symbols[k].binding)
        new = {0: 0} | {old: k for k, old in enumerate(order, start=1)}
        sections = tuple(
            Section(name, d.flags, d.align, bytes(d.data), d.size, tuple(replace(r, symbol=new[r.symbol]) for r in d.relocations))
            for name, d in self.drafts.items()
        )
        return Object(machine, sections, (self.symbols[0], *(self.symbols[k] for k in order)), flags)


# ---------------------------------------------------------------- writing


def written(made: Object) -> bytes:
    """Return an object file. Its symbols that are local come first."""
    out = bytearray(_HEAD.size)
    rows: list[tuple[int, ...]] = [(0,) * 10]
    names = _Names()
    symbol_names = _Names()
    table = b"".join(_SYMBOL.pack(symbol_names.at(s.name), s.binding << 4 | s.kind, 0, _index(s), s.value, s.size) for s in made.symbols)
    symtab = 1 + len(made.sections)

    def place(name: str, kind: int, flags: int, align: int, data: bytes, size: int, link: int = 0, info: int = 0, each: int = 0) -> None:
        out.extend(bytes(-len(out) % align))
        rows.append((names.at(name), kind, flags, 0, len(out), size, link, info, align, each))
        out.extend(data)

    for s in made.sections:
        place(s.name, NOBITS if s.is_zero else PROGBITS, s.flags, s.align, s.data, s.size)
    local = sum(s.binding == LOCAL for s in made.symbols)
    place(".symtab", SYMTAB, 0, 8, table, len(table), symtab + 1, local, _SYMBOL.size)
    text = symbol_names.text
    place(".strtab", STRTAB, 0, 1, text, len(text))
    place(".note.GNU-stack", PROGBITS, 0, 1, b"", 0)
    for k, s in enumerate(made.sections, start=1):
        if s.relocations:
            data = b"".join(_RELOCATION.pack(r.offset, r.symbol << 32 | r.kind, r.addend) for r in s.relocations)
            place(".rela" + s.name, RELA, 0x40, 8, data, len(data), symtab, k, _RELOCATION.size)
    names.at(".shstrtab")
    text = names.text
    place(".shstrtab", STRTAB, 0, 1, text, len(text))
    out.extend(bytes(-len(out) % 8))
    start = len(out)
    for row in rows:
        out.extend(_SECTION.pack(*row))
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    _HEAD.pack_into(out, 0, ident, 1, made.machine, 1, 0, 0, start, made.flags, _HEAD.size, 0, 0, _SECTION.size, len(rows), len(rows) - 1)
    return bytes(out)


def _index(symbol: Symbol) -> int:
    return 0 if symbol.section is None else symbol.section + 1


class _Names:
    """A table of strings."""

    def __init__(self) -> None:
        self._text = bytearray(b"\0")
        self._known: dict[str, int] = {"": 0}

    def at(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = len(self._text)
            self._text += name.encode() + b"\0"
        return self._known[name]

    @property
    def text(self) -> bytes:
        return bytes(self._text)


# ---------------------------------------------------------------- archives


def archive(members: Iterable[tuple[str, Object]]) -> bytes:
    """Return a library of objects for linkers (`.a`), with its index. Names have up to 15 characters."""
    files = [
        (name, written(made), [s.name for s in made.symbols if s.binding == GLOBAL and s.section is not None]) for name, made in members
    ]
    strings = b"".join(symbol.encode() + b"\0" for _, _, symbols in files for symbol in symbols)
    count = sum(len(symbols) for _, _, symbols in files)
    index_bytes = 4 + 4 * count + len(strings)
    start = 8 + 60 + index_bytes + index_bytes % 2
    offsets, body = b"", b""
    for name, data, symbols in files:
        offsets += struct.pack(">I", start + len(body)) * len(symbols)
        body += _member(name + "/", data)
    return b"!<arch>\n" + _member("/", struct.pack(">I", count) + offsets + strings) + body


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)
