"""A check-up: what this machine and this installation have, and whether compiled code computes what it should."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from codegen.dtypes import f32
from codegen.eviction import limit_bytes, usage
from codegen.llvm import probe, thread_count
from codegen.llvm.target import LEVEL, host, levels, this_machine
from codegen.store import default_directory, private_directory
from tensorlang import __version__
from tensorlang.api import installed_importers
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.backends.registry import checks
from tensorlang.diagnostics import Source
from tensorlang.runtime.operator import Operators
from tensorlang.runtime.report import bytes_text

_PACKAGES = ("numpy", "llvmlite", "islpy", "lark", "onnx", "onnxruntime")
_ROOT = Path(__file__).parents[2]
_SELF_TEST = "op test(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) x[i, k] * w[k, j] }"


@dataclass(frozen=True, slots=True)
class Finding:
    """`fine` is False for what keeps tensorlang from working."""

    what: str
    found: str
    fine: bool = True


def findings() -> Iterator[Finding]:
    """Yield what was found, one by one: the later ones take a moment."""
    yield Finding("tensorlang", f"{__version__}{_commit()} in {_ROOT}")
    libc = " ".join(platform.libc_ver()).strip() or "another C library than glibc"
    yield Finding("system", f"{platform.system()} {platform.release()}, {libc}, {platform.machine()}")
    yield Finding("model", _model_of_processor())
    yield Finding("python", f"{platform.python_version()} ({sys.implementation.name})", sys.version_info >= (3, 11))
    for package in _PACKAGES:
        yield _package(package)
    yield _guarded("processor", _processor)
    yield _threads()
    yield _cache()
    yield _importers()
    for what, look in checks().items():
        yield Finding(what, look())
    yield Finding("g++", _cpp_compiler())
    yield _guarded("compiled code", _self_test)
    yield _guarded("arithmetic", lambda: f"{probe.fma_flops(f32) * 1e-9:.0f} GFLOP/s of f32 multiply-adds on one thread")
    yield _guarded("memory", lambda: f"{probe.read_bandwidth(256 << 20) * 1e-9:.1f} GB/s read by one thread")


def _commit() -> str:
    """Return which commit the source is of, and whether it was changed since, where it lies in a repository of its own."""
    git = shutil.which("git")
    if git is None or not (_ROOT / ".git").exists():
        return ""
    asked = [git, "-C", str(_ROOT), "describe", "--always", "--dirty=, changed", "--match="]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f" (commit {found.stdout.strip()})" if found.returncode == 0 and found.stdout.strip() else ""


def _model_of_processor() -> str:
    """Return what the processor is sold as, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Processor", "CPU part")))
    return next(named, platform.processor() or "unknown")


def _processor() -> str:
    target, machine = host(), this_machine()
    limit = f"; {LEVEL} keeps {machine.cpu} to this" if target != machine else ""
    width = f"vectors of {target.vector_bits} bits, {target.vector_registers} registers"
    return f"{target.cpu}, {width}, fma {target.has_fma}, levels {', '.join(levels())}{limit}"


def _threads() -> Finding:
    try:
        found = thread_count.default_threads()
    except thread_count.ThreadsError as problem:
        return Finding("threads", f"{problem}: set it to a whole number from 1, or unset it", False)
    return Finding("threads", f"{found.count}: {found.why}")


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        needed = name not in ("onnx", "onnxruntime")
        return Finding(name, "not installed" + ("" if needed else " (optional)"), not needed)


def _cache() -> Finding:
    directory = default_directory()
    try:
        private_directory(directory)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as problem:
        return Finding("cache", f"{directory} cannot be used: {problem.strerror or problem}; set TENSORLANG_CACHE", False)
    found = usage(directory).values()
    size, limit = sum(u.size_bytes for u in found), limit_bytes()
    return Finding("cache", f"{directory}: {sum(u.entries for u in found)} entries, {bytes_text(size)} of {bytes_text(limit)}")


def _importers() -> Finding:
    found = installed_importers()
    names = ", ".join(type(i).__module__ for i in found)
    return Finding("importers", names or "none: install tensorlang as a package to compile models", bool(found))


def _cpp_compiler() -> str:
    """Return the version of what runs kernels of graphics processors on the CPU, for tests."""
    found = shutil.which("g++")
    if found is None:
        return "none (only to run kernels for graphics processors on the CPU)"
    run = subprocess.run([found, "-dumpfullversion"], capture_output=True, text=True, check=False)
    return f"{run.stdout.strip() or 'of an unknown version'} in {found}"


def _self_test() -> str:
    rng = np.random.default_rng(1)
    x, w = rng.integers(-4, 5, (17, 13)).astype(np.float32), rng.integers(-4, 5, (13, 19)).astype(np.float32)
    for threads in (1, None):
        ops = Operators(Source("<self-test>", _SELF_TEST), toolchain(threads=threads, cache=False))
        if not np.array_equal(ops.test(x, w), x @ w):
            raise ArithmeticError(f"a matrix product on {threads or 'all'} threads is wrong")
    return "a matrix product is right, on one thread and on all"


def _guarded(what: str, run: Callable[[], str]) -> Finding:
    """Return the finding of `run`; whatever goes wrong in it is the finding."""
    try:
        return Finding(what, run())
    except Exception as problem:
        return Finding(what, f"{type(problem).__name__}: {problem}", False)
