"""PyTorch: operators of the language as operators of torch, and models of torch compiled here.

    blur = tensorlang.torch.custom_op(ops.blur)            y = blur(x): also under torch.compile, torch.export, autograd
    fast = torch.compile(model, backend="tensorlang")      inference
    tl.compile(torch.export.export(model, (x,)))           a model to keep

Names are imported when they are first used: what only reads programs of ATen does without torch.
"""

from importlib import import_module

__all__ = ["custom_op", "onnx_translations"]

_PLACES = {
    "custom_op": "tensorlang.torch.registration",
    "onnx_translations": "tensorlang.torch.onnx_export",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
