"""Models, by whichever importer reads them: `tl.compile("net.onnx").run({"input": image})`.

A model that was compiled before runs without the parser, isl and the emitter: nothing here imports them.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tensorlang.backends.registry import tools_for
from tensorlang.diagnostics import error, trimmed
from tensorlang.graph.nodes import Graph
from tensorlang.plugins import IMPORTERS, offers_digest
from tensorlang.runtime.bundle import bundle_key
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.protocol import Progress, quiet


@runtime_checkable
class Importer(Protocol):
    """Reads models of some format."""

    def matches(self, source: Any) -> bool:
        """Tell whether `source` is something this importer reads."""
        ...

    def load(self, source: Any, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
        """Return the model as a graph, its open shapes fixed by `shapes`. Raises CompileError."""
        ...


@trimmed
def compile(
    model: Any,
    target: str = "cpu",
    precision: str = "f32",
    threads: int | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    winograd: bool = True,
    online: bool = True,
    force_precision: bool = False,
    progress: Progress = quiet,
    importers: Sequence[Importer] | None = None,
) -> CompiledModel:
    """Return a model (a path, bytes, or an object that an installed importer knows) compiled for this machine, or for a GPU:
    `target` "cuda" or "cuda:sm_90a", or "hip:gfx90a". A GPU need not be there: it is looked for when the model runs.

    `threads` None uses all processors. With `winograd`, convolutions may be computed by minimal filtering, which rounds differently:
    with about six times the error of plain sums. With `online`, attention on a GPU goes through the keys once, which rounds in another
    order; without it, and where it is not shown to be the same, scores and weights are stored. `shapes` fixes shapes that the model leaves
    open; without it each call of `run` brings its own. `precision` "bf16", and "f16" on a GPU: what convolutions and matrix products
    multiply is rounded to that, sums and all else stay f32; "bf16x3" and "bf16x6": they are computed as sums of three or six products of
    bf16 where that is faster, or, with `force_precision`, wherever they can be.

    A pickle of the model holds what it was made of: the absolute path or the content, and the options but `progress`.

    Raises CompileError: O0001 when no importer reads the model, C0101 to C0103 for target and precision, C0106 to C0108 for shapes,
    threads, `winograd`, `online` and `force_precision`, C0111 and C0112 for what a GPU has not or nothing here compiles for, O… for the
    model itself."""
    here = os.path.abspath(model) if isinstance(model, (str, os.PathLike)) else model
    made = partial(
        compile,
        here,
        target,
        precision,
        threads,
        shapes=shapes,
        winograd=winograd,
        online=online,
        force_precision=force_precision,
        importers=importers,
    )

    def load(found: Mapping[str, tuple[int, ...]] | None) -> Graph:
        return importer_of(model, importers).load(model, found)

    content = fingerprint(model) if importers is None else None

    def keyed(options: Sequence[object]) -> Callable[[Mapping[str, tuple[int, ...]] | None], str] | None:
        return None if content is None else lambda found: bundle_key(content, offers_digest(), found, options)

    if not isinstance(online, bool):
        raise error("C0108", f"`online` is {online!r}", help="it is `True` or `False`")
    tools = tools_for(target, threads, winograd=winograd, online=online, precision=precision, force_precision=force_precision)
    _check_shapes(shapes)
    return CompiledModel(load, tools, shapes=shapes, progress=progress, key=keyed(tools.options), made=made)


def _check_shapes(shapes: object) -> None:
    """Raise CompileError C0106 for what gives no shapes; whether they fit the model, its importer says."""
    if shapes is None:
        return
    if not isinstance(shapes, Mapping):
        raise error("C0106", f"`shapes` is {shapes!r}", help="give the shapes of inputs by name: `shapes={'x': (1, 3)}`")
    for name, shape in shapes.items():
        if not isinstance(shape, (tuple, list)) or not all(isinstance(n, Integral) and not isinstance(n, bool) for n in shape):
            raise error("C0106", f"the shape given for `{name}` is {shape!r}", help="give whole numbers: `(1, 3)`")


def fingerprint(model: Any) -> bytes | None:
    """Return a digest of all there is to say about `model`, or None when it has no bytes, or when parts of it may lie in files that
    cannot be told.

    A file is mapped: models are large, and nothing but the digest stays. Of files beside it that hold parts of it, what the system says
    of them stands for their bytes: which file it is, its size, and when it was last changed in any way."""
    if isinstance(model, (str, os.PathLike)):
        try:
            if os.path.getsize(model) == 0:
                return _digest(b"")
            with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _digest(content, Path(model).parent)
        except (OSError, ValueError):  # the importer says what is wrong with the path
            return None
    if isinstance(model, bytes):
        return _digest(model)
    if not hasattr(model, "SerializeToString"):
        return None
    try:
        content_of_proto: bytes = model.SerializeToString(deterministic=True)
    except Exception:  # whatever an object of another library finds wrong with itself, its importer will say better
        return None
    return _digest(content_of_proto)


_PIECE = 1 << 20
_ELSEWHERE = b"location"
"""The word by which a model names files that hold parts of it."""
_FIELD = b"\n\x08" + _ELSEWHERE + b"\x12"
"""That word as the key of an entry whose value, a text with its length before it, comes next."""


def _digest(content: bytes | mmap.mmap, folder: Path | None = None) -> bytes | None:
    """Return the digest of a model's bytes and of the files in `folder` that they name; None when there may be files it cannot tell."""
    digest, named, at = hashlib.sha256(), set[str](), content.find(_ELSEWHERE)
    while at >= 0:
        if content[max(0, at - 1) : at] < b" ":  # otherwise it is the end of a longer word
            name = _named(content, at)
            if name is None or folder is None:
                return None
            named.add(name)
        at = content.find(_ELSEWHERE, at + 1)
    for start in range(0, len(content), _PIECE):
        digest.update(content[start : start + _PIECE])
    for name in sorted(named):
        state = os.stat((folder or Path()) / name)
        digest.update(repr((name, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)).encode())
    return digest.digest()


def _named(content: bytes | mmap.mmap, at: int) -> str | None:
    """Return the file that is named behind the word at `at`, or None when that is not how files are named."""
    start = at + len(_FIELD) - 2
    if content[max(0, at - 2) : start] != _FIELD:
        return None
    length = content[start] if start < len(content) else 0
    if length >= 128:  # in two bytes, seven bits each
        length, start = length - 128 + (content[start + 1] << 7 if start + 1 < len(content) else 0), start + 1
    name = content[start + 1 : start + 1 + length]
    try:
        return name.decode() if len(name) == length and b"\0" not in name else None
    except UnicodeDecodeError:
        return None


def importer_of(model: Any, importers: Sequence[Importer] | None = None) -> Importer:
    """Return the first importer that reads `model`. Raises CompileError O0001."""
    found = installed_importers() if importers is None else tuple(importers)
    for importer in found:
        if importer.matches(model):
            return importer
    what = f"`{model}`" if isinstance(model, (str, os.PathLike)) else f"a `{type(model).__name__}`"
    help = "install tensorlang as a package: importers are found by its metadata" if not found else "an ONNX file ends in `.onnx`"
    raise error("O0001", f"no importer reads {what}", help=help)


def is_read(model: Any) -> bool:
    """Tell whether an installed importer reads `model`."""
    return any(importer.matches(model) for importer in installed_importers())


def installed_importers() -> tuple[Importer, ...]:
    """Return the importers that installed packages offer, in order of their names."""
    return tuple(point.load()() for point in sorted(entry_points(group=IMPORTERS), key=lambda p: p.name))
