"""LLVM IR of functions that sort unsigned integers: quicksort with vectors that compress, and networks in registers where little is left.

    sorted_rows("f", 32)     i32 f(ptr result, ptr keys, i64 rank, ptr lengths, i64 n)    rows of n keys, in order
    sorted_places("f")       the same of keys of 32 bits, of which it tells where they stood: equal keys keep their order

Vectors have 512 bits, and are compressed as AVX-512 does; or 256, and are permuted by a table of what stands where for each mask, as AVX2
does (`width=256`). A part of an array is divided by the median of a few of its elements; once
that has been done more often than of random numbers, by the middle of all numbers that it may hold. So there are `bits` divisions more
at most, and no order of elements takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

FEATURES = {512: ("avx512f",), 256: ("avx2", "popcnt")}
"""What a processor needs to have for vectors of so many bits."""
REGISTERS = {512: 16, 256: 8}
"""How many vectors a network sorts at most."""
_VECTORS = 4
"""How many vectors a step of a division takes."""

Network = list[tuple[int, int]]


def sorted_rows(name: str, bits: int, width: int = 512) -> str:
    """Return a module with the function `name`, which sorts rows of unsigned integers of 32 or 64 bits by vectors of `width` bits."""
    kind = f"i{bits}"
    copy = "call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)"
    body = f"""
  %at = mul i64 %row, %n
  %to = getelementptr {kind}, ptr %y, i64 %at
  %from = getelementptr {kind}, ptr %x, i64 %at
  %bytes = mul i64 %n, {bits // 8}
  {copy}
  call void @sort(ptr %to, i64 0, i64 %n, {kind} 0, {kind} -1, i64 %depth)
  br label %next"""
    declared = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
    sorting = _Sorting(bits) if width == 512 else _Permuting(bits)
    return "\n".join((sorting.text(), declared, _rows(name, "", body, "")))


def sorted_places(name: str) -> str:
    """Return a module with the function `name`, which tells where the keys of rows stood: it sorts keys with their places behind them."""
    before = """
  %most = icmp sgt i64 %n, 1
  %room = select i1 %most, i64 %n, i64 1
  %bytes = shl i64 %room, 3
  %items = call ptr @malloc(i64 %bytes)
  %none = icmp eq ptr %items, null
  br i1 %none, label %failed, label %rows"""
    body = """
  %at = mul i64 %row, %n
  %to = getelementptr i32, ptr %y, i64 %at
  %from = getelementptr i32, ptr %x, i64 %at
  call void @number(ptr %items, ptr %from, i64 %n)
  call void @sort(ptr %items, i64 0, i64 %n, i64 0, i64 -1, i64 %depth)
  call void @unnumber(ptr %to, ptr %items, i64 %n)
  br label %next"""
    declared = "declare ptr @malloc(i64)\ndeclare void @free(ptr)\n"
    rows = _rows(name, before, body, "call void @free(ptr %items)")
    return "\n".join((_Sorting(64).text(), _NUMBERED, declared, rows))


def _rows(name: str, before: str, body: str, after: str) -> str:
    """Return the function that goes through rows; `before` ends with a jump to `rows`."""
    return f"""
declare i64 @llvm.ctlz.i64(i64, i1)

define i32 @{name}(ptr %y, ptr %x, i64 %rank, ptr %lengths, i64 %n) nounwind {{
entry:
  %zeros = call i64 @llvm.ctlz.i64(i64 %n, i1 false)
  %log = sub i64 64, %zeros
  %depth = shl i64 %log, 1
  br label %counted
counted:
  %k = phi i64 [ 0, %entry ], [ %k2, %longer ]
  %count = phi i64 [ 1, %entry ], [ %count2, %longer ]
  %more = icmp slt i64 %k, %rank
  br i1 %more, label %longer, label %begin
longer:
  %place = getelementptr i64, ptr %lengths, i64 %k
  %length = load i64, ptr %place, align 8
  %count2 = mul i64 %count, %length
  %k2 = add i64 %k, 1
  br label %counted
begin:{before or chr(10) + "  br label %rows"}
rows:
  %row = phi i64 [ 0, %begin ], [ %row2, %next ]
  %left = icmp slt i64 %row, %count
  br i1 %left, label %one, label %done
one:{body}
next:
  %row2 = add i64 %row, 1
  br label %rows
done:
  {after}
  ret i32 0
{"failed:" + chr(10) + "  ret i32 1" if before else ""}
}}
"""


def _converted(name: str, source: str, target: str, counted: tuple[str, str], wide: str, single: str) -> str:
    """Return a function that goes through n elements of `source`, eight at a time and then one by one. `wide` makes <8 x target> of %v,
    `single` one of %vj; `counted`: what eight carry from step to step beside their number."""
    aligned, written = (int(kind[1:]) // 8 for kind in (source, target))
    return f"""
define internal void @{name}(ptr %to, ptr %from, i64 %n) nounwind {{
entry:
  %whole = and i64 %n, -8
  br label %wide
wide:
  %k = phi i64 [ 0, %entry ], [ %k2, %eight ]{counted[0]}
  %more = icmp slt i64 %k, %whole
  br i1 %more, label %eight, label %single
eight:
  %p = getelementptr {source}, ptr %from, i64 %k
  %v = load <8 x {source}>, ptr %p, align {aligned}{wide}
  %q = getelementptr {target}, ptr %to, i64 %k
  store <8 x {target}> %o, ptr %q, align {written}{counted[1]}
  %k2 = add i64 %k, 8
  br label %wide
single:
  %j = phi i64 [ %whole, %wide ], [ %j2, %last ]
  %some = icmp slt i64 %j, %n
  br i1 %some, label %last, label %done
last:
  %pj = getelementptr {source}, ptr %from, i64 %j
  %vj = load {source}, ptr %pj, align {aligned}{single}
  %qj = getelementptr {target}, ptr %to, i64 %j
  store {target} %oj, ptr %qj, align {written}
  %j2 = add i64 %j, 1
  br label %single
done:
  ret void
}}
"""


_PLACES = (
    """
  %place = phi <8 x i64> [ <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %entry ], [ %place2, %eight ]""",
    """
  %place2 = add <8 x i64> %place, <i64 8, i64 8, i64 8, i64 8, i64 8, i64 8, i64 8, i64 8>""",
)
_BEHIND = """
  %w = zext <8 x i32> %v to <8 x i64>
  %h = shl <8 x i64> %w, <i64 32, i64 32, i64 32, i64 32, i64 32, i64 32, i64 32, i64 32>
  %o = or <8 x i64> %h, %place"""
_BEHIND_ONE = """
  %wj = zext i32 %vj to i64
  %hj = shl i64 %wj, 32
  %oj = or i64 %hj, %j"""
_NUMBERED = _converted("number", "i32", "i64", _PLACES, _BEHIND, _BEHIND_ONE) + _converted(
    "unnumber",
    "i64",
    "i32",
    ("", ""),
    """
  %o = trunc <8 x i64> %v to <8 x i32>""",
    """
  %oj = trunc i64 %vj to i32""",
)


def sorting_network(count: int) -> Network:
    """Return Batcher's odd-even merge sort of `count` values, a power of two: which are compared, the lesser put first."""
    found: Network = []

    def merge(low: int, length: int, step: int) -> None:
        double = step * 2
        if double < length:
            merge(low, length, double)
            merge(low + step, length, double)
            found.extend((k, k + step) for k in range(low + step, low + length - step, double))
        else:
            found.append((low, low + step))

    def sort(low: int, length: int) -> None:
        if length > 1:
            half = length // 2
            sort(low, half)
            sort(low + half, half)
            merge(low, length, 1)

    sort(0, count)
    return found


class _Sorting:
    """The functions that sort an array of integers of so many bits: `@sort`, and what it calls."""

    width = 512

    def __init__(self, bits: int) -> None:
        self.bits, self.lanes, self.kind = bits, self.width // bits, f"i{bits}"
        self.registers = REGISTERS[self.width]
        self.vector, self.mask = f"<{self.lanes} x {self.kind}>", f"<{self.lanes} x i1>"
        self.suffix = f"v{self.lanes}i{bits}"
        self.most = self.registers * self.lanes
        self.lines: list[str] = []
        self.made = 0

    def text(self) -> str:
        v, m, s = self.vector, self.mask, self.suffix
        declared = f"""
declare {v} @llvm.umin.{s}({v}, {v})
declare {v} @llvm.umax.{s}({v}, {v})
declare {v} @llvm.masked.load.{s}.p0(ptr, i32, {m}, {v})
declare void @llvm.masked.store.{s}.p0({v}, ptr, i32, {m})
declare i{self.lanes} @llvm.ctpop.i{self.lanes}(i{self.lanes})
{self._declared()}
"""
        return "\n".join((declared, self._small(), self._divide(), self._sort()))

    def _declared(self) -> str:
        v, m = self.vector, self.mask
        return f"declare {v} @llvm.x86.avx512.mask.compress.{self.suffix}({v}, {v}, {m})"

    # ---- writing lines

    def _value(self, text: str) -> str:
        self.made += 1
        self.lines.append(f"  %v{self.made} = {text}")
        return f"%v{self.made}"

    def _do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def _label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def _function(self, head: str, write: Callable[[], None]) -> str:
        self.lines, self.made = [], 0
        write()
        return f"define internal {head} nounwind {{\n" + "\n".join(self.lines) + "\n}\n"

    def _numbers(self, numbers: Sequence[int], kind: str) -> str:
        return f"<{', '.join(f'{kind} {n}' for n in numbers)}>"

    def _splat(self, kind: str, value: str, lanes: int) -> str:
        one = self._value(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self._value(f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, {zeros}")

    def _shuffled(self, first: str, second: str, lanes: Sequence[int]) -> str:
        v = self.vector
        return self._value(f"shufflevector {v} {first}, {v} {second}, <{self.lanes} x i32> {self._numbers(lanes, 'i32')}")

    def _least(self, a: str, b: str) -> str:
        return self._value(f"call {self.vector} @llvm.umin.{self.suffix}({self.vector} {a}, {self.vector} {b})")

    def _greatest(self, a: str, b: str) -> str:
        return self._value(f"call {self.vector} @llvm.umax.{self.suffix}({self.vector} {a}, {self.vector} {b})")

    def _first(self, count: str) -> str:
        """Return a mask of the first lanes, `count` of them, an i64 that may be negative or more than there are."""
        v = f"<{self.lanes} x i32>"
        low = self._value(f"call i64 @llvm.smax.i64(i64 {count}, i64 0)")
        few = self._value(f"trunc i64 {self._value(f'call i64 @llvm.smin.i64(i64 {low}, i64 {self.lanes})')} to i32")
        return self._value(f"icmp ult {v} {self._numbers(range(self.lanes), 'i32')}, {self._splat('i32', few, self.lanes)}")

    def _so_many(self, count: str) -> str:
        """Return a mask of the first lanes, `count` of them, an i64 from 0 to their number."""
        few = self._value(f"trunc i64 {count} to i32")
        bits = self._value(f"xor i32 {self._value(f'shl i32 -1, {few}')}, -1")
        return self._value(f"bitcast i{self.lanes} {self._value(f'trunc i32 {bits} to i{self.lanes}')} to {self.mask}")

    def _at(self, base: str, offset: str) -> str:
        return self._value(f"getelementptr {self.kind}, ptr {base}, i64 {offset}")

    def _loaded(self, base: str, mask: str | None = None) -> str:
        v, align = self.vector, self.bits // 8
        if mask is None:
            return self._value(f"load {v}, ptr {base}, align {align}")
        ones = f"{v} {self._numbers([-1] * self.lanes, self.kind)}"
        return self._value(f"call {v} @llvm.masked.load.{self.suffix}.p0(ptr {base}, i32 {align}, {self.mask} {mask}, {ones})")

    def _store(self, value: str, base: str, mask: str | None = None) -> None:
        v, align = self.vector, self.bits // 8
        if mask is None:
            return self._do(f"store {v} {value}, ptr {base}, align {align}")
        self._do(f"call void @llvm.masked.store.{self.suffix}.p0({v} {value}, ptr {base}, i32 {align}, {self.mask} {mask})")

    # ---- networks

    def _exchanged(self, value: str, partner: Sequence[int]) -> str:
        """Return a vector whose lanes are compared with their partners, the lesser in the lower lane."""
        other = self._shuffled(value, "poison", partner)
        low = self._numbers([int(k < p) for k, p in enumerate(partner)], "i1")
        least, greatest = self._least(value, other), self._greatest(value, other)
        return self._value(f"select {self.mask} {low}, {self.vector} {least}, {self.vector} {greatest}")

    def _in_order(self, values: list[str]) -> list[str]:
        """Return the elements of vectors, as many as a power of two, from the least to the greatest."""
        count, lanes = len(values), self.lanes
        for low, high in sorting_network(count):
            values[low], values[high] = self._least(values[low], values[high]), self._greatest(values[low], values[high])
        for _ in range(count.bit_length() - 1):  # what stood above each other stands side by side
            values = [self._interleaved(values[k // 2], values[k // 2 + count // 2], k % 2) for k in range(count)]
        run = count
        while run < lanes:
            values = [self._merged_inside(value, run) for value in values]
            run *= 2
        vectors = run // lanes
        while vectors < count:
            values = [v for k in range(0, count, 2 * vectors) for v in self._merged(values[k : k + 2 * vectors])]
            vectors *= 2
        return values

    def _interleaved(self, a: str, b: str, half: int) -> str:
        first = half * self.lanes // 2
        return self._shuffled(a, b, [first + k // 2 + (k % 2) * self.lanes for k in range(self.lanes)])

    def _merged_inside(self, value: str, run: int) -> str:
        """Return a vector of sorted runs merged two by two."""
        double = 2 * run
        value = self._exchanged(value, [k // double * double + double - 1 - k % double for k in range(self.lanes)])
        return self._cleaned(value, run // 2)

    def _cleaned(self, value: str, distance: int) -> str:
        while distance:
            value = self._exchanged(value, [k ^ distance for k in range(self.lanes)])
            distance //= 2
        return value

    def _merged(self, values: Sequence[str]) -> list[str]:
        """Return two sorted halves merged: the second is read backwards, and then halves of halves are compared."""
        half, lanes = len(values) // 2, self.lanes
        backwards = [self._shuffled(values[-1 - k], "poison", range(lanes - 1, -1, -1)) for k in range(half)]
        pairs = list(zip(values[:half], backwards, strict=True))
        out = [self._least(a, b) for a, b in pairs] + [self._greatest(a, b) for a, b in pairs]
        distance = half // 2
        while distance:
            for k in range(len(out)):
                if not k & distance:
                    out[k], out[k + distance] = self._least(out[k], out[k + distance]), self._greatest(out[k], out[k + distance])
            distance //= 2
        return [self._cleaned(value, lanes // 2) for value in out]

    def _small(self) -> str:
        """Return `@small(a, n)`, which sorts as many elements as fit into the registers of a network."""

        def write() -> None:
            counts = [1 << k for k in range(self.registers.bit_length())]
            self._label("entry")
            self._do("br label %try1")
            for count in counts:
                self._label(f"try{count}")
                if count == counts[-1]:
                    self._do(f"br label %sort{count}")
                else:
                    fits = self._value(f"icmp sle i64 %n, {count * self.lanes}")
                    self._do(f"br i1 {fits}, label %sort{count}, label %try{count * 2}")
            for count in counts:
                self._label(f"sort{count}")
                self._network(count)
                self._do("ret void")

        declared = "declare i64 @llvm.smin.i64(i64, i64)\ndeclare i64 @llvm.smax.i64(i64, i64)\n"
        return declared + self._function("void @small(ptr %a, i64 %n)", write)

    def _network(self, count: int) -> None:
        places, masks, values = [], list[str | None](), []
        for k in range(count):
            whole = k < count // 2  # with fewer elements, a smaller network does
            left = "" if whole else self._value(f"sub i64 %n, {k * self.lanes}")
            masks.append(None if whole else self._first(left))
            places.append(self._at("%a", str(k * self.lanes)))
            values.append(self._loaded(places[-1], masks[-1]))
        for value, place, mask in zip(self._in_order(values), places, masks, strict=True):
            self._store(value, place, mask)

    # ---- dividing

    def _divide(self) -> str:
        """Return `@divide(a, lo, hi, pivot)`, which puts what is less than the pivot first, and returns where the rest begins.

        Vectors of both ends and of what is no whole step are kept, so that there is room for what is read: always at the end where there
        is less of it."""
        step, lanes = _VECTORS * self.lanes, self.lanes

        def write() -> None:
            self._label("entry")
            pivot = self._splat(self.kind, "%pivot", lanes)
            n = self._value("sub i64 %hi, %lo")
            rest = self._value(f"and i64 {n}, {step - 1}")
            right = self._value(f"sub i64 %hi, {step}")
            end = self._value(f"sub i64 {right}, {rest}")
            kept: list[tuple[str, str | None]] = []
            for begin in ("%lo", right):
                place = self._at("%a", begin)
                kept += [(self._loaded(self._at(place, str(k * lanes))), None) for k in range(_VECTORS)]
            place = self._at("%a", end)
            for k in range(_VECTORS):
                mask = self._first(self._value(f"sub i64 {rest}, {k * lanes}"))
                kept.append((self._loaded(self._at(place, str(k * lanes)), mask), mask))
            start = self._value(f"add i64 %lo, {step}")
            self._do("br label %head")
            self._label("head")
            self._do(f"%rl = phi i64 [ {start}, %entry ], [ %rl2, %step ]")
            self._do(f"%rr = phi i64 [ {end}, %entry ], [ %rr2, %step ]")
            self._do("%wl = phi i64 [ %lo, %entry ], [ %wl2, %step ]")
            self._do("%wr = phi i64 [ %hi, %entry ], [ %wr2, %step ]")
            self._do("%more = icmp slt i64 %rl, %rr")
            self._do("br i1 %more, label %step, label %flush")
            self._label("step")
            room_left, room_right = self._value("sub i64 %rl, %wl"), self._value("sub i64 %wr, %rr")
            from_left = self._value(f"icmp sle i64 {room_left}, {room_right}")
            before = self._value(f"sub i64 %rr, {step}")
            after = self._value(f"add i64 %rl, {step}")
            place = self._at("%a", self._value(f"select i1 {from_left}, i64 %rl, i64 {before}"))
            self._do(f"%rl2 = select i1 {from_left}, i64 {after}, i64 %rl")
            self._do(f"%rr2 = select i1 {from_left}, i64 %rr, i64 {before}")
            values = [self._loaded(self._at(place, str(k * lanes))) for k in range(_VECTORS)]
            left, right_end = "%wl", "%wr"
            for value in values:
                left, right_end = self._put(value, pivot, left, right_end, None, whole=True)
            self._do(f"%wl2 = add i64 {left}, 0")
            self._do(f"%wr2 = add i64 {right_end}, 0")
            self._do("br label %head")
            self._label("flush")
            left, right_end = "%wl", "%wr"
            for value, valid in kept:
                left, right_end = self._put(value, pivot, left, right_end, valid, whole=False)
            self._do(f"ret i64 {left}")

        return self._function(f"i64 @divide(ptr %a, i64 %lo, i64 %hi, {self.kind} %pivot)", write)

    def _put(self, value: str, pivot: str, left: str, right: str, valid: str | None, *, whole: bool) -> tuple[str, str]:
        """Write what is less than the pivot at `left` and the rest before `right`; return where the next goes. `whole`: there is room for a
        vector on the left."""
        v, m, lanes = self.vector, self.mask, self.lanes
        less = self._value(f"icmp ult {v} {value}, {pivot}")
        others = self._value(f"xor {m} {less}, {self._numbers([1] * lanes, 'i1')}")
        if valid is not None:
            less, others = self._value(f"and {m} {less}, {valid}"), self._value(f"and {m} {others}, {valid}")
        few, many = self._count(less), self._count(others)
        low, high = self._compressed(value, less), self._compressed(value, others)
        self._store(low, self._at("%a", left), None if whole else self._so_many(few))
        before = self._value(f"sub i64 {right}, {many}")
        self._store(high, self._at("%a", before), self._so_many(many))
        return self._value(f"add i64 {left}, {few}"), before

    def _count(self, mask: str) -> str:
        n = self.lanes
        bits = self._value(f"bitcast {self.mask} {mask} to i{n}")
        return self._value(f"zext i{n} {self._value(f'call i{n} @llvm.ctpop.i{n}(i{n} {bits})')} to i64")

    def _compressed(self, value: str, mask: str) -> str:
        v = self.vector
        return self._value(f"call {v} @llvm.x86.avx512.mask.compress.{self.suffix}({v} {value}, {v} zeroinitializer, {self.mask} {mask})")

    # ---- all of it

    def _sort(self) -> str:
        """Return `@sort(a, lo, hi, least, most, depth)`: elements lie between `least` and `most`; after `depth` divisions by medians they
        are divided by the middle."""
        kind, lanes = self.kind, self.lanes

        def write() -> None:
            self._label("entry")
            self._do("br label %again")
            self._label("again")
            self._do("%first = phi i64 [ %lo, %entry ], [ %middle, %right ]")
            self._do(f"%least = phi {kind} [ %from, %entry ], [ %pivot, %right ]")
            self._do("%left = phi i64 [ %depth, %entry ], [ %fewer, %right ]")
            self._do("%n = sub i64 %hi, %first")
            self._do(f"%few = icmp sle i64 %n, {self.most}")
            self._do("br i1 %few, label %small, label %many")
            self._label("small")
            self._do(f"call void @small(ptr {self._at('%a', '%first')}, i64 %n)")
            self._do("ret void")
            self._label("many")
            self._do(f"%equal = icmp eq {kind} %least, %most")
            self._do("br i1 %equal, label %done, label %choose")
            self._label("done")
            self._do("ret void")
            self._label("choose")
            self._do("%often = icmp sle i64 %left, 0")
            self._do("br i1 %often, label %halve, label %sample")
            self._label("halve")
            half = self._value(f"lshr {kind} {self._value(f'sub {kind} %most, %least')}, 1")
            self._do(f"%halved = add {kind} {self._value(f'add {kind} %least, {half}')}, 1")
            self._do("br label %divide")
            self._label("sample")
            stride = self._value(f"udiv i64 %n, {lanes}")
            found = "poison"
            for k in range(lanes):
                at = self._value(f"add i64 %first, {self._value(f'mul i64 {stride}, {k}')}")
                one = self._value(f"load {kind}, ptr {self._at('%a', at)}, align {self.bits // 8}")
                found = self._value(f"insertelement {self.vector} {found}, {kind} {one}, i64 {k}")
            (ordered,) = self._in_order([found])
            median = self._value(f"extractelement {self.vector} {ordered}, i64 {lanes // 2}")
            above = self._value(f"add {kind} %least, 1")
            self._do(f"%taken = select i1 {self._value(f'icmp eq {kind} {median}, %least')}, {kind} {above}, {kind} {median}")
            self._do("br label %divide")
            self._label("divide")
            self._do(f"%pivot = phi {kind} [ %halved, %halve ], [ %taken, %sample ]")
            self._do(f"%middle = call i64 @divide(ptr %a, i64 %first, i64 %hi, {kind} %pivot)")
            self._do("%fewer = sub i64 %left, 1")
            below = self._value(f"sub {kind} %pivot, 1")
            arguments = f"ptr %a, i64 %first, i64 %middle, {kind} %least, {kind} {below}, i64 %fewer"
            self._do(f"call void @sort({arguments})")
            self._do("br label %right")
            self._label("right")
            self._do("br label %again")

        return self._function(f"void @sort(ptr %a, i64 %lo, i64 %hi, {kind} %from, {kind} %most, i64 %depth)", write)


class _Permuting(_Sorting):
    """The same by vectors of 256 bits: what a mask chooses is brought to the front by a permutation, and all else behind it. Steps of a
    division write whole vectors at both ends, where there is room for what they read."""

    width = 256

    def _declared(self) -> str:
        rows = []
        for mask in range(1 << self.lanes):
            chosen = [k for k in range(self.lanes) if mask >> k & 1] + [k for k in range(self.lanes) if not mask >> k & 1]
            words = [k * self.bits // 32 + word for k in chosen for word in range(self.bits // 32)]
            rows.append(f"<8 x i32> {self._numbers(words, 'i32')}")
        table = f"@permutations = internal constant [{len(rows)} x <8 x i32>] [{', '.join(rows)}], align 32"
        return f"declare <8 x i32> @llvm.x86.avx2.permd(<8 x i32>, <8 x i32>)\n{table}"

    def _so_many(self, count: str) -> str:
        few = self._value(f"trunc i64 {count} to i32")
        lanes = f"<{self.lanes} x i32>"
        return self._value(f"icmp ult {lanes} {self._numbers(range(self.lanes), 'i32')}, {self._splat('i32', few, self.lanes)}")

    def _compressed(self, value: str, mask: str) -> str:
        bits = self._value(f"bitcast {self.mask} {mask} to i{self.lanes}")
        at = self._value(f"zext i{self.lanes} {bits} to i64")
        place = self._value(f"getelementptr [{1 << self.lanes} x <8 x i32>], ptr @permutations, i64 0, i64 {at}")
        order = self._value(f"load <8 x i32>, ptr {place}, align 32")
        words = self._value(f"bitcast {self.vector} {value} to <8 x i32>")
        moved = self._value(f"call <8 x i32> @llvm.x86.avx2.permd(<8 x i32> {words}, <8 x i32> {order})")
        return self._value(f"bitcast <8 x i32> {moved} to {self.vector}")

    def _put(self, value: str, pivot: str, left: str, right: str, valid: str | None, *, whole: bool) -> tuple[str, str]:
        if not whole:
            return super()._put(value, pivot, left, right, valid, whole=False)
        less = self._value(f"icmp ult {self.vector} {value}, {pivot}")
        few = self._count(less)
        apart = self._compressed(value, less)
        self._store(apart, self._at("%a", left))
        self._store(apart, self._at("%a", self._value(f"sub i64 {right}, {self.lanes}")))
        many = self._value(f"sub i64 {self.lanes}, {few}")
        return self._value(f"add i64 {left}, {few}"), self._value(f"sub i64 {right}, {many}")
