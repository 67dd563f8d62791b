"""Operators and models compiled ahead of time: for each of some targets, and written into a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from codegen.llvm import feature_test
from codegen.llvm.target import Target, TargetError, named
from tensorlang import __version__
from tensorlang.backends.cpu.build import parts_of
from tensorlang.backends.cpu.extern import no_library
from tensorlang.backends.cpu.library_files import write_library, write_modules
from tensorlang.backends.cpu.native_library import Compiled, linked, of_model, of_open_model, of_operator
from tensorlang.backends.cpu.open_sizes import built_parts
from tensorlang.backends.cpu.sized import kernel_of
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import error
from tensorlang.graph.independent_rows import rows_of, rows_of_program
from tensorlang.graph.nodes import Graph
from tensorlang.graph.precisions import chosen
from tensorlang.graph.sizes import OpenSize
from tensorlang.planning import ScheduleRequest
from tensorlang.runtime.constants import in_memory, places_of, weights_of, without_constants
from tensorlang.runtime.jobs import optimised
from tensorlang.runtime.protocol import Progress
from tensorlang.runtime.saving import SaveOptions
from tensorlang.saved.package import Rows
from tensorlang.targets import HOST
from tensorlang.tensor.nodes import Program


def save_operator(tools: Toolchain, program: Program, request: ScheduleRequest, folder: Path, options: SaveOptions) -> Path:
    """Write an operator as a library. Raises CompileError C0131 for what has no library yet, C0132 for a missing limit, C0133."""
    if program.externs:
        raise no_library(f"`{program.name}`", program.externs)

    def compiled(here: Toolchain) -> Compiled:
        return of_operator(program, kernel_of(program, request), here, options.most)

    return _written([compiled(here) for here in toolchains(tools, options)], folder, options, rows_of_program(program))


def save_model(tools: Toolchain, load: Callable[[], Graph], progress: Progress, folder: Path, options: SaveOptions) -> Path:
    """Write a model as a library; `load` imports it, with sizes for what is open. Raises as `save_operator` does."""

    found: list[Rows] = []

    def compiled(here: Toolchain) -> Compiled:
        loaded = load()
        found.append(rows_of(loaded))
        graph, names = optimised(loaded, here), tuple(loaded.outputs)
        if loaded.symbols is not None and loaded.symbols.samples:
            return of_open_model(built_parts(graph, here, progress, names, in_memory), here, options.most)
        places = places_of(graph)
        parts = parts_of(without_constants(graph), here, progress, places)
        block = in_memory(weights_of(graph), places)
        return of_model(replace(parts, constants=block, names=names), here)

    try:
        levels = [compiled(here) for here in toolchains(tools, options)]
        return _written(levels, folder, options, found[0])
    except OpenSize as need:
        title = f"not supported yet: these sizes cannot be open in a library: {need}"
        raise error("C0131", title, help="fix the shapes of the inputs: `x=f32[1,3,224,224]`") from None


def _written(levels: Sequence[Compiled], folder: Path, options: SaveOptions, rows: Rows) -> Path:
    if levels[0].target.is_wasm:
        if options.inside:
            raise error("C0131", "not supported yet: weights inside a module of WebAssembly", help='leave them "beside" it')
        return write_modules(options.name, levels, folder, options.model, __version__, rows)
    return write_library(linked(options.name, levels, inside=options.inside), folder, options.model, __version__, rows)


def toolchains(tools: Toolchain, options: SaveOptions) -> tuple[Toolchain, ...]:
    """Return what compiles for each of the targets, those with more instructions and longer vectors first. Raises CompileError C0101 for a
    target that is not known, C0131 for one whose processors code cannot ask for what it needs, C0133 for targets of several families."""
    targets = options.targets
    found = tuple(map(target_ahead, targets))
    if len({target.family for target in found}) > 1:
        raise error("C0133", f"{', '.join(targets)} are no levels of one family", help="build a library for each family")
    ordered = sorted(found, key=lambda target: (-len(target.needs.features), -target.vector_bits))
    return tuple(_ahead(tools, target, 1 if target.is_wasm else options.threads or tools.threads) for target in ordered)


def _ahead(tools: Toolchain, target: Target, threads: int) -> Toolchain:
    asked = tools.precision
    precision = asked if asked.requested == asked.used else chosen(asked.requested, target)
    return replace(tools, target=target, threads=threads, ahead=True, precision=precision)


def target_ahead(name: str) -> Target:
    """Return the target that code is to be compiled for, which this machine need not be. Raises CompileError C0101 and C0131."""
    try:
        target = named("host" if name == HOST else name)
    except TargetError as problem:
        raise error("C0101", str(problem), help="`host` is this machine; a library may be for several levels of x86-64") from None
    if target.is_wasm:  # where engines refuse a module whose instructions they lack
        return target
    here = name in ("host", HOST)
    target = feature_test.with_known_features(target) if here else target
    missing = feature_test.unknown(target.family, target.needs.features)
    if missing:
        title = f"not supported yet: a library for `{name}`, whose code would have to ask for {', '.join(missing)}"
        raise error("C0131", title, help="build it for another level of these processors")
    return replace(target, name=f"{target.family}-{target.cpu}") if here else target
