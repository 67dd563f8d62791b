"""How many threads to use where a call does not say (`codegen.llvm.thread_count`)."""

from __future__ import annotations

from codegen.llvm import thread_count
from tensorlang.diagnostics import error


def default_threads() -> int:
    """Return how many threads to use. Raises CompileError C0109 for `$TENSORLANG_THREADS` that is no number of threads."""
    try:
        return thread_count.default_threads().count
    except thread_count.ThreadsError as problem:
        help = f"set `{thread_count.THREADS}` to a whole number from 1, or unset it"
        raise error("C0109", str(problem), help=help) from None
