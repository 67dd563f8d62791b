"""Instructions that a file names itself: whether LLVM has them, whether the features named bring them, and what they compute here.

LLVM ends the process when it has no way to compute an intrinsic with the features there are. So another process compiles it first, for a
processor with the features of the declaration and no others.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from codegen.dtypes import DType
from codegen.intrinsics import Intrinsic, is_name
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.target import Target, host, named
from codegen.llvm.values import memory_type, of_lanes

Array = np.ndarray[Any, Any]

_FLOATS = {"f16": "half", "bf16": "bfloat"}
_PURE = ("willreturn", "nounwind", "memory(none)")
"""What LLVM says of an intrinsic that computes its result from its operands and does nothing else."""
_SECONDS = 60


def signature(intrinsic: Intrinsic) -> str:
    """Return the type of the intrinsic, with `@` where its name goes. Elements are LLVM's types of the declared ones."""
    operands = ", ".join(operand_type(intrinsic, o) for o in intrinsic.operands)
    return f"{_vector(intrinsic.total, intrinsic.lanes)} @({operands})"


def operand_type(intrinsic: Intrinsic, operand: str) -> str:
    """Return the type of the vector that the intrinsic takes for an operand."""
    return _vector(intrinsic.dtype(operand), intrinsic.elements(operand))


def _vector(dtype: DType, elements: int) -> str:
    return of_lanes(_FLOATS.get(dtype.name) or memory_type(dtype), elements)


@cache
def is_valid(intrinsic: Intrinsic) -> bool:
    """Tell whether LLVM has an intrinsic of exactly this name and type that has no effects."""
    if not is_name(intrinsic.name):
        return False
    declared = f"declare {signature(intrinsic).replace('@', '@' + intrinsic.name)}\n"
    try:
        module = llvm.parse_assembly(declared)
        module.verify()
    except RuntimeError:
        return False
    found = [f for f in module.functions if f.name == intrinsic.name]
    # Only to what it knows does LLVM add attributes; names of old it takes away.
    given = str(module).partition("attributes #")[2]
    return bool(found) and all(word in given for word in _PURE)


@cache
def is_implemented(intrinsic: Intrinsic) -> bool:
    """Tell whether a processor with the features that the declaration names, and no others, has it as instructions."""
    argv = [sys.executable, "-c", _CHILD]
    try:
        child = subprocess.run(argv, input=_probe(intrinsic, _bare(intrinsic)), capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == 0 and not any(word.startswith("call") for word in child.stdout.split())


def _bare(intrinsic: Intrinsic) -> str:
    features = ",".join(f"+{need}" for need in intrinsic.needs)
    return f"; features {named('x86-64').features},{features}\n"


_CHILD = """
import sys
import llvmlite.binding as llvm
text = sys.stdin.read()
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
features = text.partition("\\n")[0].removeprefix("; features ")
target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
machine = target.create_target_machine(cpu="x86-64", features=features, opt=3, reloc="pic", codemodel="small")
module = llvm.parse_assembly(text)
module.verify()
print(machine.emit_assembly(module))
"""


def lacks(intrinsic: Intrinsic, target: Target) -> tuple[str, ...]:
    """Return the features that the intrinsic needs and `target` lacks, or its family where that is another."""
    return tuple(sorted(frozenset(intrinsic.needs) - target.needs.features)) if target.is_x86 else (target.family,)


def computed(intrinsic: Intrinsic, operands: Mapping[str, Array]) -> Array:
    """Return what this machine computes: `operands` have shape [samples, lanes * count] (`c`: [samples, lanes]), the result that of `c`.

    Raises Lacking where the machine lacks a feature."""
    samples = len(operands["a"])
    result = np.zeros((samples, intrinsic.lanes), intrinsic.total.numpy)
    given = [np.ascontiguousarray(operands[o]) for o in intrinsic.operands]
    entry = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * (len(given) + 1), ctypes.c_int64)(_loaded(intrinsic).address("tl_probe"))
    entry(*(a.ctypes.data for a in (*given, result)), samples)
    return result


@cache
def _loaded(intrinsic: Intrinsic) -> Library:
    return load([compile_object(_probe(intrinsic), host())])


def _probe(intrinsic: Intrinsic, head: str = "") -> str:
    """Return a module whose `tl_probe` applies the intrinsic to vectors that follow each other in memory."""
    places = [f"%{o}" for o in intrinsic.operands]
    kinds = [operand_type(intrinsic, o) for o in intrinsic.operands]
    total = _vector(intrinsic.total, intrinsic.lanes)
    lines = []
    for place, kind in zip((*places, "%d"), (*kinds, total), strict=True):
        lines.append(f"  {place}.at = getelementptr {kind}, ptr {place}, i64 %i")
    lines += [f"  {place}.v = load {kind}, ptr {place}.at, align 1" for place, kind in zip(places, kinds, strict=True)]
    arguments = ", ".join(f"{kind} {place}.v" for place, kind in zip(places, kinds, strict=True))
    params = ", ".join(f"ptr {place}" for place in (*places, "%d"))
    body = "\n".join(lines)
    return f"""{head}declare {signature(intrinsic).replace("@", "@" + intrinsic.name)}

define void @tl_probe({params}, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{body}
  %r = call {total} @{intrinsic.name}({arguments})
  store {total} %r, ptr %d.at, align 1
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
