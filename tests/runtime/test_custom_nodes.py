"""Single operators for nodes of a user's domains, several versions of one, and those that installed packages offer."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import extern_kernels as kernels
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import tensorlang as tl

X = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)
TEXT = """
extern op kernel(x: f32[N]) -> (y: f32[N])
op blur(x: f32[D..], attr by: float = 2) -> (y: f32[D..]) { y[d..] = x[d..] * by }
op sharper(x: f32[D..]) -> (y: f32[D..]) { y[d..] = x[d..] - 1 }
op called(x: f32[M, N]) -> (y: f32[N]) {
    a[j] = sum(i) x[i, j]
    y = kernel(a)
}
"""
OPS = tl.parse(TEXT, externs={"kernel": tl.llvm_ir(kernels.copies(32), "copies")})


def model(op: str = "Blur", domain: str = "my.domain", version: int = 1, **attributes: Any) -> ModelProto:
    nodes = [helper.make_node(op, ["x"], ["a"], domain=domain, **attributes), helper.make_node("Relu", ["a"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)], [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "net", *ports)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, version)], ir_version=8)


def run(proto: ModelProto, **options: Any) -> Any:
    return tl.compile(proto, **options).run({"x": X})["y"]


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def test_an_operator_serves_the_nodes_that_it_is_given_for_whatever_it_is_called() -> None:
    np.testing.assert_array_equal(run(model(), ops={"my.domain::Blur": OPS.blur}), relu(2 * X))
    np.testing.assert_array_equal(run(model(by=3.0), ops={"my.domain::Blur": OPS["blur"]}), relu(3 * X))


def test_an_operator_with_kernels_serves_nodes() -> None:
    np.testing.assert_array_equal(run(model(), ops={"my.domain::Blur": OPS.called}), relu(X.sum(0)))


def test_an_operator_of_the_standard_library_serves_nodes() -> None:
    found = run(model("Squash"), ops={"my.domain::Squash": tl.std.softmax})
    np.testing.assert_allclose(found, np.exp(X) / np.exp(X).sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("version", "expected"), [(1, 2 * X), (2, 2 * X), (3, X - 1), (9, X - 1)])
def test_of_several_versions_the_latest_that_is_no_later_than_the_models_serves(version: int, expected: Any) -> None:
    found = run(model(version=version), ops={"my.domain::Blur": {1: OPS.blur, 3: OPS.sharper}})
    np.testing.assert_array_equal(found, relu(expected))


def test_single_operators_come_before_files() -> None:
    file = tl.parse("op Blur(x: f32[D..]) -> (y: f32[D..]) { y[d..] = x[d..] + 9 }")
    np.testing.assert_array_equal(run(model(), operators=file), relu(X + 9))
    np.testing.assert_array_equal(run(model(), operators=file, ops={"my.domain::Blur": OPS.sharper}), relu(X - 1))
    np.testing.assert_array_equal(run(model(version=2), operators=file, ops={"my.domain::Blur": {3: OPS.sharper}}), relu(X + 9))


def test_a_model_with_operators_is_pickled_with_them() -> None:
    made = pickle.loads(pickle.dumps(tl.compile(model(), ops={"my.domain::Blur": OPS.sharper})))
    np.testing.assert_array_equal(made.run({"x": X})["y"], relu(X - 1))


def test_another_operator_for_a_node_is_another_model() -> None:
    for operator, expected in ((OPS.blur, 2 * X), (OPS.sharper, X - 1), (OPS.blur, 2 * X)):
        np.testing.assert_array_equal(run(model(), ops={"my.domain::Blur": operator}), relu(expected))


# ---------------------------------------------------------------- what is wrong


def refused(proto: ModelProto, **options: Any) -> tuple[str, str]:
    with pytest.raises(tl.CompileError) as found:
        tl.compile(proto, **options)
    assert found.value.diagnostics[0].help
    return found.value.diagnostics[0].code, str(found.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([OPS.blur], "`ops` is a list"),
        ({"Blur": OPS.blur}, "'my.domain::Blur'"),
        ({3: OPS.blur}, "has the key 3"),
        ({"my.domain::": OPS.blur}, "has the key 'my.domain::'"),
        ({"::Relu": OPS.blur}, "cannot be replaced"),
        ({"ai.onnx::Relu": OPS.blur}, "cannot be replaced"),
        ({"my.domain::Blur": OPS}, "holds a Operators"),
        ({"my.domain::Blur": "mine.tl"}, "holds a str"),
        ({"my.domain::Blur": OPS.blur.gradient("x")}, "a gradient, `blur_gradient`"),
        ({"my.domain::Blur": {}}, "no operator for `my.domain::Blur`"),
        ({"my.domain::Blur": {0: OPS.blur}}, "for version 0"),
        ({"my.domain::Blur": {"1": OPS.blur}}, "for version '1'"),
        ({"my.domain::Blur": {True: OPS.blur}}, "for version True"),
    ],
)
def test_what_is_no_operator_for_a_node_is_refused(given: Any, said: str) -> None:
    code, message = refused(model(), ops=given)
    assert code == "C0119" and said in message


def test_an_operator_among_files_is_told_where_it_belongs() -> None:
    code, message = refused(model(), operators={"my.domain": OPS.blur})
    assert code == "C0119" and "`ops={'my.domain::blur': …}`" in message


def test_kernels_for_another_target_are_refused() -> None:
    code, message = refused(model(), target="cuda:sm_80", ops={"my.domain::Blur": OPS.called})
    assert code == "C0119" and "for `cpu`, not for `cuda`" in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "ops={'my.domain::Blur': ops.f}"),
        ({"ops": {"my.domain::Blurr": OPS.blur}}, "did you mean `my.domain::Blurr`"),
        ({"operators": {"my.domain": tl.parse("op Blurs(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }")}}, "did you mean `my.domain::Blurs`"),
        ({"ops": {"my.domain::Blur": {2: OPS.blur, 5: OPS.sharper}}}, "given from version 2, 5 on, and the model imports version 1"),
    ],
)  # fmt: skip
def test_a_node_of_an_unknown_domain_is_refused_with_how_to_give_an_operator(options: Any, said: str) -> None:
    code, message = refused(model(), **options)
    assert code == "O010" and "operator `Blur` of the domain `my.domain`" in message and said in message


def test_an_operator_that_does_not_fit_its_node_is_refused() -> None:
    code, message = refused(model(nothing=1), ops={"my.domain::Blur": OPS.sharper})
    assert code == "O005" and "`nothing`" in message


# ---------------------------------------------------------------- packages


PACKAGE = """
import tensorlang as tl
TEXT = '''
op blur(x: f32[D..]) -> (y: f32[D..]) { y[d..] = x[d..] * 3 }
op Whole(x: f32[D..]) -> (y: f32[D..]) { y[d..] = x[d..] + 1 }
'''
def operators():
    ops = tl.parse(TEXT)
    return {"my.domain::Blur": {1: ops.blur}, "files.domain": ops}
def broken():
    raise ValueError("nothing is well")
def nothing():
    return 3
"""
PROGRAM = """
import sys, numpy as np, onnx, tensorlang as tl
x = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)
for file in sys.argv[1:]:
    try:
        print(tl.compile(file).run({"x": x})["y"].tolist())
    except tl.CompileError as refused:
        print(refused)
"""


def in_a_process(folder: Path, protos: Sequence[ModelProto], point: str, program: str = PROGRAM) -> str:
    """Return what a program prints of models where a package offers operators."""
    (folder / "acme.py").write_text(PACKAGE)
    (folder / "acme-1.0.dist-info").mkdir(exist_ok=True)
    (folder / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (folder / "acme-1.0.dist-info" / "entry_points.txt").write_text(f"[tensorlang.onnx_operators]\nacme = {point}\n")
    files = [folder / f"net{k}.onnx" for k in range(len(protos))]
    for file, proto in zip(files, protos, strict=True):
        file.write_bytes(proto.SerializeToString())
    path = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "TENSORLANG_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", program, *map(str, files)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_an_installed_package_offers_operators_for_all_models(tmp_path: Path) -> None:
    found = in_a_process(tmp_path, [model("Blur", "my.domain"), model("Whole", "files.domain")], "acme:operators")
    assert found.splitlines() == [str(relu(y).tolist()) for y in (3 * X, X + 1)]


def test_what_is_given_comes_before_what_a_package_offers(tmp_path: Path) -> None:
    given = "tl.parse('op f(x: f32[D..]) -> (y: f32[D..]) { y[d..] = x[d..] + 7 }').f"
    program = PROGRAM.replace("compile(file)", f"compile(file, ops={{'my.domain::Blur': {given}}})")
    assert in_a_process(tmp_path, [model()], "acme:operators", program) == str(relu(X + 7).tolist())


@pytest.mark.parametrize(("point", "said"), [("acme:broken", "nothing is well"), ("acme:nothing", "returns a int"), ("acme:gone", "gone")])
def test_a_package_that_offers_none_is_named(point: str, said: str, tmp_path: Path) -> None:
    told = in_a_process(tmp_path, [model()], point)
    assert "C0119" in told and "`acme`" in told and said in told
