"""The innermost loops of machine code, found by LLVM's comments in assembly, and what their instructions are.

.LBB0_5:                                # %loop50                           the loop that emission began at the label loop50
                                        # =>This Inner Loop Header: Depth=3
    vfmadd231ps (%rax), %zmm2, %zmm1                                        arithmetic and a load; writes zmm1, reads it and zmm2

Instructions are understood for x86, in the syntax that LLVM prints. What branches skip at times counts as if it ran each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

_BLOCK = re.compile(r"^(?:\.L(?P<label>BB\d+_\d+):|(?:#|//|;) %bb\.\d+:)\s*(?:(?:#|//|;) %(?P<name>[\w.]+))?")
_HEADER = re.compile(r"=>\s*This Inner Loop Header:")
_INSIDE = re.compile(r"^\s*(?:#|//|;)\s+in Loop: Header=(?P<header>BB\d+_\d+)")
_CODE = re.compile(r"^\t[a-z]")


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """`label`: of its first block, as emission calls it; `lines`: those of its instructions, in text order."""

    label: str
    lines: tuple[str, ...]


def inner_loops_of(assembly: str) -> tuple[InnerLoop, ...]:
    """Return the innermost loops in text order. `assembly` is one with LLVM's comments."""
    names: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    label = name = ""
    loop: str | None = None
    for line in assembly.splitlines():
        block = _BLOCK.match(line)
        if block is not None:
            label, name, loop = block["label"] or "", block["name"] or "", None
        if _HEADER.search(line) and label:
            names[label], loop = name, label
        elif (inside := _INSIDE.match(line)) is not None:
            loop = inside["header"]
        if loop is not None and _CODE.match(line):
            found.setdefault(loop, []).append(line)
    return tuple(InnerLoop(names[header], tuple(found.get(header, ()))) for header in names)


# ---------------------------------------------------------------- instructions of x86

Unit = Literal["multiply", "divide", "shuffle", "vector", "scalar", "move"]
"""What computes: a multiply-add, a sum or a product of floats; a quotient or a root; a permutation of lanes; what else vectors do; what
single numbers take; a copy between registers, which takes nothing."""
_FLOATS = re.compile(
    r"^v?(?:fn?m(?:add|sub)|add|sub|mul|min|max|dp|cvt|round|rndscale|reduce|getexp|scalef|cmp)\w*(?:ps|pd|ss|sd|ph|bf16)\w*$|^vpdp"
)
_DIVISIONS = re.compile(r"^v?(?:div|sqrt)(?:ps|pd|ss|sd|ph)$")
_SHUFFLES = re.compile(
    r"^v?(?:p?perm|p?shuf|p?unpck|insert|extract|p?broadcast|palignr|pack|pmov[sz]x|p?compress|p?expand|movddup|movs[lh]dup|align|pinsr|pextr"
    r"|movh?lhps|movd$|movq$|punpck|pblendv|gather|pgather)"
)
_COPIES = re.compile(r"^v?mov[a-z0-9]*$")
_ACCUMULATES = re.compile(r"^vf?n?m(?:add|sub)|^vfn?m(?:add|sub)|^vpdp|^vdp|^vpternlog|^vpermt2|^vpermi2")
_REGISTER = re.compile(r"%([a-z]+[0-9]*[a-z]*)")
_NO_RESULT = re.compile(r"^(?:v?u?comis|cmp[bwlq]?$|test|v?ptest|vtest|kortest|ktest|prefetch|nop|j[a-z]+$)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`loads` and `stores` count accesses to memory; `reads` and `writes` are registers, vectors of all lengths under one name."""

    name: str
    unit: Unit
    loads: int
    stores: int
    reads: frozenset[str]
    writes: frozenset[str]


def instruction_of(line: str) -> Instruction | None:
    """Return what a line of assembly does, None for what is no instruction (a directive, a label)."""
    code = line.split("#", 1)[0].strip()
    if not code or code.startswith(".") or code.endswith(":"):
        return None
    name, _, rest = code.partition("\t")
    operands = _operands(rest.strip())
    last = operands[-1] if operands else ""
    has_result = bool(operands) and not _NO_RESULT.match(name)
    in_memory = ["(" in o for o in operands]
    into_memory = has_result and in_memory[-1]
    copies = bool(_COPIES.match(name)) or name.startswith(("vextract", "vpextr"))
    loads = 0 if name.startswith(("lea", "nop")) else sum(in_memory[:-1] if into_memory else in_memory)
    loads += into_memory and not copies
    clears = "xor" in name and len(set(operands)) == 1 and not any(in_memory)
    reads = set() if clears else {r for o in (operands if into_memory else operands[:-1]) for r in _registers(o)}
    if operands and not into_memory and (not has_result or _reads_last(name, operands)):
        reads |= set(_registers(last))
    writes = set() if into_memory or not has_result else {r for r in _registers(last) if not r.startswith("k") or len(operands) > 1}
    return Instruction(name, _unit(name, code, in_memory), loads, int(into_memory), frozenset(reads), frozenset(writes))


def _operands(text: str) -> list[str]:
    """Return the operands: parts between commas that stand in no parentheses."""
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _registers(operand: str) -> list[str]:
    return [_whole(r) for r in _REGISTER.findall(operand)]


def _whole(register: str) -> str:
    """Return one name for all parts of a register: `r10` for `r10d`, `v1` for `zmm1` and `xmm1`."""
    if (vector := re.fullmatch(r"[xyz]mm(\d+)", register)) is not None:
        return f"v{vector[1]}"
    if (numbered := re.fullmatch(r"(r\d+)[dwb]", register)) is not None:
        return numbered[1]
    plain = re.fullmatch(r"[er]?([a-d])[xlh]|[er]?(si|di|bp|sp)l?", register)
    return register if plain is None else f"r{plain[1]}x" if plain[1] else f"r{plain[2]}"


def _reads_last(name: str, operands: Sequence[str]) -> bool:
    """Tell whether an instruction reads the register that it writes, too."""
    last = operands[-1]
    if "{%k" in last and "{z}" not in last:
        return True
    if name.startswith("v"):
        return bool(_ACCUMULATES.match(name))
    clears = operands[0] == last and "xor" in name
    return not (clears or _COPIES.match(name) or name.startswith(("lea", "set", "kmov", "mulx", "andn", "bzhi", "pshuf", "sqrt")))


def _unit(name: str, code: str, in_memory: Sequence[bool]) -> Unit:
    if not re.search(r"%[xyz]mm", code):
        return "move" if _COPIES.match(name) else "scalar"
    if _DIVISIONS.match(name):
        return "divide"
    if _FLOATS.match(name):
        return "multiply"
    if _SHUFFLES.match(name):
        loaded = any(in_memory) and "gather" not in name and ("broadcast" in name or name.endswith(("movd", "movq")))
        return "move" if loaded or (name.startswith(("vextract", "vpextr")) and in_memory[-1]) else "shuffle"
    return "move" if _COPIES.match(name) else "vector"


def chain_cycles(instructions: Sequence[Instruction], latency: Callable[[Instruction], float]) -> float:
    """Return the cycles between two iterations of a loop whose instructions wait for what they read and for nothing else: the longest chain
    from one iteration into the next. What is handed on through memory is left out."""
    ready: dict[str, float] = {}
    before: dict[str, float] = {}
    for turn in range(2 * _TURNS):
        before = dict(ready) if turn == _TURNS else before
        for code in instructions:
            done = max((ready.get(r, 0.0) for r in code.reads), default=0.0) + latency(code)
            ready |= dict.fromkeys(code.writes, done)
    return max((ready[r] - before[r] for r in before), default=0.0) / _TURNS


_TURNS = 16
