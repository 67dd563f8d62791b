"""A model file that is wrong ends in one CompileError with an O code: never in another exception, a crash or a graph."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError

F = TensorProto.FLOAT


def sound() -> ModelProto:
    """A small model without a fault: y = reshape(relu(conv(x, w)), s)."""
    weights = np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[1, 1]),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node("Reshape", ["r", "s"], ["y"], name="reshape"),
        ],
        "sound",
        [helper.make_tensor_value_info("x", F, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", F, [2, 16])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([2, -1]), "s")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def refused(model: ModelProto | bytes | Path) -> set[str]:
    """Return the codes with which the importer refuses the model."""
    with pytest.raises(CompileError) as caught:
        Importer().load(model)
    codes = {d.code for d in caught.value.diagnostics}
    assert all(code.startswith("O") for code in codes)
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    return codes


def test_the_model_that_is_broken_below_is_sound() -> None:
    graph = Importer().load(sound())
    assert graph.values["y"].shape == (2, 16)


# ---- faults, each a change to the sound model


def duplicate_value(m: ModelProto) -> None:
    m.graph.node[1].output[0] = "c"


def output_defined_by_two_nodes(m: ModelProto) -> None:
    m.graph.node.append(helper.make_node("Relu", ["x"], ["y"]))


def node_redefines_an_input(m: ModelProto) -> None:
    m.graph.node.append(helper.make_node("Relu", ["r"], ["x"]))


def missing_value(m: ModelProto) -> None:
    m.graph.node[1].input[0] = "nobody"


def cycle(m: ModelProto) -> None:
    m.graph.node[0].input[0] = "r"


def node_reads_itself(m: ModelProto) -> None:
    m.graph.node[1].input[0] = "r"


def empty_required_input(m: ModelProto) -> None:
    m.graph.node[1].input[0] = ""


def empty_input_name(m: ModelProto) -> None:
    m.graph.input[0].name = ""


def duplicate_input(m: ModelProto) -> None:
    m.graph.input.append(m.graph.input[0])


def unnamed_initializer(m: ModelProto) -> None:
    m.graph.initializer[0].name = ""


def duplicate_initializer(m: ModelProto) -> None:
    m.graph.initializer.append(m.graph.initializer[0])


def no_outputs(m: ModelProto) -> None:
    del m.graph.output[:]


def output_that_nothing_computes(m: ModelProto) -> None:
    m.graph.output[0].name = "nobody"


def no_operator(m: ModelProto) -> None:
    m.graph.node[0].op_type = ""


def unknown_operator(m: ModelProto) -> None:
    m.graph.node[1].op_type = "Relu; DROP TABLE"


def too_many_inputs(m: ModelProto) -> None:
    m.graph.node[1].input.extend(["x"] * 5)


def too_few_inputs(m: ModelProto) -> None:
    del m.graph.node[0].input[1:]


def attribute_of_the_wrong_type(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("pads", "one"))


def attribute_marked_wrongly(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].floats.extend([1.0])


def attribute_that_does_not_exist(m: ModelProto) -> None:
    m.graph.node[0].attribute.append(helper.make_attribute("padz", 1))


def attribute_twice(m: ModelProto) -> None:
    m.graph.node[0].attribute.append(helper.make_attribute("pads", [0, 0, 0, 0]))


def attribute_reference_outside_a_function(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].ref_attr_name = "p"


def required_attribute_missing(m: ModelProto) -> None:
    m.graph.node[1].CopyFrom(helper.make_node("Concat", ["c"], ["r"]))


def not_a_number_attribute(m: ModelProto) -> None:
    m.graph.node[1].CopyFrom(helper.make_node("LeakyRelu", ["c"], ["r"], alpha=float("nan")))


def text_attribute_that_is_not_utf8(m: ModelProto) -> None:
    m.graph.node[0].attribute.append(helper.make_attribute("auto_pad", b"\xff\xfe"))


def unknown_choice(m: ModelProto) -> None:
    m.graph.node[0].attribute.append(helper.make_attribute("auto_pad", "SAME"))


def stride_of_zero(m: ModelProto) -> None:
    m.graph.node[0].attribute[1].CopyFrom(helper.make_attribute("strides", [0, 1]))


def negative_stride(m: ModelProto) -> None:
    m.graph.node[0].attribute[1].CopyFrom(helper.make_attribute("strides", [-1, 1]))


def group_of_zero(m: ModelProto) -> None:
    m.graph.node[0].attribute.append(helper.make_attribute("group", 0))


def too_few_pads(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("pads", [1]))


def huge_pads(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("pads", [2**62] * 4))


def window_larger_than_the_input(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("pads", [-3, 0, 0, 0]))


def axis_out_of_range(m: ModelProto) -> None:
    m.graph.node[1].CopyFrom(helper.make_node("Softmax", ["c"], ["r"], axis=4))


def blocks_of_astronomic_size(m: ModelProto) -> None:
    m.graph.node[1].CopyFrom(helper.make_node("DepthToSpace", ["c"], ["r"], blocksize=2**32))


def negative_dimension_of_an_input(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -2


def negative_dimension_of_an_initializer(m: ModelProto) -> None:
    m.graph.initializer[0].dims[0] = -2


def huge_input(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**62


def overflowing_dimensions_of_an_initializer(m: ModelProto) -> None:
    m.graph.initializer[0].dims[:] = [2**32, 2**32, 2**32, 2**32]


def huge_constant_declared_in_a_few_bytes(m: ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([2**40, 2**20]), "s"))
    m.graph.node[2].CopyFrom(helper.make_node("ConstantOfShape", ["s"], ["y"]))


def too_few_bytes(m: ModelProto) -> None:
    m.graph.initializer[0].raw_data = m.graph.initializer[0].raw_data[:-1]


def too_many_bytes(m: ModelProto) -> None:
    m.graph.initializer[0].raw_data += b"\0\0\0\0"


def quantised(m: ModelProto, kind: int, **data: bytes | list[int]) -> None:
    """Have the weights of the convolution quantised, with these data for 18 elements."""
    m.graph.initializer[0].CopyFrom(TensorProto(name="w quantised", data_type=kind, dims=[2, 1, 3, 3], **data))
    m.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "w scale"))
    m.graph.node.insert(0, helper.make_node("DequantizeLinear", ["w quantised", "w scale"], ["w"]))
    m.opset_import[0].version, m.ir_version = 21, 10


def too_few_bytes_of_a_quantised_initializer(m: ModelProto) -> None:
    quantised(m, TensorProto.INT8, raw_data=bytes(17))


def too_few_bytes_of_elements_that_share_bytes(m: ModelProto) -> None:
    quantised(m, TensorProto.UINT4, raw_data=bytes(8))


def too_few_elements_of_a_quantised_initializer(m: ModelProto) -> None:
    quantised(m, TensorProto.INT8, int32_data=[1] * 17)


def numbers_beyond_a_byte(m: ModelProto) -> None:
    quantised(m, TensorProto.INT8, int32_data=[1] * 17 + [300])


def numbers_beyond_an_unsigned_byte(m: ModelProto) -> None:
    quantised(m, TensorProto.UINT8, int32_data=[-1] * 18)


def numbers_beyond_the_bits_of_a_float(m: ModelProto) -> None:
    quantised(m, TensorProto.FLOAT16, int32_data=[1 << 16] * 18)


def numbers_beyond_a_byte_of_two(m: ModelProto) -> None:
    quantised(m, TensorProto.INT4, int32_data=[256] * 9)


def elements_twice(m: ModelProto) -> None:
    m.graph.initializer[0].float_data.extend([0.0] * 18)


def elements_in_the_wrong_field(m: ModelProto) -> None:
    m.graph.initializer[0].ClearField("raw_data")
    m.graph.initializer[0].int64_data.extend([0] * 18)


def too_few_elements(m: ModelProto) -> None:
    m.graph.initializer[0].ClearField("raw_data")
    m.graph.initializer[0].float_data.extend([0.0] * 17)


def unknown_element_type(m: ModelProto) -> None:
    m.graph.initializer[0].data_type = 99


def input_without_a_type(m: ModelProto) -> None:
    m.graph.input[0].ClearField("type")


def input_of_an_unknown_type(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = 77


def initializer_that_contradicts_its_input(m: ModelProto) -> None:
    m.graph.input.append(helper.make_tensor_value_info("w", F, [2, 1, 5, 5]))


def initializer_of_another_type_than_its_input(m: ModelProto) -> None:
    m.graph.input.append(helper.make_tensor_value_info("w", TensorProto.INT64, [2, 1, 3, 3]))


def output_of_another_type(m: ModelProto) -> None:
    m.graph.output[0].type.tensor_type.elem_type = TensorProto.INT8


def reshape_that_does_not_fill(m: ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([3, 5]), "s"))


def reshape_with_two_unknowns(m: ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([-1, -1]), "s"))


def reshape_to_a_negative_extent(m: ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([-2, -16]), "s"))


def reshape_by_data(m: ModelProto) -> None:
    m.graph.initializer.pop()
    m.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [2]))


def reshape_by_floats(m: ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([2.0, 16.0]), "s"))


def kernel_of_another_rank(m: ModelProto) -> None:
    m.graph.initializer[0].dims[:] = [2, 1, 9]


def channels_that_do_not_fit(m: ModelProto) -> None:
    m.graph.initializer[0].dims[:] = [1, 2, 3, 3]


def operands_of_two_types(m: ModelProto) -> None:
    m.graph.node[1].CopyFrom(helper.make_node("Add", ["c", "s"], ["r"]))


def operands_that_do_not_broadcast(m: ModelProto) -> None:
    m.graph.node[1].CopyFrom(helper.make_node("Add", ["c", "w"], ["r"]))


def dimension_without_a_size(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"


def input_without_a_shape(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.ClearField("shape")


def opset_from_the_future(m: ModelProto) -> None:
    m.opset_import[0].version = 999


def opset_of_zero(m: ModelProto) -> None:
    m.opset_import[0].version = 0


def two_opsets(m: ModelProto) -> None:
    m.opset_import.append(helper.make_opsetid("", 12))


def domain_of_the_far_future(m: ModelProto) -> None:
    m.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 2**31))
    m.graph.node[1].domain = "ai.onnx.preview.training"


def no_opset(m: ModelProto) -> None:
    del m.opset_import[:]


def domain_without_an_opset(m: ModelProto) -> None:
    m.graph.node[1].domain = "com.example"


def ir_from_the_future(m: ModelProto) -> None:
    m.ir_version = 10**6


def no_ir_version(m: ModelProto) -> None:
    m.ClearField("ir_version")


def no_graph(m: ModelProto) -> None:
    m.ClearField("graph")


def external_data_of_bytes(m: ModelProto) -> None:
    outside(m, "w.bin")


def index_out_of_range(m: ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([2, 99]), "s"))
    m.graph.node[2].CopyFrom(helper.make_node("Gather", ["r", "s"], ["y"]))


FAULTS: dict[Callable[[ModelProto], None], str] = {
    duplicate_value: "O002", output_defined_by_two_nodes: "O002", node_redefines_an_input: "O002", missing_value: "O002", cycle: "O002",
    node_reads_itself: "O002", empty_required_input: "O002", empty_input_name: "O002", duplicate_input: "O002",
    unnamed_initializer: "O002", duplicate_initializer: "O002", no_outputs: "O002", output_that_nothing_computes: "O002",
    no_operator: "O002", unknown_operator: "O007", too_many_inputs: "O007", too_few_inputs: "O007", attribute_of_the_wrong_type: "O005",
    attribute_marked_wrongly: "O005", attribute_that_does_not_exist: "O005", attribute_twice: "O005",
    attribute_reference_outside_a_function: "O005", required_attribute_missing: "O005", not_a_number_attribute: "O005",
    text_attribute_that_is_not_utf8: "O005", unknown_choice: "O005", stride_of_zero: "O005", negative_stride: "O005",
    group_of_zero: "O005", too_few_pads: "O005", huge_pads: "O012", window_larger_than_the_input: "O012", axis_out_of_range: "O005",
    blocks_of_astronomic_size: "O012", negative_dimension_of_an_input: "O003", negative_dimension_of_an_initializer: "O003",
    huge_input: "O014", overflowing_dimensions_of_an_initializer: "O014", huge_constant_declared_in_a_few_bytes: "O014",
    too_few_bytes_of_a_quantised_initializer: "O003", too_few_bytes_of_elements_that_share_bytes: "O003",
    too_few_elements_of_a_quantised_initializer: "O003", numbers_beyond_a_byte: "O003", numbers_beyond_an_unsigned_byte: "O003",
    numbers_beyond_the_bits_of_a_float: "O003", numbers_beyond_a_byte_of_two: "O003",
    too_few_bytes: "O003", too_many_bytes: "O003", elements_twice: "O003", elements_in_the_wrong_field: "O003", too_few_elements: "O003",
    unknown_element_type: "O003", input_without_a_type: "O003", input_of_an_unknown_type: "O003",
    initializer_that_contradicts_its_input: "O003", initializer_of_another_type_than_its_input: "O003",
    output_of_another_type: "O012", reshape_that_does_not_fill: "O012", reshape_with_two_unknowns: "O012",
    reshape_to_a_negative_extent: "O012", reshape_by_data: "O013", reshape_by_floats: "O012", kernel_of_another_rank: "O012",
    channels_that_do_not_fit: "O012", operands_of_two_types: "O012", operands_that_do_not_broadcast: "O012",
    dimension_without_a_size: "O011", input_without_a_shape: "O011", opset_from_the_future: "O006", opset_of_zero: "O006",
    two_opsets: "O006", no_opset: "O006", domain_without_an_opset: "O006",
    domain_of_the_far_future: "O006", ir_from_the_future: "O006", no_ir_version: "O001",
    no_graph: "O001", external_data_of_bytes: "O004", index_out_of_range: "O012",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_is_refused_with_its_code(fault: Callable[[ModelProto], None]) -> None:
    model = sound()
    fault(model)
    assert FAULTS[fault] in refused(model)


@pytest.mark.parametrize("shape", [[2, 15], [32], None])
def test_an_output_declared_of_another_shape_has_the_computed_one(shape: list[int] | None, caplog: pytest.LogCaptureFixture) -> None:
    model = sound()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, shape))
    graph = Importer().load(model)
    assert graph.values["y"].shape == (2, 16)
    told = [record.getMessage() for record in caplog.records]
    assert told == ([] if shape is None else [f"output `y` is declared f32{shape} and computed as [2, 16]"])


@pytest.mark.parametrize(("kind", "count"), [(TensorProto.INT8, 18), (TensorProto.UINT4, 9)])
def test_a_quantised_initializer_with_all_its_bytes_is_sound(kind: int, count: int) -> None:
    model = sound()
    quantised(model, kind, raw_data=bytes(count))
    assert Importer().load(model).values["y"].shape == (2, 16)


def test_bytes_that_are_no_model_are_refused() -> None:
    for data in (b"", b"\0", b"not a model", b"\x08\x03", bytes(range(256)) * 4):
        assert refused(data) == {"O001"}


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent.onnx") == {"O001"}
    assert refused(tmp_path) == {"O001"}


def test_a_truncated_file_is_refused_or_was_complete() -> None:
    data = sound().SerializeToString()
    for end in range(len(data)):
        with pytest.raises(CompileError):
            Importer().load(data[:end])


def test_names_that_are_not_utf8_are_refused() -> None:
    data = sound().SerializeToString()
    assert refused(data.replace(b"relu", b"\xff\xfe\xfd\xfc"))


# ---- external data


def outside(m: ModelProto, location: str, **entries: str) -> ModelProto:
    tensor = m.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return m


def on_disk(folder: Path, m: ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_external_data_in_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"\0" * 8 + struct.pack("<18f", *range(18)))
    (tmp_path / "w:0").write_bytes((tmp_path / "sub" / "w.bin").read_bytes())
    for location in ("sub/w.bin", ".\\sub\\w.bin", "w:0"):  # as systems write it
        graph = Importer().load(on_disk(tmp_path, outside(sound(), location, offset="8", length="72")))
        assert np.array_equal(graph.constants["w"].reshape(-1), np.arange(18, dtype=np.float32))


@pytest.mark.parametrize(
    ("location", "entries", "code"),
    [
        ("../secret.bin", {}, "O004"),
        ("sub/../../secret.bin", {}, "O004"),
        ("/etc/passwd", {}, "O004"),
        ("link.bin", {}, "O004"),
        ("absent.bin", {}, "O004"),
        (".", {}, "O004"),
        ("", {}, "O004"),
        ("w\0.bin", {}, "O004"),
        ("x" * 5000, {}, "O004"),
        ("sub/" * 5000, {}, "O004"),
        ("..\\secret.bin", {}, "O004"),
        ("sub\\..\\..\\secret.bin", {}, "O004"),
        ("C:\\w.bin", {}, "O004"),
        ("\\\\host\\w.bin", {}, "O004"),
        ("w.bin", {"offset": "4"}, "O004"),
        ("w.bin", {"offset": "-4"}, "O004"),
        ("w.bin", {"offset": "many"}, "O004"),
        ("w.bin", {"offset": "9" * 30}, "O004"),
        ("w.bin", {"length": "71"}, "O003"),
        ("w.bin", {"length": "0x48"}, "O004"),
    ],
)
def test_external_data_stays_in_its_folder_and_its_file(tmp_path: Path, location: str, entries: dict[str, str], code: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 72)
    (folder / "w.bin").write_bytes(b"\0" * 72)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    assert refused(on_disk(folder, outside(sound(), location, **entries))) == {code}


# ---- names, size, mutation


@pytest.mark.parametrize(
    "name",
    [
        '"',
        "a b",
        "%s%n",
        "../x",
        "line\nbreak",
        "main",
        "llvm.memcpy",
        "}; int x = 1; {",
        "@f = global i8 0",
        "`",
        "ü",
        "\\",
        "a" * 5000,
        "\x1b[31m",
    ],
)
def test_any_text_is_a_name(name: str) -> None:
    model = sound()
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = name
    model.graph.node[1].name = name
    assert name in Importer().load(model).values


def test_a_chain_of_many_nodes_is_imported_without_recursion() -> None:
    count = 20_000
    nodes = [helper.make_node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(count)]
    info = [helper.make_tensor_value_info(name, F, [1]) for name in ("v0", f"v{count}")]
    graph = helper.make_graph(list(reversed(nodes)), "chain", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert len(Importer().load(model).nodes) == count


def test_names_that_nothing_defines_are_reported_next_to_nodes_that_are_wrong() -> None:
    made = sound()
    made.graph.node[0].input[:] = ["x"]  # too few: what it would compute is not missed
    made.graph.node[2].input[1] = "shape"
    made.graph.output.add(name="z")
    with pytest.raises(CompileError) as caught:
        Importer().load(made)
    titles = [d.title for d in caught.value.diagnostics]
    assert titles == ["node `conv` has 1 inputs", "node `reshape` reads `shape`, which nothing defines", "output `z` is never computed"]


def test_everything_that_is_missing_is_reported_at_once() -> None:
    model = sound()
    model.opset_import[0].version = 20
    model.graph.node.append(helper.make_node("ImageDecoder", ["x"], ["a"], name="first"))
    model.graph.node.append(helper.make_node("ImageDecoder", ["x"], ["b"], name="second"))
    with pytest.raises(CompileError) as caught:
        Importer().load(model)
    text = str(caught.value)
    assert "`first`" in text and "`second`" in text and "ImageDecoder" in text
    assert [d.code for d in caught.value.diagnostics] == ["O010"]


def test_symbolic_dimensions_are_given_by_the_caller() -> None:
    model = sound()
    dimension_without_a_size(model)
    graph = Importer().load(model, {"x": (1, 1, 4, 4)})
    assert graph.values["c"].shape == (1, 2, 4, 4)
    for shapes in ({"x": (1, 1, 4, 5)}, {"x": (1, 1, 4)}, {"z": (1,)}, {"x": (-1, 1, 4, 4)}):
        with pytest.raises(CompileError) as caught:
            Importer().load(model, shapes)
        assert caught.value.diagnostics[0].code == "O011"


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_a_damaged_file_is_imported_or_refused(data: st.DataObject) -> None:
    content = bytearray(sound().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        Importer().load(bytes(content))
    except CompileError as refusal:
        assert all(d.code.startswith("O") for d in refusal.diagnostics)


def test_the_newest_version_of_the_operators_is_the_one_of_the_onnx_package() -> None:
    model = sound()
    model.opset_import[0].version = onnx.defs.onnx_opset_version()
    assert Importer().load(model).values["y"].shape == (2, 16)


def test_a_condition_that_is_no_truth_value_is_refused_by_name() -> None:
    model = sound()
    branch = helper.make_graph([], "branch", [], [helper.make_tensor_value_info("x", F, [1, 1, 4, 4])])
    model.graph.node.append(helper.make_node("If", ["x"], ["z"], name="choice", then_branch=branch, else_branch=branch))
    with pytest.raises(CompileError, match=r"`choice` \(If\): a condition is one truth value"):
        Importer().load(model)


def test_a_window_over_constants_that_is_larger_than_anything_waits_for_the_compiler() -> None:
    node = helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 1 << 40], auto_pad="SAME_UPPER")
    constant = numpy_helper.from_array(np.zeros((1, 1, 2, 2), np.float32), "c")
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "window", [], [result], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    assert len(Importer().load(model.SerializeToString()).nodes) == 1
