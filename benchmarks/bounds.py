"""How much of the time to compile kernels goes into the proof that their loops stay inside their buffers (`tensorlang.lower.bounds`).

    python benchmarks/bounds.py [MODEL …]

Compiles every distinct kernel of the models in this process, one after the other and for one thread, without a cache.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from stdlib import models
from stdlib.onnx import Importer
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.build import build
from tensorlang.backends.cpu.kernels import KernelTask
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.runtime.jobs import optimised
from tensorlang.runtime.library import installed_roles, rules_of

MODELS = ("squeezenet11", "resnet50", "mobilenet_v2", "bert_base", "gpt2")


def main(names: Sequence[str]) -> None:
    table = Table("model", "kernels", "compile s", "bounds s", "share", "slowest ms")
    for name in names or MODELS:
        times = times_of(name)
        bounds, whole = [t["bounds"] for t in times], sum(sum(t.values()) for t in times)
        table.add_row(
            name, str(len(times)), f"{whole / 1e3:.2f}", f"{sum(bounds) / 1e3:.2f}", f"{sum(bounds) / whole:.1%}", f"{max(bounds):.1f}"
        )
    Console().print(table)


def times_of(name: str) -> list[dict[str, float]]:
    """Return milliseconds per stage of each distinct kernel of a model."""
    tools, times = toolchain(threads=1, cache=False), []
    rules = rules_of(tuple(installed_roles()))

    def compiled(jobs: Sequence[Any], progress: object) -> Sequence[Artifact]:
        made = [KernelTask(replace(job, rules=rules), tools.target, 1)(None) for job in jobs]
        times.extend(dict(artifact.times_ms) for artifact in made)
        return made

    tools = replace(tools, compile=compiled)
    build(optimised(Importer().load(models.load(name)), tools), tools)
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
