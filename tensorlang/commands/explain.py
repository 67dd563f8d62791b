"""`tensorlang explain`: how an operator or a model is computed, and what the code of a message means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.loading import custom_operators, inputs_of, model_of, operator_of
from tensorlang.shell.options import ModelOptions
from tensorlang.shell.reporting import say

if TYPE_CHECKING:
    from codegen.llvm.mca import Analysis
    from tensorlang.runtime.kernel_time import KernelTime
    from tensorlang.runtime.limits import LoopCycles
    from tensorlang.runtime.operator import Operator, Operators
    from tensorlang.shell.variants import Tried


@click.command(short_help="Tell how something is computed, or what a code means.")
@options.file("a .tl file, a model that an installed importer reads, or the code of a message: T0301", required=False)
@options.arguments
@click.option("--measure", is_flag=True, help="also measure each kernel of a model; of an operator, schedules near its own")
@click.option("--proof", is_flag=True, help="list what was proven of an operator's kernel, as sets and maps of isl")
@click.option(
    "--mca", is_flag=True, help="also ask llvm-mca, which has to be on the path, what iterations of an operator's inner loops take"
)
@click.option("--verbose", "-v", "roles", is_flag=True, help="also name the schedules of roles that are not for an operator")
@options.threads
@options.of_models
@options.target
@options.as_json
@options.externs
@options.operators
def explain(
    file: Path | None,
    arguments: Sequence[str],
    measure: bool,
    proof: bool,
    mca: bool,
    roles: bool,
    threads: int | None,
    model_options: ModelOptions,
    target: str,
    as_json: bool,
    externs: Sequence[str],
    operators: Path | None,
) -> None:
    """Explain what limits an operator, how it or a model is computed, what was proven, how fast it could be on this machine and how fast
    it is; or the code of a message, as T0301."""
    from tensorlang.shell.pages import is_code, page_of

    if file is None:
        help = "name a `.tl` file, a model, or a code, as `tensorlang explain T0301`"
        raise error("C0211", "there is nothing to explain", help=help)
    if is_code(str(file)) and not file.exists():
        page = page_of(str(file))
        title, _, text = page.partition("\n\n")
        say({"code": title.partition(":")[0], "title": title.partition(": ")[2], "text": text}, page, as_json)
    elif file.suffix == ".tl":
        from tensorlang.runtime.limits import Explained
        from tensorlang.shell.variants import tried_text

        operator, values = operator_of(file, arguments, threads, target, externs=externs, options=model_options, operators=operators)
        found = Explained(operator.proofs(**values)) if proof else operator.explained(operator.call(**values), roles=roles)
        analysed = _analysed(found.cycles) if mca else []
        near = _near(operator, values) if measure and not proof else None
        limited, _, rest = found.text.partition("\n\n")
        text = "\n".join((limited, *(f"llvm-mca   {line}" for _, line in analysed), "", rest))
        limits = [asdict(limit) for limit in found.limits]
        cycles = [{"loop": c.loop, "cycles": c.cycles, "parts": [list(part) for part in c.parts]} for c in found.cycles]
        for loop, (taken, _) in zip(cycles, analysed, strict=False):
            loop["llvm_mca"] = taken
        about = {"file": str(file), "operator": operator.name, "target": target, "limits": limits, "cycles": cycles}
        if found.cases:
            about["sizes"] = [asdict(case) for case in found.cases]
        if near is not None:
            text = f"{text}\n\n{tried_text(operator.name, operator.scheduled_for, near)}"
            about["faster"] = [{"ratio": f.ratio, "change": f.variant.change, "schedule": f.variant.lines} for f in near.faster]
        about["text"] = text
        say(about, text, as_json)
    else:
        _explain_model(
            file, arguments, measure, proof, threads, model_options, target, as_json, custom_operators(operators, externs, target)
        )


def _near(operator: Operator, values: dict[str, Any]) -> Tried:
    """Return what schedules near an operator's gain. Raises CompileError C0103 on devices."""
    from tensorlang.shell.progress import Bar
    from tensorlang.shell.variants import tried

    if operator.tools.on_device or operator.declaration.extern:
        raise error("C0103", "not supported yet: measuring schedules of this operator", help="leave `--measure` out")
    with Bar() as bar:
        return tried(operator, values, _SECONDS, bar)


_SECONDS = 4.0
"""For which schedules are measured."""


def _analysed(loops: Sequence[LoopCycles]) -> list[tuple[float | None, str]]:
    """Return the cycles of an iteration of each loop by LLVM's analyser, None where it cannot tell, and a line for people. Raises
    CompileError C0231."""
    from codegen.llvm import mca

    if not mca.is_installed():
        raise error(
            "C0231", f"`{mca.PROGRAM}` is not on the path", help="install LLVM's tools, on Debian `apt install llvm`; or leave `--mca` out"
        )
    found = [(loop, mca.analysed(loop.lines, loop.cpu)) for loop in loops]
    return [(None if a is None else a.cycles, f"{loop.loop or 'a loop'}: {_told(a, loop.cpu)}") for loop, a in found]


def _told(found: Analysis | None, cpu: str) -> str:
    if found is None:
        return "its instructions cannot be read"
    waits = ", ".join(f"{name} ({share:.0%})" for name, share in found.waits[:3])
    unknown = "" if found.has_model else f" (it does not know {cpu})"
    return f"{found.cycles:.3g} cycles an iteration, {f'waits for {waits}' if waits else 'nothing waits'}{unknown}"


def _explain_model(
    file: Path,
    arguments: Sequence[str],
    measure: bool,
    proof: bool,
    threads: int | None,
    model_options: ModelOptions,
    target: str,
    as_json: bool,
    operators: Operators | None,
) -> None:
    if proof:
        raise error("C0103", "not supported yet: the proofs of a model", help="ask for those of an operator of a `.tl` file")
    model, values = model_of(file, arguments, threads, model_options, target, operators)
    inputs = inputs_of(model, values) if measure else None
    kernels = [] if inputs is None or not as_json else [_kernel(k) for k in model.profile(inputs)]
    text = model.explain(inputs)
    say({"file": str(file), "target": target, "kernels": kernels, "text": text}, text, as_json)


def _kernel(found: KernelTime) -> dict[str, Any]:
    return {
        "name": found.name,
        "nodes": list(found.members),
        "seconds": found.seconds,
        "operations": found.work.flops,
        "moved_bytes": found.work.moved_bytes,
    }
