"""Compiled code made callable: loaded where this machine runs it. Of code for another machine, an entry point that refuses every call
(C0102), so that what was compiled can be looked at all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from codegen.llvm.builder import quoted
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.target import Target, host, runs_here
from tensorlang.diagnostics import CompileError, error

REFUSED = -1
"""What an entry point returns that refuses every call; no kernel returns a negative number."""


def loaded(objects: Sequence[bytes], imports: Mapping[str, int], entry: str, target: Target) -> Library:
    """Return objects for `target` linked together, of which callers look for `entry` and its timed form."""
    if runs_here(target):
        return load(objects, imports)
    texts = (f"define i32 @{quoted(name)}(ptr %bases) {{ ret i32 {REFUSED} }}" for name in (entry, f"{entry}_timed"))
    return load([compile_object("\n".join(texts), host())])


def failure_on(target: Target, failure: Callable[[int], BaseException]) -> Callable[[int], BaseException]:
    """Return what turns the result of an entry point that `loaded` returned into an exception; `failure` is that of its kernels."""
    return failure if runs_here(target) else lambda code: refusal_of_target(target)


def refusal_of_target(target: Target) -> CompileError:
    """Return C0102 for a target that this machine is not."""
    help = "compile for `cpu`, which is this machine; `explain` and `show --stage asm` tell what was made for others"
    return error("C0102", f"this machine cannot run code for `{target.name}`", help=help)


def not_measured(target: Target) -> str:
    """Return why there are no times of code for a target that this machine is not."""
    return f"not measured: this machine cannot run code for `{target.name}`"
