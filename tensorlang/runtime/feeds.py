"""What a caller hands over, as arrays that native code can read: checked, and copied only when their memory is not row-major.

R0301  an input is missing         R0302  there is no such input      R0303  the dtype differs
R0304  the shape differs           R0305  not an array            R0307  it would have to be copied
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import permutations
from typing import Any, Protocol, TypeVar

import numpy as np

from codegen.arrays import negates_memory
from codegen.dtypes import DTYPES, DType, from_numpy
from tensorlang.check.types import ELSEWHERE
from tensorlang.diagnostics import CompileError, Diagnostic, RunError, counted, exception

Array = np.ndarray[Any, Any]


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


class Place(Named, Protocol):
    """What an input or output is called, and what it holds."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def as_array(value: object, name: str) -> Array:
    """Return `value` as an array: NumPy's own, what speaks DLPack (without a copy when it is in host memory), numbers and nested lists."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise exception(Diagnostic("R0305", f"`{name}` is a masked array", help="say what the masked elements are: `array.filled(0)`"))
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return _by_dlpack(value, name)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as problem:
        title, help = f"`{name}` cannot be read as an array", "give rows of one length, or pad them"
        raise exception(Diagnostic("R0305", title, notes=(str(problem),), help=help)) from None
    if from_numpy(array.dtype) is None:
        help = _array_meant(name, value) if isinstance(value, str) else "pass a NumPy array"
        raise exception(Diagnostic("R0305", f"`{name}` is no array of numbers but {kind_of(value)}", help=help))
    return array


def _array_meant(name: str, text: str) -> str:
    """Return what to write instead of a text: on the command line a type like the one that it resembles, or a file."""
    found = re.match(r"\s*([A-Za-z]\w*)?", text)
    word = (found and found[1]) or ""
    dtype = word if word in DTYPES else ELSEWHERE.get(word, "f32")
    sizes = re.findall(r"[0-9]{1,19}", text.removeprefix(word)) or ["4", "5"]
    line = f"`{name}={dtype}[{','.join(sizes)}]` for random numbers, or a file, `{name}=data.npy`"
    if text.lstrip().startswith("["):
        line += f" that has these elements: `numpy.save('data.npy', numpy.array({text.strip()}, '{DTYPES[dtype].numpy.name}'))`"
    return f"on the command line write {line}; in Python pass a NumPy array"


_REFUSALS = (AttributeError, BufferError, RuntimeError, TypeError, ValueError)
"""What libraries raise for tensors that they do not hand over."""


def _by_dlpack(value: Any, name: str, *, own: bool = False) -> Array:
    """Return an array over the memory of what speaks DLPack, read by NumPy where that can, and not by our `own` means."""
    if negates_memory(value):
        title, why = f"`{name}` cannot be read as an array", "it is a view whose elements are those in memory with the other sign"
        raise exception(Diagnostic("R0305", title, notes=(why,), help="pass `tensor.resolve_neg()`"))
    if not own:
        try:
            return np.from_dlpack(value)
        except _REFUSALS:
            pass  # of an element type that NumPy lacks, or refused below with the reason
    from tensorlang.runtime.dlpack import imported

    try:
        return imported(value)
    except _REFUSALS as problem:
        help = "pass a dense tensor in the host's memory, and one that records gradients as `tensor.detach()`"
        raise exception(Diagnostic("R0305", f"`{name}` cannot be read as an array", notes=(str(problem),), help=help)) from None


def checked(feeds: Mapping[str, object], inputs: Sequence[Place]) -> list[Array]:
    """Return the arrays of `feeds` in the order of `inputs`, row-major in memory. Raises RunError with everything that does not fit."""
    check_named(feeds)
    problems = list(_names(feeds, inputs))
    arrays: list[Array] = []
    for value in inputs:
        if value.name in feeds:
            try:
                array = as_array(feeds[value.name], value.name)
            except RunError as problem:
                problems += problem.diagnostics
                continue
            problems += _fits(array, value)
            arrays.append(array)
    if problems:
        raise exception(*problems)
    return [row_major(array) for array in arrays]


def in_place(given: Mapping[str, object], values: Sequence[Place], what: str) -> list[Array]:
    """Return the arrays given for `values` in their order; all are used where they lie. `what`: input or output. Raises RunError with
    everything that does not fit."""
    check_named(given, what)
    problems = list(_names(given, values, what))
    arrays: list[Array] = []
    for value in values:
        found = given.get(value.name)
        if not hasattr(found, "__dlpack__"):  # NumPy's arrays have it, and those of others that can be used where they lie
            if value.name in given:
                problems.append(Diagnostic("R0305", f"`{value.name}` is {kind_of(found)}", help="pass a NumPy array"))
            continue
        try:
            array = as_array(found, value.name)
            if not array.flags.writeable and not isinstance(found, np.ndarray):  # as NumPy takes what says nothing about that
                array = _by_dlpack(found, value.name, own=True)
            if what == "output" and not isinstance(found, np.ndarray) and array.flags.writeable and _is_immutable(found):
                array.flags.writeable = False
        except RunError as problem:
            problems += problem.diagnostics
            continue
        problems += (*_fits(array, value, what), *_lies_well(array, value, what))
        arrays.append(array)
    if problems:
        raise exception(*problems)
    return arrays


def _is_immutable(value: object) -> bool:
    """Tell whether a library hands an array over to be read alone: its capsules need not say so before version 1 of DLPack, its view for
    NumPy does."""
    try:
        return not np.asarray(value).flags.writeable
    except _REFUSALS:
        return False


def _lies_well(array: Array, value: Place, what: str) -> Iterator[Diagnostic]:
    why, help = None, "pass `np.ascontiguousarray(array)`" if what != "output" else fresh_output(value)
    if not array.flags.c_contiguous:
        why = f"it is not row-major: its shape is {list(array.shape)}, its strides are {list(array.strides)} bytes"
    elif not array.dtype.isnative:
        why, help = f"its bytes are in the order of {array.dtype.str}", "pass `array.astype(array.dtype.newbyteorder('='))`"
    elif not array.flags.aligned:
        why = f"its elements of {array.itemsize} bytes begin at address {array.ctypes.data:#x}"
        help = "pass `array.copy()`"
    elif what == "output" and not array.flags.writeable:
        why, help = "it is read-only", "pass a copy of it"
    if why is not None:
        yield Diagnostic("R0307", f"{what} `{value.name}` cannot be used where it lies: {why}", help=help)


def check_names(feeds: Mapping[str, object], inputs: Sequence[Place]) -> None:
    """Raise RunError R0301 and R0302 for inputs that are missing, or are none."""
    check_named(feeds)
    problems = tuple(_names(feeds, inputs))
    if problems:
        raise exception(*problems)


def check_disjoint(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    """Raise RunError R0307 where dense arrays for outputs share memory with inputs or with each other: kernels write before all is read."""
    others = [(f"input `{name}`", array) for name, array in inputs.items()]
    for name, output in outputs.items():
        for other, array in others:
            if np.may_share_memory(output, array):
                title = f"output `{name}` cannot be used where it lies: it shares memory with {other}"
                notes = tuple(f"{what} lies at {_range(a)}" for what, a in ((f"output `{name}`", output), (other, array)))
                raise exception(Diagnostic("R0307", title, notes=notes, help="pass an array of its own"))
        others.append((f"output `{name}`", output))


def _range(array: Array) -> str:
    start = array.ctypes.data
    return f"{start:#x} to {start + array.nbytes:#x}"


def named_arrays(places: Sequence[Place], arrays: Sequence[Array]) -> dict[str, Array]:
    """Return arrays by the names of their inputs or outputs."""
    return dict(zip((place.name for place in places), arrays, strict=True))


def check_named(feeds: object, what: str = "input", names: Iterable[str] = ()) -> None:
    """Raise RunError R0301 for feeds that are not arrays by name; `names` are those that there are."""
    if isinstance(feeds, Mapping):
        return
    written = f"{{{', '.join(f'{name!r}: array' for name in names) or repr('x') + ': array'}}}"
    call = "; a model that is called takes arrays in order: `model(array)`" if what == "input" else ""
    given = (f"given is {kind_of(feeds)}",)
    raise exception(Diagnostic("R0301", f"the {what}s are not given by name", notes=given, help=f"write `{written}`{call}"))


def only_inputs(given: int, names: Sequence[str]) -> CompileError:
    """Return R0311 for a run that is given `given` things in order where the inputs, by name, are all that it takes."""
    written = f"run({{{', '.join(f'{name!r}: array' for name in names)}}})"
    help = f"write `{written}`: it returns all outputs by name"
    return exception(Diagnostic("R0311", f"`run` takes the inputs alone, and is given {given} arguments", help=help))


def shapes_of_arrays(feeds: object) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """Return the shapes of inputs by name, in order of these, where all are arrays of NumPy's; None elsewhere."""
    if type(feeds) is not dict or not all(type(array) is np.ndarray for array in feeds.values()):
        return None
    return tuple(sorted([(name, array.shape) for name, array in feeds.items()]))


def row_major(array: Array) -> Array:
    """Return the array itself when its elements lie in row-major order in native byte order, or a copy that does."""
    if array.flags.c_contiguous and array.dtype.isnative:
        return array
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def in_rows(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with each array in row-major order, and what has no axes still without any."""
    return {name: np.asarray(value, order="C") if isinstance(value, np.ndarray) else value for name, value in given.items()}


def _names(feeds: Mapping[str, object], values: Sequence[Place], what: str = "input") -> Iterator[Diagnostic]:
    return name_mismatches(feeds, values, lambda value: describe(value.dtype, value.shape), what)


def name_mismatches(
    feeds: Mapping[str, object], values: Sequence[N], described: Callable[[N], str], what: str = "input"
) -> Iterator[Diagnostic]:
    """Yield what is given and is none of `values`, and which of these, `described` as what they are, are missing."""
    known = {value.name: value for value in values}
    if feeds.keys() == known.keys():
        return
    missing, strange = [name for name in known if name not in feeds], [name for name in feeds if name not in known]
    for name in strange:
        meant = _meant(str(name), missing) if len(missing) > 1 or len(strange) > 1 else next(iter(missing), None)
        if meant is not None:
            missing.remove(meant)
        notes = (f"the {what}s are {', '.join(f'`{n}`' for n in known)}" if known else f"there are no {what}s",)
        help = f"did you mean `{meant}`?" if meant is not None else "leave it out" if not missing else None
        yield Diagnostic("R0302", f"there is no {what} `{name}`", notes=notes, help=help)
    for name in missing:
        help = f"give it by its name: `{{'{name}': array}}`, or on the command line `{name}=…`"
        yield Diagnostic("R0301", f"{what} `{name}` is missing", notes=(f"it is {described(known[name])}",), help=help)


def _meant(name: str, missing: Sequence[str]) -> str | None:
    """Return which of the missing names is meant: the same in other letters, without the number that TensorFlow adds, or the nearest."""
    same = {other.lower(): other for other in missing}
    plain = name.rpartition(":")[0] or name
    close = get_close_matches(plain, missing, 1)
    return same.get(plain.lower()) or (close[0] if close else None)


def _fits(array: Array, value: Place, what: str = "input") -> Iterator[Diagnostic]:
    found = [*wrong_type(array, value.name, value.dtype, what)]
    if array.shape != value.shape:
        found.append(wrong_shape(array, value.name, str(list(value.shape)), value.shape, what=what))
    for problem in found:
        yield replace(problem, help=fresh_output(value)) if what == "output" else problem


def fresh_output(value: Place) -> str:
    """Return how to come by an array that an output can be written into."""
    return f"pass one to write into: `np.empty({list(value.shape)}, {value.dtype.numpy.name!r})`"


def wrong_type(array: Array, name: str, expected: DType, what: str = "input") -> Iterator[Diagnostic]:
    """Yield R0303 unless the elements of an array are `expected`."""
    if array.dtype is not expected.numpy and from_numpy(array.dtype.newbyteorder("=")) != expected:
        help = f"convert it: `array.astype({expected.numpy.name!r})`"
        yield Diagnostic("R0303", f"{what} `{name}` must be {expected}", notes=(_given(array),), help=help)


def wrong_shape(
    array: Array | None, name: str, expected: str, dims: Sequence[object], given: str | None = None, what: str = "input"
) -> Diagnostic:
    """Return R0304 for an array that has not the extents `dims`, symbols among them, which `expected` shows; `given` says what is there of
    an array that does not lie here."""
    notes = (given or "",) if array is None else (_given(array),)
    help = None if array is None else _reshaping(array.shape, dims)
    return Diagnostic("R0304", f"{what} `{name}` must have the shape {expected}", notes=notes, help=help)


def _reshaping(shape: tuple[int, ...], dims: Sequence[object]) -> str:
    """Return what makes an array of a shape fit others, or what is wrong with it."""
    if len(shape) == len(dims) - 1 and _agree(shape, dims[1:]) and (isinstance(dims[0], str) or dims[0] == 1):
        return "a first dimension of 1 is missing: `array[None]`"
    if len(shape) == len(dims) + 1 and shape[0] == 1 and _agree(shape[1:], dims):
        return "it has a dimension too many: `array[0]`"
    if len(shape) != len(dims):
        return f"give an array of {counted(len(dims), 'dimension')}: reshape it, or take a part of it"
    if len(shape) <= 5:
        order = next((order for order in permutations(range(len(shape))) if _agree([shape[k] for k in order], dims)), None)
        if order is not None:
            return f"its dimensions stand in another order, perhaps: `array.transpose{order}`"
    wrong = next(k for k, (n, wanted) in enumerate(zip(shape, dims, strict=True)) if isinstance(wanted, int) and n != wanted)
    return f"dimension {wrong} is {shape[wrong]}, and has to be {dims[wrong]}"


def _agree(shape: Sequence[int], dims: Sequence[object]) -> bool:
    """Tell whether extents are what is expected, where that is a number."""
    return all(not isinstance(wanted, int) or n == wanted for n, wanted in zip(shape, dims, strict=True))


def _given(array: Array) -> str:
    dtype = from_numpy(array.dtype.newbyteorder("="))
    return f"the array is {array.dtype.name if dtype is None else dtype}{list(array.shape)}"


def describe(dtype: DType, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}"


def kind_of(value: object) -> str:
    """Return what `value` is, with its article."""
    if isinstance(value, str):
        return f"the text {value!r}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} `{name}`"


def results_of(found: object) -> list[Array]:
    """Return what an operator returned as a list."""
    return [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]
