"""Models that take or return strings, sequences and values that may be absent, through `tensorlang.compile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

import tensorlang as tl
from tensorlang.diagnostics import CompileError, RunError
from tensorlang.graph import texts

FLOAT, STRING, INT64 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64


def value(name: str, dtype: int, shape: Sequence[int | str] | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def sequence(name: str, dtype: int) -> ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, dtype, None)


def optional(name: str, inner: ValueInfoProto) -> ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(inner.type))


def compiled(nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> tl.CompiledModel:
    return tl.compile(model(nodes, inputs, outputs), threads=1)


def model(nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> ModelProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=10)


def words(*items: str) -> np.ndarray[Any, Any]:
    return np.array(items, object)


def test_strings_go_in_as_arrays_of_text_and_come_out_as_objects() -> None:
    found = compiled(
        [helper.make_node("StringConcat", ["a", "b"], ["y"])],
        [value("a", STRING, ["n"]), value("b", STRING, [])],
        [value("y", STRING, None)],
    )
    for given in (words("cat", "dog"), np.array(["cat", "dog"]), ["cat", "dog"], np.array([b"cat", b"dog"])):
        y = found.run({"a": given, "b": np.array("s", object)})["y"]
        assert y.dtype == object and y.tolist() == ["cats", "dogs"]


def test_what_compares_strings_is_compiled_once_for_all_of_them() -> None:
    found = compiled(
        [helper.make_node("Equal", ["a", "b"], ["y"])],
        [value("a", STRING, [2]), value("b", STRING, [2])],
        [value("y", TensorProto.BOOL, [2])],
    )
    assert found(words("x", ""), words("x", "y")).tolist() == [True, False]
    assert found(words("ä", "日本"), words("a", "日本")).tolist() == [False, True]
    assert "1 combination" in repr(found)


def test_lengths_of_results_of_strings_may_change_from_run_to_run() -> None:
    nodes = [helper.make_node("StringSplit", ["a"], ["y", "n"], delimiter="-"), helper.make_node("ReduceSum", ["n"], ["s"], keepdims=0)]
    found = compiled(nodes, [value("a", STRING, [2])], [value("y", STRING, None), value("s", INT64, [])])
    for given, expected, count in ((["a-b", "c"], [["a", "b"], ["c", ""]], 3), (["a", "b-c-d"], [["a", "", ""], ["b", "c", "d"]], 4)):
        results = found.run({"a": words(*given)})
        assert results["y"].tolist() == expected and results["s"] == count


def test_what_numbers_of_the_host_decide_is_read_from_them() -> None:
    nodes = [
        helper.make_node("Cast", ["a"], ["wide"], to=TensorProto.INT32),
        helper.make_node("Cast", ["wide"], ["shape"], to=INT64),
        helper.make_node("Expand", ["x", "shape"], ["y"]),
    ]
    outputs = [value("y", FLOAT, None), value("wide", TensorProto.INT32, None)]
    found = compiled(nodes, [value("a", STRING, [2]), value("x", FLOAT, [1])], outputs)
    for sizes in ([2, 3], [4, 1], [5, 2]):
        y, wide = found(words(*map(str, sizes)), np.ones(1, np.float32))
        assert y.shape == tuple(sizes) and wide.dtype == np.int32 and wide.tolist() == sizes


def test_strings_that_differ_are_found_in_the_order_of_their_characters() -> None:
    nodes = [helper.make_node("Unique", ["a"], ["y", "at", "back", "counts"])]
    data = model(
        nodes, [value("a", STRING, ["n"])], [value("y", STRING, None), *(value(name, INT64, None) for name in ("at", "back", "counts"))]
    )
    found, session = tl.compile(data, threads=1), onnxruntime.InferenceSession(data.SerializeToString())
    for given in (words("b", "é", "", "Z", "b"), words("q")):
        for mine, theirs in zip(found(given), session.run(None, {"a": given}), strict=True):
            assert mine.tolist() == theirs.tolist()
    one_hot = [helper.make_node("OneHot", ["at", "depth", "a"], ["y"])]
    named = compiled(one_hot, [value("at", INT64, [2]), value("depth", INT64, []), value("a", STRING, [2])], [value("y", STRING, None)])
    assert named(np.array([1, -2]), np.array(2), words("no", "yes")).tolist() == [["no", "yes"], ["yes", "no"]]


def test_strings_that_compiled_code_computes_are_strings_to_the_host() -> None:
    nodes = [
        helper.make_node("LabelEncoder", ["i"], ["words"], domain="ai.onnx.ml", keys_int64s=[0, 1], values_strings=["10", "20"]),
        helper.make_node("Cast", ["words"], ["y"], to=INT64),
    ]
    found = compiled(nodes, [value("i", INT64, [3])], [value("words", STRING, None), value("y", INT64, None)])
    assert [array.tolist() for array in found(np.array([1, 0, 1]))] == [["20", "10", "20"], [20, 10, 20]]


def test_strings_of_a_run_are_forgotten_after_it() -> None:
    found = compiled([helper.make_node("Identity", ["a"], ["y"])], [value("a", STRING, ["n"])], [value("y", STRING, ["n"])])
    before = len(texts._constants)
    assert found(words("quite", "new")).tolist() == ["quite", "new"]
    assert len(texts._constants) == before


def test_two_strings_that_have_one_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "digest_of", lambda text: 1)
    with texts.texts_of_a_run(), pytest.raises(RunError, match="cannot be told apart"):
        texts.numbers(words("a", "b"), "x")


def test_strings_are_no_numbers() -> None:
    with pytest.raises(CompileError, match="Add of strings"):
        compiled([helper.make_node("Add", ["a", "a"], ["y"])], [value("a", STRING, [2])], [value("y", STRING, [2])])(words("a", "b"))
    found = compiled([helper.make_node("Identity", ["a"], ["y"])], [value("a", STRING, [2])], [value("y", STRING, [2])])
    with pytest.raises(RunError, match="R0305"):
        found(np.zeros(2, np.int64))
    with pytest.raises(RunError, match="R0305"):
        found(np.array(["a", 1], object))


def test_a_pattern_that_looks_back_is_refused() -> None:
    nodes = [helper.make_node("RegexFullMatch", ["a"], ["y"], pattern=r"(a)\1")]
    with pytest.raises(CompileError, match="RE2"):
        compiled(nodes, [value("a", STRING, [1])], [value("y", TensorProto.BOOL, [1])])(words("aa"))


def test_classes_of_characters_are_those_of_ascii() -> None:
    nodes = [helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="[[:alpha:]_]+|\\d+")]
    found = compiled(nodes, [value("x", STRING, ["n"])], [value("y", TensorProto.BOOL, ["n"])])
    assert found.run({"x": words("ab_c", "12", "\u0664", "\u00e9", "")})["y"].tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    "attributes",
    [
        {"separators": [" "], "mincharnum": 1},
        {"separators": [" ", ",+", "[0-9]"], "mincharnum": 2},
        {"separators": ["a|ab"], "mincharnum": 1},
        {"separators": [""], "mincharnum": 1},
        {"tokenexp": "[a-zA-Z0-9_]+", "mincharnum": 2},
        {"tokenexp": "a|ab|abc", "mincharnum": 1},
        {"tokenexp": "a*(ab)*", "mincharnum": 1},
        {"tokenexp": ".", "mincharnum": 1},
        {"tokenexp": "\\w", "mincharnum": 1},
    ],
)
@pytest.mark.parametrize("mark", [0, 1])
def test_strings_are_split_into_words(attributes: dict[str, Any], mark: int) -> None:
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", pad_value="#", mark=mark, **attributes)
    graph = helper.make_graph([node], "g", [value("x", STRING, [None, None])], [value("y", STRING, None)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    given = np.array([["one two,, three4five", " a  ab abc aabab"], ["", "\u00e9t\u00e9 !"]], object)
    (expected,) = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": given})
    assert tl.compile(made, threads=1).run({"x": given})["y"].tolist() == expected.tolist()


def test_sequences_go_in_and_come_out_as_lists_of_any_length() -> None:
    nodes = [helper.make_node("SequenceInsert", ["s", "x"], ["t"]), helper.make_node("SequenceLength", ["t"], ["n"])]
    found = compiled(nodes, [sequence("s", FLOAT), value("x", FLOAT, ["k"])], [sequence("t", FLOAT), value("n", INT64, [])])
    x = np.arange(3, dtype=np.float32)
    for given in ([], [x + 1], [x + 1, x[:0], x[:1]]):
        results = found.run({"s": given, "x": x})
        assert [a.tolist() for a in results["t"]] == [a.tolist() for a in (*given, x)] and results["n"] == len(given) + 1


def test_the_signature_of_a_sequence_is_told() -> None:
    found = compiled([helper.make_node("Identity", ["s"], ["t"])], [sequence("s", FLOAT)], [sequence("t", FLOAT)])
    assert str(found.inputs[0]) == "s: sequence of f32[…]"
    with pytest.raises(RunError, match="pass a list of arrays"):
        found.run({"s": np.zeros(3, np.float32)})
    with pytest.raises(RunError, match="R0303"):
        found.run({"s": [np.zeros(3)]})
    with pytest.raises(RunError, match="R0302"):
        found.run({"s": [], "more": np.zeros(3)})
    with pytest.raises(RunError, match="R0307"):
        found.prepared({"s": []}, {"t": np.zeros(3, np.float32)})


def test_a_value_may_be_absent() -> None:
    nodes = [helper.make_node("OptionalHasElement", ["o"], ["there"]), helper.make_node("Identity", ["o"], ["p"])]
    inner = value("inner", FLOAT, [2])
    found = compiled(nodes, [optional("o", inner)], [value("there", TensorProto.BOOL, []), optional("p", inner)])
    x = np.ones(2, np.float32)
    given, absent, left_out = found.run({"o": x}), found.run({"o": None}), found.run({})
    assert given["there"] and given["p"].tolist() == [1, 1]
    assert not absent["there"] and absent["p"] is None and left_out["p"] is None


def test_a_sequence_may_be_absent() -> None:
    inner = sequence("inner", FLOAT)
    found = compiled([helper.make_node("Identity", ["o"], ["p"])], [optional("o", inner)], [optional("p", inner)])
    for given in (None, [], [np.ones(2, np.float32), np.zeros(1, np.float32)]):
        p = found.run({"o": given})["p"]
        assert (p is None) == (given is None)
        assert [item.tolist() for item in p or ()] == [item.tolist() for item in given or ()]


@pytest.mark.parametrize("there", [True, False])
def test_a_branch_may_return_a_sequence_and_the_other_none(there: bool) -> None:
    p = optional("p", sequence("inner", FLOAT))
    items = [helper.make_node("Unsqueeze", ["x", "zero"], ["u"]), helper.make_node("SequenceConstruct", ["x", "u"], ["s"])]
    some = helper.make_graph([*items, helper.make_node("Optional", ["s"], ["p"])], "some", [], [p])
    none = helper.make_graph([helper.make_node("Optional", [], ["p"], type=p.type.optional_type.elem_type)], "none", [], [p])
    made = model(
        [helper.make_node("If", ["c"], ["p"], then_branch=some, else_branch=none)],
        [value("c", TensorProto.BOOL, []), value("x", FLOAT, [2])],
        [p],
    )
    made.graph.initializer.append(helper.make_tensor("zero", INT64, [1], [0]))
    feeds = {"c": np.array(there), "x": np.ones(2, np.float32)}
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    found = tl.compile(made, threads=1).run(feeds)["p"]
    assert (found is None) == (wanted is None) == (not there)
    assert [item.tolist() for item in found or ()] == [item.tolist() for item in wanted or ()]


def test_a_model_with_sequences_takes_no_shapes_beforehand() -> None:
    made = model([helper.make_node("Identity", ["s"], ["t"])], [sequence("s", FLOAT)], [sequence("t", FLOAT)])
    with pytest.raises(CompileError, match="O011"):
        tl.compile(made, shapes={"s": (2,)})
