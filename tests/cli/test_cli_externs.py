"""Kernels of extern operators on the command line: given, checked, run, and said to be trusted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import extern_kernels as kernels
import pytest
from commands import run
from onnx import TensorProto, helper
from shared_library import shared_library

TEXT = """extern op scale[T: float](x: T[N], attr by: float = 2) -> (y: T[N]) { y[i] = x[i] * by }
op f(x: f32[N]) -> (y: f32[N]) {
    a = scale(x)
    y[i] = a[i] + 1
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path_factory.getbasetemp() / "objects"))


@pytest.fixture
def tl(capsys: pytest.CaptureFixture[str]) -> Any:
    return partial(run, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ops.tl").write_text(TEXT)
    (tmp_path / "scale.ll").write_text(kernels.scale())
    (tmp_path / "lib.so").write_bytes(shared_library(kernels.scale()))
    (tmp_path / "wrong.ll").write_text(kernels.scale().replace("fmul", "fadd"))
    return tmp_path


@pytest.mark.parametrize("file", ["scale.ll", "lib.so"])
def test_check_runs_a_kernel_against_the_body_of_its_operator(tl: Any, folder: Path, file: str) -> None:
    code, out, err = tl("check", folder / "ops.tl", "--extern", f"scale={folder / file}:scale_{{T}}")
    assert (code, err) == (0, "") and "computes what `scale` says, on 32 trials\n" in out


def test_check_refuses_a_kernel_that_computes_something_else(tl: Any, folder: Path) -> None:
    code, _, err = tl("check", folder / "ops.tl", "--extern", f"scale={folder / 'wrong.ll'}:scale_{{T}}")
    assert code == 1 and "error[C0120]" in err and "1 | extern op scale" in err


def test_run_and_explain_take_kernels(tl: Any, folder: Path) -> None:
    given = ("--extern", f"scale={folder / 'scale.ll'}:scale_{{T}}")
    plain, native = tl("run", folder / "ops.tl", "f", "x=f32[5]"), tl("run", folder / "ops.tl", "f", "x=f32[5]", *given)
    assert plain == native and plain[0] == 0
    for options in ((), ("--proof",)):
        code, out, _ = tl("explain", folder / "ops.tl", "f", "x=f32[5]", *options, *given)
        assert code == 0 and "trusted: extern scale from `scale_{T}` of LLVM IR" in out.splitlines()[-1]


def test_show_prints_how_a_kernel_is_declared_in_c(tl: Any, folder: Path) -> None:
    code, out, _ = tl("show", folder / "ops.tl", "scale", "--stage", "extern")
    assert code == 0 and "int32_t scale_T(\n    void *y,\n    const void *x,\n    int64_t N,\n    double by);\n" in out
    code, _, err = tl("show", folder / "ops.tl", "f", "--stage", "extern")
    assert code == 1 and "error[C0113]" in err


def test_a_model_takes_operators_and_their_kernels(tl: Any, folder: Path) -> None:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="mine")], "net", ports[:1], ports[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)], ir_version=8)
    (folder / "net.onnx").write_bytes(made.SerializeToString())
    given = ("--operators", folder / "ops.tl", "--extern", f"scale={folder / 'lib.so'}:scale_{{T}}")
    plain = tl("run", folder / "net.onnx", "x=f32[4]", *given[:2])
    assert plain[0] == 0 and tl("run", folder / "net.onnx", "x=f32[4]", *given) == plain
    assert f"trusted: extern scale from `scale_{{T}}` of {folder / 'lib.so'}" in tl("explain", folder / "net.onnx", *given)[1]
    assert tl("run", folder / "net.onnx", "x=f32[4]", *given[2:])[0] == 1


@pytest.mark.parametrize(
    ("given", "code"),
    [("scale", "C0211"), ("scale=lib.so", "C0211"), ("=lib.so:f", "C0211"), ("scale=:f", "C0211"), ("scale=no.so:scale_{T}", "C0114"),
     ("scale=no.ll:scale_{T}", "P020"), ("g=ops.tl:g", "C0113"), ("scale=ops.tl:a b", "C0113"), ("scale=ops.tl:scale", "C0118")],
)  # fmt: skip
def test_what_names_no_kernel_is_refused(tl: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, given: str, code: str) -> None:
    monkeypatch.chdir(folder)
    found, _, err = tl("check", "ops.tl", "--extern", given)
    assert found == 1 and f"error[{code}]" in err


def test_one_operator_has_one_kernel_and_one_file_is_checked(tl: Any, folder: Path) -> None:
    given = ("--extern", f"scale={folder / 'scale.ll'}:scale_{{T}}")
    assert "error[C0211]" in tl("check", folder / "ops.tl", *given, *given)[2]
    assert "error[C0211]" in tl("check", folder / "ops.tl", folder / "ops.tl", *given)[2]
