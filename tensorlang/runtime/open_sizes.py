"""Which sizes of a model are symbols in its code, for a model that meets one combination of input shapes after the other.

    auto       the first combination has code of its own; with the second, the sizes that differ become symbols, and what is compiled then
               serves whatever they are
    static     code for each combination
    symbolic   all sizes that the model leaves open are symbols from the start

A size that changes later makes one more compilation, in which it is a symbol, too. Code may rest on assumptions (that an image is no
smaller than a window): combinations that they do not hold for are compiled for themselves. Where a size has to be a number it stays one,
and where open sizes cannot be compiled at all, every combination has code of its own. What becomes of a model is told to the logger, and
`explain` lists it. Where the compiler itself is at fault with open sizes, users are warned (`FaultWarning`), and tests fail.

Whole numbers in the data that decide shapes are sizes, too: those of small inputs, and those that a first stage of the model computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from codegen.errors import InternalError as InternalErrorOfCode
from codegen.forks import Lock
from codegen.log import log_of
from codegen.store import key_of
from tensorlang.bounded_cache import BoundedCache
from tensorlang.diagnostics import CompileError, Diagnostic, InternalError, RunError, counted, error, plain_text, warn_of_fault
from tensorlang.graph.data_dependent import DataDependent, Known, ModelPart, Run, value_at
from tensorlang.graph.nodes import Graph, Value
from tensorlang.graph.sizes import (
    PREFIX,
    Condition,
    Extent,
    Formula,
    OpenSize,
    Symbols,
    UnequalSizes,
    evaluate,
    names_in,
    of_formula,
    range_of,
    substituted,
    symbol_name,
    with_sizes,
)
from tensorlang.runtime.bundle import BundleKey
from tensorlang.runtime.feeds import describe
from tensorlang.runtime.protocol import OpenRuns, Progress, Runs, Tools
from tensorlang.runtime.signature import TensorSignature
from tensorlang.runtime.specialization import Sizes
from tensorlang.runtime.stages import Stages
from tensorlang.tensor.widths import LARGEST

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]
Numbers: TypeAlias = Mapping[str, int]
"""What sizes are, by the names of their symbols."""
FIXED = 1
"""How many combinations have code of their own before sizes are opened."""
MOST_COMPILED = 8
"""How often a model is compiled for open sizes: each of these rests on other assumptions."""
MOST_ELEMENTS = 16
"""Values of so many elements at most hold sizes; of larger ones all elements are known as numbers."""
TURNS = 16
"""A part of a model that runs turn by turn keeps the code of so many times as many combinations of shapes as the whole: what grows has
another one in each turn."""

_log = log_of("compile")


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a model is imported for: the shapes of its inputs, None for those that it declares, and what is known of its values. Extents and
    elements may be sizes."""

    shapes: Mapping[str, tuple[Any, ...]] | None = None
    known: Known = field(default_factory=Known)

    def at(self, sizes: Mapping[str, Extent]) -> Given:
        """Return it where the symbols are `sizes`, numbers and other sizes."""
        shapes = self.shapes and {name: tuple(with_sizes(n, sizes) for n in shape) for name, shape in self.shapes.items()}
        return Given(shapes, self.known.at(sizes))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What importers and keys are called with."""
        return (self.shapes, self.known) if self.known else (self.shapes,)


@dataclass(frozen=True, slots=True)
class Compiling:
    """How a model is compiled: `load` imports it for what is `Given.arguments`, `key` is what its code is kept under on disk, and
    `compiled` compiles it for numbers alone."""

    name: Callable[[], str]
    sizes: Sizes
    load: Callable[..., Graph]
    tools: Tools
    progress: Progress
    key: Callable[..., BundleKey] | None
    compiled: Callable[[Given], Runs]
    kept: int
    """For how many combinations of elements code stays in memory."""
    tell: Callable[[int, str], None]
    """Notes what becomes of sizes."""
    model_part: Callable[[ModelPart], Run]
    """Returns the run of a part of the model that is one of its own."""
    repeated: bool = False
    """Whether it is such a part, which runs turn by turn."""


@dataclass(frozen=True, slots=True, eq=False)
class _Variant:
    """Code for open sizes; the others are numbers in it."""

    made: OpenRuns
    numbers: Numbers

    def fits(self, sizes: Numbers) -> bool:
        return all(sizes[name] == number for name, number in self.numbers.items()) and _hold(self.made.symbols, sizes)


class _Tied(Exception):
    """Sizes that are numbers will differ when those do that are open."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(_listed(names))
        self.names = names


@dataclass(slots=True)
class OpenSizes:
    """The code of one model for open sizes. `given` has a size for each of its symbols. `opened`: those that are open from the start."""

    compiling: Compiling
    given: Given
    opened: frozenset[str] = frozenset()
    chooses: bool = False
    """Whether a stage of the model computes some of the sizes: the larger and the smaller of two are first tried as sizes of their own then
    (`Symbols.chooses`), and in what runs turn by turn all are open where any is from the start, but for axes of one."""
    made: list[_Variant] = field(default_factory=list)
    _first: dict[str, int] = field(default_factory=dict)
    _different: set[str] = field(default_factory=set)
    _fixed: set[str] = field(default_factory=set)
    _read: dict[str, int] = field(default_factory=dict)
    """How many variants of each key of the model were made or read."""
    _count: int = 0
    _refused: bool = False
    _refusal: CompileError | None = None
    """What was raised where sizes are asked to be open and cannot be: each run is told."""

    def runs(self, sizes: Numbers) -> Runs | None:
        """Return the model for sizes by code for open ones: what there is, or what is compiled now; None where the combination is to have
        code of its own. Raises CompileError where sizes are asked to be open and cannot be."""
        if self.compiling.sizes == "static" or not sizes or max(sizes.values()) > LARGEST:
            return None
        found = self._found(sizes)
        if found is None:
            if self._refusal is not None:
                raise self._refusal
            self._note(sizes)
            found = self._compiled(sizes) if self._opens() else None
        return None if found is None else found.at(sizes)

    def _found(self, sizes: Numbers) -> OpenRuns | None:
        return next((variant.made for variant in self.made if variant.fits(sizes)), None)

    def _note(self, sizes: Numbers) -> None:
        self._first = self._first or dict(sizes)
        turns = self.compiling.repeated and bool(self.opened) and self.chooses
        differ = {name for name, size in sizes.items() if self._first[name] != size or (turns and size != 1)}
        self._different |= differ | (self.opened & sizes.keys())
        self._count += 1

    def _opens(self) -> bool:
        if self._refused or len(self.made) >= MOST_COMPILED:
            return False
        asked = self.compiling.sizes == "symbolic"
        return asked or ((self._count > FIXED or bool(self.opened)) and bool(self._different - self._fixed))

    def _compiled(self, sizes: Numbers) -> OpenRuns | None:
        """Return the model compiled for the sizes that have differed, or as many of them as may be open. Samples that there is code for
        would give that code again."""
        wanted = set(sizes) if self.compiling.sizes == "symbolic" else set(self._different)
        every = list({tuple(s.items()): s for s in (_samples(sizes, self._first), dict(sizes))}.values())
        tried = [(samples, chooses) for chooses in dict.fromkeys((self.chooses, False)) for samples in every]
        for k, (samples, chooses) in enumerate(tried):
            last = k == len(tried) - 1
            if not last and self._found({**samples, **{name: sizes[name] for name in self._fixed & sizes.keys()}}):
                continue
            variant = self._tried(sizes, wanted, samples, chooses, last)
            if variant is not None:
                self.made.append(variant)
                if variant.fits(sizes):
                    return variant.made
            if self._refused:
                break
        return None

    def _tried(self, sizes: Numbers, wanted: set[str], samples: Numbers, chooses: bool, last: bool) -> _Variant | None:
        """Return the model compiled for open sizes. What is refused for samples, or assumed of them, may be right for the sizes at hand,
        the `last` to try: None where something else is to be tried, or sizes are given up."""
        equal: dict[str, Formula] = {}
        reasons: list[str] = []
        while names := sorted(wanted - self._fixed):
            symbols = Symbols({name: samples[name] for name in names}, chooses=chooses)
            numbers = {name: size for name, size in sizes.items() if name not in symbols.samples}
            try:
                made = self._built(self.given.at({**sizes, **sizes_of(symbols, equal)}), symbols, numbers, sizes, last)
                return None if made is None else _Variant(made, numbers)
            except _Tied as need:
                wanted, equal = wanted | need.names, {}
            except OpenSize as need:
                fixed = (need.names & set(names)) or set(names)
                self._fixed |= fixed
                equal = {name: formula for name, formula in equal.items() if not fixed & {name, *names_in(formula)}}
                reasons.append(f"{_listed(fixed)} {'is a number' if len(fixed) == 1 else 'are numbers'}: {need}")
                self.compiling.tell(INFO, reasons[-1])
            except UnequalSizes as need:
                if chooses and need.has_choice:  # which of the two it is says what is equal
                    return None
                found = need.solved() or need.named_twice(sizes)
                if found is None or evaluate(need.formula, sizes) != 0:
                    self._refused_for(need.refused, last)
                    return None
                name, formula = found
                if range_of(formula)[0] < 0 and (tied := self._tied([formula], numbers)):
                    wanted, equal = wanted | tied, {}
                    continue
                equal = {**{n: substituted(f, name, formula) for n, f in equal.items()}, name: formula}
            except CompileError as refused:
                self._refused_for(refused, last)
                return None
            except (InternalError, InternalErrorOfCode) as broken:
                if self.compiling.sizes == "symbolic":
                    raise
                self._refuse(WARNING, str(broken))
                warn_of_fault(f"model `{plain_text(self.compiling.name())}` is compiled for each combination of sizes: {broken}")
                return None
        self._refuse(INFO, "no size that differs can be open")
        if self.compiling.sizes == "symbolic":
            help = 'compile it with `sizes="auto"`: each combination of sizes has code of its own then'
            self._refusal = error("C0105", "no size of this model can be open", notes=tuple(reasons), help=help)
            raise self._refusal
        return None

    def _tied(self, formulas: Iterable[Formula], numbers: Numbers) -> set[str]:
        """Return which sizes are numbers that formulas have beside sizes that are open, `6 - past`: they will differ when those do. What is
        0 or 1 says nothing."""
        beside = {abs(formula.offset) for formula in formulas} - {0, 1}
        return {name for name, number in numbers.items() if number in beside and name not in self._fixed}

    def _refused_for(self, refused: CompileError, last: bool) -> None:
        """Give open sizes up where these samples were the `last` to try. Raises CompileError where sizes are asked to be open."""
        if not last:
            return
        self._refuse(INFO, refused.diagnostics[0].title)
        if self.compiling.sizes == "symbolic":
            self._refusal = refused
            raise refused

    def _built(self, given: Given, symbols: Symbols, numbers: Numbers, sizes: Numbers, last: bool) -> OpenRuns | None:
        """Return the model compiled, or as it is kept on disk. None where it is not the `last` to try and the importer assumes what does
        not hold for `sizes`: a decoder's step of one token has no use for code for several, which takes as long to compile as its own.
        Raises `_Tied` where it assumes that open sizes are no larger than one of the `numbers`."""
        how, start = self.compiling, perf_counter()
        key = how.key(*given.arguments) if how.key is not None else None
        found, place = (None, None) if key is None else self._kept(key, numbers, sizes)
        if found is not None:
            return found
        made: OpenRuns
        try:
            graph = how.load(*given.arguments)
            if not (last or _hold(symbols, sizes)):
                return None
            tied = self._tied((c.formula for c in symbols.assumed if c.is_limit), numbers)
            if tied:
                raise _Tied(tied)
            made = how.tools.built_open_sizes(graph, how.progress, place)
            if key is not None:
                self._read[key.name] = self._read.get(key.name, 0) + 1
        except DataDependent as problem:
            if not (last or _hold(symbols, sizes)):
                return None
            first = None if problem.stage is None else how.tools.built_open_sizes(problem.stage, how.progress, None)
            made = OpenStages(how, given, problem, first, symbols)
        self._log(made, "compiled", perf_counter() - start)
        return made

    def _kept(self, key: BundleKey, numbers: Numbers, sizes: Numbers) -> tuple[OpenRuns | None, BundleKey]:
        """Return the model as it is kept under `key`, for what it is given, with assumptions that hold for `sizes`, and the key of one that
        is not kept yet: each of them rests on other assumptions, and has a number. Those that were read on the way are among `made`."""
        while True:
            count = self._read.get(key.name, 0)
            numbered, start = BundleKey(key_of((key.name, "variant", str(count))), key.check), perf_counter()
            found = self.compiling.tools.kept_open_sizes(numbered.name) if len(self.made) < MOST_COMPILED else None
            if found is None:
                return None, numbered
            self._read[key.name] = count + 1
            self._log(found, "found in the cache", perf_counter() - start)
            if _hold(found.symbols, sizes):
                return found, numbered
            self.made.append(_Variant(found, numbers))

    def _log(self, made: OpenRuns, how: str, seconds: float) -> None:
        tools = self.compiling.tools
        self.compiling.tell(0, f"open are {_listed(made.symbols.samples)}{_assuming(made.symbols)}")
        if _log.isEnabledFor(INFO):
            inputs = ", ".join(f"{plain_text(v.name)}: {describe(v.dtype, v.shape)}" for v in made.inputs)
            where = f"{tools.name}, {counted(tools.threads, 'thread')}"
            what = f"{how} in {seconds * 1e3:.1f} ms, {counted(made.kernels, 'kernel')}, for {where}{_assuming(made.symbols)}"
            _log.info("model `%s` for %s: %s", plain_text(self.compiling.name()), inputs, what)

    def _refuse(self, level: int, why: str) -> None:
        self._refused = True
        self.compiling.tell(level, f"compiled for each combination of sizes: {why}")


# ---------------------------------------------------------------- the sizes of inputs


class OpenShapes:
    """The sizes that the inputs of a model leave open."""

    def __init__(self, inputs: Sequence[TensorSignature]) -> None:
        self._inputs = inputs
        self.names: dict[str, str] = {}
        """What symbols are called in programs, by the names of dimensions."""
        for tensor in inputs:
            for k, extent in enumerate(tensor.shape or ()):
                name = _dimension(tensor, k, extent)
                if name is not None and name not in self.names:
                    self.names[name] = symbol_name(name, dict.fromkeys(self.names.values()))

    def apart(self, shapes: Shapes) -> OpenShapes:
        """Return the same with names of their own for sizes that have one name and differ in these shapes of inputs."""
        first: dict[str, int] = {}
        different = {
            extent
            for tensor in self._inputs
            for extent, n in zip(tensor.shape or (), shapes[tensor.name], strict=True)
            if isinstance(extent, str) and first.setdefault(extent, n) != n
        }
        return OpenShapes(
            [replace(t, shape=t.shape and tuple(None if extent in different else extent for extent in t.shape)) for t in self._inputs]
        )

    def given(self) -> Given | None:
        """Return the shapes of inputs with a size for each dimension that is open, None where an input may be of any rank."""
        symbols = Symbols({})

        def extent(tensor: TensorSignature, k: int, n: int | str | None) -> Any:
            name = _dimension(tensor, k, n)
            return n if name is None else symbols.symbol(self.names[name])

        if any(tensor.shape is None for tensor in self._inputs):
            return None
        return Given({t.name: tuple(extent(t, k, n) for k, n in enumerate(t.shape or ())) for t in self._inputs})

    def symbol(self, tensor: TensorSignature, k: int) -> str | None:
        """Return the symbol of a dimension of an input, None for one that is known."""
        name = _dimension(tensor, k, (tensor.shape or ())[k])
        return None if name is None else self.names[name]

    def limits(self, most: Mapping[str, int]) -> dict[str, int]:
        """Return limits by the symbols in programs. Raises CompileError C0123 for what is no open size, and for what is no limit."""
        if not isinstance(most, Mapping):
            raise error("C0123", f"`max` is {most!r}", help='give limits by the names of sizes: `max={"seq": 4096}`')
        for name, limit in most.items():
            if name not in self.names:
                there = ", ".join(f"`{n}`" for n in self.names) or "none"
                raise error("C0123", f"there is no open size `{name}` to limit", notes=(f"the model leaves open: {there}",))
            if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= LARGEST:
                raise error("C0123", f"the limit of `{name}` is {limit!r}", help="give a whole number, 0 or more")
        return {self.names[name]: limit for name, limit in most.items()}

    def check(self, shapes: Shapes, limits: Mapping[str, int]) -> None:
        """Raise RunError R0317 where shapes of inputs are beyond limits."""
        sizes, called = self.sizes(shapes) or {}, {symbol: name for name, symbol in self.names.items()}
        for symbol, limit in limits.items():
            if sizes.get(symbol, 0) > limit:
                title = f"the size `{called[symbol]}` is {sizes[symbol]}, and the model is compiled for {limit} at most"
                raise RunError(Diagnostic("R0317", title, help="compile it with a larger limit: `max={…}`"))

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Return the sizes that the model leaves open by their symbols; None where shapes do not fit the model."""
        sizes: dict[str, int] = {}
        for tensor in self._inputs:
            given = shapes.get(tensor.name)
            if given is None or tensor.shape is None or len(given) != len(tensor.shape):
                return None
            for k, extent in enumerate(tensor.shape):
                name = _dimension(tensor, k, extent)
                if name is not None and sizes.setdefault(self.names[name], given[k]) != given[k]:
                    return None
        return sizes


def _dimension(tensor: TensorSignature, k: int, extent: int | str | None) -> str | None:
    """Return what a dimension is called that the model leaves open, None for a number."""
    return extent if isinstance(extent, str) else f"{tensor.name}_{k}" if extent is None else None


# ---------------------------------------------------------------- elements that decide sizes


@dataclass(frozen=True, slots=True, eq=False)
class OpenStages:
    """A model of open sizes whose shapes depend on elements (`tensorlang.runtime.protocol.OpenRuns`): `first` computes what decides, where
    the inputs do not say it. The rest is made for any sizes, too."""

    compiling: Compiling
    given: Given
    problem: DataDependent
    first: OpenRuns | None
    symbols: Symbols
    _rest: list[Rest] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.problem.inputs

    @property
    def kernels(self) -> int:
        return 0 if self.first is None else self.first.kernels

    def at(self, sizes: Numbers) -> Runs:
        if not self._rest:
            self._rest.append(Rest(self.compiling, self.given, self.problem, frozenset(self.symbols.samples)))
        rest, known = self._rest[0], {name: sizes[name] for name in self.symbols.samples}
        first = None if self.first is None else self.first.at(known)
        return rest.stages(first, known)


class Rest:
    """What is left of a model whose shapes depend on elements: code for whatever these are, as far as they can be sizes, for each
    combination of those that cannot."""

    def __init__(self, compiling: Compiling, given: Given, problem: DataDependent, opened: frozenset[str] = frozenset()) -> None:
        """`given` is what the model is imported for so far, in which the symbols `opened` are sizes."""
        self._compiling, self._given, self._problem, self._opened = compiling, given, problem, opened
        self._calls = tuple(call.on(compiling.model_part) for call in problem.calls)
        self._made: BoundedCache[object, OpenSizes] = BoundedCache(compiling.kept)
        self._lock = Lock()

    def stages(self, first: Runs | None, sizes: Numbers) -> Stages:
        """Return the model, of which `first` computes what decides, for numbers of the symbols that are open."""
        inputs = tuple(value_at(v, sizes) for v in self._problem.inputs)
        how = self._compiling

        def following(elements: Mapping[str, Array], hosted: Mapping[str, Value]) -> Runs:
            return self._runs(sizes, elements, hosted)

        return Stages(self._problem, self._calls, inputs, first, following, how.kept, how.tools.shape_of)

    def _runs(self, sizes: Numbers, elements: Mapping[str, Array], hosted: Mapping[str, Value]) -> Runs:
        names, numbers = dict.fromkeys(self._opened), dict[str, int]()
        symbols, split = Symbols({}), dict[str, Array]()
        for value, array in elements.items():
            split[value] = _with_symbols(value, array, symbols, names, numbers)
        made = {name: _of_any_extents(value, symbols, names, numbers) for name, value in hosted.items()}
        known, carried = self._given.known, self._problem.carried_values()
        key, computed = _of_all(split, made), self._problem.stage is not None or bool(known.carried)

        def opened() -> OpenSizes:
            open_ = known.with_computed(split, {**carried, **made}, self._problem.read)
            return OpenSizes(self._compiling, Given(self._given.shapes, open_), self._opened, computed)

        with self._lock:
            found = self._made.used(key, opened).runs({**sizes, **numbers})
        if found is not None:
            return found
        exact = Given(self._given.shapes, known.with_computed(elements, {**carried, **hosted}, self._problem.read))
        return self._compiling.compiled(exact.at(sizes))


def _of_all(elements: Mapping[str, Array], values: Mapping[str, Value]) -> object:
    """Return what tells elements of the same values from others, and the values of the host, too."""
    known = [(a.dtype.str, a.shape, tuple(map(_told, a.flat)) if a.dtype == object else a.tobytes()) for a in elements.values()]
    return tuple(known), tuple([(v.name, v.dtype.name, tuple(map(_told, v.shape))) for v in values.values()])


def _told(n: object) -> object:
    """Return an extent or an element as what is compared for all sizes."""
    return n if isinstance(n, (int, str)) else str(n)


def _with_symbols(value: str, array: Array, symbols: Symbols, names: dict[str, None], numbers: dict[str, int]) -> Array:
    """Return elements with sizes for those that can be some, those below zero as what is less than nothing by a size. `names` and `numbers`
    are told of these."""
    if array.dtype.kind not in "iu" or not 0 < array.size <= MOST_ELEMENTS:
        return array
    found = np.empty(array.shape, object)
    for place, element in zip(np.ndindex(array.shape), array.flat, strict=True):
        number = found[place] = int(element)
        if number != -1 and abs(number) <= LARGEST:  # -1 says of most shapes what is left
            name = symbol_name("_".join((value, *map(str, place))), names)
            names[name], numbers[name] = None, abs(number)
            found[place] = symbols.symbol(name) if number >= 0 else -symbols.symbol(name)
    return found


def _of_any_extents(value: Value, symbols: Symbols, names: dict[str, None], numbers: dict[str, int]) -> Value:
    """Return a value with sizes for its extents, of which `names` and `numbers` are told."""
    shape: list[Any] = []
    for k, extent in enumerate(value.shape):
        name = symbol_name(f"{value.name}_{k}", names)
        names[name], numbers[name] = None, extent
        shape.append(symbols.symbol(name))
    return replace(value, shape=tuple(shape))


# ---------------------------------------------------------------- samples, words


def samples_for(limits: Numbers) -> dict[str, int]:
    """Return a sample for each size, for which code is to be best that serves sizes up to these limits."""
    return _samples(limits, {})


def _samples(sizes: Numbers, first: Numbers) -> dict[str, int]:
    """Return a sample for each size, those at hand where they say most: none is 0 or 1, and no two are equal."""
    samples: dict[str, int] = {}
    for name, size in sizes.items():
        found = max(size, first.get(name, 0)) if size < 2 else size
        found = max(found, 2)
        while found in samples.values():
            found += 1
        samples[name] = found
    return samples


def sizes_of(symbols: Symbols, equal: Mapping[str, Formula]) -> dict[str, Extent]:
    """Return a size for each symbol, for those that have to be equal to formulas these, and note that they are."""
    sizes: dict[str, Extent] = {name: symbols.symbol(name) for name in symbols.samples}
    for name, formula in equal.items():
        symbols.samples[name] = evaluate(formula, symbols.samples)
        symbols.assumed[Condition(symbols.symbol(name).formula - formula, "==")] = None
    return {**sizes, **{name: of_formula(formula, symbols) for name, formula in equal.items()}}


def _hold(symbols: Symbols, sizes: Numbers) -> bool:
    """Tell whether all that was assumed of symbols holds for sizes."""
    return all(condition.holds(sizes) for condition in symbols.assumed)


def _listed(names: Any) -> str:
    return ", ".join(f"`{name.removeprefix(PREFIX)}`" for name in sorted(names))


def _assuming(symbols: Symbols) -> str:
    return f", as long as {', '.join(map(str, symbols.assumed))}" if symbols.assumed else ""
