"""Real models to test, measure and show with: nine shipped here, nine light ones of the onnx package, weights drawn from a seed.

model = load("resnet50", seed=0)       a ModelProto, the same for the same seed
"""

from __future__ import annotations

from importlib.resources import files

import onnx
from onnx import ModelProto

from stdlib.onnx.weights import randomise
from tensorlang.diagnostics import error

SHIPPED = ("resnet50", "mobilenet_v2", "squeezenet11", "vgg16", "convnext_tiny", "vit_base", "bert_base", "minilm_l6", "gpt2")
LIGHT = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_shufflenet",
    "light_squeezenet",
    "light_vgg19",
    "light_zfnet512",
)


def names() -> tuple[str, ...]:
    """Return the names that `load` knows."""
    return SHIPPED + LIGHT


def load(name: str, seed: int = 0) -> ModelProto:
    """Return the model with random weights. Raises CompileError O0001 for a name that is not in `names()`."""
    return randomise(bare(name), seed)


def bare(name: str) -> ModelProto:
    """Return the model as it ships: every large weight is a `ConstantOfShape`, all of whose elements are equal."""
    if name in SHIPPED:
        source = files("stdlib") / "data" / f"{name}.onnx"
    elif name in LIGHT:
        source = files("onnx") / "backend" / "test" / "data" / "light" / f"{name}.onnx"
    else:
        raise error("O0001", f"no model is called {name!r}", help=f"there are {', '.join(names())}")
    return onnx.load_from_string(source.read_bytes())
