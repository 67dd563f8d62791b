"""What the benchmarks report: medians of runs that nothing disturbed, errors relative to the largest value, tables that line up."""

from __future__ import annotations

import json
from pathlib import Path

import cost_model
import drawn_cases
import drawn_mixed
import drawn_others
import harness
import inputs
import numpy as np
import onnx
import operators
import pytest
import users

from tensorlang.check.module import load_module
from tensorlang.shell.peers import peers
from tensorlang.syntax.parse import load, parse


def test_contenders_take_turns_and_each_runs_as_often_as_the_others() -> None:
    order: list[str] = []
    timings = harness.paired({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 0.0, rounds=4)
    assert [t.runs for t in timings] == [12, 12]
    turns = [name for k, name in enumerate(order) if k == 0 or order[k - 1] != name]
    assert turns == ["a", "b"] * (len(turns) // 2)


def test_the_median_leaves_out_runs_that_were_disturbed() -> None:
    calm = [harness._Sample(1.0 + k / 10, False) for k in range(3)]
    assert harness._timing("a", [*calm, harness._Sample(9.0, True)]).median == pytest.approx(1.1)


def test_a_timing_says_what_share_was_disturbed_even_where_that_leaves_too_few() -> None:
    found = harness._timing("a", [harness._Sample(1.0, False), harness._Sample(2.0, True), harness._Sample(3.0, True)])
    assert found.median == 2.0 and found.disturbed == pytest.approx(2 / 3) and not found.steady


def test_errors_are_relative_to_the_largest_value() -> None:
    assert harness.error_of(np.array([1.0, 99.0]), np.array([0.0, 100.0])) == pytest.approx(0.01)
    assert harness.error_of(np.zeros(3), np.zeros(3)) == 0.0


def test_columns_of_a_table_line_up() -> None:
    lines = harness.table(("name", "ms"), [("resnet50", 36.9), ("a", 1)]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1] == "|----------|-----:|"


def test_a_report_is_written_as_json_and_markdown_that_name_the_machine_but_no_host(tmp_path: Path) -> None:
    harness.write(str(tmp_path / "found"), "Found", [{"case": 1}, {"case": 2}], "text")
    data = json.loads((tmp_path / "found.json").read_text())
    assert data["results"] == [{"case": 1}, {"case": 2}]
    assert {"processor", "threads", "vector_bits", "versions", "date"} <= set(data["machine"])
    assert "node" not in data["machine"] and (tmp_path / "found.md").read_text().startswith("# Found")


def test_a_name_with_a_dot_in_it_is_kept_whole(tmp_path: Path) -> None:
    harness.write(str(tmp_path / "sm_9.0"), "Found", [], "text")
    assert {p.name for p in tmp_path.iterdir()} == {"sm_9.0.json", "sm_9.0.md"}


def test_a_model_for_more_samples_reshapes_values_but_no_weights() -> None:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, k]) for n, k in (("x", 4), ("y", 3)))
    constants = [onnx.numpy_helper.from_array(np.array(shape), name) for name, shape in (("rows", [3, 4]), ("flat", [1, 4]))]
    constants.append(onnx.numpy_helper.from_array(np.ones((3, 4, 1), np.float32), "w"))
    nodes = [
        onnx.helper.make_node("Reshape", ["w", "rows"], ["k"]),
        onnx.helper.make_node("Reshape", ["x", "flat"], ["v"]),
        onnx.helper.make_node("Gemm", ["v", "k"], ["y"], transB=1),
    ]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "net", [x], [y], constants))
    inputs.set_batch(model, 8)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [8, 3]


def test_an_operator_is_measured_against_its_peers_and_agrees_with_them() -> None:
    case = next(s for s in operators.subjects(["chosen"], 7) if s.name == "matmul 256")
    found = operators.measure(case, 1, harness.ceiling(), 0.0, False, peers(["numpy", "onnxruntime"]))
    assert set(found["ratios"]) == {"numpy", "onnxruntime"}
    assert found["error"] < 1e-5 and 0 < found["share"] <= 1.1


def test_a_drawn_operator_and_a_users_one_are_measured_and_what_fails_is_a_row() -> None:
    drawn = next(s for s in operators.subjects(["drawn"], 7) if s.name.startswith("Relu "))
    user = next(s for s in operators.subjects(["users"], 7) if s.name == "halved")

    def refuse(_: int) -> None:
        raise ValueError("no such shape")

    failing = operators.Subject("nothing", "elements", refuse)
    found = [operators.measure(s, 1, 0.0, 0.0, False, peers(["numpy", "onnxruntime"])) for s in (drawn, user, failing)]
    assert [set(f.get("ratios", {})) for f in found] == [{"onnxruntime"}, {"numpy"}, set()]
    assert all(f["error"] < 1e-5 for f in found[:2]) and found[2]["failed"] == "ValueError: no such shape"
    assert operators._means(found).splitlines()[-1].endswith(" 1 |") and "no such shape" in operators._report(found)


@pytest.mark.parametrize("kinds", [drawn_cases.KINDS, drawn_mixed.MIXED | drawn_others.OTHERS], ids=["drawn", "mixed"])
def test_rows_are_drawn_from_every_operator_and_are_the_same_for_the_same_seed(kinds: dict[str, drawn_cases.Kind]) -> None:
    rows = list(drawn_cases.drawn(7, kinds=kinds))
    assert len(rows) >= 300 and {r.kind for r in rows} >= {"Conv", "LSTM", "TopK", "ScatterND", "Einsum"}
    assert [r.name for r in rows] == [r.name for r in drawn_cases.drawn(7, kinds=kinds)]
    assert [r.name for r in rows] != [r.name for r in drawn_cases.drawn(8, kinds=kinds)]
    for row in rows[:: len(rows) // 20]:
        onnx.checker.check_model(row.model(), full_check=True)


def test_every_operator_of_users_is_measured() -> None:
    module = load_module(parse(load(Path(users.__file__).parent / "users.tl")))
    assert sorted(u.name for u in users.users()) == sorted(module.operators) and len(module.operators) >= 40


def test_ranks_are_shared_by_equal_values() -> None:
    assert list(cost_model.ranks([3.0, 1.0, 3.0])) == [1.5, 0.0, 1.5]
    assert cost_model.rank_correlation([1, 2, 3], [10, 200, 3000]) == pytest.approx(1.0)
    assert cost_model.rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
