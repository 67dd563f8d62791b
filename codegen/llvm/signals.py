"""Signals that arrive while native code repeats calls: it asks Python for them every few milliseconds, and stops where a handler raises.

    stop = interrupted()        32 bits, other than 0 where what a handler raised is kept for `kept_exception`

Whoever gets `STOPPED` back from an entry point raises what `kept_exception` returns. Only the main thread runs handlers; in others nothing
stops.
"""

from __future__ import annotations

import ctypes
import sys

STOPPED = (1 << 32) - 2
"""The result, without a sign, of an entry point that was stopped; no kernel returns a negative number."""
ASKED = "tl_interrupted"

ASK = f"""
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
@tl_raised = external global [3 x ptr]

; Whether a handler of a signal raises something, which is kept.
define internal i32 @{ASKED}() nounwind {{
entry:
  %state = call i32 @PyGILState_Ensure()
  %r = call i32 @PyErr_CheckSignals()
  %calm = icmp eq i32 %r, 0
  br i1 %calm, label %done, label %keep
keep:
  %value = getelementptr ptr, ptr @tl_raised, i64 1
  %trace = getelementptr ptr, ptr @tl_raised, i64 2
  call void @PyErr_Fetch(ptr @tl_raised, ptr %value, ptr %trace)
  br label %done
done:
  call void @PyGILState_Release(i32 %state)
  ret i32 %r
}}
"""

_raised = (ctypes.c_void_p * 3)()


def is_possible() -> bool:
    """Tell whether this interpreter has what native code asks."""
    return sys.implementation.name == "cpython"


def imports() -> dict[str, int]:
    """Return the addresses that `ASK` needs."""
    names = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")
    return {**{name: address_of(name) for name in names}, "tl_raised": kept_at()}


def address_of(name: str) -> int:
    """Return the address of a function of Python's interface for C."""
    return int(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0)


def kept_at() -> int:
    """Return the address of what a handler raised: type, value, traceback."""
    return ctypes.addressof(_raised)


def kept_exception() -> BaseException:
    """Return what the handler raised that stopped native code."""
    held = [_raised[k] for k in range(3)]
    for k in range(3):
        _raised[k] = None
    restore = ctypes.pythonapi.PyErr_Restore
    restore.argtypes, restore.restype = (ctypes.c_void_p,) * 3, None
    try:
        restore(*held)
    except BaseException as found:  # ctypes raises what is set
        return found
    return KeyboardInterrupt()
