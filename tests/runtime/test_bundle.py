"""Whole models kept on disk: found again by another process, a damaged one made anew, nothing half-written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from tensorlang import api
from tensorlang.memory_map import MappedFile


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 4]), ("y", [2, 3])))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def answer(path: Path) -> np.ndarray:
    return tl.compile(path, threads=1).run({"x": np.ones((2, 4), np.float32)})["y"]


EXPECTED = np.array([[18, 22, 26], [18, 22, 26]], np.float32)


def bundles(path: Path) -> list[Path]:
    return sorted((path.parent / "cache" / "models").iterdir())


def test_a_second_process_imports_neither_the_model_nor_the_compiler_again(model: Path) -> None:
    np.testing.assert_array_equal(answer(model), EXPECTED)
    code = (
        "import sys, numpy as np, tensorlang as tl\n"
        f"y = tl.compile({str(model)!r}, threads=1).run({{'x': np.ones((2, 4), np.float32)}})['y']\n"
        "assert y.tolist() == [[18, 22, 26], [18, 22, 26]], y\n"
        "found = {'onnx', 'lark', 'islpy', 'tensorlang.planning', 'tensorlang.backends.cpu.driver'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["parts", "constants"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "gone"])
def test_a_damaged_bundle_is_made_anew(model: Path, name: str, damage: str) -> None:
    answer(model)
    [bundle] = bundles(model)
    file = bundle / name
    data = file.read_bytes()
    match damage:
        case "truncated":
            file.write_bytes(data[: len(data) // 2])
        case "changed":
            file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        case _:
            file.unlink()
    np.testing.assert_array_equal(answer(model), EXPECTED)


def test_a_bundle_under_the_name_of_another_is_made_anew(model: Path) -> None:
    answer(model)
    [mine] = bundles(model)
    graph = onnx.load(model)
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 3), np.float32), "w"))
    onnx.save(graph, model)
    np.testing.assert_array_equal(answer(model), np.zeros((2, 3)))
    [other] = [b for b in bundles(model) if b != mine]
    shutil.rmtree(other)
    shutil.copytree(mine, other)
    np.testing.assert_array_equal(answer(model), np.zeros((2, 3)))


def test_nothing_temporary_is_left(model: Path) -> None:
    answer(model)
    assert [p.name for p in bundles(model) if p.name.startswith(".")] == []


def test_another_model_has_another_bundle(model: Path) -> None:
    answer(model)
    proto = onnx.load(model)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 3), np.float32), "w"))
    onnx.save(proto, model)
    np.testing.assert_array_equal(answer(model), np.zeros((2, 3), np.float32))
    assert len(bundles(model)) == 2


@given(data=st.binary(max_size=64), cut=st.integers(0, 80))
def test_a_file_and_its_bytes_have_one_fingerprint_and_a_model_in_files_that_cannot_be_told_has_none(data: bytes, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(data)
        assert api.fingerprint(path) == api.fingerprint(str(path)) == api.fingerprint(data)
        assert (api.fingerprint(data) is None) == (b"location" in data)
        assert api.fingerprint(bytes(api._PIECE - cut) + b"location" + data) is None
        path.write_bytes(bytes(api._PIECE - cut) + b"location" + data)
        assert api.fingerprint(path) is None


def test_a_word_that_only_ends_like_the_name_of_a_file_names_none(model: Path) -> None:
    assert api.fingerprint(model.read_bytes() + b"relocation") is not None


@pytest.mark.parametrize("location", ["weights.bin", "sub/weights.bin", "w" * 130])
def test_a_model_in_several_files_is_kept_until_one_of_them_changes(model: Path, location: str) -> None:
    proto = onnx.load(model)
    stored = model.parent / location
    stored.parent.mkdir(exist_ok=True)
    stored.write_bytes(proto.graph.initializer[0].raw_data)
    del proto.graph.initializer[0].external_data[:]
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    proto.graph.initializer[0].external_data.add(key="location", value=location)
    model.write_bytes(proto.SerializeToString())
    before = api.fingerprint(model)
    assert before is not None
    assert api.fingerprint(model) == before
    np.testing.assert_array_equal(answer(model), EXPECTED)
    assert len(bundles(model)) == 1
    times = stored.stat()
    stored.write_bytes(bytes(stored.stat().st_size))
    os.utime(stored, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert api.fingerprint(model) not in (None, before)
    np.testing.assert_array_equal(answer(model), np.zeros((2, 3), np.float32))
    stored.unlink()
    assert api.fingerprint(model) is None


def test_the_constants_of_a_model_that_is_kept_are_mapped_from_where_it_is_kept(model: Path) -> None:
    for _ in ("compiled now", "found"):
        made = tl.compile(model, threads=1)
        executable = made._known().executable
        assert executable.graph.constants == {}
        base: object = executable.constants
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base, memoryview) and isinstance(base.obj, MappedFile)
        [bundle] = bundles(model)
        assert executable.constants.tobytes() == (bundle / "constants").read_bytes()
        np.testing.assert_array_equal(made.run({"x": np.ones((2, 4), np.float32)})["y"], EXPECTED)


def test_a_bundle_may_vanish_while_its_model_runs(model: Path) -> None:
    made = tl.compile(model, threads=1)
    shutil.rmtree(model.parent / "cache")
    np.testing.assert_array_equal(made.run({"x": np.ones((2, 4), np.float32)})["y"], EXPECTED)


def test_where_nothing_can_be_kept_the_constants_are_in_memory(model: Path) -> None:
    (model.parent / "cache").mkdir()
    (model.parent / "cache" / "models").write_text("a file where the folder should be")
    np.testing.assert_array_equal(answer(model), EXPECTED)
