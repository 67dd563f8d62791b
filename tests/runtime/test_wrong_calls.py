"""What people who come from NumPy and PyTorch call wrongly from Python: each is told what, where and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tensorlang as tl

X = np.arange(4, dtype=np.float32)
OPS = tl.parse(
    "op same(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }\n"
    "op moved(x: f32[N], attr k: int in 0..4) -> (y: f32[N]) where k < N { y[i] = x[(i + k) % N] }\n"
    "op halved[T: float](x: T[N]) -> (y: T[N]) { y[i] = x[i] / 2 }\n"
    "op begun(x: f32[N], size n in 0..N) -> (y: f32[n]) { y[i] = x[i]   for i in 0..n }\n"
    "op counted(n: u8) -> (y: u8) { y = n }\n"
    "op mapped(x: f32[N], attr f: fn) -> (y: f32[N]) { y[i] = f(x[i]) }\n"
    "op softer(x: f32[M, N], attr axis: int = 1) -> (y: f32[M, N]) where axis < 2 { y[i, j] = x[i, j] }\n"
)


@pytest.mark.parametrize(
    ("call", "code", "title", "help", "placed"),
    [
        (lambda: OPS.same(), "R0313", "`same` is not given `x`", "it is called `same(x)`", True),
        (lambda: OPS.same(None), "R0313", "`same` is not given `x`", "it is called `same(x)`", True),
        (lambda: OPS.moved(), "R0313", "`moved` is not given `x`", "it is called `moved(x, k=…)`", True),
        (lambda: OPS.same(X, X), "R0311", "`same` takes 1 tensor and is given 2", "it is called `same(x)`", True),
        (lambda: OPS.moved(X, 3), "R0311", "`moved` takes 1 tensor and is given 2", "what is no tensor is named: `k=…`", True),
        (lambda: OPS.softer(X.reshape(2, 2), dim=0), "R0312", "`softer` has no `dim`", "did you mean `axis`?", True),
        (lambda: OPS.same(X.astype(complex)), "R0303", "element type complex128", "give its parts apart: `x.real` and `x.imag`", True),
        (lambda: OPS.same(np.array([None])), "R0303", "element type object", "convert it: `x.astype(np.float32)`", True),
        (lambda: OPS.same([1e300]), "R0303", "`x` is 1e+300, which no `f32` is", "declare `x` of another type", True),
        (lambda: OPS.counted(300), "R0303", "`n` is 300, which no `u8` is", "give what `u8` holds", True),
        (lambda: OPS.counted(n=2.5), "R0303", "`n` is 2.5, which no `u8` is", "give what `u8` holds", True),
        (lambda: OPS.same("x.npy"), "R0305", "`x` is no array of numbers", "in Python pass a NumPy array", False),
        (lambda: OPS.same(X, x=X), "R0312", "`same` is given `x` twice", "it is called `same(x)`", True),
        (lambda: OPS.same(X.astype(np.float64)), "R0204", "`x` is `f64`, but must be `f32`", "`x.astype('float32')`", True),
        (lambda: OPS.same(np.float32(1)), "R0201", "`x` has 0 dimensions", "give an array of 1 dimension", True),
        (lambda: tl.std.softmax(X, axis=3), "R0201", "`x` has 1 dimension", "another axis: they count from 0", True),
        (lambda: OPS.same(X, out=np.empty(4)), "R0303", "output `y` must be f32", "`np.empty([4], 'float32')`", False),
        (lambda: OPS.same(X, out=np.empty(8, np.float32)[::2]), "R0307", "not row-major", "`np.empty([4], 'float32')`", False),
        (lambda: OPS.same(X, out=[1, 2]), "R0309", "`out` has 2", "`out=y`, with `y = np.empty([4], 'float32')`", False),
        (lambda: tl.parse("ops.tl"), "P024", "not the path `ops.tl`", "a file is read by `tensorlang.load`", False),
        (lambda: tl.load("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }"), "P020", "cannot read", "is read by `tensorlang.parse`", False),
        (lambda: tl.compile(lambda x: x), "O0001", "no importer reads a `function`", "`torch.onnx.export(", False),
        (lambda: tl.compile(OPS.same), "O0001", "no importer reads an `Operator`", "it is called: `same(…)`", False),
        (lambda: tl.compile(X), "O0001", "no importer reads a `ndarray`", "give the path of an `.onnx` file", False),
        (lambda: tl.load("net.py"), "P021", "`net.py` holds no operators", "a file that ends in `.tl`", False),
        (lambda: tl.load("net.onnx"), "P021", "`net.onnx` holds no operators", "read by `tensorlang.compile`", False),
        (lambda: OPS.softer([[1.0, 2.0], [3.0]]), "R0305", "cannot be read as an array", "give rows of one length", False),
        (lambda: OPS.same(X, y=X), "R0312", "`same` has no `y`", "write them into is `out=`", True),
        (lambda: OPS.same(X, dtype="f4"), "R0312", "`same` has no `dtype`", "`x.astype(…)`", True),
        (lambda: tl.std.conv(X, X, padding=1), "R0312", "`conv` has no `padding`", "`lo` before and `hi` after", True),
        (lambda: tl.std.conv(X, X, strides=1), "R0312", "`conv` has no `strides`", "did you mean `stride`?", True),
        (lambda: OPS.same(X, width=3), "R0312", "`same` has no `width`", "it is called `same(x)`", True),
        (lambda: OPS.halved(np.arange(4)), "R0204", "`x` is `i64`, but `T` is float", "`x.astype('float32')`", True),
        (lambda: OPS.begun(X), "R0313", "`begun` is not given `n`", "a size is a whole number: `n=8`", True),
        (lambda: OPS.mapped(X, f=np.sqrt), "R0207", "attribute `f` is fn", 'is passed by its name: `f="sqrt"`', True),
        (lambda: OPS.moved(X, k=9), "R0208", "`k` is outside 0..4", "pass a value from 0 on and below 4", True),
        (lambda: tl.compile(b"", shapes={"B": 3}), "C0106", "the shape given for `B` is 3", "by the names of inputs", False),
        (lambda: tl.compile("ops.tl"), "O0001", "no importer reads `ops.tl`", "`tensorlang.load` reads them", False),
    ],
)
def test_a_wrong_call_is_told_what_to_do(call: Callable[[], Any], code: str, title: str, help: str, placed: bool) -> None:
    with pytest.raises(tl.CompileError) as refused:
        call()
    (found,) = refused.value.diagnostics
    assert found.code == code and title in found.title and help in (found.help or "")
    assert bool(found.labels) == placed


def test_a_file_of_nearly_that_name_is_proposed(tmp_path: Path) -> None:
    (tmp_path / "operators.tl").write_text("fn f(x) = x\n")
    with pytest.raises(tl.CompileError) as refused:
        tl.load(tmp_path / "operator.tl")
    assert refused.value.diagnostics[0].help == f"did you mean `{tmp_path / 'operators.tl'}`?"
    with pytest.raises(tl.CompileError) as refused:
        tl.load(tmp_path / "nowhere" / "f\0.tl")
    assert refused.value.diagnostics[0].help is None


@pytest.mark.parametrize("given", [[1, 2, 3], (1.0, 2.0), [True], range(3), np.float32(2).reshape(1)])
def test_numbers_in_a_list_are_arrays_every_time(given: Any) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(OPS.same(given) if isinstance(given, (list, tuple)) else OPS.same(list(given)), list(given))


def test_names_that_are_not_there_are_told_what_to_write() -> None:
    for asked, told in (
        (lambda: OPS(X), r"`ops\.begun\(…\)`; there are begun, counted, halved, mapped, moved, same, softer"),
        (lambda: OPS["smae"], "did you mean `same`"),
        (lambda: tl.jit, r"tl\.parse\(text\)"),
        (lambda: tl.lod, "did you mean `load`"),
        (lambda: tl.unheard_of, "no attribute 'unheard_of'$"),
    ):
        with pytest.raises((TypeError, KeyError, AttributeError), match=told):
            asked()


def test_methods_of_other_libraries_models_are_told_as_what_they_are_here() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    model = tl.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), sizes="symbolic")
    for name, told in (("predict", r"`model\(x\)`"), ("get_inputs", r"`model\.inputs`"), ("eval", "target="), ("colour", "'colour'$")):
        with pytest.raises(AttributeError, match=told):
            getattr(model, name)


@pytest.mark.parametrize(
    ("name", "said"), [("grad", "gradient('x')"), ("split", "schedule(text)"), ("run", "ops.f(x)"), ("compile", "first call")]
)
def test_what_other_libraries_call_methods_of_functions_is_told(name: str, said: str) -> None:
    operator = tl.parse("op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }").f
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as found:
        getattr(operator, name)
    assert said in str(found.value) and not hasattr(operator, "unheard_of")
