"""Random programs of several equations, as text: what polyhedral compilers are hard on, over sizes that are often no multiples of anything.

    drawn = Equations(Random(7)).drawn()

Triangles and bands, recurrences of several tensors in one and two dimensions and in time, intervals, factorisations, sweeps to and fro,
windows of windows, products, segments and histograms whose places are data, extremes with their places, interleaved and joined pieces;
dimensions like `2*N + 1`. Each equation reads whatever there is, through a mode where shapes differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

DTYPES = ("f32", "f32", "f32", "f64", "f16", "bf16", "i8", "i32", "i64")
SIZES = ("M", "N", "K")
SIDES = (
    ("j <= i", "j > i"),
    ("j < i", "j >= i"),
    ("i + j < N", "i + j >= N"),
    ("i == j", "i != j"),
    ("j >= i - 1, j <= i + 1", "(j < i - 1 or j > i + 1)"),
    ("2*i >= j", "2*i < j"),
    ("i % 2 == 0", "i % 2 == 1"),
)
REDUCERS = """
reducer first_max (v, i) (w, j) from none = if v > w or v == w and i < j then (v, i) else (w, j)
ordered reducer latest a b from none = b
fn near(v) = max(min(v, 9), -9)
"""


@dataclass(frozen=True)
class Drawn:
    """A program as the equations of each of its tensors. `least`: the least that every size is."""

    dtype: str
    mode: str
    params: tuple[str, ...]
    equations: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    """Names with their shapes (`y0: f32[M]`), and their clauses."""
    results: tuple[str, ...]
    least: int

    @property
    def text(self) -> str:
        made = {typed.partition(":")[0]: typed for names, _ in self.equations for typed in names}
        results = ", ".join(made[name] for name in self.results)
        where = " where " + ", ".join(f"{s} >= {self.least}" for s in SIZES) if self.least else ""
        body = "".join(f"    {clause}\n" for _, clauses in self.equations for clause in clauses)
        return f"{REDUCERS}\n{self.mode}op f({', '.join(self.params)}) -> ({results}){where} {{\n{body}}}\n"


class Equations:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.dtype = random.choice(DTYPES)
        self.known: dict[str, tuple[str, ...]] = {}
        self.params: list[str] = []
        self.equations: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self.least = random.choice((0, 1, 1, 2))
        self.count = 0

    def drawn(self) -> Drawn:
        r = self.random
        for k, rank in enumerate((2, *(r.choice((1, 2, 2, 3)) for _ in range(r.randint(1, 2))))):
            self.param(f"x{k}", tuple(self.extent() for _ in range(rank)))
        size = r.choice(SIZES)
        self.params += [f"ids: {r.choice(('i32', 'i64', 'u8'))}[{size}] in 0..{r.choice(SIZES)}", *(f"size {s}" for s in SIZES)]
        self.ids = (size, self.params[-4].rpartition("..")[2])
        self.params.append(f"start: i64[{SIZES[0]} + 1]")
        for _ in range(r.choice((1, 2, 3, 3, 4, 5, 6))):
            r.choice(FORMS)(self)
        names = [typed.partition(":")[0] for made, _ in self.equations for typed in made]
        read = {n for n in names for _, clauses in self.equations if any(f"{n}[" in c.partition(" = ")[2] for c in clauses)}
        results = [n for n in names if n not in read or r.random() < 0.15] or names[-1:]
        params = tuple(sorted(self.params, key=lambda p: p.startswith("size ")))
        mode = r.choice(("", "", "", "reduce ", "fast "))
        return Drawn(self.dtype, mode, params, tuple(self.equations), tuple(results), self.least)

    # ---- what there is

    def extent(self) -> str:
        return self.random.choice((*SIZES, *SIZES, "N", f"2*{self.random.choice(SIZES)} + 1", f"{self.random.choice(SIZES)} + 1", "3"))

    def param(self, name: str, shape: tuple[str, ...]) -> None:
        dtype = self.dtype if self.random.random() < 0.8 else self.random.choice(DTYPES)
        self.params.append(f"{name}: {dtype}[{', '.join(shape)}]")
        self.known[name] = shape

    def fresh(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def add(self, shape: tuple[str, ...], clauses: list[str], *names: str) -> None:
        self.equations.append((tuple(f"{n}: {self.dtype}[{', '.join(shape)}]" for n in names), tuple(clauses)))
        for name in names:
            self.known[name] = shape

    def needs(self, least: int) -> None:
        self.least = max(self.least, least)

    def shape(self, rank: int = 0) -> tuple[str, ...]:
        return tuple(self.extent() for _ in range(rank or self.random.choice((1, 2, 2, 2, 3))))

    def const(self) -> str:
        return str(self.random.randint(0, 3))

    # ---- values

    def read(self, at: Mapping[str, str], source: str = "") -> str:
        """Return a read at indices with the extents they go over."""
        r = self.random
        name = source or r.choice(sorted(self.known))
        slots, safe = [], True
        for end in self.known[name]:
            plain = [i for i, e in at.items() if e == end]
            data = [i for i, e in at.items() if e == self.ids[0] and end == self.ids[1]]
            if data and r.random() < 0.3:
                slots.append(f"ids[{r.choice(data)}]")
            elif plain and r.random() < 0.85:
                i = r.choice(plain)
                slots.append(i if r.random() < 0.8 else f"{end} - 1 - {i}")
            else:
                safe = False
                i = r.choice(sorted(at)) if at else "0"
                other = r.choice(sorted(at)) if at else "0"
                slots.append(r.choice((i, f"{i} + 1", f"{i} - 1", f"2*{i}", f"{i} // 2", f"{i} % 3", f"{i} - {other}")))
        if safe:
            return self.cast(f"{name}[{', '.join(slots)}]")
        near = self.least > 0 and not any(s.startswith("2*") or " - " in s for s in slots)
        mode = r.choice((self.const(), self.const(), *(("clamp",) if self.least else ()), *(("wrap",) if near else ())))
        return self.cast(f"{name}[{', '.join(slots)} | {mode}]")

    def cast(self, read: str) -> str:
        return f"{self.dtype}({read})" if read.startswith("x") else read

    def value(self, at: Mapping[str, str], depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.2:
            return self.read(at)
        one, other = self.value(at, depth - 1), self.value(at, depth - 1)
        kind = r.randrange(9)
        if kind < 3:
            return f"({one} {r.choice('+-+*')} {other})"
        if kind == 3:
            return f"{r.choice(('max', 'min'))}({one}, {other})"
        if kind == 4:
            return f"(if {one} > {self.const()} then {other} else {self.read(at)})"
        if kind == 5 and len(at) > 1:
            i, j = r.sample(sorted(at), 2)
            return f"(if {i} {r.choice(('<', '<=', '=='))} {j} then {one} else {other})"
        if kind == 6:
            return self.reduction(at)
        return one

    def reduction(self, at: Mapping[str, str]) -> str:
        r, k, end = self.random, self.fresh("k"), self.extent()
        binder = f"{k} in 0..{end}"
        above = [i for i, e in at.items() if e == end]
        kind = r.choice(("sum", "sum", "sum", "max", "min", "any", "latest"))
        if above and r.random() < 0.4:
            binder = r.choice((f"{k} in 0..{above[0]} + 1", f"{k} in {above[0]}..{end}"))
        elif kind in ("max", "min", "latest"):
            self.needs(1)
        inner = {**at, k: end}
        cond = r.choice((f"{self.read(inner)} > 0", f"{k} % 2 == 0", f"{k} != 1")) if kind in ("sum",) and r.random() < 0.3 else ""
        if end == self.ids[0] and at and kind == "sum" and r.random() < 0.5:
            cond = f"ids[{k}] == {r.choice(sorted(at))}"
        if kind == "any":
            return f"(if any({binder}) ({self.read(inner)} > 1) then 1 else {self.read(at)})"
        body = self.read(inner) if r.random() < 0.5 else f"{self.read(inner)} * {self.read(inner)}"
        return f"({kind}({binder}{', ' + cond if cond else ''}) ({body}))"

    # ---- equations

    def plain(self) -> None:
        shape, name = self.shape(), self.fresh()
        at = dict(zip("ijl", shape, strict=False))
        self.add(shape, [f"{name}[{', '.join(at)}] = {self.value(at)} for {ranges(at)}"], name)

    def window(self) -> None:
        shape, name = self.shape(), self.fresh()
        at = dict(zip("ijl", shape, strict=False))
        source = self.random.choice(sorted(self.known))
        if len(self.known[source]) != len(at):
            return self.plain()
        reads = []
        for _ in range(self.random.choice((2, 3, 3, 5))):
            slots = [f"{i}{self.random.choice((' + 1', ' - 1', '', '', ' + 2', ' - 2'))}" for i in at]
            reads.append(self.cast(f"{source}[{', '.join(slots)} | {self.const()}]"))
        return self.add(shape, [f"{name}[{', '.join(at)}] = {' + '.join(reads)} for {ranges(at)}"], name)

    def rows(self) -> None:
        """The greatest of each row, and where it is; what is left without it; their sum."""
        self.needs(1)
        rows, end = self.extent(), self.extent()
        at = {"i": rows, "k": end}
        top, place, rest = self.fresh(), self.fresh(), self.fresh()
        body = self.value(at, 1)
        if self.random.random() < 0.5:
            clauses = [f"{top}[i], {place}[i] = first_max(k in 0..{end}) ({body}, {self.dtype}(k)) for i in 0..{rows}"]
        else:
            clauses = [f"{top}[i] = max(k in 0..{end}) {body} for i in 0..{rows}"]
            clauses += [f"{place}[i] = {self.dtype}(argmin(k in 0..{end}) {body}) for i in 0..{rows}"]
        self.add((rows,), clauses, top, place)
        self.add((rows, end), [f"{rest}[i, k] = {body} - {top}[i] for {ranges(at)}"], rest)
        if self.random.random() < 0.5:
            name = self.fresh()
            self.add((rows,), [f"{name}[i] = (sum(k in 0..{end}) {rest}[i, k]) + {place}[i] for i in 0..{rows}"], name)

    def product(self) -> None:
        rows, columns, inner, name = self.extent(), self.extent(), self.extent(), self.fresh()
        left, right = self.read({"i": rows, "k": inner}), self.read({"k": inner, "j": columns})
        value = f"(sum(k in 0..{inner}) {left} * {right})"
        if self.random.random() < 0.4:
            value = f"{self.read({'i': rows, 'j': columns})} + {value}"
        self.add((rows, columns), [f"{name}[i, j] = {value} for i in 0..{rows}, j in 0..{columns}"], name)

    def triangle(self) -> None:
        """Different values on the sides of a diagonal, or of a band."""
        shape, name = self.shape(2), self.fresh()
        at = dict(zip("ij", shape, strict=True))
        here, there = self.random.choice(SIDES)
        clauses = [f"{name}[i, j] = {v} for {ranges(at)}, {c}" for v, c in ((self.value(at), here), (self.value(at, 1), there))]
        self.add(shape, clauses, name)

    def scan(self) -> None:
        shape, name = self.shape(), self.fresh()
        at = dict(zip("ijl", shape, strict=False))
        along = self.random.choice(sorted(at))
        step = self.random.choice((" - 1", " - 1", " + 1", " - 2"))
        before = f"{name}[{', '.join(i + step if i == along else i for i in at)} | {self.const()}]"
        some = self.value(at, 1)
        value = self.random.choice((f"{before} + {some}", f"max({before}, {some})", f"near({before} * 2 - {some})"))
        self.add(shape, [f"{name}[{', '.join(at)}] = {value} for {ranges(at)}"], name)

    def wave(self) -> None:
        """One to three tensors of two dimensions that need each other's neighbours."""
        shape = self.shape(2)
        at = dict(zip("ij", shape, strict=True))
        names = [self.fresh() for _ in range(self.random.choice((1, 1, 2, 3)))]
        di, dj = self.random.choice((" - 1", " - 1", " + 1")), self.random.choice((" - 1", " - 1", " + 1"))
        for k, name in enumerate(names):
            parts = []
            for other in self.random.sample(names, self.random.randint(1, len(names))):
                slots = self.random.choice((f"i{di}, j", f"i, j{dj}", f"i{di}, j{dj}"))
                parts.append(f"{other}[{slots} | {self.const()}]")
            parts += [f"{n}[i, j]" for n in names[:k] if self.random.random() < 0.4]
            value = self.random.choice((f"near({' - '.join(parts)} + {self.value(at, 1)})", f"min({', '.join([*parts, self.read(at)])})"))
            self.add(shape, [f"{name}[i, j] = {value} for {ranges(at)}"], name)

    def in_time(self) -> None:
        """A state in one or two dimensions, or two that take turns; what is left of it is the last, or all."""
        steps = self.random.choice((*SIZES, "3"))
        space = self.shape(self.random.choice((1, 1, 2)))
        at = dict(zip("ij", space, strict=False))
        states = [self.fresh("s") for _ in range(self.random.choice((1, 1, 2)))]
        for k, state in enumerate(states):
            parts = []
            for other in states:
                for _ in range(self.random.choice((1, 2, 3))):
                    slots = [f"{i}{self.random.choice((' + 1', ' - 1', '', ''))}" for i in at]
                    late = other in states[:k] and self.random.random() < 0.5
                    parts.append(f"{other}[{'t + 1' if late else 't'}, {', '.join(slots)} | {self.const()}]")
            if len(parts) > 1 and self.random.random() < 0.3:
                i = next(iter(at))
                parts[0] = f"{state}[t + 1, {', '.join(f'{n} - 1' if n == i else n for n in at)} | {self.const()}]"
            value = f"near({' - '.join(parts)} + {self.read({**at, 't': steps})})"
            start = f"{state}[0, {', '.join(at)}] = {self.value(at, 1)} for {ranges(at)}"
            clauses = [start, f"{state}[t + 1, {', '.join(at)}] = {value} for t in 0..{steps}, {ranges(at)}"]
            self.add((f"{steps} + 1", *space), clauses, state)
        if self.random.random() < 0.8:
            name = self.fresh()
            last = " + ".join(f"{s}[{steps}, {', '.join(at)}]" for s in states)
            self.add(space, [f"{name}[{', '.join(at)}] = {last} for {ranges(at)}"], name)

    def interval(self) -> None:
        n, name = self.random.choice(SIZES), self.fresh()
        best = self.random.choice(("min", "max"))
        at = {"i": n, "j": n}
        value = f"({best}(k in i..j) ({name}[i, k] + {name}[k + 1, j])) + {self.read(at)}"
        clauses = [f"{name}[i, j] = {value} for {ranges(at)}, i < j", f"{name}[i, j] = {self.value(at, 1)} for {ranges(at)}, i >= j"]
        self.add((n, n), clauses, name)

    def factor(self) -> None:
        n, name = self.random.choice(SIZES), self.fresh()
        at = {"i": n, "j": n}
        value = f"near({self.read(at)} - (sum(k in 0..j) {name}[i, k] * {name}[j, k]))"
        clauses = [f"{name}[i, j] = {value} for {ranges(at)}, j <= i", f"{name}[i, j] = {self.const()} for {ranges(at)}, j > i"]
        self.add((n, n), clauses, name)

    def solve(self) -> None:
        n, columns, name = self.random.choice(SIZES), self.extent(), self.fresh()
        span = self.random.choice(("0..i", f"i + 1..{n}"))
        total = f"(sum(k in {span}) {self.read({'i': n, 'k': n})} * {name}[k, j])"
        value = f"near({self.read({'i': n, 'j': columns})} - {total})"
        self.add((n, columns), [f"{name}[i, j] = {value} for i in 0..{n}, j in 0..{columns}"], name)

    def paths(self) -> None:
        n, name, out = self.random.choice(SIZES), self.fresh("d"), self.fresh()
        at = {"i": n, "j": n}
        step = f"min({name}[t, i, j], {name}[t, i, t] + {name}[t, t, j])"
        self.add(
            (f"{n} + 1", n, n),
            [f"{name}[0, i, j] = {self.value(at, 1)} for {ranges(at)}", f"{name}[t + 1, i, j] = {step} for t in 0..{n}, {ranges(at)}"],
            name,
        )
        self.add((n, n), [f"{out}[i, j] = {name}[{n}, i, j] for {ranges(at)}"], out)

    def sweeps(self) -> None:
        """Forwards along an axis, backwards along it, and over to the other one."""
        shape = self.shape(2)
        at = dict(zip("ij", shape, strict=True))
        there, back = self.fresh(), self.fresh()
        self.add(shape, [f"{there}[i, j] = near({there}[i, j - 1 | 1] * 2 - {self.value(at, 1)}) for {ranges(at)}"], there)
        self.add(shape, [f"{back}[i, j] = near({back}[i, j + 1 | 0] - {there}[i, j]) for {ranges(at)}"], back)
        if self.random.random() < 0.6:
            over = self.fresh()
            self.add(shape, [f"{over}[i, j] = near({over}[i - 1, j | 2] + {back}[i, j]) for {ranges(at)}"], over)

    def histogram(self) -> None:
        count, end = self.ids
        columns, name = self.extent(), self.fresh()
        value = f"sum(n in 0..{count}, ids[n] == i) {self.read({'n': count, 'j': columns})}"
        self.add((end, columns), [f"{name}[i, j] = {value} for i in 0..{end}, j in 0..{columns}"], name)

    def segments(self) -> None:
        """Sums of rows whose ends are data."""
        name, end = self.fresh(), self.extent()
        body = f"{self.read({'k': end})} * {self.read({'k': end, 'i': SIZES[0]})}"
        self.add((SIZES[0],), [f"{name}[i] = sum(k in 0..{end}, start[i] <= k, k < start[i + 1]) ({body}) for i in 0..{SIZES[0]}"], name)

    def pieces(self) -> None:
        """Interleaved, or one after the other."""
        n, name = self.extent(), self.fresh()
        if self.random.random() < 0.5:
            clauses = [f"{name}[2*i + {k}] = {self.value({'i': n})} for i in 0..{n}" for k in range(2)]
            return self.add((f"2*({n})",), clauses, name)
        other = self.extent()
        clauses = [
            f"{name}[i] = {self.value({'i': n})} for i in 0..{n}",
            f"{name}[{n} + j] = {self.value({'j': other})} for j in 0..{other}",
        ]
        return self.add((f"{n} + {other}",), clauses, name)

    def steps(self) -> None:
        """Two sequences of which each element needs sums over those before it."""
        n, one, other = self.random.choice(SIZES), self.fresh(), self.fresh()
        at = {"i": n}
        self.add((n,), [f"{one}[i] = near({self.read(at)} - (sum(k in 0..i) {one}[k] * {other}[i - 1 - k])) for i in 0..{n}"], one)
        self.add((n,), [f"{other}[i] = near({one}[i] + {other}[i - 1 | 1] - {self.read(at)}) for i in 0..{n}"], other)


FORMS = (
    *(Equations.plain,) * 3,
    *(Equations.window,) * 2,
    Equations.rows,
    *(Equations.product,) * 2,
    Equations.triangle,
    Equations.scan,
    *(Equations.wave,) * 2,
    *(Equations.in_time,) * 2,
    Equations.interval,
    Equations.factor,
    Equations.solve,
    Equations.paths,
    Equations.sweeps,
    Equations.histogram,
    Equations.segments,
    Equations.pieces,
    Equations.steps,
)


def ranges(at: Mapping[str, str]) -> str:
    return ", ".join(f"{i} in 0..{end}" for i, end in at.items())
