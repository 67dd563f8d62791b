"""The command line: `tensorlang check | fmt | list | show | explain | certify | run | bench | doctor | lsp | plot`.

Exit codes: 0 all is well, 1 diagnostics (on standard error, or as JSON on standard output with --json), 2 wrong usage. What goes wrong
inside the compiler is one line and a report in a file, never a traceback.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorlang import __version__
from tensorlang.diagnostics import CompileError, CompileWarning, Diagnostic, InternalError, Span, error
from tensorlang.options import DEVICE_PRECISIONS
from tensorlang.targets import HOST

if TYPE_CHECKING:
    from tensorlang.check.definition import Examined
    from tensorlang.runtime.model import CompiledModel
    from tensorlang.runtime.operator import Operator, Operators
    from tensorlang.runtime.protocol import Tools
    from tensorlang.shell.bench import Comparison
    from tensorlang.shell.peers import Peer

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A tensor compiler.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tensorlang {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")] = False,
    color: Annotated[str, typer.Option("--color", help="colours of messages: auto, always, never; anywhere on the line")] = "auto",
) -> None:
    """A tensor compiler."""


class ShownStage(StrEnum):
    """What `show` can show."""

    syntax = "syntax"
    tensor = "tensor"
    scop = "scop"
    schedule = "schedule"
    loops = "loops"
    llvm = "llvm"
    asm = "asm"
    cuda = "cuda"
    hip = "hip"
    source = "source"
    sass = "sass"
    launches = "launches"
    graph = "graph"
    passes = "passes"


File = Annotated[Path, typer.Argument(help="a .tl file, or a model that an installed importer reads")]
Files = Annotated[list[Path], typer.Argument(help=".tl files")]
Checked = Annotated[list[Path], typer.Argument(help=".tl files, and models that an installed importer reads")]
Arguments = Annotated[list[str] | None, typer.Argument(help="[OPERATOR] name=value …; values are files, types like f32[4,5], numbers")]
Json = Annotated[bool, typer.Option("--json", help="write JSON on standard output")]
Winograd = Annotated[bool, typer.Option("--winograd/--no-winograd", help="let convolutions of models be computed by minimal filtering")]
Online = Annotated[bool, typer.Option("--online/--no-online", help="let attention of models go through the keys once, on a GPU")]
Precision = Annotated[str, typer.Option("--precision", help=f"what contractions of models multiply in: {', '.join(DEVICE_PRECISIONS)}")]
ForcePrecision = Annotated[bool, typer.Option("--force-precision", help="take the precision that is asked for also where f32 is as fast")]
Target = Annotated[str, typer.Option("--target", help="what to compile for: cpu, cuda, cuda:sm_90a, hip:gfx90a, …")]
Threads = Annotated[int | None, typer.Option("--threads", "-t", min=1, help="threads to use (default: all)")]


@app.command()
def check(
    files: Checked,
    replay: Annotated[bool, typer.Option("--replay", help="run refused schedules on small arrays and show what comes out wrong")] = False,
    validate: Annotated[bool, typer.Option("--validate", help="compile models, and compare loops with equations on terms")] = False,
    target: Target = HOST,
    warn: Annotated[bool, typer.Option("--warnings/--no-warnings", help="say what is right and hardly meant")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="let warnings be mistakes")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="change files where it is plain what is meant")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="show what --fix would change, and change nothing")] = False,
    as_json: Json = False,
) -> None:
    """Check operators (types, shapes, bounds, single assignment, recurrences) and the laws of reducers, and prove schedules.

    Models are read, and what of them cannot be compiled is reported. With --validate, every kernel of a model is run on terms instead of
    numbers and compared with its equations, and so is the whole model in its memory; what is too large for that is said to be. With
    --target cuda, kernels for a device are: their loops, and their text, which takes g++ and no device.

    Warnings are about what is right and hardly meant, as a parameter that nothing reads; they change no exit code unless --strict."""
    from tensorlang.shell.checking import as_errors, check_source
    from tensorlang.shell.progress import Bar
    from tensorlang.syntax import parse as syntax

    if target != HOST and not validate:
        raise error("C0211", "`--target` says what models are validated for: it goes with `--validate`")
    models = [path for path in files if path.suffix != ".tl" and (validate or _is_model(path))]
    if validate:
        for path in models:
            _say_validated(path, target, as_json)
        files = [path for path in files if path not in models]
        if models and not files:
            return
    if fix or diff:
        _fix([path for path in files if path not in models], diff)
        if diff:
            return
    mistakes: list[Diagnostic] = []
    warned: list[Diagnostic] = []
    partly: list[tuple[Path, Examined]] = []
    waiting: dict[Path, str] = {}
    with Bar() as bar:
        for k, path in enumerate(files):
            bar("checking files", k, len(files))
            try:
                if path in models:
                    waiting |= _read_model(path)
                    continue
                found = check_source(syntax.load(path), replaying=replay)
            except CompileError as problem:
                mistakes += problem.diagnostics
                continue
            found = as_errors(found) if strict else found
            mistakes += found.mistakes
            warned += found.warnings if warn else ()
            partly += [(path, operator) for operator in found.partly]
    if mistakes:
        raise CompileError(*_once(mistakes), *warned)
    if warned and not as_json:
        _complain(warned, as_json)
    _say(_without_mistakes(files, partly, waiting, warned), _summary(files, partly, waiting, len(warned)), as_json)


def _is_model(path: Path) -> bool:
    from tensorlang.api import is_read

    return is_read(str(path))


def _fix(files: Sequence[Path], only_show: bool) -> None:
    """Make the edits that diagnostics of files carry, or show them as a difference."""
    from tensorlang.shell.checking import difference, fixed
    from tensorlang.shell.files import write_text
    from tensorlang.syntax import parse as syntax

    for path in files:
        source = syntax.load(path)
        after, cured = fixed(source)
        if only_show:
            sys.stdout.write(difference(source, after))
        elif cured:
            write_text(path, after.text)
            typer.echo(f"{path}: {', '.join(f'{d.code} {d.title}' for d in cured)}: {len(cured)} fixed", err=True)


def _once(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return mistakes of files that several others use once each."""
    places = {(d.code, d.title, d.labels[:1]): d for d in reversed(found)}
    return [d for d in found if places[d.code, d.title, d.labels[:1]] is d]


def _read_model(path: Path) -> dict[Path, str]:
    """Import a model. Return why that has to wait for its shapes, if it has to. Raises CompileError for what is
    refused."""
    from tensorlang.api import importer_of
    from tensorlang.runtime.model import only_shapes_are_open

    try:
        importer_of(str(path)).load(str(path))
    except CompileError as problem:
        if not only_shapes_are_open(problem):
            raise
        return {path: "; ".join(d.title for d in problem.diagnostics)}
    return {}


def _without_mistakes(
    files: Sequence[Path], partly: Sequence[tuple[Path, Examined]], waiting: Mapping[Path, str], warned: Sequence[Diagnostic]
) -> dict[str, Any]:
    notes = [
        {"file": str(path), "operator": found.operator, "assumed": list(found.assumed), "unchecked": found.unchecked or None}
        for path, found in partly
    ]
    found = [_as_data(d) for d in warned]
    return {"files": [str(f) for f in files], "diagnostics": found, "partly": notes, "open": {str(p): why for p, why in waiting.items()}}


def _summary(files: Sequence[Path], partly: Sequence[tuple[Path, Examined]], waiting: Mapping[Path, str], warned: int = 0) -> str:
    """Return one line for each operator and model that was not checked in full, and the count of them all."""
    lines = [f"{path}: {found}" for path, found in partly]
    lines += [f"{path}: the model is checked for the shapes of a run: {why}" for path, why in waiting.items()]
    unchecked = sum(1 for _, found in partly if found.unchecked)
    counts = [f"{len(files)} file{'s' * (len(files) != 1)} checked, no mistakes"]
    if warned:
        counts.append(f"{warned} warning{'s' * (warned != 1)}")
    if len(partly) > unchecked:
        counts.append(f"{len(partly) - unchecked} checked for some values alone")
    if unchecked or waiting:
        counts.append(f"{unchecked + len(waiting)} not checked")
    return "\n".join([*lines, "; ".join(counts)])


def _say_validated(path: Path, target: str, as_json: bool) -> None:
    from tensorlang.api import importer_of
    from tensorlang.backends.registry import tools_for
    from tensorlang.shell.progress import Bar
    from tensorlang.shell.validating import validated

    try:
        with Bar() as bar:
            loaded = importer_of(str(path)).load(str(path))
            found = validated(loaded, tools_for(target), bar)
    except InternalError as wrong:
        if wrong.stage != "validate":
            raise
        typer.echo(f"{path}: {wrong.detail}", err=True)
        raise typer.Exit(1) from None
    kernels = [{"nodes": names, "outcome": outcome} for names, outcome in found.kernels]
    data = {"file": str(path), "kernels": kernels, "model": found.model}
    if found.texts:
        data["texts"] = [{"nodes": names, "outcome": outcome} for names, outcome in found.texts]
    _say(data, f"{path}: {found}", as_json)


@app.command()
def fmt(
    files: Files,
    check: Annotated[bool, typer.Option("--check", help="change nothing; exit with 1 if a file would change")] = False,
    as_json: Json = False,
) -> None:
    """Lay files out in the canonical way."""
    from tensorlang.shell.files import write_text
    from tensorlang.syntax import format as formatter
    from tensorlang.syntax import parse as syntax

    changed = []
    for path in files:
        source = syntax.load(path)
        text = formatter.fmt(source)
        if text != source.text:
            changed.append(str(path))
            if not check:
                write_text(path, text)
    verb = "would change" if check else "changed"
    _say({verb.replace(" ", "_"): changed}, "\n".join(f"{verb} {path}" for path in changed), as_json)
    if check and changed:
        raise typer.Exit(1)


@app.command(name="list")
def list_(
    what: Annotated[str | None, typer.Argument(help="a .tl file, or a module such as `std.norm`", metavar="FILE|MODULE")] = None,
    as_json: Json = False,
) -> None:
    """List the operators of a file or of a module with their signatures; without an argument, the modules that can be used."""
    from tensorlang.shell.listing import listed as operators_listed

    found = operators_listed(what)
    text = ("\n" if what is None else "\n\n").join("\n".join(part.lines(briefly=what is None)) for part in found)
    _say({"modules": [part.as_data() for part in found]}, text, as_json)


@app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(help="a .tl file, or a model that an installed importer reads; `passes` needs none")
    ] = None,
    arguments: Arguments = None,
    stage: Annotated[
        ShownStage | None, typer.Option("--stage", "-s", help="which form (default: syntax of a file, graph of a model)")
    ] = None,
    threads: Threads = None,
    precision: Precision = "f32",
    winograd: Winograd = True,
    online: Online = True,
    force_precision: ForcePrecision = False,
    target: Target = HOST,
) -> None:
    """Show a form on the way from text to machine code.

    `--stage passes` shows the passes over the graphs of models in order: of a model, which of them change it and how many kernels are
    there before and after, and without one what each does."""
    from tensorlang.syntax import parse as syntax
    from tensorlang.syntax.printer import show as show_syntax
    from tensorlang.tensor.printer import show as show_program

    if file is None:
        _show_passes(stage, target)
        return
    if file.suffix != ".tl":
        options: dict[str, Any] = {"winograd": winograd, "online": online, "precision": precision, "force_precision": force_precision}
        _show_model(file, stage, target, threads, options)
        return
    _no_precision(precision)
    if stage in (None, ShownStage.syntax):
        sys.stdout.write(show_syntax(syntax.parse(syntax.load(file))).rstrip() + "\n")
        return
    operator, values = _operator(file, arguments, threads, target)
    if stage is ShownStage.tensor:
        sys.stdout.write(show_program(operator.program(**values)))
        return
    texts: dict[str, str] = {}
    assert stage is not None
    operator.stages(dump=texts.__setitem__, requested=(stage.value,), **values)
    if stage.value not in texts:
        raise error(
            "C0212", f"there is no stage `{stage.value}` of an operator", help=f"there are {', '.join(['syntax', 'tensor', *texts])}"
        )
    sys.stdout.write(texts[stage.value].rstrip() + "\n")


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="a .tl file, a model that an installed importer reads, or the code of a message: T0301")],
    arguments: Arguments = None,
    measure: Annotated[bool, typer.Option("--measure", help="also measure each kernel of a model; an operator always is")] = False,
    proof: Annotated[bool, typer.Option("--proof", help="list what was proven of an operator's kernel, as sets and maps of isl")] = False,
    threads: Threads = None,
    precision: Precision = "f32",
    winograd: Winograd = True,
    online: Online = True,
    force_precision: ForcePrecision = False,
    target: Target = HOST,
) -> None:
    """Explain how an operator or a model is computed, what was proven, how fast it could be on this machine and how fast it is; or the
    code of a message, as T0301."""
    from tensorlang.shell.pages import is_code, page_of

    if is_code(str(file)) and not file.exists():
        typer.echo(page_of(str(file)))
        return
    from tensorlang.shell.arguments import random_inputs

    if file.suffix == ".tl":
        _no_precision(precision)
        operator, values = _operator(file, arguments, threads, target)
        sys.stdout.write((operator.proofs(**values) if proof else operator.explain(**values)) + "\n")
        return
    if proof:
        raise error("C0103", "not supported yet: the proofs of a model", help="ask for those of an operator of a `.tl` file")
    model, values = _model(file, arguments, threads, precision, winograd, force_precision, target, online)
    sys.stdout.write(model.explain(random_inputs(model.inputs, values) if measure else None) + "\n")


@app.command()
def certify(
    file: File,
    arguments: Arguments = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where to write it (default: standard output)")] = None,
    symbolic: Annotated[bool, typer.Option("--symbolic", help="the kernel that serves arguments of any sizes")] = False,
    threads: Threads = None,
) -> None:
    """Write the certificate of an operator's kernel: its loops and equations, for `scripts/check_certificate.py` to accept or reject."""
    from tensorlang.certificate import certificate
    from tensorlang.shell.files import write_text

    if file.suffix != ".tl":
        raise error("C0103", "not supported yet: a certificate of a model", help="certify an operator of a `.tl` file")
    operator, values = _operator(file, arguments, threads, symbolic=symbolic)
    texts: dict[str, str] = {}
    operator.stages(dump=texts.__setitem__, **values)
    text = certificate(operator.program(**values), texts["loops"])
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)


@app.command()
def run(
    file: File,
    arguments: Arguments = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="an .npy or .npz file for the results")] = None,
    threads: Threads = None,
    precision: Precision = "f32",
    winograd: Winograd = True,
    online: Online = True,
    force_precision: ForcePrecision = False,
    as_json: Json = False,
    target: Target = HOST,
) -> None:
    """Run an operator or a model on arrays from files."""
    import numpy as np

    from tensorlang.shell.files import write_arrays

    if file.suffix == ".tl":
        _no_precision(precision)
        operator, values = _operator(file, arguments, threads, target)
        found = operator(**values)
        names = [p.name for p in operator.declaration.results]
        flat = found if isinstance(found, tuple) else (found,)
        results = dict(zip(names if len(names) == len(flat) else [f"result{k}" for k in range(len(flat))], flat, strict=True))
    else:
        model, values = _model(file, arguments, threads, precision, winograd, force_precision, target, online)
        results = model.run(values)
    if output is not None:
        write_arrays(output, results)
    shapes = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in results.items()}
    text = "\n".join(
        f"{name}: {a.dtype}{list(a.shape)}" + ("" if output else f"\n{np.array2string(a, threshold=64)}") for name, a in results.items()
    )
    _say({"results": shapes, "output": str(output) if output else None}, text, as_json)


@app.command()
def bench(
    what: Annotated[str, typer.Argument(help="a .tl file, a model, or the name of a library operator", metavar="FILE|OPERATOR")],
    arguments: Arguments = None,
    against: Annotated[str | None, typer.Option("--peers", help="names with commas between, or `none` (default: all installed)")] = None,
    precision: Precision = "f32",
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="how long to measure")] = 3.0,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="peak memory of a model, each contender in its own process")] = True,
    threads: Threads = None,
    winograd: Winograd = True,
    online: Online = True,
    force_precision: ForcePrecision = False,
    as_json: Json = False,
    target: Target = HOST,
) -> None:
    """Measure an operator or a model next to every installed peer, in turns. Inputs of a model that are not given are random."""
    from tensorlang.backends.registry import is_device, tools_for
    from tensorlang.shell.arguments import parsed, random_inputs
    from tensorlang.shell.bench import as_data, as_text, bench_model, bench_operator, with_memory
    from tensorlang.shell.peers import Task, peers

    chosen = peers(None if against is None else [] if against == "none" else against.split(","))
    if is_device(target):
        found = _bench_on_device(what, arguments, target, precision, force_precision, online, chosen, seconds)
        _say(as_data(found), as_text(found), as_json)
        return
    tools, file = tools_for(target, threads, winograd=winograd, precision=precision, force_precision=force_precision), Path(what)
    count, used, options = (
        tools.threads,
        tools.precision.used,
        {"precision": precision, "winograd": winograd, "force_precision": force_precision},
    )
    if file.suffix == ".tl":
        _no_precision(precision)
        operator, values = _operator(file, arguments, threads, target)
        found = bench_operator(operator, values, Task({}), count, (), seconds)
    elif file.suffix or file.exists():
        model, values = _model(file, arguments, threads, precision, winograd, force_precision, target, online)
        inputs = random_inputs(model.inputs, values)
        found = bench_model(model, Task(inputs, what), count, used, chosen, seconds)
        found = with_memory(found, file, inputs, options) if memory else found
    else:
        found = _bench_library(what, parsed(arguments or ()), tools, options, chosen, seconds)
    _say(as_data(found), as_text(found), as_json)


def _bench_on_device(
    what: str,
    arguments: Sequence[str] | None,
    target: str,
    precision: str,
    force_precision: bool,
    online: bool,
    chosen: Sequence[Peer],
    seconds: float,
) -> Comparison:
    """Return a model, an operator of a file or one of a library, on a GPU, next to those of `chosen` that can do it there."""
    import numpy as np

    from tensorlang.backends.registry import tools_for
    from tensorlang.runtime.operator import Operator
    from tensorlang.shell.arguments import parsed, random_inputs
    from tensorlang.shell.bench import bench_on_device, results_of
    from tensorlang.shell.installed_operators import library_with
    from tensorlang.shell.peers import DeviceRun, Task

    file = Path(what)
    if file.suffix != ".tl" and (file.suffix or file.exists()):
        model, values = _model(file, arguments, None, precision, True, force_precision, target, online)
        inputs = random_inputs(model.inputs, values)
        run = DeviceRun(model.timer(inputs), lambda: [np.asarray(r) for r in model.run(inputs).values()])
        return bench_on_device(run, Task(inputs, what), model.roofline(inputs), precision, chosen, seconds)
    _no_precision(precision)
    if file.suffix == ".tl":
        operator, values = _operator(file, arguments, None, target)
        task = Task({})
    else:
        library, values = library_with(what), parsed(arguments or ())
        operator = Operator(what, library.module(), tools_for(target))
        arrays = {n: np.ascontiguousarray(v) for n, v in values.items() if isinstance(v, np.ndarray)}
        task = library.task(what, arrays, {n: v for n, v in values.items() if n not in arrays}, ())
    run = DeviceRun(operator.timer(**values), lambda: results_of(operator(**values)))
    return bench_on_device(run, task, operator.roofline(**values), "f32", chosen, seconds)


def _bench_library(
    name: str, values: dict[str, Any], tools: Tools, options: dict[str, Any], chosen: Sequence[Peer], seconds: float
) -> Comparison:
    """Return a library operator next to `chosen`; where its weights are part of a model, ours is compiled from that model too."""
    import numpy as np

    from tensorlang.api import compile as compile_model
    from tensorlang.runtime.operator import Operator
    from tensorlang.shell.bench import bench_model, bench_operator, results_of
    from tensorlang.shell.installed_operators import library_with

    library = library_with(name)
    operator = Operator(name, library.module(), tools)
    arrays = {n: np.ascontiguousarray(v) for n, v in values.items() if isinstance(v, np.ndarray)}
    attributes = {n: v for n, v in values.items() if n not in arrays}
    task = library.task(name, arrays, attributes, tuple(results_of(operator(**values))))
    if not task.weights:
        _no_precision(options["precision"])
        return bench_operator(operator, values, task, tools.threads, chosen, seconds)
    model = compile_model(task.model, threads=tools.threads, **options)
    return bench_model(model, task, tools.threads, tools.precision.used, chosen, seconds)


@app.command()
def plot(
    file: Annotated[Path, typer.Argument(help="a .tl file")],
    arguments: Annotated[list[str] | None, typer.Argument(help="[OPERATOR] size=number …; sizes that are not given are 8")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="an .svg file (default: standard output)")] = None,
    tensor: Annotated[str | None, typer.Option("--tensor", help="whose instances to draw (default: the first result)")] = None,
    axes: Annotated[str | None, typer.Option("--axes", help="rows and columns, with a comma between (default: the first two)")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="without the schedule: loops as the operator is written")] = False,
    target: Annotated[str, typer.Option("--target", help="whose schedule of the file: cpu or cuda")] = HOST,
) -> None:
    """Draw the iterations of an operator under the schedule of the file: points, tiles, dependences, order, threads, lanes."""
    from tensorlang.picture.plot import plotted

    operator, values = _operator(file, arguments, None)
    own = operator.module.schedules[: operator.module.declared_schedules]
    written = next((s for s in own if s.role is None and (s.operator, s.target) == (operator.name, target)), None)
    wrong = next((n for n, v in values.items() if not isinstance(v, int) or v < 0), None)
    if wrong is not None:
        raise error("C0211", f"`{wrong}` is no size", help="give whole numbers: `N=16`")
    picture = plotted(operator.module, operator.name, None if plain else written, tensor, axes.split(",") if axes else (), values, "")
    if output is None:
        sys.stdout.write(picture.svg)
    else:
        picture.save(output)


@app.command()
def lsp() -> None:
    """Serve an editor: the language server, over standard input and output."""
    try:
        from tensorlang.lsp.server import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise error("C0231", "the package `pygls` is not installed", help="pip install 'tensorlang[lsp]'") from None
    serve()


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check this installation and this machine."""
    from tensorlang.shell.doctor import findings

    found = []
    for finding in findings():
        found.append(finding)
        if not as_json:
            typer.echo(f"{'ok ' if finding.fine else 'BAD'}  {finding.what:14} {finding.found}")
    if as_json:
        typer.echo(json.dumps({"findings": [asdict(f) for f in found]}))
    if not all(f.fine for f in found):
        raise typer.Exit(1)


# ---------------------------------------------------------------- what commands share


def _no_precision(precision: str) -> None:
    """Raise CompileError C0103 where `precision` would change nothing: an operator says itself what it computes in."""
    if precision != "f32":
        raise error("C0103", f"not supported yet: precision `{precision}` for an operator", help="convert to `bf16` in its equations")


def _operator(
    file: Path, arguments: Sequence[str] | None, threads: int | None, target: str = HOST, symbolic: bool = False
) -> tuple[Operator, dict[str, Any]]:
    """Return the operator that the arguments name (or the file's only one) and what it is given."""
    from tensorlang.operators import operators_of
    from tensorlang.shell.arguments import parsed
    from tensorlang.syntax import parse as syntax

    ops = operators_of(syntax.load(file), target, threads, symbolic=symbolic)
    rest = list(arguments or ())
    if rest and "=" not in rest[0] and not rest[0].endswith(".npz"):
        name = rest.pop(0)
        if name not in list(ops):
            raise error("C0213", f"`{file}` has no operator `{name}`", notes=(f"it has {_names(ops)}",))
    elif len(ops) == 1:
        [name] = ops
    else:
        help_ = f"name one of {_names(ops)}" if len(ops) else "declare one: `op NAME(…) -> (…) { … }`"
        raise error("C0213", f"`{file}` has {len(ops) or 'no'} operators", help=help_)
    return ops[name], parsed(rest)


def _names(ops: Operators) -> str:
    return ", ".join(f"`{n}`" for n in ops) or "none"


def _model(
    file: Path,
    arguments: Sequence[str] | None,
    threads: int | None,
    precision: str = "f32",
    winograd: bool = True,
    force_precision: bool = False,
    target: str = HOST,
    online: bool = True,
) -> tuple[CompiledModel, dict[str, Any]]:
    import numpy as np

    from tensorlang.api import compile as compile_model
    from tensorlang.shell.arguments import parsed
    from tensorlang.shell.progress import Bar

    values = parsed(arguments or ())
    shapes = {name: v.shape for name, v in values.items() if isinstance(v, np.ndarray)}
    with Bar() as bar:
        chosen: dict[str, Any] = {
            "winograd": winograd,
            "online": online,
            "force_precision": force_precision,
            "shapes": shapes or None,
            "progress": bar,
        }
        model = compile_model(str(file), target, precision, threads, **chosen)
    return model, values


def _show_model(file: Path, stage: ShownStage | None, target: str, threads: int | None, options: Mapping[str, Any]) -> None:
    """Show a model's graph, the passes over that, or what its target makes of it: launches, the text of kernels, machine code."""
    from tensorlang.api import compile as compile_model
    from tensorlang.api import importer_of
    from tensorlang.backends.registry import tools_for
    from tensorlang.graph.pass_listing import traced
    from tensorlang.graph.pass_manager import steps
    from tensorlang.graph.pipeline import optimise
    from tensorlang.graph.printer import show as show_graph
    from tensorlang.shell.progress import Bar

    tools = tools_for(target, threads, **options)
    name = stage.value if stage is not None else (*tools.model_stages, "graph")[0]
    match name:
        case "graph":
            text = show_graph(optimise(importer_of(str(file)).load(str(file)), tools.graph_options(), tools.passes))
        case "passes":
            text = traced(steps(importer_of(str(file)).load(str(file)), tools.passes, tools.graph_options()))
        case _ if name in tools.model_stages:
            with Bar() as bar:
                text = compile_model(str(file), target, threads=threads, progress=bar, **options).text(name)
        case _:
            raise _no_stage(name, "a model", ["graph", "passes", *tools.model_stages])
    sys.stdout.write(text.rstrip() + "\n")


def _show_passes(stage: ShownStage | None, target: str) -> None:
    """Show the passes over graphs for a target, with what they do."""
    from tensorlang.backends.registry import tools_for
    from tensorlang.graph.pass_listing import listed

    if stage is not ShownStage.passes:
        raise error("C0211", "there is no file to show", help="name a `.tl` file or a model; `--stage passes` alone needs none")
    sys.stdout.write(listed(tools_for(target).passes))


def _no_stage(stage: str, what: str, there: Sequence[str]) -> CompileError:
    return error("C0212", f"there is no stage `{stage}` of {what}", help=f"known are {', '.join(f'`{t}`' for t in there)}")


def _say(data: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(data))
    elif text:
        typer.echo(text)


# ---------------------------------------------------------------- the entry point


def main() -> None:
    """Run the command line and exit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    sys.exit(_guarded(sys.argv[1:]))


def _guarded(argv: Sequence[str]) -> int:
    """Return the exit code of a command line, having reported whatever went wrong."""
    from tensorlang.shell.colour import colour_chosen

    as_json = "--json" in argv
    warnings.simplefilter("ignore", CompileWarning)  # `check` shows them
    try:
        argv = colour_chosen(argv)
        with _quiet_pipes():
            code = app(list(argv), standalone_mode=True)
        return int(code or 0)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except CompileError as problem:
        _complain(problem.diagnostics, as_json)
        return 1
    except KeyboardInterrupt:
        return 130
    except MemoryError as problem:
        detail = (str(problem),) if str(problem) else ()
        _complain([Diagnostic("C0204", "there is not enough memory", notes=detail, help="use smaller arrays")], as_json)
        return 1
    except Exception as problem:
        _complain([_internal(problem)], as_json)
        return 1


def _complain(diagnostics: Sequence[Diagnostic], as_json: bool) -> None:
    from tensorlang.shell.colour import write_diagnostics

    if as_json:
        typer.echo(json.dumps({"diagnostics": [_as_data(d) for d in diagnostics]}))
    else:
        write_diagnostics(diagnostics, sys.stderr)


def _as_data(diagnostic: Diagnostic) -> dict[str, Any]:
    labels = [{**_place(label.span), "text": label.text} for label in diagnostic.labels]
    edits = [{**_place(edit.span), "text": edit.text} for edit in diagnostic.edits]
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "title": diagnostic.title,
        "labels": labels,
        "notes": list(diagnostic.notes),
        "help": diagnostic.help,
        "edits": edits,
    }


def _place(span: Span) -> dict[str, Any]:
    line, column = span.source.location(span.start)
    return {"file": span.source.name, "line": line, "column": column, "length": span.end - span.start}


def _internal(problem: Exception) -> Diagnostic:
    """Return one line about a defect of ours, its details written to a file."""
    stage = f" in stage `{problem.stage}`" if isinstance(problem, InternalError) else ""
    handle, path = tempfile.mkstemp(prefix="tensorlang-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as report:
        report.write(f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(problem))}")
    return Diagnostic("C0001", f"internal error{stage}; a report is in {path}", help="please send the report to the maintainers")


@contextmanager
def _quiet_pipes() -> Iterator[None]:
    """Let a reader that has seen enough (`| head`) end the program without a message."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(0) from None
    except OSError as problem:
        if problem.filename is not None:  # a file of ours, not standard output
            raise
        _discard_output()
        raise error("C0203", f"cannot write to standard output: {(problem.strerror or str(problem)).lower()}") from None


def _discard_output() -> None:
    """Let what is written to standard output from here on, at exit too, vanish."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
