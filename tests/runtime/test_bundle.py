"""Whole models kept on disk: found again by another process, a damaged one made anew, nothing half-written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from stdlib.onnx.external import external_files
from tensorlang import api
from tensorlang.memory_map import MappedFile
from tensorlang.runtime.bundle import Draft
from tensorlang.runtime.specialization import Sizes


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return saved(tmp_path, monkeypatch, 2)


def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int | str) -> Path:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [rows, 4]), ("y", [rows, 3])))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def answer(path: Path) -> np.ndarray:
    return tl.compile(path, threads=1).run({"x": np.ones((2, 4), np.float32)})["y"]


EXPECTED = np.array([[18, 22, 26], [18, 22, 26]], np.float32)


def bundles(path: Path) -> list[Path]:
    return sorted((path.parent / "cache" / "models").iterdir())


@pytest.mark.parametrize(("rows", "sizes"), [(2, "auto"), ("rows", "symbolic")])
def test_a_second_process_imports_neither_the_model_nor_the_compiler_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int | str, sizes: Sizes
) -> None:
    model = saved(tmp_path, monkeypatch, rows)
    np.testing.assert_array_equal(tl.compile(model, threads=1, sizes=sizes).run({"x": np.ones((2, 4), np.float32)})["y"], EXPECTED)
    code = (
        "import sys, numpy as np, tensorlang as tl\n"
        f"y = tl.compile({str(model)!r}, threads=1, sizes={sizes!r}).run({{'x': np.ones((2, 4), np.float32)}})['y']\n"
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
def test_a_file_and_its_bytes_have_one_fingerprint_unless_the_files_that_it_names_cannot_be_told(data: bytes, cut: int) -> None:
    assume(b"location" not in data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(data)
        assert api.fingerprint(path) == api.fingerprint(str(path)) == api.fingerprint(data) is not None
        path.write_bytes(bytes(cut) + b"location" + data)
        assert api.fingerprint(path) is None, "bytes that are no message"


@pytest.mark.parametrize("text", ["location", "relocation", "geolocation of users", "\n\x08location\x12"])
def test_a_model_whose_text_speaks_of_locations_is_kept(model: Path, text: str) -> None:
    proto = onnx.load(model)
    proto.graph.node[0].name = proto.doc_string = proto.graph.name = text
    model.write_bytes(proto.SerializeToString())
    np.testing.assert_array_equal(answer(model), EXPECTED)
    assert len(bundles(model)) == 1


def test_models_of_one_pipe_are_told_apart(model: Path) -> None:
    first = model.read_bytes()
    proto = onnx.load_from_string(first)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 3), np.float32), "w"))
    pipe = model.parent / "pipe.onnx"
    os.mkfifo(pipe)
    for content, expected in ((first, EXPECTED), (proto.SerializeToString(), np.zeros((2, 3)))):
        writer = Thread(target=pipe.write_bytes, args=(content,))
        writer.start()
        np.testing.assert_array_equal(answer(pipe), expected)
        writer.join()


def outside(path: Path, location: str) -> Path:
    """Put the weights of a model into a file beside it. Return that."""
    proto = onnx.load(path)
    stored = path.parent / location
    stored.parent.mkdir(exist_ok=True)
    [tensor] = proto.graph.initializer
    stored.write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path.write_bytes(proto.SerializeToString())
    return stored


@pytest.mark.parametrize("location", ["weights.bin", "sub/weights.bin", "w" * 130, "location"])
def test_a_model_in_several_files_is_kept_until_what_is_in_one_of_them_changes(model: Path, location: str) -> None:
    stored = outside(model, location)
    before = api.fingerprint(model)
    assert before is not None
    np.testing.assert_array_equal(answer(model), EXPECTED)
    assert len(bundles(model)) == 1
    weights, times = stored.read_bytes(), stored.stat()
    stored.write_bytes(bytes(len(weights)))
    os.utime(stored, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert api.fingerprint(model) not in (None, before), "neither size nor time says what is in a file"
    np.testing.assert_array_equal(answer(model), np.zeros((2, 3), np.float32))
    stored.unlink()
    assert api.fingerprint(model) is None
    stored.write_bytes(weights)
    assert api.fingerprint(model) == before, "another file with the same bytes"


def test_a_model_that_is_moved_with_its_files_is_found_again(model: Path) -> None:
    stored = outside(model, "weights.bin")
    np.testing.assert_array_equal(answer(model), EXPECTED)
    elsewhere = model.parent / "elsewhere"
    elsewhere.mkdir()
    for path in (model, stored):
        path.rename(elsewhere / path.name)
    assert api.fingerprint(elsewhere / model.name) is not None
    moved = tl.compile(elsewhere / model.name, threads=1)
    np.testing.assert_array_equal(moved(np.ones((2, 4), np.float32)), EXPECTED)
    assert len(bundles(model)) == 1


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "link", "absent", "pipe", ""])
def test_nothing_but_files_of_the_folder_is_read_to_tell_a_model(model: Path, location: str) -> None:
    outside(model, "weights.bin")
    (model.parent / "link").symlink_to("/etc/passwd")
    os.mkfifo(model.parent / "pipe")
    proto = onnx.load(model, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    model.write_bytes(proto.SerializeToString())
    assert api.fingerprint(model) is None
    with pytest.raises(tl.CompileError, match="O004"):
        answer(model)


def changed_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].raw_data = bytes(48)


def moved_weight(proto: onnx.ModelProto) -> None:
    proto.graph.sparse_initializer.add().values.CopyFrom(proto.graph.initializer.pop())


def changed_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].attribute.add(name="axis", type=onnx.AttributeProto.INT, i=1)


def changed_version(proto: onnx.ModelProto) -> None:
    proto.ir_version += 1


def changed_note(proto: onnx.ModelProto) -> None:
    proto.metadata_props.add(key="author", value="nobody")


@pytest.mark.parametrize("change", [changed_weight, moved_weight, changed_attribute, changed_version, changed_note])
def test_the_fingerprint_of_an_object_tells_all_its_parts(model: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    proto = onnx.load(model)
    before = api.fingerprint(proto)
    assert before == api.fingerprint(onnx.load(model)) is not None
    change(proto)
    assert api.fingerprint(proto) not in (None, before)


def test_a_weight_that_changes_while_its_model_is_compiled_is_kept_under_no_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = outside(model, "weights.bin")
    place = Draft.place

    def meanwhile(self: Draft, *given: Any) -> Any:
        stored.write_bytes(bytes(48))
        return place(self, *given)

    with monkeypatch.context() as patched, pytest.raises(tl.CompileError, match="O015"):
        patched.setattr(Draft, "place", meanwhile)
        answer(model)
    assert bundles(model) == []
    np.testing.assert_array_equal(answer(model), np.zeros((2, 3)))


def test_the_files_of_a_model_are_those_that_onnx_finds(tmp_path: Path) -> None:
    def external(name: str, file: str) -> onnx.TensorProto:
        (tmp_path / file).write_bytes(bytes(16))
        tensor = onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, value in (("offset", "0"), ("location", file), ("length", "16")):
            tensor.external_data.add(key=key, value=value)
        return tensor

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])

    constant = helper.make_node("Constant", [], ["c"], value=external("c", "attribute.bin"))
    inner = helper.make_graph([constant], "inner", [], [info("c")], [external("i", "inner.bin")])
    branch = helper.make_node("If", ["p"], ["z"], then_branch=inner, else_branch=inner)
    several = helper.make_node("Odd", ["x"], ["v"], "odd", tensors=[external("t", "list.bin"), external("u", "list2.bin")])
    sparse = onnx.SparseTensorProto(values=external("s", "sparse.bin"), indices=external("k", "indices.bin"), dims=[4])
    graph = helper.make_graph([branch, several], "g", [info("x")], [info("z")], [external("w", "weight.bin")], sparse_initializer=[sparse])
    proto = helper.make_model(graph, functions=[helper.make_function("f", "f", ["x"], ["c"], [constant], [])])
    (proto.functions[0].node[0].attribute[0].t).CopyFrom(external("f", "function.bin"))
    proto.training_info.add().algorithm.CopyFrom(helper.make_graph([], "a", [], [], [external("a", "training.bin")]))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    found = external_files(tmp_path / "m.onnx")
    assert found is not None and sorted(f.name for f in found) == sorted(f.name for f in tmp_path.glob("*.bin")) != []


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
