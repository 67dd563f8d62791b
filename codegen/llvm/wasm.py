"""Objects of WebAssembly linked into one module, which an engine runs as it is: no tool outside of this is needed.

    memory    a stack, which overflows into a trap rather than into data; constants of the objects; from `__heap_base` on the caller's
    exports   `memory`, `__heap_base`, and the functions asked for
    imports   functions that no object has, of the module `env`: those of the C library's mathematics that a kernel calls

What is read is what LLVM writes: the sections of a relocatable object and their relocations
(https://github.com/WebAssembly/tool-conventions/blob/main/Linking.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from codegen.errors import InternalError
from codegen.llvm.stamp import unsigned

PAGE = 1 << 16
"""Bytes by which memory grows."""
_STACK = 4 * PAGE
_ALIGN = 64
_HEAD = b"\0asm\1\0\0\0"
_TYPE, _IMPORT, _FUNCTION, _TABLE, _MEMORY, _GLOBAL, _EXPORT, _ELEMENT, _CODE, _DATA = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
_I32 = 0x7F
_FUNCTION_KIND, _DATA_KIND, _GLOBAL_KIND, _SECTION_KIND = 0, 1, 2, 3
_LOCAL, _UNDEFINED, _EXPLICIT_NAME = 0x02, 0x10, 0x40
_STACK_POINTER = "__stack_pointer"


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A function (`index` among those of the object, imported ones first) or data (`offset` in segment `index`)."""

    kind: int
    name: str
    flags: int
    index: int
    offset: int = 0

    @property
    def is_defined(self) -> bool:
        return not self.flags & _UNDEFINED

    @property
    def is_local(self) -> bool:
        return bool(self.flags & _LOCAL)


@dataclass(frozen=True, slots=True)
class _Relocation:
    kind: int
    offset: int
    index: int
    addend: int


@dataclass(slots=True)
class _Object:
    """What stands in an object. `functions` are the types of those that it defines, `code` where their bodies lie in the section."""

    types: list[bytes] = field(default_factory=list)
    imported: list[tuple[str, int]] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    code: bytes = b""
    bodies: list[range] = field(default_factory=list)
    data: bytes = b""
    segments: list[range] = field(default_factory=list)
    symbols: list[_Symbol] = field(default_factory=list)
    relocations: dict[str, list[_Relocation]] = field(default_factory=dict)

    def name_of(self, function: int) -> str:
        """Return how the function of this number is called."""
        return next(s.name for s in self.symbols if s.kind == _FUNCTION_KIND and s.index == function)

    def type_of(self, function: int) -> bytes:
        imported = len(self.imported)
        return self.types[self.imported[function][1] if function < imported else self.functions[function - imported]]


class _Reader:
    """Bytes from the first to the last."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        result, shift = 0, 0
        while True:
            byte = self.byte()
            result |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return result

    def signed(self) -> int:
        start = self.at
        result = self.number()
        bits = 7 * (self.at - start)
        return result - (1 << bits) if result >> (bits - 1) else result

    def text(self) -> str:
        return self.bytes(self.number()).decode()

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.data)


# ---------------------------------------------------------------- reading


def _read(data: bytes) -> _Object:
    reader, found = _Reader(data), _Object()
    if reader.bytes(8) != _HEAD:
        raise InternalError("link", "an object is not one of WebAssembly")
    while not reader.is_done:
        section, content = reader.byte(), reader.bytes(reader.number())
        inner = _Reader(content)
        match section:
            case 0:
                _read_custom(found, inner)
            case 1:
                found.types = [_read_type(inner) for _ in range(inner.number())]
            case 2:
                for _ in range(inner.number()):
                    _read_import(found, inner)
            case 3:
                found.functions = [inner.number() for _ in range(inner.number())]
            case 10:
                found.code, found.bodies = content, [_passed(inner) for _ in range(inner.number())]
            case 11:
                found.data, found.segments = content, [_read_segment(inner) for _ in range(inner.number())]
            case _:
                pass  # what a module makes anew: exports, elements, how many segments of data there are
    return found


def _read_type(reader: _Reader) -> bytes:
    start = reader.at
    reader.byte()
    for _ in range(2):
        reader.bytes(reader.number())
    return reader.data[start : reader.at]


def _read_import(found: _Object, reader: _Reader) -> None:
    reader.text()
    name, kind = reader.text(), reader.byte()
    match kind:
        case 0:
            found.imported.append((name, reader.number()))
        case 1:
            reader.byte()
            _read_limits(reader)
        case 2:
            _read_limits(reader)
        case _:
            reader.bytes(2)


def _read_limits(reader: _Reader) -> None:
    has_most = reader.byte() & 1
    for _ in range(1 + has_most):
        reader.number()


def _passed(reader: _Reader) -> range:
    """Return where the bytes that a count stands before lie."""
    size = reader.number()
    reader.bytes(size)
    return range(reader.at - size, reader.at)


def _read_segment(reader: _Reader) -> range:
    if reader.number() != 0:
        raise InternalError("link", "an object has passive data")
    reader.byte()
    reader.signed()
    reader.byte()
    return _passed(reader)


def _read_custom(found: _Object, reader: _Reader) -> None:
    name = reader.text()
    if name == "linking":
        reader.number()
        while not reader.is_done:
            kind, content = reader.byte(), _Reader(reader.bytes(reader.number()))
            if kind == 8:
                found.symbols = [_read_symbol(found, content) for _ in range(content.number())]
    elif name in ("reloc.CODE", "reloc.DATA"):
        reader.number()
        found.relocations[name] = [_read_relocation(reader) for _ in range(reader.number())]


def _read_symbol(found: _Object, reader: _Reader) -> _Symbol:
    kind, flags = reader.byte(), reader.number()
    if kind == _DATA_KIND:
        name = reader.text()
        if flags & _UNDEFINED:
            return _Symbol(kind, name, flags, 0)
        segment, offset = reader.number(), reader.number()
        reader.number()
        return _Symbol(kind, name, flags, segment, offset)
    index = reader.number()
    if kind == _SECTION_KIND:
        return _Symbol(kind, "", flags, index)
    if flags & _UNDEFINED and not flags & _EXPLICIT_NAME:
        return _Symbol(kind, found.imported[index][0] if kind == _FUNCTION_KIND else _STACK_POINTER, flags, index)
    return _Symbol(kind, reader.text(), flags, index)


_WITH_ADDEND = frozenset((3, 4, 5, 8, 9))


def _read_relocation(reader: _Reader) -> _Relocation:
    kind, offset, index = reader.byte(), reader.number(), reader.number()
    return _Relocation(kind, offset, index, reader.signed() if kind in _WITH_ADDEND else 0)


# ---------------------------------------------------------------- linking


def linked(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    """Return the module of objects whose functions `exports` are called from outside."""
    return _Module([_read(data) for data in objects]).text(exports)


class _Module:
    """Objects with numbers for all that is in them: functions that are imported first, then those of each object; data one after the
    other."""

    def __init__(self, objects: Sequence[_Object]) -> None:
        self.objects = objects
        self.types: list[bytes] = []
        self.defined: dict[str, int] = {}
        self.local: dict[tuple[int, int], int] = {}
        names = {s.name for o in objects for s in o.symbols if s.kind == _FUNCTION_KIND and s.is_defined and not s.is_local}
        wanted = [(name, o.types[t]) for o in objects for name, t in o.imported if name not in names]
        self.imports = dict(wanted)
        number = len(self.imports)
        for k, o in enumerate(objects):
            for index in range(len(o.imported), len(o.imported) + len(o.functions)):
                self.local[k, index] = number
                number += 1
            for s in o.symbols:
                if s.kind == _FUNCTION_KIND and s.is_defined and not s.is_local:
                    self.defined[s.name] = self.local[k, s.index]
        self.addresses: dict[tuple[int, int], int] = {}
        self.data: dict[str, int] = {}
        self.end = self._place_data()
        self.table: list[int] = []

    def _place_data(self) -> int:
        at = _STACK
        for k, o in enumerate(self.objects):
            for number, segment in enumerate(o.segments):
                self.addresses[k, number] = at
                at = _rounded(at + len(segment))
            for s in o.symbols:
                if s.kind == _DATA_KIND and s.is_defined and not s.is_local:
                    self.data[s.name] = self.addresses[k, s.index] + s.offset
        return at

    def text(self, exports: Sequence[str]) -> bytes:
        code = self._bodies()
        data = self._segments()
        pages = -(-self.end // PAGE)
        imports = [_name("env") + _name(name) + b"\0" + unsigned(self._type(t)) for name, t in self.imports.items()]
        functions = [unsigned(self._type(o.types[t])) for o in self.objects for t in o.functions]
        constant = _i32(self.end)
        globals_ = [bytes((_I32, 1)) + _i32(_STACK) + b"\x0b", bytes((_I32, 0)) + constant + b"\x0b"]
        shown = [_name("memory") + b"\2\0", _name("__heap_base") + b"\3" + unsigned(1)]
        shown += [_name(name) + b"\0" + unsigned(self.defined[name]) for name in exports]
        count = len(self.table) + 1
        elements = b"\0" + _i32(1) + b"\x0b" + _vector(map(unsigned, self.table))
        sections = (
            (_TYPE, self.types),
            (_IMPORT, imports),
            (_FUNCTION, functions),
            (_TABLE, [b"\x70\0" + unsigned(count)] if self.table else []),
            (_MEMORY, [b"\0" + unsigned(pages)]),
            (_GLOBAL, globals_),
            (_EXPORT, shown),
            (_ELEMENT, [elements] if self.table else []),
            (_CODE, code),
            (_DATA, data),
        )
        return _HEAD + b"".join(_section(number, items) for number, items in sections if items)

    def _bodies(self) -> list[bytes]:
        found = []
        for k, o in enumerate(self.objects):
            code = self._relocated(k, o.code, o.relocations.get("reloc.CODE", ()))
            found += [unsigned(len(body)) + code[body.start : body.stop] for body in o.bodies]
        return found

    def _segments(self) -> list[bytes]:
        found = []
        for k, o in enumerate(self.objects):
            data = self._relocated(k, o.data, o.relocations.get("reloc.DATA", ()))
            for number, segment in enumerate(o.segments):
                head = b"\0" + _i32(self.addresses[k, number]) + b"\x0b"
                found.append(head + unsigned(len(segment)) + data[segment.start : segment.stop])
        return found

    def _relocated(self, k: int, content: bytes, relocations: Sequence[_Relocation]) -> bytes:
        out = bytearray(content)
        for r in relocations:
            match r.kind:
                case 0 | 3 | 6 | 7 | 20:
                    new = _padded(self._number(k, r), signed=False)
                case 1 | 4:
                    new = _padded(self._number(k, r), signed=True)
                case 2 | 5:
                    new = self._number(k, r).to_bytes(4, "little")
                case other:
                    raise InternalError("link", f"a relocation of WebAssembly has the kind {other}")
            out[r.offset : r.offset + len(new)] = new
        return bytes(out)

    def _number(self, k: int, r: _Relocation) -> int:
        """Return what a relocation puts in its place."""
        if r.kind == 6:
            return self._type(self.objects[k].types[r.index])
        symbol = self.objects[k].symbols[r.index]
        match r.kind:
            case 0:
                return self._function(k, symbol)
            case 1 | 2:
                return self._in_table(self._function(k, symbol))
            case 7 | 20:
                return 0  # the stack's pointer is the only global that code uses, and there is one table
            case _:
                own = (k, symbol.index)
                return (self.addresses[own] + symbol.offset if symbol.is_defined else self.data[symbol.name]) + r.addend

    def _function(self, k: int, symbol: _Symbol) -> int:
        if symbol.is_defined:
            return self.local[k, symbol.index]
        known = self.defined.get(symbol.name)
        return list(self.imports).index(symbol.name) if known is None else known

    def _in_table(self, function: int) -> int:
        if function not in self.table:
            self.table.append(function)
        return self.table.index(function) + 1

    def _type(self, text: bytes) -> int:
        if text not in self.types:
            self.types.append(text)
        return self.types.index(text)


def _rounded(address: int) -> int:
    return -(-address // _ALIGN) * _ALIGN


def _i32(number: int) -> bytes:
    """Return the instruction that has a number as its result."""
    return b"\x41" + _signed(number)


def _signed(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    is_last = (rest == 0 and not low & 0x40) or (rest == -1 and bool(low & 0x40))
    return bytes((low,)) if is_last else bytes((low | 0x80,)) + _signed(rest)


def _padded(number: int, *, signed: bool) -> bytes:
    """Return a number in the five bytes that a relocation has room for."""
    low = [(number >> 7 * k & 0x7F) | (0x80 if k < 4 else 0) for k in range(5)]
    if not signed:
        low[4] &= 0x0F
    return bytes(low)


def _name(text: str) -> bytes:
    return unsigned(len(text.encode())) + text.encode()


def _vector(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return unsigned(len(found)) + b"".join(found)


def _section(number: int, items: Sequence[bytes]) -> bytes:
    content = _vector(items)
    return bytes((number,)) + unsigned(len(content)) + content
