"""Programs of ATen, which PyTorch's graphs are read as, as graphs of library operators."""

from stdlib.aten.entry_point import Importer as Importer
