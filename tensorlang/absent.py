"""What is said of names that there are not: other libraries have them, or they are misspelled."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from tensorlang.diagnostics import CompileError, error

_OPERATORS = "operators are written in the language: `tl.parse(text)`, `tl.load('file.tl')`"
_ARRAYS = "arrays are NumPy's, or of any library that speaks DLPack"
_MODELS = "models are read from ONNX: `tl.compile('net.onnx')`"
_SAID = {
    **dict.fromkeys(("jit", "op", "operator", "function", "kernel", "njit", "vectorize", "program_id", "constexpr"), _OPERATORS),
    **dict.fromkeys(("array", "tensor", "Tensor", "zeros", "ones", "arange", "asarray", "randn"), _ARRAYS),
    **dict.fromkeys(("nn", "Model", "Module", "load_model", "onnx", "import_onnx", "from_onnx"), _MODELS),
    **dict.fromkeys(("grad", "autograd", "backward", "value_and_grad"), "operators have derivatives: `ops.f.gradient('x')`"),
}


_OF_MODELS = {
    **dict.fromkeys(("predict", "forward", "infer"), "a model is a function: `model(x)`, or `model.run({'x': x})`"),
    **dict.fromkeys(
        ("eval", "train", "to", "cuda", "cpu", "half"), "what it runs on is said when it is compiled: `tl.compile(…, target=…)`"
    ),
    **dict.fromkeys(("get_inputs", "input_names"), "they are `model.inputs`"),
    **dict.fromkeys(("get_outputs", "output_names"), "they are `model.outputs`"),
}


_OF_OPERATORS = {
    **dict.fromkeys(("grad", "backward", "vjp", "derivative"), "an operator has derivatives: `ops.f.gradient('x')`"),
    **dict.fromkeys(("run", "forward", "apply", "launch"), "an operator is a function: `ops.f(x)`"),
    **dict.fromkeys(("compile", "jit", "build", "lower"), "it is compiled by its first call; `ops.f.save` makes a library"),
    **dict.fromkeys(("vectorize", "parallel", "split", "tile", "unroll", "fuse", "reorder"), "`ops.f.schedule(text)` takes a schedule"),
}


def operator_told(name: str) -> str:
    """Return what follows the message that operators have no such attribute, or nothing."""
    return f"; {_OF_OPERATORS[name]}" if name in _OF_OPERATORS else ""


def model_told(name: str) -> str:
    """Return what follows the message that models have no such attribute, or nothing."""
    return f"; {_OF_MODELS[name]}" if name in _OF_MODELS else ""


def told(name: str, names: Sequence[str]) -> str:
    """Return what follows the message that there is no such name: `; ` and a help, or nothing."""
    if name.startswith("_"):
        return ""
    if name in _SAID:
        return f"; {_SAID[name]}"
    close = get_close_matches(name, names, 1)
    return f"; did you mean `{close[0]}`?" if close else ""


def no_stage(stage: str, what: str, known: Sequence[str]) -> CompileError:
    """Return C0212 for a stage that `what` has not; `known` are those that it has."""
    return error("C0212", f"there is no stage `{stage}` of {what}", help=f"known are {', '.join(f'`{t}`' for t in known)}")
