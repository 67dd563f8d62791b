"""`tensorlang check`: the mistakes and warnings of files and models, the edits that cure them, validation of models."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorlang.diagnostics import CompileError, Diagnostic, InternalError, error
from tensorlang.shell import options
from tensorlang.shell.loading import is_model, no_operator, waiting_for_shapes
from tensorlang.shell.reporting import as_data, once, report_diagnostics, say
from tensorlang.targets import HOST

if TYPE_CHECKING:
    from tensorlang.check.definition import Examined


@click.command(short_help="Say what is wrong or odd in files and models.")
@options.files(".tl files, and models that an installed importer reads")
@click.option("--replay", is_flag=True, help="run refused schedules on small arrays and show what comes out wrong")
@click.option("--validate", is_flag=True, help="compile models, and compare loops with equations on terms")
@options.target
@click.option("--warnings/--no-warnings", "warn", default=True, help="say what is right and hardly meant")
@click.option("--strict", is_flag=True, help="let warnings be mistakes")
@click.option("--fix", is_flag=True, help="change files where it is plain what is meant")
@click.option("--diff", is_flag=True, help="show what --fix would change, and change nothing")
@options.as_json
@options.externs
def check(
    files: Sequence[Path],
    replay: bool,
    validate: bool,
    target: str,
    warn: bool,
    strict: bool,
    fix: bool,
    diff: bool,
    as_json: bool,
    externs: Sequence[str],
) -> None:
    """Check operators (types, shapes, bounds, single assignment, recurrences) and the laws of reducers, and prove schedules.

    Models are read, and what of them cannot be compiled is reported. With --validate, every kernel of a model is run on terms instead of
    numbers and compared with its equations, and so is the whole model in its memory; what is too large for that is said to be. With
    --target cuda, kernels for a device are: their loops, and their text, which takes g++ and no device.

    With --extern, the kernels that are named are run on random arrays, in memory that is watched, and compared with the bodies of their
    operators.

    Warnings are about what is right and hardly meant, as a parameter that nothing reads; they change no exit code unless --strict."""
    if target != HOST and not validate:
        raise error("C0211", "`--target` says what models are validated for: it goes with `--validate`")
    models = [path for path in files if path.suffix != ".tl" and (validate or is_model(path))]
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
    _say_checked(files, models, replay=replay, warn=warn, strict=strict, as_json=as_json)
    for line in _checked_kernels([path for path in files if path not in models], externs):
        click.echo(line, err=as_json)


def _checked_kernels(files: Sequence[Path], named: Sequence[str]) -> Iterator[str]:
    """Check kernels against the bodies of their operators, and yield a sentence for each. Raises CompileError C0120 and C0121."""
    if not named:
        return
    from tensorlang.extern_check import check_extern
    from tensorlang.operators import operators_of
    from tensorlang.shell.arguments import kernels_named
    from tensorlang.syntax import parse as syntax

    kernels = kernels_named(named)
    if len(files) != 1:
        raise error("C0211", f"`--extern` is about one file, and {len(files)} are given", help="check them one by one")
    ops = operators_of(syntax.load(files[0]), HOST, None, externs=kernels)
    for name, kernel in kernels.items():
        if name not in list(ops):
            raise no_operator(files[0], name, ops)
        yield f"{files[0]}: {kernel} computes what `{name}` says, on {check_extern(ops[name])} trials"


def _say_checked(files: Sequence[Path], models: Sequence[Path], *, replay: bool, warn: bool, strict: bool, as_json: bool) -> None:
    """Check files and models and write what was found. Raises CompileError with all mistakes."""
    from tensorlang.shell.checking import as_errors, check_source
    from tensorlang.shell.progress import Bar
    from tensorlang.syntax import parse as syntax

    mistakes: list[Diagnostic] = []
    warned: list[Diagnostic] = []
    partly: list[tuple[Path, Examined]] = []
    waiting: dict[Path, str] = {}
    with Bar() as bar:
        for k, path in enumerate(files):
            bar("checking files", k, len(files))
            try:
                if path in models:
                    waiting |= {path: why} if (why := waiting_for_shapes(path)) else {}
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
        raise CompileError(*once(mistakes), *warned)
    if warned and not as_json:
        report_diagnostics(warned, as_json)
    say(_data(files, partly, waiting, warned), _summary(files, partly, waiting, len(warned)), as_json)


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
            click.echo(f"{path}: {', '.join(f'{d.code} {d.title}' for d in cured)}: {len(cured)} fixed", err=True)


def _data(
    files: Sequence[Path], partly: Sequence[tuple[Path, Examined]], waiting: Mapping[Path, str], warned: Sequence[Diagnostic]
) -> dict[str, Any]:
    notes = [
        {"file": str(path), "operator": found.operator, "assumed": list(found.assumed), "unchecked": found.unchecked or None}
        for path, found in partly
    ]
    found = [as_data(d) for d in warned]
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
        click.echo(f"{path}: {wrong.detail}", err=True)
        raise SystemExit(1) from None
    kernels = [{"nodes": names, "outcome": outcome} for names, outcome in found.kernels]
    data = {"file": str(path), "kernels": kernels, "model": found.model}
    if found.texts:
        data["texts"] = [{"nodes": names, "outcome": outcome} for names, outcome in found.texts]
    say(data, f"{path}: {found}", as_json)
