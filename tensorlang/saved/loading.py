"""Saved models, loaded and run: the code by the loader of the operating system, the weights by a mapping that processes share.

    model = load_model("net")          y = model.run({"x": x})["y"]         y = model(x)

A run looks at its arrays here, and everything else is the library's own doing (`docs/ahead-of-time.md`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from .dlpack import OWN_CODES, imported
from .errors import SavedError
from .package import Manifest, Rows, Tensor, check_file, identity_of, read_manifest

Array = np.ndarray[Any, Any]
_NUMPY = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "bool": "bool",
}
_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f4e2m1": "float4_e2m1fn",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (2, 4)},
}
_REMEMBERED = 64


def load_model(path: str | os.PathLike[str], threads: int | None = None, *, verify: bool = True, pinned: bool = False) -> Saved:
    """Return the model that was saved in a folder. `threads`: how many run it, at most those that it was built for (None: as many as the
    process has processors). `verify`: compare all of the weights with their digest; without it, that they are there, and as many.
    `pinned`: keep each further thread on one processor.

    Raises SavedError: R0401 for what is no such folder, R0402 for one that is not whole, R0403 for one of another version, R0404 where this
    processor cannot run it, R0405 for `threads` that are not to be had, R0406 for element types that need `ml_dtypes`."""
    try:
        folder = os.fsdecode(path)
    except TypeError:
        raise SavedError("R0401", f"`{path!r:.40}` is no folder", "give the path that `tensorlang build -o` or `save` wrote") from None
    manifest = read_manifest(folder)
    _check_family(manifest)
    if manifest.identity != identity_of(manifest.name, manifest.sizes, manifest.inputs, manifest.outputs):
        raise SavedError("R0402", f"`{folder}` has a manifest that is not that of its code", "build it again")
    _check_threads(threads, manifest)
    expected = manifest.files[manifest.library]
    check_file(folder, manifest.library, expected)
    check_file(folder, manifest.library, expected, _content(folder, manifest.library))
    weights = None
    if manifest.weights:
        check_file(folder, manifest.weights, manifest.files[manifest.weights])
        weights = _mapped(os.path.join(folder, manifest.weights))
        if verify:
            check_file(folder, manifest.weights, manifest.files[manifest.weights], weights.data)
    return Saved(folder, manifest, weights, 0 if threads is None else threads, pinned)


def _check_threads(threads: int | None, manifest: Manifest) -> None:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= manifest.threads):
        title = f"`threads` is {threads!r}, and this was built for 1 to {manifest.threads}"
        raise SavedError("R0405", title, "give a number of these, or build it for more: `tensorlang build --threads`")


def _check_family(manifest: Manifest) -> None:
    here = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    families = {level.family for level in manifest.levels}
    if here not in families:
        title = f"this was built for {', '.join(sorted(families))}, and this machine is {here}"
        raise SavedError("R0404", title, "build it for this machine: `tensorlang build --target host`")
    if not manifest.library:
        raise SavedError("R0402", f"`{manifest.name}` has a manifest that names no library", "build it again")


def _content(folder: str, name: str) -> bytes:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()
    except OSError as problem:
        raise SavedError(
            "R0402", f"`{os.path.join(folder, name)}` is missing: {problem.strerror}", "copy the folder again, whole"
        ) from None


def _mapped(path: str) -> Array:
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _dtype(name: str) -> np.dtype[Any]:
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name not in _ML_DTYPES:
        raise SavedError("R0402", f"the manifest has elements of type `{name}`, which there is not", "build it again")
    try:
        import ml_dtypes
    except ImportError:
        raise SavedError("R0406", f"arrays of {name} need the package ml_dtypes", "pip install ml_dtypes") from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    return found


class Saved:
    """A model or operator that was saved, ready to run, from several threads at once: each run has a context of the library to itself."""

    def __init__(self, folder: str, manifest: Manifest, weights: Array | None, threads: int, pinned: bool) -> None:
        self.manifest = manifest
        self.folder = os.path.abspath(folder)
        self._made = partial(load_model, self.folder, threads=threads or None, verify=False, pinned=pinned)
        self._weights = weights
        self._types = {t.name: _dtype(t.dtype) for t in (*manifest.inputs, *manifest.outputs)}
        self._library = _Library(folder, manifest)
        self._told = [s.name for s in manifest.sizes if all(t.name != s.name for t in manifest.inputs)]
        """The sizes that may be given by name: a name that an array has, too, means the array."""
        self._pinned = pinned
        self._own(threads)

    def _own(self, threads: int) -> None:
        """Begin with contexts of so many threads, 0 for as many as the process has processors."""
        manifest, weights = self.manifest, self._weights
        self._options = (ctypes.c_uint64 * 8)(manifest.identity, threads, int(self._pinned))
        if weights is not None:
            self._options[3], self._options[4] = weights.ctypes.data, weights.nbytes
        self._free: list[int] = []
        self._known: dict[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] = {}
        self._pid = os.getpid()
        self._end = weakref.finalize(self, _destroyed, self._library, self._free)
        self._give_back(self._context())

    def clone(self, threads: int | None = None) -> Saved:
        """Return the same model with threads of its own, `threads` of them, at most those that it was built for (None: as many as this one
        has). It shares code and weights. Raises SavedError R0405 for `threads` that are not to be had."""
        _check_threads(threads, self.manifest)
        made = Saved.__new__(Saved)
        made.__dict__.update(self.__dict__)
        count = int(self._options[1]) if threads is None else threads
        made._made = partial(self._made, threads=count or None)
        made._own(count)
        return made

    def __reduce__(self) -> tuple[Callable[[], Saved], tuple[()]]:
        """Pickled is where the folder lies and how it was loaded."""
        return self._made, ()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs: name, element type, shape, in which formulas over sizes stand for what each run brings."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs, as the inputs."""
        return self.manifest.outputs

    @property
    def rows(self) -> Rows:
        """Whether rows of a batch depend on each other, as was found when it was built."""
        return self.manifest.rows

    @property
    def level(self) -> str:
        """The level of instructions that this processor runs."""
        context = self._context()
        try:
            name: bytes = self._library.level(context)
            return name.decode()
        finally:
            self._give_back(context)

    def __repr__(self) -> str:
        def side(tensors: Sequence[Tensor]) -> str:
            return ", ".join(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors)

        return f"<{self.manifest.model}({side(self.inputs)}) -> ({side(self.outputs)}) for {self.level}>"

    def __call__(self, /, *arrays: object, **named: object) -> Any:
        """Return the output for inputs in order or by name, or a tuple of the outputs where there are several. Sizes that no input has go
        by name. Raises SavedError as `run` does, R0311 and R0312 for arrays that are too many or given twice."""
        if len(arrays) > len(self.inputs):
            raise SavedError("R0311", f"`{self.manifest.model}` takes {len(self.inputs)} arrays and is given {len(arrays)}")
        feeds = {t.name: array for t, array in zip(self.inputs, arrays, strict=False)}
        for name in named:
            if name in feeds:
                raise SavedError("R0312", f"`{self.manifest.model}` is given `{name}` twice", "give an input in order or by name")
        found = tuple(self.run(feeds | named).values())
        return found[0] if len(found) == 1 else found

    def run(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        """Return the outputs by name, in new arrays. `feeds` has an array for every input, and the sizes that no input has.

        Raises SavedError: R0301 for inputs that are missing, R0302 for such that there are not, R0303 to R0305 for arrays that do not fit,
        R0306 when the data or the sizes are not served."""
        arrays = self._arrays(feeds)
        sizes, shapes = self._sizes(feeds, arrays)
        outputs = [np.empty(shape, self._types[t.name]) for t, shape in zip(self.outputs, shapes, strict=True)]
        given = (ctypes.c_int64 * max(1, len(sizes) + len(arrays)))(*sizes, *(a.ctypes.data for a in arrays))
        taken = (ctypes.c_int64 * max(1, len(outputs)))(*(a.ctypes.data for a in outputs))
        context = self._context()
        try:
            self._checked(self._library.run(context, given, taken), "R0306")
        finally:
            self._give_back(context)
        return {t.name: array for t, array in zip(self.outputs, outputs, strict=True)}

    def _context(self) -> int:
        if os.getpid() != self._pid:  # a fork: the threads of the contexts are those of the parent
            self._free.clear()
            self._pid = os.getpid()
        try:
            return self._free.pop()
        except IndexError:
            context = ctypes.c_void_p()
            self._checked(self._library.create(ctypes.byref(context), self._options), "R0404")
            assert context.value is not None
            return context.value

    def _give_back(self, context: int) -> None:
        self._free.append(context)

    def _checked(self, code: int, kind: str) -> None:
        if code:
            raise SavedError(kind, f"`{self.manifest.model}`: {self._library.text(code).decode()}")

    def _arrays(self, feeds: Mapping[str, object]) -> list[Array]:
        if not isinstance(feeds, Mapping):
            raise SavedError("R0301", f"inputs are given by name, not as a {type(feeds).__name__}", "`run({'x': x})`")
        names, sizes = [t.name for t in self.inputs], [s.name for s in self.manifest.sizes]
        missing, unknown = [n for n in names if n not in feeds], [n for n in feeds if n not in names and n not in sizes]
        if missing or unknown:
            said = [f"input `{n}` is missing" for n in missing] + [f"there is no input `{n}`" for n in unknown]
            known = ", ".join(f"`{t.name}`: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in self.inputs)
            raise SavedError("R0301" if missing else "R0302", "; ".join(said), f"the inputs are {known or 'none'}")
        return [self._array(t, feeds[t.name]) for t in self.inputs]

    def _array(self, tensor: Tensor, value: object) -> Array:
        expected = self._types[tensor.name]
        if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):  # `np.ma` takes 10 ms to import
            raise SavedError("R0305", f"`{tensor.name}` is a masked array", "say what the masked elements are: `array.filled(0)`")
        if isinstance(value, (list, tuple, int, float, bool)):
            value = self._numbers(tensor, value)
        if not isinstance(value, np.ndarray):
            value = self._read(tensor, value)
        if value.dtype != expected:
            title = f"`{tensor.name}` has elements of type {value.dtype}, and {expected} is expected"
            raise SavedError("R0303", title, f"`{tensor.name}.astype('{expected}')` converts it")
        if len(value.shape) != len(tensor.shape):
            raise self._wrong_shape(tensor, value)
        return np.require(value, requirements=["C", "A"]).view(np.ndarray)

    def _read(self, tensor: Tensor, value: Any) -> Array:
        """Return an array of another library, or what NumPy makes one of. Raises SavedError R0305 for what is none."""
        negates = getattr(value, "is_neg", None)  # which PyTorch does not say where it hands memory over
        if callable(negates) and negates() is True:
            title = f"`{tensor.name}` is a view whose elements are those in memory with the other sign"
            raise SavedError("R0305", title, "pass `tensor.resolve_neg()`")
        try:
            if not hasattr(value, "__dlpack__"):
                found = np.asarray(value)
            elif (code := OWN_CODES.get(tensor.dtype)) is not None:
                expected = self._types[tensor.name]
                found = imported(value, {(code, 8 * expected.itemsize): expected})
            else:
                found = np.from_dlpack(value)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as problem:
            raise SavedError("R0305", f"`{tensor.name}` is no array: {problem}") from None
        if found.dtype.kind not in "biufV":
            raise SavedError("R0305", f"`{tensor.name}` is no array of numbers but a {type(value).__name__}")
        return found

    def _numbers(self, tensor: Tensor, value: object) -> Array:
        """Return numbers, or nested lists of them, as an array. Raises SavedError R0305 for what is none, R0303 for one that the type of
        the input does not hold."""
        try:
            given = np.asarray(value)
            with np.errstate(all="ignore"):
                made = given.astype(self._types[tensor.name])
        except (ValueError, TypeError, OverflowError) as problem:
            raise SavedError("R0305", f"`{tensor.name}` is no array: {problem}") from None
        if given.size and given.dtype.kind not in "biufO":
            raise SavedError("R0305", f"`{tensor.name}` is no array of numbers")
        is_float = tensor.dtype.startswith(("f", "bf"))
        for number, held in zip(given.ravel().tolist(), made.ravel().tolist(), strict=True):
            if number != held and (not is_float or (isfinite(number) and not isfinite(held))):
                raise SavedError("R0303", f"`{tensor.name}` is {number}, which no {tensor.dtype} is", "give what the type holds")
        return made

    def _wrong_shape(self, tensor: Tensor, value: Array) -> SavedError:
        expected = ", ".join(map(str, tensor.shape))
        return SavedError("R0304", f"`{tensor.name}` has shape {list(value.shape)}, and [{expected}] is expected")

    def _sizes(self, feeds: Mapping[str, object], arrays: Sequence[Array]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Return the sizes of a run, and the shapes of its outputs. Raises SavedError R0304 for shapes that do not fit."""
        told = tuple(feeds[name] for name in self._told if name in feeds)
        key = (told, *(a.shape for a in arrays))
        found = self._known.get(key) if all(type(n) is int for n in told) else None
        if found is None:
            found = self._measured(feeds, arrays)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _measured(self, feeds: Mapping[str, object], arrays: Sequence[Array]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        sizes = tuple(self._size(s.name, feeds, arrays) for s in self.manifest.sizes)
        tensors = (*self.inputs, *self.outputs)
        extents = (ctypes.c_int64 * max(1, sum(len(t.shape) for t in tensors)))()
        self._checked(self._library.extents((ctypes.c_int64 * max(1, len(sizes)))(*sizes), extents), "R0306")
        shapes, at = [], 0
        for tensor in tensors:
            shapes.append(tuple(extents[at : at + len(tensor.shape)]))
            at += len(tensor.shape)
        for tensor, array, shape in zip(self.inputs, arrays, shapes, strict=False):
            if array.shape != shape:
                raise SavedError("R0304", f"`{tensor.name}` has shape {list(array.shape)}, and {list(shape)} is expected")
        return sizes, tuple(shapes[len(self.inputs) :])

    def _size(self, name: str, feeds: Mapping[str, object], arrays: Sequence[Array]) -> int:
        """Return a size: as it is given, or the extent that an input has where the size stands alone."""
        if name in self._told and name in feeds:
            value = feeds[name]
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**62:
                raise SavedError("R0314", f"the size `{name}` is {value!r}", "give a whole number, 0 or more")
            return int(value)
        for tensor, array in zip(self.inputs, arrays, strict=True):
            for symbol, extent in zip(tensor.shape, array.shape, strict=True):
                if symbol == name:
                    return int(extent)
        raise SavedError("R0313", f"nothing says what the size `{name}` is", f"give it by name: `{name}=…`")


class _Library:
    """The functions of a library."""

    def __init__(self, folder: str, manifest: Manifest) -> None:
        path = os.path.abspath(os.path.join(folder, manifest.library))
        try:
            library = ctypes.CDLL(_spelled(path, manifest.files[manifest.library].sha256))
        except OSError as problem:
            raise SavedError(
                "R0404", f"`{path}` cannot be loaded: {problem}", "build it for this machine: `tensorlang build --target host`"
            ) from None
        words, name = ctypes.c_void_p, manifest.name
        self.create: Any = _function(library, f"{name}_create_with", ctypes.c_int, words, words)
        self.run = _function(library, f"{name}_run", ctypes.c_int, ctypes.c_void_p, words, words)
        self.extents = _function(library, f"{name}_extents", ctypes.c_int, words, words)
        self.destroy = _function(library, f"{name}_destroy", None, ctypes.c_void_p)
        self.text = _function(library, f"{name}_error_text", ctypes.c_char_p, ctypes.c_int)
        self.level = _function(library, f"{name}_level", ctypes.c_char_p, ctypes.c_void_p)


_LOADED: dict[str, list[str]] = {}
"""Digests of the libraries that were loaded from a path."""


def _spelled(path: str, digest: str) -> str:
    """Return a path in another spelling for each library that has taken the place of another there: the loader of the operating system
    takes a path that it knows for what it has loaded from it before."""
    known = _LOADED.setdefault(path, [])
    if digest not in known:
        known.append(digest)
    return os.path.join(os.path.dirname(path), "./" * known.index(digest) + os.path.basename(path))


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    try:
        found = getattr(library, name)
    except AttributeError:
        raise SavedError("R0402", f"the library has no function `{name}`", "copy the folder again, or build it again") from None
    found.restype, found.argtypes = result, arguments
    return found


def _destroyed(library: _Library, contexts: list[int]) -> None:
    while contexts:
        library.destroy(contexts.pop())
