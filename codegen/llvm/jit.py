"""From LLVM IR text to objects, and from objects to callable addresses. The only user of LLVM's code generator.

The emitter has already vectorized, unrolled and promoted to registers, so no mid-level pass runs: LLVM selects instructions, schedules
them and allocates registers. Objects of many kernels load together, in about a millisecond.

LLVM ends the process when text asks for instructions that the target does not have, and the processor when it meets one it does not know.
So text begins, and an object ends, with what it needs (`stamp`): here is where both are held against what there is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from codegen.forks import lock_at_fork
from codegen.llvm import stamp
from codegen.llvm.cache import cache_key
from codegen.llvm.target import Lacking, Target, host, lacking
from codegen.store import Cache

_LOCK = threading.Lock()
lock_at_fork(llvm.ffi.lib._lock)
lock_at_fork(_LOCK)
_count = 0

_MAPPINGS = Path("/proc/self/maps")
_MOST_MAPPINGS = Path("/proc/sys/vm/max_map_count")
_OBJECTS_BETWEEN = 1024
_RESERVE = 8 * _OBJECTS_BETWEEN
"""Mappings that stay free: an object takes two or three, and they are counted before every `_OBJECTS_BETWEEN` objects."""
_uncounted = 0


class CompileError(Exception):
    """LLVM refused the text; the message is LLVM's. The fault is the emitter's."""


def compile_object(ir_text: str, target: Target) -> bytes:
    """Return the object file for LLVM IR text. Raises Lacking when the text was emitted for a target with more features."""
    return stamp.on_object(_machine(target).emit_object(parsed(ir_text, target)), target)


def kept_object(kind: str, ir_text: str, target: Target, store: Cache | None) -> bytes:
    """Return what `compile_object` returns, from the store when it is there; texts of one kind have keys of their own."""
    if store is None:
        return compile_object(ir_text, target)
    key = cache_key((kind, ir_text), target)
    found = store.get(key)
    if found is None:
        found = compile_object(ir_text, target)
        store.put(key, found)
    return found


def assembly(ir_text: str, target: Target, comments: bool = False) -> str:
    """Return the assembly that `compile_object` encodes, with LLVM's comments about loops and spills if these are wanted. Raises Lacking as
    it does."""
    return str(_machine(target, comments).emit_assembly(parsed(ir_text, target)))


class Library:
    """Loaded code. It stays in memory as long as this object does."""

    def __init__(self, name: str, tracker: object) -> None:
        self._name = name
        self._trackers = [tracker]
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """Return the address of a function in one of the objects. Raises KeyError when there is none."""
        if symbol not in self._addresses:
            try:
                tracker = _linker().lookup(self._name, symbol)
            except RuntimeError as error:
                raise KeyError(f"no `{symbol}` in the loaded objects: {error}") from None
            self._trackers.append(tracker)
            self._addresses[symbol] = tracker[symbol]
        return self._addresses[symbol]


def load(objects: Sequence[bytes], imports: Mapping[str, int] | None = None) -> Library:
    """Return the objects linked together. They may call each other, the C library, and `imports` (addresses by name).

    Raises Lacking when one was made for a processor with more than this one has, and MemoryError when the process has about as many
    mappings of memory as the system allows: LLVM would end it. Each object raises the auditing event `tensorlang.load` with its `Needs`."""
    global _count
    _check_mappings(len(objects))
    builder = llvm.JITLibraryBuilder()
    for data in objects:
        needs = stamp.of_object(data)
        missing = lacking(needs, host())
        if missing:
            raise Lacking(f"code for `{needs.target}` cannot run on this machine, which lacks {', '.join(missing)}")
        sys.audit("tensorlang.load", needs)
        builder.add_object_img(data)
    for symbol, address in (imports or {}).items():
        builder.import_symbol(symbol, address)
    builder.add_current_process()
    with _LOCK:
        _count += 1
        name = f"library{_count}"
        return Library(name, builder.link(_linker(), name))


def _check_mappings(objects: int) -> None:
    """Raise MemoryError where there is perhaps no mapping left for so many objects. Systems that tell no limit are taken to have none."""
    global _uncounted
    _uncounted += objects
    if _uncounted < _OBJECTS_BETWEEN or not _MOST_MAPPINGS.exists():
        return
    with _MAPPINGS.open("rb") as lines:
        here = sum(1 for _ in lines)
    most = int(_MOST_MAPPINGS.read_text())
    if here + _RESERVE > most:
        raise MemoryError(f"loaded code takes {here} mappings of memory, of {most} that vm.max_map_count allows a process")
    _uncounted = 0


def parsed(ir_text: str, target: Target) -> llvm.ModuleRef:
    """Return the verified module of LLVM IR text. Raises CompileError for what is none, Lacking as `compile_object` does."""
    needs = stamp.of_text(ir_text)
    missing = lacking(needs, target) if needs is not None else ()
    if needs is not None and missing:
        raise Lacking(f"text for `{needs.target}` cannot become code for `{target.name}`, which lacks {', '.join(missing)}")
    _initialise()
    try:
        module = llvm.parse_assembly(ir_text)
        module.data_layout = str(_machine(target).target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(str(error)) from None
    return module


@cache
def _initialise() -> None:
    for step in (llvm.initialize_all_targets, llvm.initialize_all_asmprinters, llvm.initialize_native_asmparser):
        step()


_ABIS = {"riscv64": "lp64d"}
"""How floats are passed, where LLVM does not know that of itself."""


@cache
def _machine(target: Target, comments: bool = False) -> llvm.TargetMachine:
    _initialise()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=3,
        reloc="static" if target.is_wasm else "pic",
        codemodel="small",
        abiname=_ABIS.get(target.family, ""),
    )
    if comments:
        machine.set_asm_verbosity(True)
    return machine


@cache
def _linker() -> llvm.LLJIT:
    """Return what links objects: JITLink, as it gives an object one range of memory. RuntimeDyld looks for a place for each section, and
    ends the process when two of them that refer to each other lie more than 2 GiB apart."""
    _initialise()
    host_machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(reloc="pic", jit=True)
    return llvm.create_lljit_compiler(host_machine, use_jit_link=True, suppress_errors=False)
