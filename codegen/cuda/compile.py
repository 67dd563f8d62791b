"""Kernel text to machine code, by NVRTC, without a device and without a driver.

    source    prelude, then kernels: one text, no includes
    cubin     machine code for one architecture, kept on disk under source, architecture and NVRTC's version

`$TENSORLANG_PREPARED` names a folder of machine code made beforehand, perhaps on another machine: what is made is kept there, too, and
found by every NVRTC of the same major version, whose machine code the same drivers load.

Arithmetic is what the text says: products and sums are not contracted (a fused one is written as such), nothing is flushed to zero,
quotients and roots are rounded correctly. Machine code rather than PTX: a driver older than NVRTC loads the one and refuses the other.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from codegen.cuda.arch import Arch
from codegen.cuda.bindings import core, nvrtc
from codegen.cuda.errors import Unavailable
from codegen.cuda.prelude import before
from codegen.errors import InternalError
from codegen.gpu.limits import Usage
from codegen.gpu.program import Program
from codegen.store import Cache, key_of

VERSION = 3
"""Part of every key: raised whenever what is made of a text changes."""

PREPARED = "TENSORLANG_PREPARED"
_OPTIONS = {"fma": False, "ftz": False, "prec_div": True, "prec_sqrt": True}
_INSTALL = "install `tensorlang[cuda]`, or a CUDA toolkit of version 13"


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code of the kernels of one source, for the architecture called `arch`, with what each kernel (by name) uses."""

    arch: str
    cubin: bytes
    usage: Mapping[str, Usage]
    cached: bool = False
    advice: tuple[str, ...] = ()
    """What the assembler says of instructions that it could not make as they were asked for, with its codes (C7508, C7510, …)."""


def source(program: Program) -> str:
    """Return what is compiled for `program`. NVRTC counts the lines of the kernels from 1."""
    return f'{before(program.text)}\n#line 1 "{program.name}"\n{program.text}'


def compiled(text: str, arch: Arch, store: Cache | None = None) -> Compiled:
    """Return the machine code of a source, from what was prepared or from the store when it is there.

    Raises Unavailable when there is no NVRTC, or one too old for `arch`; InternalError with NVRTC's log when it refuses the text."""
    places = []
    for cache_, key in _places(text, arch, store):
        if (found := cache_.get(key)) is not None:
            return _unpacked(found)
        places.append((cache_, key))
    made = _made(text, arch)
    for cache_, key in places:
        cache_.put(key, _packed(made))
    return made


def _places(text: str, arch: Arch, store: Cache | None) -> Iterator[tuple[Cache, str]]:
    """Yield where the machine code of a source is looked for and kept, and under which keys. What was prepared needs no NVRTC."""
    what = (str(VERSION), repr(_OPTIONS), arch.name, text)
    if prepared := os.environ.get(PREPARED):
        yield Cache(Path(prepared)), key_of(("prepared cubin", str(_major()), *what))
    if store is not None:
        yield store, key_of(("cubin", repr(nvrtc_version()), *what))


def _major() -> int:
    """Return NVRTC's major version, or, where there is none, that of the packages that load machine code."""
    try:
        return nvrtc_version()[0]
    except Unavailable:
        return int(version("cuda-bindings").partition(".")[0])


def all_compiled(
    texts: Sequence[str],
    arch: Arch,
    store: Cache | None = None,
    threads: int = 1,
    done: Callable[[int], None] = lambda count: None,
) -> list[Compiled]:
    """Return the machine code of each source, in order: on `threads` threads, which NVRTC runs at the same time. `done` is told how many
    of them there are so far. Equal sources are compiled once."""
    distinct = list(dict.fromkeys(texts))
    made: dict[str, Compiled] = {}
    with ThreadPoolExecutor(threads) as pool:
        for text, result in zip(distinct, pool.map(lambda text: compiled(text, arch, store), distinct), strict=True):
            made[text] = result
            done(len(made))
    return [made[text] for text in texts]


@cache
def nvrtc_version() -> tuple[int, int]:
    """Return NVRTC's version. Raises Unavailable when there is none."""
    try:
        status, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as problem:  # how the loader of NVIDIA's packages says that it found no library
        reason, _, _ = str(problem).partition(":")
        raise Unavailable(f"NVRTC cannot be loaded ({reason})", _INSTALL) from None
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise Unavailable(f"NVRTC does not tell its version ({status.name})", _INSTALL)
    return int(major), int(minor)


@cache
def compilable() -> tuple[int, ...]:
    """Return the numbers of the architectures that the NVRTC of this machine compiles for. Raises Unavailable when there is none."""
    nvrtc_version()
    status, found = nvrtc.nvrtcGetSupportedArchs()
    return tuple(found) if status == nvrtc.nvrtcResult.NVRTC_SUCCESS else ()


def usage_of(log: str) -> dict[str, Usage]:
    """Return what each kernel uses, by what ptxas says with `-v`."""
    return {match[1]: _usage(match[2]) for match in _ENTRY.finditer(log)}


_ENTRY = re.compile(r"Compiling entry function '([^']+)'[^\n]*\n(.*?)(?=ptxas info\s*: Compiling entry function|\Z)", re.DOTALL)


def _usage(text: str) -> Usage:
    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found[1]) if found else 0

    return Usage(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes smem"),
    )


def _made(text: str, arch: Arch) -> Compiled:
    """Return the machine code. A wish for blocks on a multiprocessor is dropped where registers would spill for it."""
    made = _assembled(text, arch)
    spilling = {name for name, usage in made.usage.items() if usage.spills}
    freer = _WISH.sub(lambda kernel: f"TL_KERNEL({kernel[1]}, 1) {kernel[2]}" if kernel[2] in spilling else kernel[0], text)
    if freer == text:
        return made
    again = _assembled(freer, arch)
    return again if sum(map(_spilled, again.usage.values())) < sum(map(_spilled, made.usage.values())) else made


_WISH = re.compile(r"\bTL_KERNEL\((\d+), \d+\) (\w+)(?=\()")


def _spilled(usage: Usage) -> int:
    return usage.spill_store_bytes + usage.spill_load_bytes


def _assembled(text: str, arch: Arch) -> Compiled:
    if arch.number not in compilable():
        present = ".".join(map(str, nvrtc_version()))
        raise Unavailable(
            f"NVRTC {present} does not compile for {arch.name}", "install a newer `nvidia-cuda-nvrtc`, or ask for another target"
        )
    options = core.ProgramOptions(arch=arch.name, **_OPTIONS, ptxas_options=["-v"])
    log = io.StringIO()
    try:
        cubin = core.Program(text, "c++", options).compile("cubin", logs=log).code
    except Exception as problem:  # cuda-core's error has no public name; its text is NVRTC's log
        raise InternalError("nvrtc", f"{problem}") from None
    return Compiled(arch.name, bytes(cubin), usage_of(log.getvalue()), advice=tuple(_ADVICE.findall(log.getvalue())))


_ADVICE = re.compile(r"\(C\d+\)[^\n]*")


def _packed(made: Compiled) -> bytes:
    usage = {name: asdict(usage) for name, usage in made.usage.items()}
    head = json.dumps({"arch": made.arch, "usage": usage, "advice": made.advice}).encode()
    return len(head).to_bytes(8, "little") + head + made.cubin


def _unpacked(data: bytes) -> Compiled:
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    usage = {name: Usage(**usage) for name, usage in head["usage"].items()}
    return Compiled(head["arch"], data[8 + size :], usage, cached=True, advice=tuple(head["advice"]))
