"""Models, by whichever importer reads them: `tl.compile("net.onnx").run({"input": image})`.

A model that was compiled before runs without the parser, isl and the emitter: nothing here imports them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature as parameters_of
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tensorlang.backends.registry import tools_for
from tensorlang.diagnostics import error, trimmed
from tensorlang.graph.data_dependent import Known
from tensorlang.graph.nodes import Graph
from tensorlang.graph.taken_apart import TakenApart
from tensorlang.plugins import IMPORTERS, ONNX_OPERATORS, installed, offered, offers_digest
from tensorlang.runtime.bundle import BundleKey, bundle_key
from tensorlang.runtime.model import CompiledModel
from tensorlang.runtime.protocol import Progress, quiet
from tensorlang.runtime.saving import graphs_of, save_options
from tensorlang.runtime.signature import Signature
from tensorlang.runtime.specialization import Sizes, checked_sizes
from tensorlang.targets import target_of

if TYPE_CHECKING:  # the language itself, which models without custom operators do without
    from tensorlang.custom_operators import CustomOperators, NamedOperators
    from tensorlang.runtime.custom_nodes import Custom
    from tensorlang.runtime.schedule_book import ScheduleBook


@runtime_checkable
class Importer(Protocol):
    """Reads models of some format."""

    def matches(self, source: Any) -> bool:
        """Tell whether `source` is something this importer reads."""
        ...

    def load(self, source: Any, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
        """Return the model as a graph, its open shapes fixed by `shapes`. Raises CompileError; `DataDependent` only where `load` takes
        what it asks for, by the name of `known`."""
        ...


@runtime_checkable
class TellsFiles(Protocol):
    """An importer of models that may lie in several files. What one that is not reads is not kept as a whole."""

    def files(self, path: str | os.PathLike[str]) -> Sequence[Path] | None:
        """Return the files that parts of the model at `path` are in besides that, in an order that its bytes tell, or None where that
        cannot be told. Raises OSError and ValueError where the file cannot be read."""
        ...


@runtime_checkable
class TellsSignatures(Protocol):
    """An importer that tells what a model takes and returns before its shapes are known."""

    def signature(self, source: Any) -> Signature:
        """Return the signature of the model, with the symbols that it declares. Raises CompileError."""
        ...


@runtime_checkable
class TakesApart(Protocol):
    """An importer that shows the values between the nodes of a model."""

    def apart(self, source: Any) -> TakenApart | None:
        """Return the model taken apart, None where that cannot be done."""
        ...


@runtime_checkable
class TellsFingerprints(Protocol):
    """An importer of objects whose content it knows how to tell."""

    def fingerprint(self, source: Any) -> bytes | None:
        """Return a digest of all there is to say about the model, None where that cannot be told."""
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
    sizes: Sizes = "auto",
    max: Mapping[str, int] | None = None,
    progress: Progress = quiet,
    importers: Sequence[Importer] | None = None,
    operators: CustomOperators | None = None,
    ops: NamedOperators | None = None,
    schedules: str | os.PathLike[str] | ScheduleBook | None = None,
    fed: Sequence[str] = (),
) -> CompiledModel:
    """Return a model (a path, bytes, or an object that an installed importer knows) compiled for this machine, or for a GPU:
    `target` "cuda" or "cuda:sm_90a", or "hip:gfx90a". A GPU need not be there: it is looked for when the model runs.

    `threads` None uses `TENSORLANG_THREADS`, or all processors that the process may use. With `winograd`, convolutions may be computed by
    minimal filtering, which rounds differently: with about six times the error of plain sums. With `online`, attention on a GPU goes
    through the keys once, which rounds in another order; without it, and where it is not shown to be the same, scores and weights are
    stored. `shapes` fixes shapes that the model leaves open; without it each call of `run` brings its own. `precision` "bf16", and "f16" on
    a GPU: what convolutions and matrix products multiply is rounded to that, sums and all else stay f32; "bf16x3" and "bf16x6": they are
    computed as sums of three or six products of bf16 where that is faster, or, with `force_precision`, wherever they can be.

    `sizes` says how code is made for the shapes that runs bring: "auto" for the first combination, and with the second once for whatever
    the sizes are that differ; "static" for each combination; "symbolic" for any sizes from the start.
    `max` limits open sizes by their names, `{"seq": 4096}`: runs beyond are refused.

    `operators` gives operators for nodes of domains of your own, by their names: a `.tl` file, or what `tl.load` and `tl.parse` return,
    with the kernels of its extern operators; or a dictionary of these by domain. `ops` gives single operators for nodes,
    `{"my.domain::Blur": ops.blur}`, or several for versions of the domain, `{"my.domain::Blur": {1: ops.blur, 3: ops.sharper_blur}}`, of
    which the latest that is no later than the model's serves. Packages may offer operators for all models by the entry-point group
    `tensorlang.onnx_operators`.

    `schedules` is a file that `tl.tune(model, …).save(…)` or `tensorlang tune MODEL -o` wrote: schedules for kernels of the model, each
    proven where it is used; one that is refused is told to the log, and the kernel has its own.

    `fed` names initializers of the model that are inputs, too, and that each run feeds. Those that are not named are constants, from which
    `run` makes inputs for runs that feed them.

    A pickle of the model holds what it was made of: the absolute path or the content, and the options but `progress`.

    Raises CompileError: O0001 when no importer reads the model, C0101 to C0103 for target and precision, C0105 for `sizes`,
    C0106 to C0109 for shapes, threads, `winograd`, `online` and `force_precision`, C0111 and C0112 for what a GPU has not or nothing here
    compiles for, C0119 for `operators` and `ops`, C0123 for `max`, C0145 for `schedules`, C0148 for `fed`, O… for the model
    itself."""
    fed = _checked_names(fed)
    here = os.path.abspath(model) if isinstance(model, (str, os.PathLike)) else model
    book = None
    if schedules is not None:
        from tensorlang.runtime.schedule_book import schedule_book

        book = schedule_book(schedules)
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
        sizes=sizes,
        max=max,
        importers=importers,
        operators=operators,
        ops=ops,
        schedules=book,
        fed=fed,
    )
    custom, asks = _custom(operators, ops, target), operators is not None or ops is not None
    model_read = _ModelRead(model, importers, custom, asks=asks, fed=fed)
    model_read.check_fed()
    if not isinstance(online, bool):
        raise error("C0108", f"`online` is {online!r}", help="it is `True` or `False`")
    tools = tools_for(
        target, threads, winograd=winograd, online=online, precision=precision, force_precision=force_precision, schedules=book
    )
    _check_shapes(shapes)
    checked_sizes(sizes)
    return CompiledModel(
        model_read.load,
        tools,
        shapes=shapes,
        progress=progress,
        key=model_read.keyed(tools.options),
        made=made,
        signature=model_read.signature,
        sizes=sizes,
        most=max,
    )


@trimmed
def build(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    targets: str | Sequence[str] = "host",
    threads: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    max: Mapping[str, int] | None = None,
    library: str | None = None,
    weights: str = "beside",
    precision: str = "f32",
    winograd: bool = True,
    force_precision: bool = False,
    progress: Progress = quiet,
    importers: Sequence[Importer] | None = None,
    operators: CustomOperators | None = None,
    ops: NamedOperators | None = None,
    schedules: str | os.PathLike[str] | ScheduleBook | None = None,
) -> Path:
    """Compile a model ahead of time, write it as a library into a folder, and return that. It is what `compile` and `CompiledModel.save`
    do, but for the processors in `targets` alone, of which this machine need not be one.

    Raises CompileError as these do."""
    read = _ModelRead(model, importers, _custom(operators, ops, "cpu"), asks=operators is not None or ops is not None)
    tools = tools_for("cpu", threads, winograd=winograd, precision=precision, force_precision=force_precision, schedules=schedules)
    _check_shapes(shapes)
    graphs, limits = graphs_of(read.load, read.signature, shapes, max or {})
    name = Path(model).stem if isinstance(model, (str, os.PathLike)) else ""
    options = save_options(name, library, targets, limits, weights, threads)
    return tools.save_model(graphs, progress, Path(folder), options)


class _ModelRead:
    """A model with what reads it: its graph, its signature, and the keys of what is made of it."""

    def __init__(
        self, model: Any, importers: Sequence[Importer] | None, custom: Custom | None, *, asks: bool, fed: tuple[str, ...] = ()
    ) -> None:
        self._model, self._importers, self._custom, self._asks, self._fed = model, importers, custom, asks, fed
        self._meaning = b"" if custom is None else _meaning(custom)
        self._content = fingerprint(model) if importers is None and self._meaning is not None else None

    def load(self, found: Mapping[str, tuple[int, ...]] | None, *known: Known) -> Graph:
        importer = importer_of(self._model, self._importers)
        takes_operators = "operators" in parameters_of(importer.load).parameters
        if not takes_operators and self._asks:
            title = f"a model of type `{type(self._model).__name__}` takes no `operators` and no `ops`"
            raise error("C0119", title, help="leave them out; programs of PyTorch know what `custom_op` registered")
        more: dict[str, Any] = {"known": known[0]} if known else {}
        if self._custom is not None and takes_operators:
            more["operators"] = self._custom
        if self._fed:
            more["fed"] = self._fed
        return importer.load(self._model, found, **more)

    def signature(self) -> Signature | None:
        found = self._declared()
        if found is None or not self._fed:
            return found
        inputs = (*found.inputs, *(t for t in found.defaults if t.name in self._fed))
        return replace(found, inputs=inputs, defaults=tuple(t for t in found.defaults if t.name not in self._fed))

    def _declared(self) -> Signature | None:
        importer = importer_of(self._model, self._importers)
        return importer.signature(self._model) if isinstance(importer, TellsSignatures) else None

    def check_fed(self) -> None:
        """Raise CompileError C0148 for what `fed` names that no run can feed."""
        if not self._fed:
            return
        declared = self._declared()
        known = [] if declared is None else [t.name for t in declared.defaults]
        for name in self._fed:
            if name not in known:
                notes = (f"there are {', '.join(f'`{k}`' for k in known)}" if known else "there are none",)
                raise error("C0148", f"`{name}` is no initializer that is an input, too", notes=notes)

    def keyed(self, options: Sequence[object]) -> Callable[..., BundleKey] | None:
        """Return what makes keys for shapes and known elements, or None for a model without a fingerprint, or with functions of Python."""
        if self._content is None or self._meaning is None:
            return None
        fed = "".join(f"\0{name}" for name in self._fed).encode()
        return partial(self._key, self._content + self._meaning + fed, options)

    def _key(self, content: bytes, options: Sequence[object], found: Mapping[str, tuple[int, ...]] | None, *known: Known) -> BundleKey:
        elements = b"".join(k.digest() for k in known)
        return BundleKey(bundle_key(content + elements, offers_digest(), found, options), self._check)

    def _check(self) -> None:
        if not isinstance(self._model, bytes) and fingerprint(self._model) != self._content:  # bytes do not change
            what = f"`{self._model}`" if isinstance(self._model, (str, os.PathLike)) else "the model"
            raise error("O015", f"{what} changed since it was compiled", help="compile it again: `tensorlang.compile`")


def _checked_names(fed: object) -> tuple[str, ...]:
    if isinstance(fed, str) or not isinstance(fed, Collection) or not all(isinstance(name, str) for name in fed):
        raise error("C0148", f"`fed` is {fed!r:.60}", help='give the names of initializers: `fed=["w"]`')
    return tuple(dict.fromkeys(fed))


def _custom(operators: CustomOperators | None, ops: NamedOperators | None, target: str) -> Custom | None:
    if operators is None and ops is None and not offered(ONNX_OPERATORS):
        return None
    from tensorlang.custom_operators import custom_operators

    return custom_operators(operators, ops, target_of(target).name)


def _meaning(custom: Custom) -> bytes | None:
    """Return a digest of all that operators mean, None where no text tells it."""
    from tensorlang.custom_operators import are_told, custom_digest

    return custom_digest(custom) if are_told(custom) else None


def _check_shapes(shapes: object) -> None:
    """Raise CompileError C0106 for what gives no shapes; whether they fit the model, its importer says."""
    if shapes is None:
        return
    if not isinstance(shapes, Mapping):
        raise error("C0106", f"`shapes` is {shapes!r}", help="give the shapes of inputs by name: `shapes={'x': (1, 3)}`")
    for name, shape in shapes.items():
        if not isinstance(shape, (tuple, list)) or not all(isinstance(n, Integral) and not isinstance(n, bool) for n in shape):
            help = "give whole numbers: `(1, 3)`"
            if isinstance(shape, Integral):
                help = f"shapes are given by the names of inputs, not of dimensions, and whole: `shapes={{'x': ({shape}, 3)}}`"
            raise error("C0106", f"the shape given for `{name}` is {shape!r}", help=help)


def fingerprint(model: Any) -> bytes | None:
    """Return a digest of all there is to say about `model`, or None when it has no bytes, or when parts of it may lie in files that
    cannot be told.

    Of a model in several files it is a digest of the bytes of all of them: neither size nor time of a file says what is in it."""
    if isinstance(model, (str, os.PathLike)):
        if not os.path.isfile(model):  # what a pipe holds is read once
            return None
        try:
            beside = _files_beside(model)
            return None if beside is None else _digest_of_files((model, *beside))
        except (OSError, ValueError):  # the importer says what is wrong with the path
            return None
    if isinstance(model, bytes):
        return hashlib.sha256(model).digest()
    if not hasattr(model, "SerializeToString"):
        importer = next((i for i in installed_importers() if i.matches(model)), None)
        return importer.fingerprint(model) if isinstance(importer, TellsFingerprints) else None
    try:
        return _digest_of_message(model)
    except Exception:  # whatever an object of another library finds wrong with itself, its importer will say better
        return None


def _digest_of_message(message: Any) -> bytes:
    """Return a digest of a message of protobuf, of which one element of a list, as a tensor of weights is, is written out at a time."""
    digest = hashlib.sha256()
    for field, value in message.ListFields():
        if hasattr(value, "ListFields"):
            parts = [_digest_of_message(value)]
        elif field.message_type is None or isinstance(value, Mapping):
            parts = [hashlib.sha256(repr(sorted(value.items()) if isinstance(value, Mapping) else value).encode()).digest()]
        else:
            parts = [hashlib.sha256(part.SerializeToString(deterministic=True)).digest() for part in value]
        digest.update(b"%d %d " % (field.number, len(parts)) + b"".join(parts))
    return digest.digest()


def _files_beside(path: str | os.PathLike[str]) -> Sequence[Path] | None:
    """Return the files that parts of a model are in besides the one at `path`, None where its importer does not tell."""
    importer = next((i for i in installed_importers() if i.matches(path)), None)
    return importer.files(path) if isinstance(importer, TellsFiles) else None


def _digest_of_files(paths: Sequence[str | os.PathLike[str]]) -> bytes:
    """Return a digest of what is in files, in their order; of one file, that of its bytes."""
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
    return digests[0] if len(digests) == 1 else hashlib.sha256(b"".join(digests)).digest()


def importer_of(model: Any, importers: Sequence[Importer] | None = None) -> Importer:
    """Return the first importer that reads `model`. Raises CompileError O0001."""
    found = installed_importers() if importers is None else tuple(importers)
    for importer in found:
        if importer.matches(model):
            return importer
    what = f"`{model}`" if isinstance(model, (str, os.PathLike)) else _with_article(type(model).__name__)
    is_path = isinstance(model, (str, os.PathLike))
    help = "an ONNX file ends in `.onnx`" if is_path else "give the path of an `.onnx` file, its bytes, or a model of the package `onnx`"
    if not found:
        help = "install tensorlang as a package: importers are found by its metadata"
    elif isinstance(model, str) and ("{" in model or "\n" in model):
        help = "the text of operators is no model: `tensorlang.parse` reads it"
    elif isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(".tl"):
        help = "operators are no model: `tensorlang.load` reads them"
    elif type(model).__name__ == "Operator" and hasattr(model, "schedule"):
        help = f"an operator is compiled when it is called: `{model.name}(…)`"
    elif is_path and os.fspath(model).endswith(_OF_OTHERS):
        help = "export it to ONNX first; in torch `torch.onnx.export(model, arguments, 'net.onnx', dynamo=True)`"
    elif callable(model):
        help = "a model in Python is exported first: `torch.onnx.export(model, arguments, 'net.onnx')`"
    raise error("O0001", f"no importer reads {what}", help=help)


_OF_OTHERS = (".pt", ".pth", ".pt2", ".safetensors", ".ckpt", ".h5", ".keras", ".pb", ".tflite", ".mlmodel", ".gguf")
"""What files of models end in that other libraries read."""


def _with_article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} `{name}`"


def is_read(model: Any) -> bool:
    """Tell whether an installed importer reads `model`."""
    return any(importer.matches(model) for importer in installed_importers())


def installed_importers() -> tuple[Importer, ...]:
    """Return the importers that installed packages offer, in order of their names."""
    return installed(IMPORTERS)
