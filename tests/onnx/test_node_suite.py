"""onnx's own cases, node by node: what the importer makes of them computes what the suite expects, through the interpreter.

unsupported.txt lists the cases that are refused, and nothing else may be: a case that starts or ceases to work has to be noted there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, ModelProto
from onnx_evaluate import close, run, suite

from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError
from tensorlang.graph.verify import verify

NUMBERS = (0, 1, -1, 2, 3, 5, -2, 100, 2**31, 2**62, -(2**63), 2**63 - 1)
UNSUPPORTED = Path(__file__).parent / "unsupported.txt"


def test_every_case_of_a_supported_operator_passes(golden: Callable[[Path, str], None]) -> None:
    refused: dict[str, list[str]] = {}
    wrong: list[str] = []
    passed = 0
    for name, case in suite().items():
        try:
            for inputs, outputs in case.data_sets:
                results = run(case.model, inputs)
                if len(results) != len(outputs) or not all(close(a, b, case) for a, b in zip(results, outputs, strict=True)):
                    wrong.append(name)
                    break
            else:
                passed += 1
        except CompileError as problem:
            if not all(d.code in ("O010", "O013") for d in problem.diagnostics):
                wrong.append(f"{name}: {problem.diagnostics[0].title}")
            refused.setdefault(case.model.graph.node[0].op_type, []).append(name)
    assert wrong == []
    assert passed + sum(map(len, refused.values())) == len(suite())
    listed = "".join(f"# {op}\n" + "".join(f"{name}\n" for name in sorted(refused[op])) for op in sorted(refused))
    golden(UNSUPPORTED, f"{passed} of {len(suite())} cases pass; these are refused:\n\n{listed}")


def changed(model: ModelProto, draw: Callable[..., object]) -> ModelProto:
    """Return the model with one number, dimension, type or name in it changed."""
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for output in graph.output:
        output.ClearField("type")
    node = graph.node[draw(st.integers(0, len(graph.node) - 1))]
    place = draw(st.sampled_from(["dimension", "rank", "type", "attribute", "input", "fewer inputs"]))
    tensor = graph.input[draw(st.integers(0, len(graph.input) - 1))].type.tensor_type if graph.input else None
    number = draw(st.sampled_from(NUMBERS))
    if place == "dimension" and tensor is not None and tensor.shape.dim:
        tensor.shape.dim[draw(st.integers(0, len(tensor.shape.dim) - 1))].dim_value = number
    elif place == "rank" and tensor is not None:
        tensor.shape.dim.add().dim_value = 2
    elif place == "type" and tensor is not None:
        tensor.elem_type = draw(st.sampled_from([1, 6, 7, 9, 10, 11, 3, 16]))
    elif place == "attribute" and node.attribute:
        attribute = node.attribute[draw(st.integers(0, len(node.attribute) - 1))]
        if attribute.type == AttributeProto.INT:
            attribute.i = number
        elif attribute.type == AttributeProto.FLOAT:
            attribute.f = draw(st.sampled_from([0.0, -1.0, float("inf"), 1e30, 1e-30]))
        elif attribute.type == AttributeProto.INTS:
            attribute.ints.append(number)
    elif place == "input" and node.input and graph.input:
        node.input[draw(st.integers(0, len(node.input) - 1))] = draw(st.sampled_from([*(i.name for i in graph.input), ""]))
    elif node.input:
        del node.input[-1]
    return result


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_a_changed_case_is_imported_or_refused(data: st.DataObject) -> None:
    case = suite()[data.draw(st.sampled_from(sorted(suite())))]
    try:
        verify(Importer().load(changed(case.model, data.draw)))
    except CompileError as refusal:
        assert all(d.code.startswith("O") for d in refusal.diagnostics)
