"""NVIDIA's packages, imported in this one place: an installation without them fails here, saying what to install."""

from __future__ import annotations

from codegen.cuda.errors import Unavailable

try:
    from cuda import core, pathfinder
    from cuda.bindings import driver, nvrtc
    from cuda.core import utils
except ImportError as missing:
    raise Unavailable(f"NVIDIA's packages cannot be imported ({missing})", "install `tensorlang[cuda]`") from None

__all__ = ["core", "driver", "nvrtc", "pathfinder", "utils"]
