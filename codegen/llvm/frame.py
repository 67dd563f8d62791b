"""What stands around the statements of a function: the module, its declarations, the functions that load arguments, names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from codegen.intrinsics import Intrinsic
from codegen.llvm import stamp
from codegen.llvm.builder import Builder, quoted
from codegen.llvm.emitted import Emitted
from codegen.llvm.lanes import needs_scalars
from codegen.llvm.register_transpose import unconditional_loads
from codegen.llvm.state import State
from codegen.llvm.target import Target
from codegen.llvm.workspace import Plan
from codegen.loops.nodes import (
    Buffer,
    For,
    Function,
    Load,
)

LINE = 64
"""Bytes of a cache line."""
LOOP = ", !llvm.loop !0"
"""What a branch back to the head of a loop carries: LLVM neither unrolls nor vectorizes."""
LIKELY = ", !prof !4"
"""What a branch carries whose condition nearly always holds: the side where it does follows at once, without a jump."""
_METADATA = """!0 = distinct !{!0, !2, !3}
!1 = !{i32 1}
!2 = !{!"llvm.loop.unroll.disable"}
!3 = !{!"llvm.loop.vectorize.enable", i1 false}
!4 = !{!"branch_weights", i32 2000, i32 1}
"""


@dataclass(slots=True)
class Module:
    """What has been written: declarations once each, and the text of functions."""

    target: Target
    plan: Plan
    intrinsics: tuple[Intrinsic, ...] = ()
    declarations: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    outlined: int = 0
    record: Emitted | None = None
    scalar: dict[int, bool] = field(default_factory=dict)
    """The answers of `needs_scalars`, by the identity of the loop; unrolled copies ask again."""
    unconditional: dict[int, tuple[For, frozenset[Load]]] = field(default_factory=dict)
    """And those of `unconditional_loads`, each with its loop, so that no other one takes its identity."""

    def runs_one_by_one(self, loop: For) -> bool:
        """Tell whether the lanes of a vector loop run one after the other."""
        if id(loop) not in self.scalar:
            self.scalar[id(loop)] = needs_scalars(loop)
        return self.scalar[id(loop)]

    def loads_of_copies(self, loop: For) -> frozenset[Load]:
        """Return what every copy of an unrolled loop loads, whatever holds."""
        if id(loop) not in self.unconditional:
            self.unconditional[id(loop)] = loop, unconditional_loads(loop)
        return self.unconditional[id(loop)][1]

    def text(self) -> str:
        width = f'"prefer-vector-width"="{self.target.vector_bits}"' if self.target.is_x86 else ""
        head = f'{stamp.line(self.target)}target triple = "{self.target.triple}"\n\n'
        declared = "\n".join(self.declarations.values())
        return f"{head}{declared}\n\n" + "\n".join(self.functions) + f"\nattributes #0 = {{ nounwind {width} }}\n{_METADATA}"


@dataclass(slots=True)
class Emitter:
    """One function being written."""

    module: Module
    state: State
    name: str
    workspace: str = "%workspace"
    shares_work: bool = False
    """Whether parts of the function run on the pool."""
    tiles: tuple[int, int, int] | None = None
    """The sizes of tiles that it configures: rows, columns, groups."""
    inputs: Mapping[str, Buffer] = field(default_factory=dict)
    """The parameters that it does not write, by name."""

    @property
    def b(self) -> Builder:
        return self.state.builder


def entry(function: Function, body: str, aligned: str, unaligned: list[int]) -> str:
    """Return the function that others call: it passes its arguments to `aligned` when those numbered `unaligned` are, else to `body`."""
    lines = ["entry:"]
    args = []
    for slot in range(len(function.params) + len(function.sizes)):
        kind = "ptr" if slot < len(function.params) else "i64"
        lines.append(f"  %p{slot} = getelementptr i64, ptr %args, i64 {slot}")
        lines.append(f"  %a{slot} = load {kind}, ptr %p{slot}, align 8")
        args.append(f"{kind} %a{slot}")
    passed = ", ".join([*args, "ptr %workspace"])
    if unaligned:
        lines += [f"  %l{slot} = ptrtoint ptr %a{slot} to i64" for slot in unaligned]
        together = [f"%l{unaligned[0]}"]
        for slot in unaligned[1:]:
            lines.append(f"  %t{slot} = or i64 {together[-1]}, %l{slot}")
            together.append(f"%t{slot}")
        lines += [f"  %low = and i64 {together[-1]}, {LINE - 1}", "  %fits = icmp eq i64 %low, 0", "  br i1 %fits, label %yes, label %no"]
        lines += ["yes:", f"  %s = call i32 @{aligned}({passed})", "  ret i32 %s", "no:"]
    lines.append(f"  %r = call i32 @{body}({passed})")
    lines.append("  ret i32 %r")
    return f"define i32 @{quoted(function.name)}(ptr %args, ptr %workspace) #0 {{\n" + "\n".join(lines) + "\n}\n"


def pointer_parameter(buffer: Buffer, text: str, read_only: bool) -> str:
    """Return the parameter through which a function has the address of a buffer."""
    align = buffer.align & -buffer.align
    return f"ptr noalias {'readonly ' if read_only else ''}{f'align {align} ' if align > 1 else ''}{text}"


def with_prologue(b: Builder) -> str:
    """Return the function's text with allocas first in its entry block."""
    prologue = b.prologue
    b.prologue = []
    b.regions[0].code.insert(1, prologue)
    return b.text()


def chunk(name: str, captures: list[str]) -> str:
    """Return the function that the pool calls for a part of a parallel loop: it loads what was captured and calls the loop's body."""
    lines = ["entry:"]
    args = ["i64 %begin", "i64 %end", "i64 %thread"]
    for i, capture in enumerate(["ptr %workspace", *captures]):
        kind = capture.rsplit(" ", 1)[0]
        lines.append(f"  %p{i} = getelementptr i64, ptr %context, i64 {i + 1}")
        lines.append(f"  %a{i} = load {kind}, ptr %p{i}, align 8")
        args.append(f"{kind} %a{i}")
    lines.append(f"  %r = call i32 @{quoted(name + '.body')}({', '.join(args)})")
    lines += ["  %ok = icmp eq i32 %r, 0", "  br i1 %ok, label %done, label %failed", "failed:"]
    lines += ["  store atomic i32 %r, ptr %context monotonic, align 8", "  br label %done", "done:", "  ret void"]
    return f"define internal void @{quoted(name)}(ptr %context, i64 %begin, i64 %end, i64 %thread) #0 {{\n" + "\n".join(lines) + "\n}\n"


def letters(n: int) -> str:
    """Return a number as letters, for prefixes of names that end in numbers."""
    return "".join(chr(ord("a") + int(d)) for d in str(n))


def identifier(name: str) -> str:
    """Return a name as part of an LLVM name that needs no quotes."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
