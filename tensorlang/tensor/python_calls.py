"""Functions of Python that stand for extern operators, called: what they are passed, and what becomes of what they return or raise.

scale(x, by=3.0)             what it returns is checked and copied into the result
scale(x, by=3.0, out=y)      `tl.python_function(scale, out=True)`: it writes into the result, and returns nothing
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from tensorlang.diagnostics import Diagnostic, Label, RunError, Source, Span, counted
from tensorlang.externs import PythonFunction
from tensorlang.tensor.nodes import ExternCall, constant_size
from tensorlang.tensor.walk import caller_shape

Array = np.ndarray[Any, Any]
Size = int | tuple[int, ...]


def call_function(call: ExternCall, arrays: Sequence[Array], results: Sequence[Array], sizes: Sequence[Size]) -> None:
    """Write what the function of a call makes of `arrays`, those of its arguments that are given, into `results`; `sizes` are those of the
    operator.

    Raises RunError R0318 for what it raises, the exception being the cause, R0319 for a result that does not fit the declaration."""
    kernel = function_of(call)
    named: dict[str, Any] = {}
    if call.signature is not None:
        named |= {name: size for name, size in zip(call.signature.sizes, sizes, strict=True) if name is not None}
        named |= dict(zip(call.signature.attributes, call.attributes, strict=True))
    rest = iter(arrays)
    made, given = _by_parameters(call, results, [None if name is None else next(rest) for name in call.arguments])
    if kernel.out:
        named["out"] = made[0] if len(made) == 1 else made
    try:
        found = kernel.function(*given, **named)
    except Exception as problem:
        told = _raised(call, kernel, problem)
        raise told from problem.with_traceback(problem.__traceback__ and problem.__traceback__.tb_next)
    if kernel.out:
        _check_written(call, found, named["out"])
    else:
        _store(call, found, results)


def computed(call: ExternCall, known: Mapping[str, Array]) -> dict[str, Array]:
    """Return what the function of a call makes of the arrays that are known."""
    made = {t.name: np.empty(caller_shape(t, {}), t.dtype.numpy) for t in call.results}
    shapes = iter(caller_shape(t, {}) for t in call.given)
    given = [np.ascontiguousarray(known[name]).reshape(next(shapes)).copy() for name in call.arguments if name is not None]
    for array in given:
        array.flags.writeable = False
    sizes = [tuple(map(constant_size, size)) if isinstance(size, tuple) else constant_size(size) for size in call.sizes]
    call_function(call, given, list(made.values()), sizes)
    return made


def function_of(call: ExternCall) -> PythonFunction:
    """Return the function that stands for the operator of a call."""
    assert isinstance(call.kernel, PythonFunction)
    return call.kernel


def _by_parameters(call: ExternCall, results: Sequence[Any], arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return results and arguments as they are declared: those of `each` of several as a list."""
    if not call.counts or call.signature is None:
        return tuple(results), tuple(arguments)
    rest = iter((*results, *arguments))
    grouped = [next(rest) if count is None else list(islice(rest, count)) for count in call.counts]
    first = len(call.counts) - len(call.signature.tensors)
    return tuple(grouped[:first]), tuple(grouped[first:])


# ---------------------------------------------------------------- what it returns


def _check_written(call: ExternCall, found: object, out: object) -> None:
    """Raise RunError R0319 for a function that writes into its results, and returns something else."""
    if found is None or found is out:
        return
    if isinstance(found, (tuple, list)) and isinstance(out, tuple) and len(found) == len(out) and all(map(_is, found, out)):
        return
    help = "write into `out` and return nothing; or return the result, and leave out `out=True`"
    raise _unfit(call, f"is passed `out`, and returned a {type(found).__name__} besides", help)


def _is(one: object, other: object) -> bool:
    return one is other


def _store(call: ExternCall, found: object, results: Sequence[Array]) -> None:
    """Copy what a function returned into the results. Raises RunError R0319 where it is not of their number, types and shapes."""
    if found is None:
        raise _unfit(call, "returned nothing", "return the result; or pass `out=True` to `tl.python_function`, to write into it")
    several = len(results) != 1 or bool(call.counts and call.counts[0] is not None)
    items = list(_flat(found)) if several else [found]
    if len(items) != len(results):
        names = ", ".join(f"`{t.name}`" for t in call.results)
        raise _unfit(
            call,
            f"returned {counted(len(items), 'array')}, and {counted(len(results), 'result')} are declared: {names}",
            "return them as a tuple",
        )
    for tensor, item, result in zip(call.results, items, results, strict=True):
        array = _array(call, tensor.name, item)
        if array.dtype != result.dtype:
            title = f"returned elements of {array.dtype} for `{tensor.name}`, which has elements of {result.dtype} here"
            raise _unfit(call, title, f'return it converted, `y.astype("{result.dtype}")`; nothing is converted by itself')
        if array.shape != result.shape:
            title = f"returned the shape {list(array.shape)} for `{tensor.name}`, which has the shape {list(result.shape)} here"
            raise _unfit(call, title, "return an array of the declared shape; nothing is broadcast by itself")
        np.copyto(result, array)


def _flat(found: object) -> Iterator[object]:
    """Yield what was returned one by one, `each` of several as if they were not in a list."""
    if isinstance(found, (tuple, list)):
        for item in found:
            yield from item if isinstance(item, (tuple, list)) else (item,)
    else:
        yield found


def _array(call: ExternCall, name: str, item: object) -> Array:
    if isinstance(item, np.ma.MaskedArray):
        raise _unfit(call, f"returned a masked array for `{name}`", "fill it: `y.filled(0)`")
    try:
        return np.asarray(item)
    except Exception as problem:  # whatever an object of another library raises when it is to be an array
        raise _unfit(
            call, f"returned a {type(item).__name__} for `{name}`, which is no array: {problem}", "return arrays of NumPy"
        ) from None


def _unfit(call: ExternCall, why: str, help: str) -> RunError:
    kernel = function_of(call)
    place = _definition(kernel.function)
    labels = (*(Label(span, "this function") for span in place), *declared(call))
    return RunError(Diagnostic("R0319", f"extern `{call.operator}` {why}", labels, (f"its kernel is {kernel}",), help))


# ---------------------------------------------------------------- what it raises


def _raised(call: ExternCall, kernel: PythonFunction, problem: Exception) -> RunError:
    text = str(problem).strip().splitlines()
    title = f"extern `{call.operator}` raised {type(problem).__name__}{f': {text[0]}' if text else ''}"
    place = _place(kernel.function, problem)
    labels = (*(Label(span, "raised here") for span in place), *declared(call))
    help = "correct the function; the exception is the `__cause__` of this error"
    if "read-only" in title:
        help = "its arguments are read-only: work on a copy, `x.copy()`, or return a new array"
    frames = traceback.extract_tb(problem.__traceback__)
    where = () if place else (f"it was raised in line {frames[-1].lineno} of {frames[-1].filename}",)
    return RunError(Diagnostic("R0318", title, labels, (f"its kernel is {kernel}", *where), help))


def declared(call: ExternCall) -> tuple[Label, ...]:
    """Return where the operator of a call is declared, as what an error points at besides."""
    return (Label(call.span, "declared here"),) if call.span.end else ()


def _place(function: Callable[..., Any], problem: Exception) -> tuple[Span, ...]:
    """Return where an exception comes from, as its author sees it: the last line of the function's own file that was running."""
    frames, places = list(traceback.walk_tb(problem.__traceback__)), list(_steps(problem.__traceback__))
    own = getattr(getattr(function, "__code__", None), "co_filename", None)
    at = max((k for k, (frame, _) in enumerate(frames) if frame.f_code.co_filename == own), default=len(frames) - 1)
    if at <= 0:  # the call of the function itself: it takes other arguments
        return _definition(function)
    frame, line = frames[at]
    return _span(frame.f_code.co_filename, line, *_columns(frame, places[at]))


def _steps(trace: TracebackType | None) -> Iterator[int]:
    """Yield which instruction each frame was at."""
    while trace is not None:
        yield trace.tb_lasti
        trace = trace.tb_next


def _columns(frame: FrameType, instruction: int) -> tuple[int | None, int | None]:
    """Return from which byte of its line to which an instruction was written, as far as that is known."""
    first, last, start, end = next(islice(frame.f_code.co_positions(), instruction // 2, None), (None,) * 4)
    return (start, end) if first == last else (start, None)


def _definition(function: Callable[..., Any]) -> tuple[Span, ...]:
    """Return where a function begins, if it is written in Python."""
    code = getattr(function, "__code__", None)
    return () if code is None else _span(code.co_filename, code.co_firstlineno, None, None)


def _span(file: str, line: int, start: int | None, end: int | None) -> tuple[Span, ...]:
    """Return a part of a line of Python, counted in bytes, or the whole line; nothing where its text is not to be had."""
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return ()
    text = lines[line - 1].rstrip("\n")
    before = sum(map(len, lines[: line - 1]))
    raw = text.encode()
    left = len(text) - len(text.lstrip()) if start is None else len(raw[:start].decode(errors="ignore"))
    right = len(text.rstrip()) if end is None else len(raw[:end].decode(errors="ignore"))
    return (Span(Source(file, "".join(lines)), before + left, before + max(left + 1, right)),)
