"""Text of one LLVM function, written from nested regions.

A region is the function's entry, the body of a loop, or one side of a branch. Everything that does not depend on the innermost region is
written into the outermost one that has its operands: in front of the loop that is being written. That is how addresses leave loops.

    entry:
      %p = getelementptr ...        <- the placeholder of the entry region, written while the loop body is
      br label %loop
    loop:
      ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from codegen import polynomials
from codegen.intrinsics import Intrinsic
from codegen.llvm.facts import Facts, Poly
from codegen.llvm.held import Held, HeldElements
from codegen.llvm.target import Target
from codegen.llvm.values import Value
from codegen.loops.nodes import BinaryOp
from codegen.polynomials import ZERO

Text = list["str | Text"]


@dataclass(slots=True)
class Region:
    """`code` is its text so far, `placeholder` where an inner region may place what it needs from here, `memo` what was computed here,
    `held` what was read and written here, by buffer, and has not been changed since.

    preheader  for the body of a loop, the place just before its first iteration, as long as that iteration is sure to get here
    constant   the buffers that exist outside the loop and that it does not write to
    repeats    whether it is the body of a loop
    masks      those that were made here of others, each with the others of which it has the lanes that all of them have
    quotients  those that were computed here, by dividend and divisor
    """

    depth: int
    code: Text
    placeholder: Text | None = None
    memo: dict[str, str] = field(default_factory=dict)
    held: dict[int, HeldElements] = field(default_factory=dict)
    preheader: Text | None = None
    constant: frozenset[int] = frozenset()
    repeats: bool = False
    masks: dict[str, frozenset[str]] = field(default_factory=dict)
    quotients: dict[tuple[Poly, Poly], Poly] = field(default_factory=dict)


class Builder:
    """Writes one function. `at` is the label of the block being written; `intrinsics` are instructions to use before any of its own."""

    def __init__(self, target: Target, declarations: dict[str, str], prefix: str = "v", intrinsics: tuple[Intrinsic, ...] = ()) -> None:
        self.target = target
        self.intrinsics = intrinsics
        self.facts = Facts()
        self.declarations = declarations
        self.prologue: Text = []
        self.regions = [Region(0, [])]
        self.label = "entry"
        self.aliases: dict[str, str] = {}
        self.opposites: dict[str, str] = {}
        self.made_of: dict[str, tuple[BinaryOp, Value, Value]] = {}
        self.widened: dict[str, Value] = {}
        self._prefix = prefix
        self._count = 0

    # ------------------------------------------------------------ text

    @property
    def region(self) -> Region:
        return self.regions[-1]

    @property
    def depth(self) -> int:
        return len(self.regions) - 1

    def fresh(self) -> str:
        self._count += 1
        return f"%{self._prefix}{self._count}"

    def fresh_label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def write(self, line: str) -> None:
        self.region.code.append("  " + line)

    def op(self, text: str) -> str:
        """Write an instruction here and return its result."""
        name = self.fresh()
        self.write(f"{name} = {text}")
        return name

    def pure(self, text: str, depth: int | None = None) -> str:
        """Return the result of an instruction without effects, written once per region; `depth` names an outer region to write it in."""
        at = self.depth if depth is None else depth
        for region in self.regions[: at + 1]:
            known = region.memo.get(text)
            if known is not None:
                return known
        name = self.fresh()
        self._code(at).append(f"  {name} = {text}")
        self.regions[at].memo[text] = name
        return name

    def remembered(self, key: str) -> str | None:
        """Return what is remembered under a key, in the regions around."""
        return next((region.memo[key] for region in self.regions if key in region.memo), None)

    def held(self, buffer: int, *elements: Held) -> str | None:
        """Return the register that holds the first of some elements that any does, in the regions around."""
        known = [region.held[buffer] for region in self.regions if buffer in region.held]
        registers = (held.found(one) for one in elements for held in known)
        return next((register for register in registers if register is not None), None)

    def keep(self, buffer: int, elements: Held, register: str) -> None:
        """Note that a register holds elements of a buffer from here on."""
        self.region.held.setdefault(buffer, HeldElements()).keep(elements, register)

    def forget(self, buffer: int, written: Held | None = None) -> None:
        """Note that memory has other values now than registers held: of the elements that are `written`, or, None, of any."""
        for region in self.regions:
            if written is None:
                region.held.pop(buffer, None)
            elif buffer in region.held:
                region.held[buffer].forget(written)

    def depth_of(self, name: str) -> int | None:
        """Return how deep the region lies whose `pure` instruction made a value; None where no such instruction around did."""
        return next((region.depth for region in self.regions if name in region.memo.values()), None)

    def loads_early(self, buffer: int, depth: int) -> bool:
        """Return whether a load here, from `buffer` at an address known in region `depth`, belongs before the loop around it.

        So it is for what the first iteration is sure to load and no iteration changes: a few such values, to keep them in registers."""
        place = self.region.preheader
        return place is not None and depth < self.depth and buffer in self.region.constant and len(place) < _HOISTED

    def read(self, text: str, early: bool) -> str:
        """Return the result of a load, written here or before the loop around."""
        place = self.region.preheader
        if not early or place is None:
            return self.op(text)
        name = self.fresh()
        place.append(f"  {name} = {text}")
        return name

    def may_return_here(self) -> None:
        """Note that the code that follows may not be reached: nothing is loaded early from now on."""
        for region in self.regions:
            region.preheader = None

    def _code(self, depth: int) -> Text:
        region = self.regions[depth]
        if depth == self.depth:
            return region.code
        assert region.placeholder is not None, "an inner region is open, so the outer one has a placeholder"
        return region.placeholder

    def start(self, label: str) -> None:
        self.region.code.append(f"{label}:")
        self.label = label

    def open_placeholder(self) -> None:
        """Mark the place where inner regions may put what belongs to this one; the branch into them follows."""
        self.region.placeholder = []
        self.region.code.append(self.region.placeholder)

    def enter(self) -> Region:
        region = Region(len(self.regions), [])
        self.region.code.append(region.code)
        self.regions.append(region)
        return region

    def leave(self) -> None:
        self.regions.pop()

    def declare(self, name: str, signature: str) -> str:
        """Return `name`, declared once in the module. `signature` is `result (arguments)` with `@` where the name goes."""
        self.declarations.setdefault(name, f"declare {signature.replace('@', '@' + name)}")
        return f"@{name}"

    def resolve(self, name: str) -> str:
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def text(self) -> str:
        """Return the blocks written so far, with every alias replaced."""
        body = "\n".join(_flatten([*self.prologue, *self.regions[0].code]))
        if not self.aliases:
            return body
        return _NAME.sub(lambda match: self.resolve(match.group()), body)

    # ------------------------------------------------------------ index arithmetic

    def index(self, poly: Poly, *, wraps: bool = False) -> str:
        """Return `poly` as an i64; each part is written in the outermost region that has its atoms. Unless it `wraps`, it is known not to
        leave 64 bits, nor does any part of it."""
        constant = poly.constant
        if constant is not None:
            return str(constant)
        result, at = self._parts(poly, "" if wraps else "nsw ")
        if poly.offset:
            result = self.pure(f"add {'' if wraps else 'nsw '}i64 {result}, {poly.offset}", at)
        return result

    def address(self, base: str, base_depth: int, element: str, poly: Poly, early: bool = False) -> str:
        """Return the address of element `poly` of the array at `base`; the constant part comes last so that it fits an address mode.

        With `early` the address is not computed here but, like its parts, as far out as possible.

        What of it several products of numbers add up to outside the loop around is one number for LLVM inside: its strength reduction would
        take the sum apart in every way, with that of every other address, which takes it longer than all its other passes together."""
        groups = _by_depth(poly, self.facts)
        inside = max((region.depth for region in self.regions if region.repeats), default=0)
        outside = [m for depth, terms in groups if max(base_depth, depth) < inside for m in terms.terms if len(m) > 1]
        pointer, at = base, base_depth
        for k, (depth, terms) in enumerate(groups, 1):
            at = max(at, depth)
            pointer = self.pure(f"getelementptr {element}, ptr {pointer}, i64 {self._sum(terms, at)}", at)
            if len(outside) > 1 and at < inside and all(later >= inside for later, _ in groups[k:]):
                pointer = self.pure(f"freeze ptr {pointer}", at)
        if poly.offset:
            pointer = self.pure(f"getelementptr {element}, ptr {pointer}, i64 {poly.offset}", at if early else None)
        return pointer

    def _parts(self, poly: Poly, mark: str) -> tuple[str, int]:
        total, at = "", 0
        for depth, terms in _by_depth(poly, self.facts):
            at = max(at, depth)
            part = self._sum(terms, at, mark)
            total = part if not total else self.pure(f"add {mark}i64 {total}, {part}", at)
        return total, at

    def _sum(self, terms: Poly, depth: int, mark: str = "nsw ") -> str:
        total = ""
        for monomial, coefficient in sorted(terms.terms.items()):
            term = monomial[0]
            for factor in monomial[1:]:
                term = self.pure(f"mul {mark}i64 {term}, {factor}", depth)
            if coefficient != 1:
                term = self.pure(f"mul {mark}i64 {term}, {coefficient}", depth)
            total = term if not total else self.pure(f"add {mark}i64 {total}, {term}", depth)
        return total

    def poly_depth(self, poly: Poly) -> int:
        return self.facts.depth(poly.atoms())


_HOISTED = 6
_NAME = re.compile(r"%[A-Za-z]+[0-9]+\b")


def _by_depth(poly: Poly, facts: Facts) -> list[tuple[int, Poly]]:
    """Return the terms with atoms, grouped by the region they can be computed in, outermost first."""
    groups: dict[int, Poly] = {}
    for monomial, coefficient in poly.terms.items():
        if monomial:
            depth = facts.depth(monomial)
            groups[depth] = groups.get(depth, ZERO) + polynomials.Poly({monomial: coefficient})
    return sorted(groups.items(), key=lambda item: item[0])


def _flatten(text: Text) -> Iterator[str]:
    for part in text:
        if isinstance(part, str):
            yield part
        else:
            yield from _flatten(part)


def quoted(name: str) -> str:
    """Return a function's name as LLVM IR writes it after `@`."""
    return name if re.fullmatch(r"[A-Za-z0-9_.]+", name) else '"' + name.replace('"', "_").replace("\\", "_") + '"'


def text_constant(name: str, text: str) -> str:
    """Return the definition of a constant that holds a text, ended by a zero, which this module alone sees."""
    data = text.encode() + b"\0"
    return f'@{name} = internal constant [{len(data)} x i8] c"{bytes_text(data)}"'


def bytes_text(data: bytes) -> str:
    """Return bytes as constants of LLVM IR have them."""
    return "".join(f"\\{byte:02X}" for byte in data)
