"""The references beside examples, as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[1] / "examples"


def references(folder: str) -> ModuleType:
    """Return `references.py` of a folder of examples."""
    spec = importlib.util.spec_from_file_location(f"{folder}_references", EXAMPLES / folder / "references.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
