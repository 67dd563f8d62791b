"""A compiled model: called with named arrays, it returns named arrays.

A model whose inputs leave dimensions open is compiled for the first combination of shapes it meets, and then once for all, as far as its
sizes can stay open (`open_sizes.py`). What was compiled is kept on disk, kernel by kernel and as a whole, so that another process finds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from logging import INFO
from numbers import Integral
from pathlib import Path
from pickle import PicklingError
from time import perf_counter
from typing import TYPE_CHECKING, Any, Never

from codegen.forks import Lock
from codegen.log import log_of
from tensorlang.absent import model_told, no_stage
from tensorlang.bounded_cache import BoundedCache
from tensorlang.diagnostics import CompileError, Diagnostic, RunError, counted, error, exception, plain_text, trimmed
from tensorlang.frames import contiguous_frames
from tensorlang.garbage import fewer_collections
from tensorlang.graph.data_dependent import DataDependent, ModelPart, Run
from tensorlang.graph.nodes import Graph
from tensorlang.graph.texts import texts_of_a_run
from tensorlang.room import no_room, within_room
from tensorlang.runtime.bundle import BundleKey, keep_open, kept_open
from tensorlang.runtime.description import Description
from tensorlang.runtime.feeds import check_named, describe, only_inputs, shapes_of_arrays
from tensorlang.runtime.growing import Growing
from tensorlang.runtime.open_sizes import TURNS, Compiling, Given, OpenShapes, OpenSizes, Rest
from tensorlang.runtime.profile import Profile
from tensorlang.runtime.protocol import MemoryUse, Progress, Runs, Timer, Tools, memory_of, quiet
from tensorlang.runtime.rows import model_rows
from tensorlang.runtime.saving import graphs_of, only_shapes_are_open, save_options
from tensorlang.runtime.signature import OpenModel, Signature, TensorSignature, check_feeds, named_inputs, signature_of
from tensorlang.runtime.specialization import Sizes
from tensorlang.runtime.stages import Stages
from tensorlang.runtime.structured import flat_feeds, flat_inputs, is_structured, structured_results
from tensorlang.runtime.work import Roofline
from tensorlang.saved.package import Rows

if TYPE_CHECKING:
    from tensorlang.runtime.schedule_book import ScheduleBook

Shapes = Mapping[str, tuple[int, ...]]

_log = log_of("compile")


class CompiledModel:
    """A model ready to run, on this machine or on a device. `run` may be called from several threads: on processors runs go on at the same
    time, each in memory of its own; on a device runs of one model follow one another.

    A model that is compiled for several threads has these to itself. Of runs at the same time, one parallel loop has them, and each other
    one its caller alone: `clone` makes models that share code and weights, each with threads of its own."""

    def __init__(
        self,
        load: Callable[..., Graph],
        tools: Tools,
        *,
        shapes: Shapes | None = None,
        progress: Progress = quiet,
        key: Callable[..., BundleKey] | None = None,
        made: Callable[[], CompiledModel] | None = None,
        signature: Callable[[], Signature | None] = lambda: None,
        sizes: Sizes = "static",
        most: Mapping[str, int] | None = None,
        repeated: bool = False,
    ) -> None:
        """`load(shapes)` returns the model's graph for given input shapes, or for its own when they are all known; `key(shapes)` is
        what the compiled model is kept under on disk, if it may be; `made()` makes the same model in another process. `signature()`
        tells what a model of open shapes takes and returns, None where that is not to be had. `sizes`: how code is made for shapes that
        come; `most`: limits of open sizes by their names; `repeated`: it is a part of a model that each run runs
        many times. Where `load` says that shapes depend on elements (`DataDependent`), it and
        `key` are called with what these are, too.

        Raises CompileError for what the model does that is not supported, C0111 and C0112; RunError R0315 where memory is not enough."""
        self._load, self._tools, self._progress, self._key = load, tools, progress, key
        self._origin, self._threads, self._workers = self, tools.threads, tools.workers(tools.threads)
        self._given_shapes, self._given_limits, self._declared = shapes, most or {}, signature
        self._shared: dict[str, Any] = {}
        self._parts_alone: BoundedCache[str, CompiledModel] = BoundedCache(tools.combinations)
        self._parts_lock = Lock()
        self._fed: BoundedCache[tuple[str, ...], CompiledModel] = BoundedCache(tools.combinations)
        self._defaults: tuple[str, ...] | None = None
        self._facts: dict[str, Rows] = {}
        self._again = made
        kept = tools.combinations * (TURNS if repeated else 1)
        self._made: BoundedCache[tuple[tuple[str, tuple[int, ...]], ...], Runs] = BoundedCache(kept)
        self._lock = Lock()
        self._static: Runs | None = None
        self._signature: Signature | None = None
        self._open: tuple[Diagnostic, ...] = ()
        self._notes: list[str] = []
        self._compiling = Compiling(
            self._name,
            "static" if tools.on_device and sizes == "auto" else sizes,
            load,
            tools,
            progress,
            key,
            self._compiled,
            kept,
            self._tell,
            self._model_part,
            repeated,
        )
        self._opened: list[tuple[OpenShapes, OpenSizes]] = []
        self._growing: Growing | None = None
        self._quick: Callable[[Mapping[str, object]], Any] = lambda feeds: NotImplemented
        self._structured = False
        known = self._known_to_be_open(shapes)
        if known is None:
            try:
                with within_room(self._name()):
                    self._static = self._specialise(shapes).on(self._workers)
            except CompileError as problem:
                if shapes is not None or not only_shapes_are_open(problem):
                    raise
                self._open, self._signature = problem.diagnostics, signature()
                self._keep_open()
        else:
            self._open, self._signature = known.diagnostics, known.signature
        if isinstance(self._static, Stages):
            self._signature = signature()
        if self._signature is not None and self._open:
            self._structured = is_structured(self._signature)
        if self._structured and any(t.has_texts for t in (*self.inputs, *self.outputs)):
            self._key = None  # another process does not know the texts that the model holds
            self._compiling = replace(self._compiling, key=None)
        self._opened = self._open_sizes()
        self._limits = self._limited(most or {})

    def _open_sizes(self) -> list[tuple[OpenShapes, OpenSizes]]:
        """Return which sizes the inputs leave open, and the code for these, none where each combination is to have code of its own."""
        if self._signature is None or not self._open or self._structured or self._compiling.sizes == "static":
            return []
        return self._with_code(OpenShapes(self._signature.inputs))

    def _with_code(self, open_shapes: OpenShapes) -> list[tuple[OpenShapes, OpenSizes]]:
        given = open_shapes.given()
        return [] if given is None else [(open_shapes, OpenSizes(self._compiling, given))]

    def _for_sizes_apart(self, shapes: Shapes) -> Iterator[tuple[OpenShapes, OpenSizes]]:
        """Yield code, made when it is asked for, of which sizes that have one name and differ in these shapes have names of their own."""
        yield from self._with_code(self._opened[0][0].apart(shapes))

    def _limited(self, most: Mapping[str, int]) -> tuple[OpenShapes, Mapping[str, int]] | None:
        """Return limits of the sizes that the inputs leave open, None where there are none. Raises CompileError C0123."""
        if not most:
            return None
        open_shapes = OpenShapes(self._signature.inputs if self._signature is not None and self._open else ())
        return open_shapes, open_shapes.limits(most)

    def _tell(self, level: int, what: str) -> None:
        """Note what becomes of sizes for `explain`, and tell it to the logger unless `level` is 0."""
        self._notes.append(what)
        if level:
            _log.log(level, "model `%s`: %s", self._name(), what)

    def _name(self) -> str:
        return self._signature.name if self._signature is not None else ""

    def _known_to_be_open(self, shapes: Shapes | None) -> OpenModel | None:
        """Return what another process found out about a model of open shapes, or None."""
        if shapes is not None or self._key is None:
            return None
        return kept_open(self._key(None).name, self._tools.store)

    def _keep_open(self) -> None:
        if self._key is not None and self._signature is not None:
            keep_open(self._key(None), self._tools.store, OpenModel(self._signature, self._open))

    def clone(self, threads: int | None = None) -> CompiledModel:
        """Return the same model with threads of its own, `threads` of them, at most those that it was compiled for (None: as many). It
        shares code and weights, also of shapes that come later, and has memory of its own for values in between: as many clones as there
        are requests at a time run side by side.

        Raises CompileError C0107 for `threads` that are no such number."""
        most = self._tools.threads
        count = self._threads if threads is None else threads
        if not isinstance(count, Integral) or isinstance(count, bool) or not 1 <= count <= most:
            help = f"a clone shares code that was compiled for {most}: give a number from 1 to {most}, or compile it for more"
            raise error("C0107", f"`threads` is {threads!r}", help=help)
        made = CompiledModel.__new__(CompiledModel)
        made.__dict__.update(self.__dict__)
        made._threads, made._workers = int(count), self._tools.workers(int(count))
        made._made, made._lock = BoundedCache(self._tools.combinations), Lock()
        made._quick = lambda feeds: NotImplemented
        made._static = self._static and self._static.on(made._workers)
        made._again = self._again and partial(_cloned, self._origin, int(count))
        return made

    def __reduce__(self) -> tuple[Callable[[], CompiledModel], tuple[()]]:
        """Pickled is what the model was made of; what was compiled stays in the cache."""
        if self._again is None:
            raise PicklingError("a model of a graph in memory cannot be pickled: `tensorlang.compile` makes models that can")
        return self._again, ()

    @property
    def inputs(self) -> tuple[TensorSignature, ...]:
        """The inputs: name, dtype, shape, in which a symbol stands for what each run brings. Raises RunError where shapes are open and the
        importer does not tell more."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[TensorSignature, ...]:
        """The outputs, as the inputs."""
        return self.signature.outputs

    @property
    def signature(self) -> Signature:
        """The model's name, inputs and outputs. Raises RunError as `inputs` does."""
        if self._signature is None:
            made = self._known()
            found = signature_of(made.summary.name, made.inputs, made.outputs)
            if self._open:
                return found
            self._signature = found
        return self._signature

    @property
    def rows(self) -> Rows:
        """Whether rows of a batch depend on each other: proven of the model with all sizes open that it leaves open."""
        if "rows" not in self._facts:
            self._facts["rows"] = model_rows(self._load, self._signature if self._open else None)
        return self._facts["rows"]

    @property
    def memory(self) -> MemoryUse:
        """The memory of all combinations of shapes that code is held for."""
        return memory_of([made.summary for made in self._held()])

    def _held(self) -> Sequence[Runs]:
        """Return what there is code for, what was used last at the end."""
        return (self._static,) if self._static is not None else tuple(self._made.values())

    def __repr__(self) -> str:
        """A few lines: inputs, outputs, target, kernels, memory."""
        return "\n".join(self._description().lines())

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        held, shapes = self._held(), [dict(key) for key in self._made]
        signature = self.signature if held or self._signature is not None else None
        return Description(
            self._tools.name,
            self._threads,
            self._tools.on_device,
            signature,
            shapes if self._open else None,
            held[-1].summary.kernels if held else None,
            self.memory,
        )

    def __call__(self, /, *arrays: object, **named: object) -> Any:
        """Return the output for inputs in order or by name, or a tuple of the outputs where there are several: a model of one input and
        one output is a function of an array. Inputs whose names are none of Python's are given in order, or in a dictionary as to `run`.

        Raises RunError R0311 and R0312 for inputs that are too many or given twice, and as `run` does."""
        try:
            return self._called(arrays, named)
        except CompileError as refused:
            raise refused.with_traceback(None) from refused.__cause__

    if not TYPE_CHECKING:  # which is to know the attributes that there are

        def __getattr__(self, name: str) -> Never:
            """Raise AttributeError: what other libraries call methods of models is told as what it is here."""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{model_told(name)}", name=name, obj=self)

    def _called(self, arrays: tuple[object, ...], named: dict[str, object]) -> Any:
        found = tuple(self.run(self.feeds_of(arrays, named)).values())
        return found[0] if len(found) == 1 else found

    def feeds_of(self, arrays: tuple[object, ...], named: Mapping[str, object]) -> Mapping[str, object]:
        """Return inputs by name, which are given in order, by name or in one dictionary. Raises RunError R0311 and R0312."""
        if len(arrays) == 1 and isinstance(arrays[0], Mapping) and not named:
            return arrays[0]
        return named_inputs(arrays, named, self.inputs) if arrays else named

    def run(self, feeds: Mapping[str, object], *others: object, stream: object = None) -> dict[str, Any]:
        """Return the outputs by name, in new arrays. `feeds` has an array for every input; memory that is not row-major is copied. There is
        nothing else to give: `run(names, feeds)` of onnxruntime is refused.

        A model on a device returns NumPy's arrays for NumPy's. Where an input lies on the device, nothing is copied, and the outputs lie
        there, too. What the run does happens on `stream`, a handle or an object with `__cuda_stream__`; without it, on the stream on which
        the library of the first input on the device works now (torch's and CuPy's current stream), or on one of the model's own.

        Raises RunError: R0301 to R0305 for arrays that do not fit, R0306 when an index or a size in the data is out of range, R0308 for a
        stream where there are none, R0311 for more than the inputs, R0315 where memory is not enough, R0321 to R0323 for the device."""
        try:
            if others:
                raise only_inputs(len(others) + 1, [t.name for t in self.inputs])
            if self._structured:
                return self._run_structured(feeds, stream)
            if stream is not None:
                return self._made_for(feeds).run(feeds, stream)
            found: dict[str, Any] = self._quick(feeds)
            return found if type(found) is dict else self._run(feeds)
        except MemoryError as problem:
            __tracebackhide__ = True
            raise no_room(self._name(), problem=problem) from None
        except CompileError as refused:
            raise self._with_element(refused, feeds).with_traceback(None) from refused.__cause__

    def _with_element(self, refused: CompileError, feeds: Mapping[str, object]) -> CompileError:
        """Return what a run is refused for, with the element of the data where that is at fault. A value that is too large for the sizes
        of a run is one that there is no memory for."""
        if isinstance(refused, RunError) and refused.diagnostics[0].code == "R0306":
            return self._made_for(feeds).with_element(refused, feeds)
        if self._static is None and all(d.code == "O014" for d in refused.diagnostics):
            first = refused.diagnostics[0]
            return no_room(self._name(), problem=MemoryError("; ".join((first.title, *first.notes))))
        return refused

    def _run_structured(self, feeds: Mapping[str, object], stream: object) -> dict[str, Any]:
        check_named(feeds)
        with texts_of_a_run():
            flat = flat_feeds(feeds, self.inputs)
            if stream is not None:
                return structured_results(self._made_for(flat).run(flat, stream), self.outputs)
            found = self._quick(flat)
            return structured_results(found if type(found) is dict else self._run(flat), self.outputs)

    def _run(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        self._quick = self._quick_at(feeds)
        found = self._quick(feeds)
        if type(found) is dict:
            return found
        made = self._made_for(feeds)
        self._quick = made.quick
        return made.run(feeds)

    def _quick_at(self, feeds: Mapping[str, object]) -> Callable[[Mapping[str, object]], Any]:
        """Return what runs arrays of NumPy's whose shapes came before, and looks at them itself; of others, what was there."""
        shapes = shapes_of_arrays(feeds) if self._static is None else None
        if shapes is None:
            return self._quick
        with self._lock:
            made = self._made.found(shapes)
        return self._quick if made is None else made.quick

    def seconds(self, feeds: Mapping[str, object], repeats: int = 10) -> float:
        """Return the seconds of a run, the mean of `repeats` in a row; on a device by its clock, without copies from and to the host.
        Raises RunError as `run` does."""
        return self.timer(feeds)(repeats)

    def timer(self, feeds: Mapping[str, object]) -> Timer:
        """Return `seconds` of these inputs as a function of `repeats`, for measuring in turns: inputs of the host are copied to a device
        once. Raises RunError as `run` does."""
        feeds = self._flat(feeds)
        return self._made_for(feeds).timer(feeds)

    def _flat(self, feeds: Mapping[str, object]) -> Mapping[str, object]:
        """Return feeds as compiled code takes them."""
        return flat_feeds(feeds, self.inputs) if self._structured else feeds

    def _made_for(self, feeds: Mapping[str, object]) -> Runs:
        if fed := self._defaults_in(feeds):
            with self._parts_lock:
                other = self._fed.used(fed, lambda: self._remade(fed))
            return other._made_for(feeds)
        return self._static if self._static is not None else self._for(feeds)

    def _defaults_in(self, feeds: object) -> tuple[str, ...]:
        """Return which initializers that are inputs, too, are fed. What sequences and texts are taken apart into has names of its own."""
        if self._again is None or self._structured or not isinstance(feeds, Mapping) or feeds.keys() <= {t.name for t in self.inputs}:
            return ()
        if self._defaults is None:
            declared = self._declared()
            self._defaults = () if declared is None else tuple(t.name for t in declared.defaults)
        return tuple(name for name in self._defaults if name in feeds)

    def _remade(self, fed: tuple[str, ...]) -> CompiledModel:
        """Return the model with these initializers as inputs."""
        again = self._origin._again
        assert isinstance(again, partial)
        model: CompiledModel = again(fed=(*again.keywords["fed"], *fed))
        return model

    @trimmed
    def prepared(
        self, feeds: Mapping[str, object], results: Mapping[str, object] | None = None, *, max: Mapping[str, int] | None = None
    ) -> Callable[..., dict[str, Any]]:
        """Return `run` on these arrays for good: a function that computes what they hold when it is called, writes into the arrays of
        `results` (or some of its own), and returns them by name. It looks at nothing and makes nothing, so it is for many runs in a row;
        it is called once at a time.

        With `max`, arrays have room for sizes up to these limits, and the function takes the sizes of a run by name, `step(past=17)`:
        values lie in the first part of their arrays, and nothing is compiled or copied when sizes change. An output that is given the
        array of an input is written behind it, in place: a cache of keys, of which only the new rows are written.

        Raises RunError as `run` does, R0307 for arrays that it would have to copy, R0317 for sizes beyond their limits and arrays that are
        too short for these; CompileError C0122 for an output that cannot be written behind an input, C0123 where sizes cannot be open."""
        if self._structured and max is None:
            if results is not None:
                raise exception(Diagnostic("R0307", "a model that takes or returns sequences or texts writes into no arrays of yours"))
            return lambda: self.run(feeds)
        with within_room(self._name()):
            if max is not None:
                return self._on_workers(self._origin._growing_for().prepared(feeds, results or {}, max))
            return self._made_for(feeds).prepared(feeds, results)

    def _on_workers(self, step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """Return a function whose parallel loops run on this model's threads."""
        workers = self._workers
        if workers is None:
            return step

        def run(**sizes: int) -> dict[str, Any]:
            with workers.entered():
                return step(**sizes)

        return run

    def _growing_for(self) -> Growing:
        if self._growing is None:
            if not self._opened or self._signature is None:
                help = "compile it with the sizes open: `tensorlang.compile(model)` without `shapes` and `sizes`, for a processor"
                raise error("C0123", "this model has no open sizes that could be limited", help=help)
            self._growing = Growing(self._compiling, self._opened[0][0], self._signature.inputs)
        return self._growing

    @trimmed
    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        targets: str | Sequence[str] | None = None,
        max: Mapping[str, int] | None = None,
        library: str | None = None,
        weights: str = "beside",
        threads: int | None = None,
    ) -> Path:
        """Write the model as a library into a folder, which `tensorlang.load_model` and programs in C read, and return that. Sizes that the
        model leaves open have limits, those of `max` or those that it was compiled with.

        `targets`: kinds of processors of one family (`"x86-64-v3"`), of which the best is taken where it runs, None for the one that it is
        compiled for; `library`: what names in C
        begin with; `weights` "beside" lie in a file of their own, which processes share, "inside" in the code; `threads`: for how many
        it is made at most, None for as many as the model was compiled for.

        Raises CompileError C0131 for what has no library yet, C0123 and C0132 for limits, C0107 and C0133 for the other arguments, C0133
        for a folder that holds something else, C0203 where it cannot be written."""
        graphs, limits = graphs_of(self._load, self._declared, self._given_shapes, self._given_limits if max is None else max)
        name = self._signature.name if self._signature is not None else self._known().summary.name
        options = save_options(name, library, self._tools.name if targets is None else targets, limits, weights, threads)
        return self._tools.save_model(graphs, self._progress, Path(folder), options)

    def explain(self, feeds: Mapping[str, object] | None = None) -> str:
        """Return the kernels in the order they run: what each computes, how fast that could be on this machine, where its schedule is
        from; with `feeds` also the times they take."""
        feeds = None if feeds is None else self._flat(feeds)
        found = self._known() if feeds is None or self._static is not None else self._for(feeds)
        return "\n".join((found.explain(feeds), *self._shapes()))

    def _shapes(self) -> Iterator[str]:
        """Yield what there is to say of the shapes that an open model has met."""
        yield from (f"sizes: {note}" for note in self._notes)
        if self._open:
            yield f"shapes: of at most {self._made.limit} combinations code stays in memory, of these now, the last one used last"
            yield from ("        " + ", ".join(f"{name} {list(shape)}" for name, shape in key) for key in self._made)

    @trimmed
    def profile(self, /, *arrays: object, **named: object) -> Profile:
        """Return each kernel's time in a run, in the order they run: `print` it for a table, `save` it for a trace viewer. Inputs are given
        as in a call. Raises RunError as a call does."""
        feeds = self._flat(self.feeds_of(arrays, named))
        try:
            with within_room(self._name()):
                return self._made_for(feeds).profile(feeds)
        except RunError as refused:
            raise self._with_element(refused, feeds) from refused.__cause__

    def roofline(self, feeds: Mapping[str, object] | None = None) -> Roofline:
        """Return what the kernels have to do for inputs of such shapes, and how fast this machine could do it."""
        found = self._known() if feeds is None or self._static is not None else self._for(self._flat(feeds))
        return found.roofline()

    def text(self, stage: str) -> str:
        """Return a stage of the model: "graph", as its importer reads it, or one of its back end's `model_stages`. Raises RunError while
        shapes are open, CompileError C0212 for what is no stage."""
        if stage == "graph":
            from tensorlang.graph.printer import show

            return show(self._graph_of(self._known()))
        if stage not in self._tools.model_stages:
            raise no_stage(stage, "a model", ["graph", *self._tools.model_stages])
        return self.made.text(stage)

    @property
    def tools(self) -> Tools:
        """What compiles the model for its target."""
        return self._tools

    def graph(self, feeds: Mapping[str, object]) -> Graph:
        """Return the model as its importer reads it, for inputs of such shapes. Raises CompileError, and RunError as `run` does for inputs
        that do not fit; DataDependent where elements of inputs decide shapes."""
        return self._graph_of(self._known() if self._static is not None else self._for(self._flat(feeds)))

    def _graph_of(self, made: Runs) -> Graph:
        return self._load(self._given_shapes if self._static is not None else {v.name: v.shape for v in made.inputs})

    def under(self, schedules: ScheduleBook) -> CompiledModel:
        """Return the same model with these schedules for its kernels, made as `tensorlang.compile` does. Raises PicklingError for a model
        of a graph in memory."""
        if self._again is None:
            raise PicklingError("a model of a graph in memory is not made again: `tensorlang.compile` makes models that are")
        again: Callable[..., CompiledModel] = self._again
        return again(schedules=schedules)

    @property
    def made(self) -> Runs:
        """What the back end made for the shapes that are known, or were used last. Raises RunError while shapes are open."""
        return self._known()

    def _known(self) -> Runs:
        if self._static is not None:
            return self._static
        last = self._made.last()
        if last is None:
            raise RunError(*self._open)
        return last

    def _for(self, feeds: Mapping[str, object]) -> Runs:
        check_named(feeds, names=[] if self._signature is None else [tensor.name for tensor in self._signature.inputs])
        differing: tuple[Diagnostic, ...] = ()
        if self._signature is not None and not self._structured:
            differing = check_feeds(feeds, self._signature.inputs, self._tools.shape_of)
        shapes = {name: self._tools.shape_of(value, name) for name, value in feeds.items()}
        if self._structured:
            differing = check_feeds(feeds, flat_inputs(shapes, self.inputs), self._tools.shape_of)
        if self._limits is not None:
            if differing:
                raise exception(*differing)
            self._limits[0].check(shapes, self._limits[1])
        try:
            return self._at(shapes)
        except CompileError as refused:
            if not differing:
                raise
            why = f"the model is refused for such shapes: {refused.diagnostics[0].title}"
            raise exception(*(replace(d, notes=(*d.notes, why)) for d in differing)) from None

    def _at(self, shapes: Shapes) -> Runs:
        with self._lock:
            return self._made.used(tuple(sorted(shapes.items())), lambda: self._run_of(shapes).on(self._workers))

    def _run_of(self, shapes: Shapes) -> Runs:
        """Return what runs for shapes: what the model has that this is a clone of, code for open sizes told these, or code of their own."""
        if self._origin is not self:
            return self._origin._at(shapes)
        if not self._opened:
            return self._specialise(shapes)
        for opened in chain(self._opened, self._for_sizes_apart(shapes)):
            sizes = opened[0].sizes(shapes)
            if sizes is not None:
                made = opened[1].runs(sizes) or self._specialise(shapes)
                self._opened += () if opened in self._opened else (opened,)  # such sizes were not refused
                return made
        return self._specialise(shapes)

    def _specialise(self, shapes: Shapes | None) -> Runs:
        return self._compiled(Given(shapes))

    @contiguous_frames
    def _compiled(self, given: Given) -> Runs:
        """Return the model for these shapes, and for elements that are known where shapes depend on some."""
        key = self._key(*given.arguments) if self._key is not None else None
        shared, start = self._shared if self._open or given.known else None, perf_counter()
        with fewer_collections():
            found = self._tools.kept(key.name, shared) if key is not None else None
            try:
                made = found if found is not None else self._tools.built(self._load(*given.arguments), self._progress, key, shared)
            except DataDependent as problem:
                first = None if problem.stage is None else self._tools.built(problem.stage, self._progress, None, self._shared)
                return Rest(self._compiling, given, problem).stages(first, {})
        self._log(made, "compiled" if found is None else "found in the cache", perf_counter() - start)
        return made

    def _model_part(self, part: ModelPart) -> Run:
        """Return the run of a part of the model that is one of its own, compiled when it first runs."""

        def made() -> CompiledModel:
            inputs = tuple(TensorSignature(name, dtype, shape) for name, dtype, shape in part.inputs)
            signature = Signature(part.name, inputs, tuple(TensorSignature(name, None, None) for name in part.outputs))
            how = self._compiling
            return CompiledModel(part.load, how.tools, progress=how.progress, signature=lambda: signature, sizes=how.sizes, repeated=True)

        with self._parts_lock:
            return self._parts_alone.used(part.key, made).run

    def _log(self, made: Runs, how: str, seconds: float) -> None:
        if _log.isEnabledFor(INFO):
            inputs = ", ".join(f"{plain_text(v.name)}: {describe(v.dtype, v.shape)}" for v in made.inputs)
            name, kernels = plain_text(made.summary.name), counted(made.summary.kernels, "kernel")
            where = f"{self._tools.name}, {counted(self._tools.threads, 'thread')}"
            _log.info("model `%s` for %s: %s in %.1f ms, %s, for %s", name, inputs, how, seconds * 1e3, kernels, where)


def _cloned(origin: CompiledModel, threads: int) -> CompiledModel:
    """Return a clone, in another process."""
    return origin.clone(threads)
