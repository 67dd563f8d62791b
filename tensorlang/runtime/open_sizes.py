"""Which sizes of a model are symbols in its code, for a model that meets one combination of input shapes after the other.

    auto       the first combination has code of its own; with the second, the sizes that differ become symbols, and what is compiled then
               serves whatever they are
    static     code for each combination
    symbolic   all sizes that the model leaves open are symbols from the start

A size that changes later makes one more compilation, in which it is a symbol, too. Code may rest on assumptions (that an image is no
smaller than a window): combinations that they do not hold for are compiled for themselves. Where a size has to be a number it stays one,
and where open sizes cannot be compiled at all, every combination has code of its own. What becomes of a model is told to the logger, and
`explain` lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from time import perf_counter
from typing import Any

from codegen.errors import InternalError as InternalErrorOfCode
from codegen.log import log_of
from tensorlang.diagnostics import CompileError, InternalError, counted, plain_text
from tensorlang.graph.data_dependent import DataDependent
from tensorlang.graph.nodes import Graph
from tensorlang.graph.sizes import PREFIX, OpenSize, Size, Symbols, symbol_name
from tensorlang.runtime.bundle import BundleKey
from tensorlang.runtime.protocol import OpenRuns, Progress, Runs, Tools
from tensorlang.runtime.signature import TensorSignature
from tensorlang.runtime.specialization import Sizes

Shapes = Mapping[str, tuple[int, ...]]
FIXED = 1
"""How many combinations have code of their own before sizes are opened."""
MOST_COMPILED = 8
"""How often a model is compiled for open sizes: each of these rests on other assumptions."""

_log = log_of("compile")


@dataclass(slots=True)
class OpenSizes:
    """The code of one model for open sizes. `load(shapes)` imports the model, `key(shapes)` is what its code is kept under on disk."""

    name: str
    inputs: Sequence[TensorSignature]
    sizes: Sizes
    load: Callable[[Shapes | None], Graph]
    tools: Tools
    progress: Progress
    key: Callable[[Shapes | None], BundleKey] | None
    made: list[OpenRuns] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What `explain` says of sizes."""
    _symbols: dict[str, str] = field(default_factory=dict)
    """Names in programs, by those of the dimensions."""
    _first: dict[str, int] = field(default_factory=dict)
    _different: set[str] = field(default_factory=set)
    _fixed: set[str] = field(default_factory=set)
    _count: int = 0
    _refused: bool = False

    def __post_init__(self) -> None:
        for tensor in self.inputs:
            for k, extent in enumerate(tensor.shape or ()):
                name = _dimension(tensor, k, extent)
                if name is not None and name not in self._symbols:
                    self._symbols[name] = symbol_name(name, dict.fromkeys(self._symbols.values()))

    def runs(self, shapes: Shapes) -> Runs | None:
        """Return the model for input shapes by code for open sizes: what there is, or what is compiled now; None where the combination
        is to have code of its own. Raises CompileError where sizes are asked to be open and cannot be."""
        sizes = self._sizes(shapes)
        if sizes is None or self.sizes == "static" or not sizes:
            return None
        found = self._found(shapes)
        if found is None:
            self._note(sizes)
            if not self._opens():
                return None
            found = self._compiled(shapes, sizes)
        return None if found is None else found.at(shapes)

    def _sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Return the sizes that the model leaves open by their symbols; None where shapes do not fit the model."""
        sizes: dict[str, int] = {}
        for tensor in self.inputs:
            given = shapes.get(tensor.name)
            if given is None or tensor.shape is None or len(given) != len(tensor.shape):
                return None
            for k, extent in enumerate(tensor.shape):
                name = _dimension(tensor, k, extent)
                if name is not None and sizes.setdefault(self._symbols[name], given[k]) != given[k]:
                    return None
        return sizes

    def _found(self, shapes: Shapes) -> OpenRuns | None:
        return next((made for made in self.made if made.fits(shapes)), None)

    def _note(self, sizes: Mapping[str, int]) -> None:
        self._first = self._first or dict(sizes)
        self._different |= {name for name, size in sizes.items() if self._first[name] != size}
        self._count += 1

    def _opens(self) -> bool:
        if self._refused or len(self.made) >= MOST_COMPILED:
            return False
        return self.sizes == "symbolic" or (self._count > FIXED and bool(self._different - self._fixed))

    def _compiled(self, shapes: Shapes, sizes: Mapping[str, int]) -> OpenRuns | None:
        """Return the model compiled for the sizes that have differed, or as many of them as may be open."""
        wanted = set(sizes) if self.sizes == "symbolic" else set(self._different)
        for samples in (_samples(sizes, self._first), dict(sizes)):
            made = self._tried(shapes, wanted, samples)
            if made is None:
                break
            self.made.append(made)
            if made.fits(shapes):
                return made
        return None

    def _tried(self, shapes: Shapes, wanted: set[str], samples: Mapping[str, int]) -> OpenRuns | None:
        while names := sorted(wanted - self._fixed):
            symbols = Symbols({name: samples[name] for name in names})
            try:
                return self._built(self._open(shapes, symbols), symbols)
            except OpenSize as need:
                fixed = (need.names & set(names)) or set(names)
                self._fixed |= fixed
                self._tell(INFO, f"{_listed(fixed)} {'is a number' if len(fixed) == 1 else 'are numbers'}: {need}")
            except DataDependent:
                self._refuse(INFO, "shapes depend on elements of the data")
                return None
            except CompileError as refused:
                self._refuse(INFO, refused.diagnostics[0].title)
                if self.sizes == "symbolic":
                    raise
                return None
            except (InternalError, InternalErrorOfCode) as broken:
                self._refuse(WARNING, str(broken))
                return None
        self._refuse(INFO, "no size that differs can be open")
        return None

    def _built(self, shapes: Mapping[str, tuple[Any, ...]], symbols: Symbols) -> OpenRuns:
        key = self.key(shapes) if self.key is not None else None
        key, start = key if not self.made else None, perf_counter()
        found = self.tools.kept_open_sizes(key.name) if key is not None else None
        made = found if found is not None else self.tools.built_open_sizes(self.load(shapes), self.progress, key)
        self._log(made, "compiled" if found is None else "found in the cache", perf_counter() - start)
        return made

    def _log(self, made: OpenRuns, how: str, seconds: float) -> None:
        self.notes.append(f"open are {_listed(made.symbols.samples)}{_assuming(made.symbols)}")
        if _log.isEnabledFor(INFO):
            types = {t.name: t.dtype for t in self.inputs}
            inputs = ", ".join(f"{plain_text(name)}: {types[name]}{list(shape)}" for name, shape in made.inputs)
            where = f"{self.tools.name}, {counted(self.tools.threads, 'thread')}"
            what = f"{how} in {seconds * 1e3:.1f} ms, {counted(made.kernels, 'kernel')}, for {where}{_assuming(made.symbols)}"
            _log.info("model `%s` for %s: %s", plain_text(self.name), inputs, what)

    def _open(self, shapes: Shapes, symbols: Symbols) -> dict[str, tuple[int | Size, ...]]:
        """Return the shapes of the inputs with symbols in them."""

        def extent(tensor: TensorSignature, k: int) -> int | Size:
            name = _dimension(tensor, k, (tensor.shape or ())[k])
            symbol = self._symbols.get(name) if name is not None else None
            return symbols.symbol(symbol) if symbol in symbols.samples and symbol is not None else shapes[tensor.name][k]

        return {t.name: tuple(extent(t, k) for k in range(len(shapes[t.name]))) for t in self.inputs}

    def _refuse(self, level: int, why: str) -> None:
        self._refused = True
        self._tell(level, f"compiled for each combination of sizes: {why}")

    def _tell(self, level: int, what: str) -> None:
        self.notes.append(what)
        _log.log(level, "model `%s`: %s", self.name, what)


def _dimension(tensor: TensorSignature, k: int, extent: int | str | None) -> str | None:
    """Return what a dimension is called that the model leaves open, None for a number."""
    return extent if isinstance(extent, str) else f"{tensor.name}_{k}" if extent is None else None


def _samples(sizes: Mapping[str, int], first: Mapping[str, int]) -> dict[str, int]:
    """Return a sample for each size, those at hand where they say most: none is 0 or 1, and no two are equal."""
    samples: dict[str, int] = {}
    for name, size in sizes.items():
        found = max(size, first.get(name, 0)) if size < 2 else size
        found = max(found, 2)
        while found in samples.values():
            found += 1
        samples[name] = found
    return samples


def _listed(names: Any) -> str:
    return ", ".join(f"`{name.removeprefix(PREFIX)}`" for name in sorted(names))


def _assuming(symbols: Symbols) -> str:
    return f", as long as {', '.join(map(str, symbols.assumed))}" if symbols.assumed else ""
