"""The types of the names that `__init__.py` imports when they are used."""

from tensorlang.torch.onnx_export import onnx_translations as onnx_translations
from tensorlang.torch.registration import custom_op as custom_op

__all__ = ["custom_op", "onnx_translations"]
