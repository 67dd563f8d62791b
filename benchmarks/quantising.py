"""Models quantised as their users do it: statically, with QuantizeLinear and DequantizeLinear around what is done in bytes.

    python benchmarks/quantising.py resnet50 resnet50_int8.onnx [--signed]

Activations are u8 (i8 with `--signed`) with one scale, weights i8 with one for each channel, calibrated on random inputs by
onnxruntime's quantiser. The same name and seed give the same file.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from inputs import random_inputs  # isort: skip

from stdlib import models

Array = np.ndarray[Any, Any]

CONVOLUTIONS = ("Conv", "MatMul", "Gemm", "Add")
PRODUCTS = ("MatMul", "Gemm")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", choices=models.names())
    parser.add_argument("file")
    parser.add_argument("--signed", action="store_true", help="i8 activations instead of u8")
    found = parser.parse_args()
    onnx.save(quantised(models.load(found.model, 7), signed=found.signed), found.file)


def quantised(model: ModelProto, *, signed: bool = False) -> ModelProto:
    """Return the model with its products (and, where it has convolutions, its sums) done in bytes."""
    kinds = CONVOLUTIONS if any(node.op_type == "Conv" for node in model.graph.node) else PRODUCTS
    with tempfile.TemporaryDirectory() as folder:
        plain, ready, made = (Path(folder) / name for name in ("plain.onnx", "ready.onnx", "made.onnx"))
        onnx.save(model, plain)
        quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
        quantize_static(
            str(ready),
            str(made),
            _Inputs(random_inputs(model)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(kinds),
        )
        return onnx.load(made)


class _Inputs(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """One set of inputs to calibrate with."""

    def __init__(self, feeds: dict[str, Array]) -> None:
        self._left: Iterator[dict[str, Array]] = iter([feeds])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


if __name__ == "__main__":
    main()
