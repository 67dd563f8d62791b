"""Running imported graphs through the interpreter, and the cases of onnx's own suite."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from codegen.dtypes import DTYPES, from_numpy
from stdlib.onnx import Importer
from tensorlang.graph.data_dependent import DataDependent, Known, ModelPart
from tensorlang.graph.nodes import Graph, Kernel, Loop, Value, View
from tensorlang.graph.texts import texts_of_a_run
from tensorlang.graph.verify import verify
from tensorlang.runtime.structured import flat_feeds, is_structured, structured_results
from tensorlang.tensor.interp import interpret

Array = np.ndarray[Any, Any]


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a graph, every kernel interpreted."""
    return _evaluated(graph, {name: feeds[name] for name in graph.inputs})


def _evaluated(graph: Graph, around: Mapping[str, Array]) -> list[Array]:
    values: dict[str, Array] = {**graph.constants, **around}
    for node in graph.nodes:
        match node:
            case Kernel(program=program, inputs=inputs, outputs=outputs):
                arrays = {tensor.name: values[name] for tensor, name in zip(program.params, inputs, strict=True)}
                results = interpret(program, {}, arrays)
                for name, result in zip(outputs, program.results, strict=True):
                    values[name] = np.asarray(results[result])
            case View(input=source, output=result):
                values[result] = values[source].reshape(graph.values[result].shape)
            case Loop():
                values |= zip(node.outputs, _looped(graph, node, values), strict=True)
    return [values[name] for name in graph.outputs]


def _looped(graph: Graph, loop: Loop, values: Mapping[str, Array]) -> list[Array]:
    """Return the results of a loop: how many turns there were, what was carried, rows."""
    carried, sources = [values[v] for v in loop.initial], [values[v] for v in loop.sources]
    rows = [np.zeros(graph.values[v].shape, graph.values[v].dtype.numpy) for v in loop.rows]
    most = [len(a) for a in (*sources, *rows)][:1] + [int(values[v]) for v in (loop.limit,) if v is not None]
    turn, goes_on = 0, loop.condition is None or bool(values[loop.condition])
    while goes_on and all(turn < count for count in most):
        at = [-1 - turn if back else turn for back in loop.scanned]
        given = [np.asarray(turn), *carried, *(a[k] for a, k in zip(sources, at, strict=True)), *(values[v] for v in loop.captured)]
        found = _evaluated(loop.body, dict(zip(loop.body.inputs, given, strict=True)))
        goes_on = bool(found[0]) if loop.asks else True
        carried = found[loop.asks :][: loop.carried]
        for out, row, back in zip(rows, found[loop.asks + loop.carried :], loop.made, strict=True):
            out[-1 - turn if back else turn] = row
        turn += 1
    return [np.asarray(turn), *carried, *rows]


def run(model: ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Return what a model computes, sequences as lists."""
    feeds = {value.name: as_array(given) for value, given in zip(model.graph.input, inputs, strict=False)}
    signature = Importer().signature(model)
    if not is_structured(signature):
        return staged(model, feeds)
    with texts_of_a_run():
        found = named_results(model, {name: np.asarray(a) for name, a in flat_feeds(feeds, signature.inputs).items()})
        return list(structured_results(found, signature.outputs).values())


def staged(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return what a model of tensors computes: what its shapes depend on is computed first."""
    return list(named_results(model, feeds).values())


def named_results(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the same by the names of the outputs."""
    return _found(lambda shapes, known: Importer().load(model, shapes, known=known), feeds)


def _run_of(part: ModelPart) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    return lambda feeds: _found(part.load, feeds)


def _found(load: Callable[..., Graph], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a model by name: what its shapes depend on is computed first."""
    shapes = {name: array.shape for name, array in feeds.items()}
    values, known = dict(feeds), Known()
    while True:
        try:
            graph = verify(load(shapes, known))
            return dict(zip(graph.outputs, evaluate(graph, values), strict=True))
        except DataDependent as problem:
            if problem.stage is not None:
                values |= dict(zip(problem.stage.outputs, evaluate(verify(problem.stage), values), strict=True))
            elements = {name: values[name] for name in problem.wanted}
            hosted = {name: array for call in problem.calls for name, array in call.on(_run_of).named(values).items()}
            values |= hosted
            carried = {} if problem.stage is None else {name: problem.stage.values[name] for name in problem.carried}
            carried |= {name: Value(name, DTYPES[str(from_numpy(array.dtype))], array.shape) for name, array in hosted.items()}
            known = known.with_computed(elements, carried)


def as_array(value: Any) -> Any:
    """Return an input or output of a case: the suite keeps types that NumPy lacks as TensorProto, sequences as lists."""
    if value is None or isinstance(value, list):
        return value and [as_array(item) for item in value]
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


@cache
def suite() -> dict[str, TestCase]:
    """Return the node cases of the onnx package by name, those that only expand others left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node") if "_expanded" not in case.name}


def close(actual: Any, expected: Any, case: TestCase) -> bool:
    """Tell whether a result is what the suite asks for: type, shape, and elements within the tolerance of the case.

    The reference rounds every intermediate value of a narrow type, where the language keeps f32: results may be a few roundings apart."""
    expected = as_array(expected)
    if actual is None or isinstance(actual, list):
        both = zip(actual or (), expected or (), strict=True)
        return type(actual) is type(expected) and all(close(a, b, case) for a, b in both)
    if actual.dtype == object:
        return bool(actual.shape == expected.shape and np.array_equal(actual, expected.astype(object)))
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if case.model.graph.node[0].op_type == "Bernoulli":  # whose numbers are nobody else's
        return bool(np.all((actual == 0) | (actual == 1)))
    if actual.dtype.kind in "biu" or actual.dtype.name.startswith(("int", "uint")):
        return bool(np.array_equal(actual, expected))
    rounding = 4 * float(ml_dtypes.finfo(actual.dtype).eps) if actual.dtype.itemsize == 2 else 0.0
    wide = [np.asarray(a, np.float64) for a in (actual, expected)]
    atol = case.atol
    if case.model.graph.node[0].op_type in ("DFT", "STFT"):  # the reference sums in f32, and is off by that where terms cancel
        atol = max(atol, 1e-7 * float(np.abs(wide[1]).max(initial=0)))
    return bool(np.allclose(*wide, rtol=max(case.rtol, rounding), atol=atol, equal_nan=True))
