"""What stands before kernel text for clang (`-x hip`), which needs no headers; `prelude.h` says what differs from CUDA."""

from __future__ import annotations

from importlib import resources

from codegen.gpu import prelude
from codegen.gpu.program import Program


def source(program: Program) -> str:
    """Return the whole text of a program's kernels, all for warps of one width."""
    (warp,) = {kernel.warp for kernel in program.kernels}
    text = resources.files("codegen.hip").joinpath("prelude.h").read_text("utf-8")
    return f'#define TL_WARP {warp}\n{prelude.expanded(text)}\n#line 1 "{program.name}"\n{program.text}'
