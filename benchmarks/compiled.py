"""What models become on a GPU, without one: kernels, the time that making them takes, what they use of a device, and how many of them
multiply matrices by instructions for that. Rows are kept in docs/benchmarks/data/gpu-compiled.json, one for each model, precision and
target, and told in docs/benchmarks/gpu-compiled.md. Nothing here was run on a device.

    python benchmarks/compiled.py resnet50 bert_base --precisions f32 bf16 --targets cuda:sm_80 cuda:sm_90a
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from harness import ROOT, table, version  # isort: skip

import tensorlang
from codegen.cuda.sass import count, opcodes
from stdlib import models
from tensorlang.backends.gpu.tools import Built

FOLDER = ROOT / "docs" / "benchmarks"
DATA, PAGE = FOLDER / "data" / "gpu-compiled.json", FOLDER / "gpu-compiled.md"
PRODUCTS = ("HMMA", "IMMA", "HGMMA", "IGMMA")
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 when kernels spill."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="models (default: none, and the page is written again)")
    parser.add_argument("--precisions", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--targets", nargs="+", default=["cuda:sm_80", "cuda:sm_90a"])
    parser.add_argument("--print", action="store_true", help="write no files")
    arguments = parser.parse_args(argv)
    made = [compiled(name, p, t) for name in arguments.names for t in arguments.targets for p in arguments.precisions]
    if arguments.print:
        print(told(made))
    else:
        rows = merged(json.loads(DATA.read_text("utf-8")) if DATA.exists() else [], made)
        DATA.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n", "utf-8")
        PAGE.write_text(page(rows), "utf-8")
    return 1 if any(row["spilled"] for row in made) else 0


def compiled(name: str, precision: str, target: str) -> Row:
    """Return the row of a model, compiled anew."""
    written = [time.perf_counter()]

    def progress(what: str, done: int, total: int) -> None:
        if what == "writing kernels":
            written[1:] = [time.perf_counter()]

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TENSORLANG_CACHE"] = folder
        model = tensorlang.compile(models.load(name), target, precision, progress=progress)
        end = time.perf_counter()
    row = {"model": name, "precision": precision, "target": target, "date": time.strftime("%Y-%m-%d"), **used(model.made.built)}
    row |= {"text_seconds": round(written[-1] - written[0], 1), "nvrtc_seconds": round(end - written[-1], 1)}
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def used(built: Built) -> Row:
    """Return what the kernels of a model are and use."""
    usage = list(built.usage.values())
    found = [[sum(count(o, name) for o in opcodes(code.cubin).values()) > 0 for name in PRODUCTS] for code in built.code]
    by = dict(zip(built.model.kernels, found, strict=True))
    return {
        "kernels": len(built.model.calls),
        "distinct": len(built.model.kernels),
        "launches": sum(len(built.model.kernels[c.kernel].launched.launches) for c in built.model.calls),
        "registers": max(u.registers for u in usage),
        "shared_bytes": max(k.shared_bytes for m in built.model.kernels.values() for k in m.launched.kernels),
        "spilled": sum(u.spill_store_bytes + u.spill_load_bytes + u.stack_bytes for u in usage),
        "by_matrices": {name: n for k, name in enumerate(PRODUCTS) if (n := sum(by[c.kernel][k] for c in built.model.calls))},
    }


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the rows, those of the same model, precision and target replaced, in order."""
    rows = {_key(row): row for row in (*old, *new)}
    return [rows[key] for key in sorted(rows, key=lambda key: (models.names().index(key[0]), *key[1:]))]


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["model"], row["target"], row["precision"]


def told(rows: Sequence[Row]) -> str:
    head = (
        "",
        "target",
        "precision",
        "kernels",
        "distinct",
        "launches",
        "text, s",
        "NVRTC, s",
        "registers",
        "shared",
        "spilled",
        "by matrices",
    )
    return table(head, [_line(row) for row in rows])


def _line(row: Row) -> tuple[object, ...]:
    by = ", ".join(f"{n} {name}" for name, n in row["by_matrices"].items())
    plain = [row[k] for k in ("kernels", "distinct", "launches", "text_seconds", "nvrtc_seconds", "registers", "shared_bytes", "spilled")]
    return (row["model"], row["target"], row["precision"], *plain, by)


def page(rows: Sequence[Row]) -> str:
    """Return the page that tells the rows."""
    dates = " and ".join(sorted({row["date"] for row in rows}))
    versions = ", ".join(f"{p} {v}" for p in ("cuda-bindings", "nvidia-cuda-nvrtc") if (v := version(p)))
    text = f"""\
        # Models as kernels for GPUs

        {dates}; {versions}; one core of an AMD EPYC shared with other work, so times are rough;
        `python benchmarks/compiled.py MODEL …`. Nothing was run on a device.

        kernels: in the graph; distinct: programs that are compiled, each once; launches: per run; text: seconds from reading the
        model to the CUDA text of its last kernel, without a cache; NVRTC: seconds for compiling all of it to machine code;
        registers: per thread, and shared: bytes of shared memory per block, each the maximum over all kernels; spilled: bytes of
        spills and stacks, over all kernels; by matrices: kernels of the graph that use matrix instructions, by the name of the
        instruction.
        """
    lines = "\n".join(line.removeprefix("        ") for line in text.split("\n"))
    return f"{lines}\n{told(rows)}\n"


if __name__ == "__main__":
    sys.exit(main())
