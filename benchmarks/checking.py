"""How long checking takes: every operator of the standard library where it is defined, and the schedules of whole models' kernels.

python benchmarks/checking.py                      the library, and the kernels of five models
python benchmarks/checking.py --models resnet50    the kernels of others
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from harness import table, urgent, write  # isort: skip

from codegen.llvm.target import host
from stdlib import models
from stdlib.library import library
from tensorlang.api import importer_of
from tensorlang.backends.cpu.driver import machine_of, plan_kernel
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.check.definition import check_operator
from tensorlang.graph.nodes import Kernel
from tensorlang.runtime.jobs import job_of, optimised

LIMIT = 0.5
"""Seconds that an operator, or the schedule of one kernel, may take."""
MODELS = ("resnet50", "mobilenet_v2", "bert_base", "light_shufflenet", "convnext_tiny")
SHOWN = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one model")
    parser.add_argument("--urgent", action="store_true", help="measure before all other work of the machine; needs the right to")
    parser.add_argument("--out", help="write <out>.json and <out>.md")
    arguments = parser.parse_args()
    if arguments.urgent:
        urgent()
    operators = operator_times()
    kernels = [r for name in arguments.models[: 1 if arguments.quick else None] for r in kernel_times(name, arguments.threads)]
    text = "\n\n".join(
        [_section("Operators of the library", operators), _section("Schedules of kernels: chosen, applied, proven", kernels)]
    )
    slow = sorted([*operators, *kernels], key=lambda r: -r["seconds"])[:SHOWN]
    write(arguments.out, "Checking", slow, text)


def operator_times() -> list[dict[str, Any]]:
    """Return the seconds that checking each operator of the library takes."""
    module = library()
    results = []
    for name in sorted(module.declared):
        start = time.process_time()
        problems = check_operator(module, name)
        results.append({"what": name, "seconds": time.process_time() - start, "problems": len(problems)})
    return results


def kernel_times(name: str, threads: int) -> list[dict[str, Any]]:
    """Return the seconds that planning each distinct kernel of a model takes."""
    tools = toolchain(threads=threads, cache=False)
    model = models.load(name, 7)
    graph = optimised(importer_of(model).load(model), tools)
    seen: set[str] = set()
    results = []
    for node in graph.nodes:
        if not isinstance(node, Kernel):
            continue
        job = job_of(graph, node)
        key = repr((job.program, job.layouts))
        if key in seen:
            continue
        seen.add(key)
        start = time.process_time()
        plan_kernel(job.program, machine_of(host(), threads), layouts=job.layouts, constants=job.constants)
        shape = list(graph.values[node.outputs[0]].shape)
        results.append({"what": f"{name}: {node.program.name} {shape}", "seconds": time.process_time() - start, "problems": 0})
    return results


def _section(title: str, results: list[dict[str, Any]]) -> str:
    slowest = sorted(results, key=lambda r: -r["seconds"])
    late = sum(r["seconds"] > LIMIT for r in results)
    wrong = [r["what"] for r in results if r["problems"]]
    total = sum(r["seconds"] for r in results)
    said = f"{len(results)} in {total:.1f} s, {late} above the limit of {LIMIT} s" + (
        f"; with mistakes: {', '.join(wrong)}" if wrong else ""
    )
    return f"## {title}\n\n{said}. The slowest, in processor time:\n\n" + table(
        ("what", "seconds"), [(r["what"], f"{r['seconds']:.3f}") for r in slowest[:SHOWN]]
    )


if __name__ == "__main__":
    main()
