"""Models, by whichever importer reads them: `tl.compile("net.onnx").run({"input": image})`.

A model that was compiled before runs without the parser, isl and the emitter: nothing here imports them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

from codegen.cuda.arch import is_cuda
from tensorlang.diagnostics import error
from tensorlang.graph.nodes import Graph
from tensorlang.later import later
from tensorlang.offers import IMPORTERS, offers_digest
from tensorlang.runtime.bundle import bundle_key
from tensorlang.runtime.executable import Progress, quiet
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.toolchain import toolchain


@runtime_checkable
class Importer(Protocol):
    """Reads models of some format."""

    def matches(self, source: Any) -> bool:
        """Tell whether `source` is something this importer reads."""
        ...

    def load(self, source: Any, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
        """Return the model as a graph, its open shapes fixed by `shapes`. Raises CompileError."""
        ...


def compile(
    model: Any,
    target: str = "cpu",
    precision: str = "f32",
    threads: int | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    winograd: bool = True,
    online: bool = True,
    insist: bool = False,
    progress: Progress = quiet,
    importers: Sequence[Importer] | None = None,
) -> CompiledModel:
    """Return a model (a path, bytes, or an object that an installed importer knows) compiled for this machine, or for a GPU:
    `target` "cuda" or "cuda:sm_90a". A GPU need not be there: it is looked for when the model runs.

    `threads` None uses all processors. With `winograd`, convolutions may be computed by minimal filtering, which rounds differently:
    with about six times the error of plain sums. With `online`, attention on a GPU goes through the keys once, which rounds in another
    order; without it, and where it is not shown to be the same, scores and weights are stored. `shapes` fixes shapes that the model leaves
    open; without it each call of `run` brings its own. `precision` "bf16", and "f16" on a GPU: what convolutions and matrix products
    multiply is rounded to that, sums and all else stay f32; "bf16x3" and "bf16x6": they are computed as sums of three or six products of
    bf16 where that is faster, or, with `insist`, wherever they can be.

    A pickle of the model holds what it was made of: the absolute path or the content, and the options but `progress`.

    Raises CompileError: O0001 when no importer reads the model, C0101 to C0103 for target and precision, C0106 to C0108 for shapes,
    threads, `winograd`, `online` and `insist`, C0111 and C0112 for what a GPU has not or nothing here compiles for, O… for the model
    itself."""
    here = os.path.abspath(model) if isinstance(model, (str, os.PathLike)) else model
    made = partial(
        compile, here, target, precision, threads, shapes=shapes, winograd=winograd, online=online, insist=insist, importers=importers
    )

    def load(found: Mapping[str, tuple[int, ...]] | None) -> Graph:
        return importer_of(model, importers).load(model, found)

    content = fingerprint(model) if importers is None else None

    def keyed(options: Sequence[object]) -> Callable[[Mapping[str, tuple[int, ...]] | None], str] | None:
        return None if content is None else lambda found: bundle_key(content, offers_digest(), found, options)

    if not isinstance(online, bool):
        raise error("C0108", f"`online` is {online!r}", help="it is `True` or `False`")
    if is_cuda(target):
        toolchain(threads=threads, winograd=winograd, insist=insist)
        device = _device_tools(target, precision=precision, insist=insist, online=online)
        _check_shapes(shapes)
        key = keyed(device.options)
        on_device: CompiledModel = _device_model(load, device, shapes=shapes, progress=progress, key=key, made=made)
        return on_device
    tools = toolchain(target, threads, winograd=winograd, precision=precision, insist=insist)
    _check_shapes(shapes)
    return CompiledModel(load, tools, shapes=shapes, progress=progress, key=keyed(tools.options), made=made)


_device_model = later("tensorlang.runtime.device:DeviceCompiledModel")
_device_tools = later("tensorlang.runtime.device:device_tools")


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
    """Return a digest of all there is to say about `model`, or None when it has no bytes or parts of it lie in other files.

    A file is read piece by piece: models are large, and nothing but the digest stays."""
    if isinstance(model, (str, os.PathLike)):
        try:
            with open(model, "rb") as file:
                return _digest(iter(lambda: file.read(_PIECE), b""))
        except (OSError, ValueError):  # the importer says what is wrong with the path
            return None
    if isinstance(model, bytes):
        return _digest((model,))
    if not hasattr(model, "SerializeToString"):
        return None
    try:
        content: bytes = model.SerializeToString(deterministic=True)
    except Exception:  # whatever an object of another library finds wrong with itself, its importer will say better
        return None
    return _digest((content,))


_PIECE = 1 << 20
_ELSEWHERE = b"location"
"""The word by which a model names files that hold parts of it."""


def _digest(pieces: Iterable[bytes]) -> bytes | None:
    """Return the digest of the bytes that the pieces make up, or None when they name other files."""
    digest, end = hashlib.sha256(), b""
    for piece in pieces:
        if _ELSEWHERE in end + piece[: len(_ELSEWHERE)] or _ELSEWHERE in piece:
            return None
        end = piece[-len(_ELSEWHERE) :]
        digest.update(piece)
    return digest.digest()


def importer_of(model: Any, importers: Sequence[Importer] | None = None) -> Importer:
    """Return the first importer that reads `model`. Raises CompileError O0001."""
    found = installed_importers() if importers is None else tuple(importers)
    for importer in found:
        if importer.matches(model):
            return importer
    what = f"`{model}`" if isinstance(model, (str, os.PathLike)) else f"a `{type(model).__name__}`"
    help = "install tensorlang as a package: importers are found by its metadata" if not found else "an ONNX file ends in `.onnx`"
    raise error("O0001", f"no importer reads {what}", help=help)


def installed_importers() -> tuple[Importer, ...]:
    """Return the importers that installed packages offer, in order of their names."""
    return tuple(point.load()() for point in sorted(entry_points(group=IMPORTERS), key=lambda p: p.name))
