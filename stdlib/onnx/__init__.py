"""ONNX models as graphs of the operators of the standard library."""

from stdlib.onnx.entry_point import Importer

__all__ = ["Importer"]
