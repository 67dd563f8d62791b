"""The interface that the ONNX package defines for engines: `onnx.backend.base.Backend`, for this machine's processor.

    import stdlib.onnx.backend as backend
    outputs = backend.prepare(model, "CPU").run([x, y])

ONNX's own suite of cases (`onnx.backend.test.BackendTest(stdlib.onnx.backend)`) asks for it; `scripts/onnx_coverage.py` runs that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep, Device, DeviceType

from stdlib.onnx.importer import is_onnx_model
from tensorlang.api import compile as compile_model
from tensorlang.runtime.model import CompiledModel


class Prepared(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: CompiledModel, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._model, self._inputs, self._outputs = model, tuple(inputs), tuple(outputs)

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Return the outputs in order, for inputs in order or by name. Raises RunError."""
        given = [inputs] if isinstance(inputs, np.ndarray) else inputs
        feeds = given if isinstance(given, Mapping) else dict(zip(self._inputs, given, strict=False))
        results = self._model.run(feeds)
        return tuple(results[name] for name in self._outputs)


class Backend(OnnxBackend):
    """Models compiled by `tensorlang.compile`; `options` are its own."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Tell whether these are models of ONNX at all. What is not supported of one is said by `prepare`."""
        return bool(cls.supports_device(device)) and is_onnx_model(model.SerializeToString())

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> Prepared:
        """Return the model, ready to run. Raises CompileError, and ValueError for a device that is no processor."""
        if not cls.supports_device(device):
            raise ValueError(f"the device is {device!r}: this backend is for `CPU`")
        fixed = {tensor.name for tensor in model.graph.initializer}
        inputs, outputs = [i.name for i in model.graph.input if i.name not in fixed], [o.name for o in model.graph.output]
        return Prepared(compile_model(model, **options), inputs, outputs)

    @classmethod
    def run_node(cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any) -> tuple[Any, ...]:
        """Return what one node computes; `outputs_info` gives dtype and shape of each output where they are known. Raises CompileError."""
        version = options.pop("opset_version", None)
        names = dict.fromkeys(name for name in node.input if name)
        arrays = dict(zip(names, map(np.asarray, inputs), strict=True))
        infos = outputs_info or [None] * len(node.output)
        taken = [_declared(name, array.dtype, array.shape) for name, array in arrays.items()]
        returned = [_declared(name, *(info or (None, None))) for name, info in zip(node.output, infos, strict=True) if name]
        opsets = [helper.make_opsetid(node.domain, version)] if version is not None else None
        model = helper.make_model(helper.make_graph([node], "node", taken, returned), opset_imports=opsets)
        return cls.prepare(model, device, **options).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether the device is this machine's processor."""
        return Device(device).type == DeviceType.CPU if device.partition(":")[0] in ("CPU", "CUDA") else False


def _declared(name: str, dtype: Any, shape: Sequence[int] | None) -> ValueInfoProto:
    if dtype is None:
        return ValueInfoProto(name=name)
    number: TensorProto.DataType = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, number, shape)


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
