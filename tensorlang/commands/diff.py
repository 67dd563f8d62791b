"""`tensorlang diff`: what a model computes next to what another compiler makes of it, down to the first node that departs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorlang.diagnostics import error
from tensorlang.shell import options
from tensorlang.shell.loading import inputs_of, is_model, model_of
from tensorlang.shell.options import ModelOptions
from tensorlang.shell.reporting import say

if TYPE_CHECKING:
    from tensorlang.graph.taken_apart import TakenApart
    from tensorlang.shell.difference import Difference
    from tensorlang.shell.peers import Peer


@click.command(short_help="Compare a model's results with a peer's.")
@options.file()
@options.arguments
@click.option("--against", default="onnxruntime", help="the peer: onnxruntime (default), openvino")
@click.option("--tolerance", type=click.FloatRange(min=0), default=1e-4, help="the error allowed, as a share of the largest element")
@click.option("--bisect", is_flag=True, help="find the first node whose value departs")
@options.output("an .onnx file for the smallest model that departs; what it takes goes beside it, into an .npz file")
@options.threads
@options.of_models
@options.as_json
def diff(
    file: Path,
    arguments: Sequence[str],
    against: str,
    tolerance: float,
    bisect: bool,
    output: Path | None,
    threads: int | None,
    model_options: ModelOptions,
    as_json: bool,
) -> None:
    """Run a model and a peer on the same inputs, random where none are given, and say how far each result is from the peer's.

    With --bisect, also the values between nodes are compared, in a model that returns them all: the first node that departs takes what the
    peer gives it too, and is compared by itself. The exit code is 1 where anything departs."""
    from tensorlang.shell.difference import as_data, table
    from tensorlang.shell.peers import peers

    if not is_model(file):
        raise error("C0213", f"`{file}` is no model that an installed importer reads", help="`tensorlang list` tells of operators")
    [peer] = peers([against])
    model, given = model_of(file, arguments, threads, model_options)
    inputs = inputs_of(model, given)
    found = _compared(str(file), model.run(inputs), inputs, peer, tolerance)
    data: dict[str, Any] = {"against": peer.name, "results": [as_data(value) for value in found]}
    text = table(found)
    if bisect:
        more, told = _bisected(file, inputs, peer, tolerance, threads, model_options, output)
        data, text = {**data, "node": more}, f"{text}\n{told}"
    say(data, text, as_json)
    if any(value.departs for value in found) or data.get("node"):
        raise SystemExit(1)


def _compared(model: str | bytes, results: Mapping[str, Any], inputs: Mapping[str, Any], peer: Peer, tolerance: float) -> list[Difference]:
    from tensorlang.shell.difference import differences
    from tensorlang.shell.peers import Task

    run = peer.run(Task(inputs, model=model), 1)
    if run is None:
        raise error("C0221", f"{peer.name} does not run this model with these inputs", help="name onnxruntime or openvino")
    return differences(results, dict(zip(results, run(), strict=True)), tolerance)


def _apart(file: Path) -> TakenApart:
    from tensorlang.api import TakesApart, importer_of

    importer = importer_of(str(file))
    apart = importer.apart(str(file)) if isinstance(importer, TakesApart) else None
    if apart is None:
        raise error("C0211", f"`{file}` cannot be taken apart", help="leave out `--bisect`")
    return apart


def _bisected(
    file: Path,
    inputs: Mapping[str, Any],
    peer: Peer,
    tolerance: float,
    threads: int | None,
    model_options: ModelOptions,
    output: Path | None,
) -> tuple[dict[str, Any] | None, str]:
    """Return the first node that departs, for JSON and as text."""
    from tensorlang.api import compile as compile_model
    from tensorlang.shell.difference import as_data, difference, first_departing
    from tensorlang.shell.peers import Task

    apart = _apart(file)
    shapes = {name: array.shape for name, array in inputs.items()}
    ours = compile_model(apart.model, threads=threads, shapes=shapes, **model_options.chosen()).run(dict(inputs))
    run = peer.run(Task(inputs, model=apart.model), 1)
    assert run is not None
    theirs = dict(zip(apart.outputs, run(), strict=True))
    values = [difference(name, ours[name], theirs[name], tolerance) for name in apart.outputs]
    node = first_departing(apart, values)
    if node is None:
        return None, f"none of {len(apart.nodes)} nodes departs where all values are returned"
    departing = next(value for value in values if value.departs and value.name in node.outputs)
    told = f"`{node.label}` ({node.operator}) is the first that departs: `{departing.name}` {departing.at}"
    taken = {name: (theirs | dict(inputs))[name] for name in node.inputs}
    model = node.alone(taken)
    alone = _compared(model, compile_model(model, threads=threads, **model_options.chosen()).run(taken), taken, peer, tolerance)
    by_itself = any(value.departs for value in alone)
    if not by_itself:
        told += "\nby itself it does not: of the same values it makes what the peer makes, and smaller differences before it grow in it"
    if output is not None:
        told += f"\n{_written(output, model, taken)}"
    return {"label": node.label, "operator": node.operator, "value": as_data(departing), "by_itself": by_itself}, told


def _written(output: Path, model: bytes, taken: Mapping[str, Any]) -> str:
    from tensorlang.shell.files import whole, write_arrays

    whole(output, lambda handle: handle.write(model))
    beside = output.with_suffix(".npz")
    write_arrays(beside, taken)
    return f"a model of it alone is in {output}, what it takes in {beside}"
