"""ONNX models as graphs of the operators of the standard library."""

from stdlib.onnx.importer import Importer

__all__ = ["Importer"]
