"""What is saved is what was compiled: the same results from Python without the compiler, and a sentence for whatever is wrong."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from saved_libraries import IMAGE, X, network

import tensorlang as tl
from codegen.elf.objects import parse
from codegen.llvm import feature_test
from codegen.llvm.target import levels
from tensorlang.saved.package import MANIFEST, _checksum, read_manifest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import runtime_package  # noqa: E402


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the library `net` that a test may spoil."""
    shutil.copytree(folder / "net", tmp_path / "net")
    return tmp_path / "net"


def refusal(code: str, function: Any, *args: Any, **named: Any) -> str:
    """Return what a call says that is refused with a code."""
    with pytest.raises(tl.SavedError) as refused:
        function(*args, **named)
    assert refused.value.code == code and str(refused.value).startswith(f"error[{code}]: ")
    return refused.value.title


# ---------------------------------------------------------------- results


def test_a_saved_model_computes_what_the_compiled_one_does(folder: Path) -> None:
    expected = tl.compile(network(2), "x86-64-v2", threads=2).run({"image": IMAGE})["label"]
    np.testing.assert_array_equal(tl.load_model(folder / "net").run({"image": IMAGE})["label"], expected)


def test_a_saved_model_of_open_sizes_serves_all_up_to_its_limits(folder: Path) -> None:
    model, expected = tl.load_model(folder / "open"), tl.load_model(folder / "net")(IMAGE)
    for batch in range(5):
        found = model(np.resize(IMAGE, (batch, 3, 8, 8)))
        np.testing.assert_allclose(found, np.resize(expected, (batch, 4)), rtol=1e-5, atol=1e-6)
    refusal("R0306", model, np.resize(IMAGE, (5, 3, 8, 8)))


@pytest.mark.parametrize("rows", ["rows", 3])
def test_a_saved_model_may_have_no_weights(rows: int | str, tmp_path: Path) -> None:
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 8]) for name in "xy")
    nodes = [helper.make_node("Softmax", ["x"], ["s"], axis=0), helper.make_node("CumSum", ["s", "axis"], ["y"])]
    axis = numpy_helper.from_array(np.asarray(0), "axis")
    made = helper.make_model(helper.make_graph(nodes, "g", [given], [result], [axis]), opset_imports=[helper.make_opsetid("", 18)])
    model, x = tl.compile(made.SerializeToString(), "x86-64-v2", threads=1), np.random.default_rng(0).random((3, 8), np.float32)
    model.save(tmp_path / "g", **({"max": {"rows": 5}} if rows == "rows" else {}))
    np.testing.assert_array_equal(tl.load_model(tmp_path / "g").run({"x": x})["y"], model.run({"x": x})["y"])


def _corners() -> onnx.ModelProto:
    """Return running sums along both axes of H x W pixels but for two rows and columns: (H - 2) * (W - 2) sums are in between."""
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["H", "W"]), ("y", None)))
    nodes = [
        helper.make_node("Slice", ["x", "starts", "ends"], ["part"]),
        helper.make_node("CumSum", ["part", "rows"], ["sums"]),
        helper.make_node("CumSum", ["sums", "columns"], ["y"]),
    ]
    numbers = {"starts": [2, 2], "ends": [2**31, 2**31], "rows": 0, "columns": 1}
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in numbers.items()]
    return helper.make_model(helper.make_graph(nodes, "corners", [given], [result], constants), opset_imports=[helper.make_opsetid("", 18)])


def _steps() -> onnx.ModelProto:
    """Return a loop over rows that adds each to what it carries, tanh of which is negated behind the loop."""
    info = helper.make_tensor_value_info
    row = [info(name, TensorProto.FLOAT, ["W"]) for name in ("s", "r", "s2", "t")]
    inside = [helper.make_node("Add", ["s", "r"], ["s2"]), helper.make_node("Tanh", ["s2"], ["t"])]
    body = helper.make_graph(inside, "body", row[:2], row[2:])
    nodes = [
        helper.make_node("Scan", ["first", "x"], ["last", "rows"], body=body, num_scan_inputs=1),
        helper.make_node("Neg", ["rows"], ["y"]),
    ]
    given = [info("first", TensorProto.FLOAT, ["W"]), info("x", TensorProto.FLOAT, ["H", "W"])]
    graph = helper.make_graph(nodes, "steps", given, [info("y", TensorProto.FLOAT, ["H", "W"]), info("last", TensorProto.FLOAT, ["W"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def _choice() -> onnx.ModelProto:
    """Return tanh of all pixels or their negation, as the sign of a number says that a run brings."""
    info, node = helper.make_tensor_value_info, helper.make_node
    pixels = [info(name, TensorProto.FLOAT, ["H", "W"]) for name in "xtny"]
    then, other = (helper.make_graph([node(op, ["x"], [out.name])], op, [], [out]) for op, out in (("Tanh", pixels[1]), ("Neg", pixels[2])))
    zero = numpy_helper.from_array(np.float32(0), "zero")
    nodes = [node("Greater", ["s", "zero"], ["positive"]), node("If", ["positive"], ["y"], then_branch=then, else_branch=other)]
    graph = helper.make_graph(nodes, "choice", [info("s", TensorProto.FLOAT, []), pixels[0]], pixels[3:], [zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("made", [_corners, _steps, _choice], ids=["a part", "a loop", "two branches"])
def test_memory_has_room_for_the_most_that_values_take_for_any_sizes(made: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    saved = tl.load_model(tl.build(made(), tmp_path / "saved", targets="x86-64-v2", max={"H": 40, "W": 30}, threads=1))
    meaning, rng = ReferenceEvaluator(made()), np.random.default_rng(0)
    for h, w in ((40, 30), (7, 30), (40, 5), (3, 4)):
        sizes = {"H": h, "W": w}
        feeds = {t.name: rng.standard_normal([sizes.get(str(n), n) for n in t.shape]).astype(np.float32) for t in saved.inputs}
        for found, expected in zip(saved.run(feeds).values(), meaning.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_saved_operator_of_open_sizes_takes_sizes_that_no_array_tells(folder: Path) -> None:
    first = tl.load_model(folder / "first")
    for count in range(5):
        np.testing.assert_array_equal(first(X, k=count), X[:count])
    np.testing.assert_array_equal(first(X[::2], k=2), X[:4:2])


def test_a_saved_operator_takes_axes_of_any_length_that_its_kernel_has_as_one(tmp_path: Path) -> None:
    text = """op centred(x: f32[A, B, C]) -> (y: f32[C, A, B]) {
        m[c] = sum(a, b) x[a, b, c]
        y[c, a, b] = x[a, b, c] - m[c]
    }"""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    saved = tl.load_model(tl.parse(text).centred.save(tmp_path / "c", {"x": x}, symbolic=True, targets="x86-64", max={"C": 50}))
    for found in (x, x[:0], np.ones((7, 1, 50), np.float32)):
        np.testing.assert_array_equal(saved(found), (found - found.sum((0, 1))).transpose(2, 0, 1))


def test_a_limit_is_asked_for_of_sizes_alone_that_memory_depends_on(tmp_path: Path) -> None:
    text = "s[j] = w[j] + (if j > 0 then s[j - 1] else 0)\n y[i, j] = x[i, j] * s[N - 1 - j]"
    scaled = tl.parse(f"op scaled(x: i32[M, N], w: i32[N]) -> (y: i32[M, N]) {{\n {text}\n}}").scaled
    given = {"x": np.ones((9, 3), np.int32), "w": np.array([1, 2, 3], np.int32)}
    with pytest.raises(tl.CompileError, match="depends on `N`, which nothing limits") as refused:
        scaled.save(tmp_path / "scaled", given, symbolic=True, targets="x86-64")
    assert "--max N=4096`" in str(refused.value)
    made = tl.load_model(scaled.save(tmp_path / "scaled", given, symbolic=True, targets="x86-64", max={"N": 3}))
    np.testing.assert_array_equal(made(**given), np.tile([6, 3, 1], (9, 1)))
    with pytest.raises(tl.SavedError, match="the size `N` is not between 0 and 3"):
        made(np.ones((1, 4), np.int32), np.ones(4, np.int32))


def test_a_library_has_the_bodies_of_operators_for_which_a_package_offers_kernels(tmp_path: Path) -> None:
    operators = tl.parse("use std.sort (sort)\nop least[T: num](x: T[N]) -> (y: T[2]) {\n s = sort(x)\n y[i] = s[i] for i in 0..2\n}")
    x = np.array([3, -1, 2, 0.5], np.float32)
    folder = operators.least.save(tmp_path / "least", {"x": x}, targets="x86-64")
    np.testing.assert_array_equal(tl.load_model(folder)(x), [-1, 0.5])


def test_an_array_may_be_called_as_a_size_is_and_packs_are_sizes(tmp_path: Path, operators: tl.Operators) -> None:
    given = {"N": np.ones((2, 1, 3), np.float32), "M": np.ones(2, np.int8)}
    operators.both.save(tmp_path / "both", given, symbolic=True, targets="x86-64")
    for n, m in ((np.zeros((3, 2, 4), np.float32), np.arange(5, dtype=np.int8)), (np.zeros((0, 1, 1), np.float32), np.empty(0, np.int8))):
        found = tl.load_model(tmp_path / "both").run({"N": n, "M": m})
        assert found["y"].shape == n.shape and np.array_equal(found["z"], m)


def test_the_best_level_that_the_processor_has_is_taken(folder: Path) -> None:
    model = tl.load_model(folder / "first")
    assert model.level == [level for level in levels() if level in ("x86-64", "x86-64-v2", "x86-64-v3")][-1]
    assert [level.target for level in model.manifest.levels] == ["x86-64-v3", "x86-64-v2", "x86-64"]


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_elements_may_be_of_any_type_of_the_language(tmp_path: Path, operators: tl.Operators, dtype: str) -> None:
    import ml_dtypes  # noqa: F401  gives NumPy the type

    x = X.astype(dtype)
    operators.scaled.save(tmp_path / "scaled", {"x": x, "by": 0.5})
    for given in (x, tl.dlpack(x)):
        np.testing.assert_array_equal(tl.load_model(tmp_path / "scaled")(given), operators.scaled(x, by=0.5))


def test_threads_of_a_context_share_the_work(folder: Path) -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    one, two = (tl.load_model(folder / "product", threads=n, pinned=n == 2) for n in (1, 2))
    np.testing.assert_array_equal(one(a, b), two(a, b))
    np.testing.assert_allclose(two(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_as_many_threads_are_accepted_as_a_library_was_built_for_where_no_loop_shares_any(tmp_path: Path) -> None:
    summed = tl.parse("op summed(x: i64[N]) -> (y: i64[N]) { y[i] = (if i > 0 then y[i - 1] else 0) + x[i] }").summed
    folder = summed.save(tmp_path / "summed", {"x": np.arange(5)}, targets="x86-64", threads=2)
    for threads in (None, 1, 2):
        np.testing.assert_array_equal(tl.load_model(folder, threads=threads)(np.arange(5)), [0, 1, 3, 6, 10])
    assert "find_dependency(Threads)" not in (folder / "summed-config.cmake").read_text()
    with pytest.raises(tl.SavedError, match="was built for 1 to 2"):
        tl.load_model(folder, threads=3)


def test_a_model_runs_in_several_threads_at_once(folder: Path) -> None:
    model, wrong = tl.load_model(folder / "net"), list[int]()
    expected = model(IMAGE)

    def work() -> None:
        for _ in range(50):
            if not np.array_equal(model(IMAGE), expected):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_a_pickle_of_a_saved_model_tells_where_it_lies(folder: Path) -> None:
    model = tl.load_model(folder / "net", threads=1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(IMAGE), model(IMAGE))


def test_a_fork_runs_on_contexts_of_its_own(folder: Path) -> None:
    code = f"""
import os, numpy as np
from tensorlang.saved import load_model
m = load_model({str(folder / "product")!r}, threads=2)
a = np.eye(64, dtype=np.float32)
m(a, a)
child = os.fork()
if not child:
    os._exit(0 if np.array_equal(m(a, a), a) else 1)
print(os.waitpid(child, 0)[1])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    assert found.stdout.strip() == "0"


def test_the_runtime_package_needs_numpy_alone_and_is_small(folder: Path, tmp_path: Path) -> None:
    wheel = runtime_package.write(tmp_path)
    assert wheel.stat().st_size < 50_000
    code = f"""
import sys
sys.path.insert(0, {str(wheel)!r})
import numpy as np
from tensorlang_runtime import load_model
print(load_model({str(folder / "first")!r})(np.ones(3, np.float32), k=2).tolist())
print(sorted({{"tensorlang", "codegen", "islpy", "llvmlite", "onnx", "ml_dtypes", "lark", "numpy.ma"}} & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    assert found.stdout == "[1.0, 1.0]\n[]\n"


# ---------------------------------------------------------------- bad input


def test_a_file_that_was_changed_is_refused(copied: Path) -> None:
    for name in ("libnet.so", "net.weights", MANIFEST):
        data = (copied / name).read_bytes()
        spoilt = bytearray(data)
        spoilt[len(data) // 2] ^= 1
        (copied / name).write_bytes(spoilt)
        refusal("R0402", tl.load_model, copied)
        (copied / name).write_bytes(data[: len(data) // 2])
        refusal("R0402", tl.load_model, copied)
        (copied / name).unlink()
        refusal("R0401" if name == MANIFEST else "R0402", tl.load_model, copied)
        (copied / name).write_bytes(data)
    assert tl.load_model(copied)(IMAGE).shape == (2, 4)


def test_weights_of_another_library_are_refused_without_reading_all_of_them(copied: Path) -> None:
    path = copied / "net.weights"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert "the weights are not those of this library" in refusal("R0404", tl.load_model, copied, verify=False)


def test_a_manifest_of_something_else_or_of_another_version_is_refused(copied: Path) -> None:
    path = copied / MANIFEST
    known = json.loads(path.read_text())
    for text, code in (("{}", "R0401"), ("[1]", "R0401"), ("null", "R0401"), ('{"format": 2}', "R0403"), ("{", "R0402"), ("\0", "R0402")):
        path.write_text(text)
        refusal(code, tl.load_model, copied)
    path.write_text(json.dumps(known | {"threads": 100}))
    assert "was changed since it was made" in refusal("R0402", tl.load_model, copied)
    for change in (
        {"files": {}},
        {"levels": 3},
        {"name": "other"},
        {"files": known["files"] | {"../x": known["files"]["net.h"]}},
        {"sizes": [{}]},
    ):
        whole = known | change
        path.write_text(json.dumps(whole | {"checksum": _checksum(whole)}))
        refusal("R0402", tl.load_model, copied)


def test_a_manifest_that_describes_other_arrays_than_its_code_takes_is_refused(copied: Path) -> None:
    path = copied / MANIFEST
    known = json.loads(path.read_text())
    image, label = known["inputs"][0], known["outputs"][0]
    for change in (
        {"outputs": [label | {"shape": [2]}]},
        {"outputs": [label | {"dtype": "i8"}]},
        {"outputs": []},
        {"inputs": [image | {"shape": [2, 3, 8, -8]}]},
        {"inputs": [image | {"dtype": "f33"}]},
        {"inputs": [image, image]},
        {"sizes": [{"name": "n", "most": True}]},
        {"threads": "2"},
        {"library": "."},
    ):
        whole = known | change
        path.write_text(json.dumps(whole | {"checksum": _checksum(whole)}))
        refusal("R0402", tl.load_model, copied)


def test_what_is_no_file_of_a_folder_is_refused_and_not_read(copied: Path) -> None:
    for name in ("libnet.so", "net.weights", MANIFEST):
        (copied / name).rename(copied / "aside")
        (copied / name).symlink_to("/dev/zero")
        refusal("R0401" if name == MANIFEST else "R0402", tl.load_model, copied)
        (copied / name).unlink()
        (copied / "aside").rename(copied / name)
    for path in (None, 3, "", copied / MANIFEST):
        refusal("R0401", tl.load_model, path)


def test_a_processor_without_the_instructions_is_refused_before_any_runs(tmp_path: Path, operators: tl.Operators) -> None:
    with patch.dict(feature_test._BITS, {"popcnt": (0, 10)}):  # a bit that is reserved, and 0 in every processor
        operators.scaled.save(tmp_path / "scaled", {"x": X}, targets="x86-64-v2")
    assert "this processor cannot run the code, which is for x86-64-v2" in refusal("R0404", tl.load_model, tmp_path / "scaled")


@pytest.mark.parametrize(("target", "machine"), [("aarch64-v8.6", 183), ("riscv64gcv", 243)])
def test_a_library_for_another_machine_is_an_archive_and_is_not_loaded(
    tmp_path: Path, operators: tl.Operators, target: str, machine: int
) -> None:
    square = np.eye(64, dtype=np.float32)
    operators.product.save(tmp_path / "product", {"a": square, "b": square}, targets=target, threads=2)
    members = (tmp_path / "product" / "libproduct.a").read_bytes()
    made = parse(members[members.index(b"\x7fELF") :])
    assert made.machine == machine and {"malloc", "pthread_create", "getauxval"} <= set(made.undefined)
    assert all(name.replace("_", "").isalnum() for name in made.undefined)
    assert "and this machine is" in refusal("R0404", tl.load_model, tmp_path / "product")


def test_of_two_levels_of_as_many_instructions_the_one_of_longer_vectors_is_tried_first(tmp_path: Path, operators: tl.Operators) -> None:
    operators.scaled.save(tmp_path / "scaled", {"x": X}, targets=["riscv64gcv", "riscv64gcv-256"])
    assert [level.target for level in read_manifest(str(tmp_path / "scaled")).levels] == ["riscv64gcv-256", "riscv64gcv"]


@pytest.mark.parametrize(
    ("code", "args", "named"),
    [
        ("R0301", (), {}),
        ("R0302", (X,), {"k": 1, "z": 1}),
        ("R0303", (X.astype(np.float64),), {"k": 1}),
        ("R0303", (X.astype(">f4"),), {"k": 1}),
        ("R0303", ([1e300],), {"k": 1}),
        ("R0304", (X.reshape(5, 1),), {"k": 1}),
        ("R0305", ("x",), {"k": 1}),
        ("R0305", (["1.5"],), {"k": 1}),
        ("R0305", (None,), {"k": 1}),
        ("R0305", (np.ma.masked_array(X),), {"k": 1}),
        ("R0306", (X,), {"k": 5}),
        ("R0306", (X,), {"k": 2**61}),
        ("R0306", (X[:0],), {"k": 0}),
        ("R0311", (X, X), {"k": 1}),
        ("R0312", (X,), {"x": X, "k": 1}),
        ("R0313", (X,), {}),
        ("R0314", (X,), {"k": -1}),
        ("R0314", (X,), {"k": 1.0}),
        ("R0314", (X,), {"k": True}),
        ("R0314", (X,), {"k": 2**64}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(folder: Path, code: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    refusal(code, tl.load_model(folder / "first"), *args, **named)


class Negated:
    """A view of a tensor with the other sign, as PyTorch hands it over: neither says so but `is_neg`."""

    def is_neg(self) -> bool:
        return True

    def __dlpack__(self, **options: Any) -> object:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return X.__dlpack_device__()


def test_arrays_of_other_libraries_are_read_by_what_they_offer(folder: Path) -> None:
    first = tl.load_model(folder / "first")
    np.testing.assert_array_equal(first(memoryview(X), k=2), first(X, k=2))
    assert "with the other sign" in refusal("R0305", first, Negated(), k=1)


def test_an_index_in_the_data_that_is_out_of_range_is_refused(folder: Path) -> None:
    pick = tl.load_model(folder / "pick")
    np.testing.assert_array_equal(pick(X, np.array([4, 0])), [4, 0])
    for index in (5, -1, 2**62, -(2**63)):
        assert "lies outside" in refusal("R0306", pick, X, np.array([0, index]))
    assert pick(X, np.empty(0, np.int64)).shape == (0,)


def test_numbers_in_lists_are_taken_where_the_type_holds_them(folder: Path) -> None:
    pick = tl.load_model(folder / "pick")
    np.testing.assert_array_equal(pick([0.1, 2, True], [2, 0.0]), np.array([1, 0.1], np.float32))
    for lost in (0.5, float("nan"), 2**63):
        refusal("R0303", pick, X, [0, lost])


@pytest.mark.parametrize("name", ["letter.txt", MANIFEST, "beside a library"])
def test_what_holds_something_else_is_not_replaced(tmp_path: Path, operators: tl.Operators, name: str) -> None:
    """A manifest of something else, as web applications have one of the same name, makes no library of a folder."""
    folder = tmp_path / "mine"
    if name.startswith("beside"):
        operators.scaled.save(folder, {"x": X}, targets="x86-64")
    else:
        folder.mkdir()
    (folder / name).write_text('{"name": "dear"}')
    with pytest.raises(tl.CompileError, match=re.escape(f"`{name}`")) as refused:
        operators.scaled.save(folder, {"x": X}, targets="x86-64")
    assert "C0133" in str(refused.value) and "-o DIR" not in str(refused.value)
    assert (folder / name).read_text() == '{"name": "dear"}'


def test_what_is_saved_again_takes_the_place_of_what_was_there(tmp_path: Path, operators: tl.Operators) -> None:
    for by in (2.0, 3.0):
        operators.scaled.save(tmp_path / "scaled", {"x": X, "by": by}, targets="x86-64")
        np.testing.assert_array_equal(tl.load_model(tmp_path / "scaled")(X), X * np.float32(by))
    assert os.listdir(tmp_path) == ["scaled"]
