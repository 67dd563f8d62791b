"""Certificates: a kernel's loops and equations, as JSON for a checker that knows nothing of the compiler.

    {"format", "kernel", "mode", "context", "params", "definitions", "results", "loops", "equations", "text", "claims", "made_by"}

`loops` is the final loop IR and `params` and `definitions` are the tensor IR, both as nested lists in one vocabulary: every node says its
type, and every cast is written out, also where a narrow float is read or stored. Arguments of the loops are those of the
equations by their order. `equations` and `text` are the same for people. `docs/certificates.md` says what acceptance means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version

from codegen.loops.parser import parse
from tensorlang.certificate.equations import equations
from tensorlang.certificate.loops import function
from tensorlang.digest import compiler_digest
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.printer import show

FORMAT = 2
CLAIMS = (
    "every subscript lies in its buffer, every extent is at least 0, and no index leaves 64 bits",
    "what is read was written before, and iterations of parallel loops and lanes share nothing that one of them writes",
    "every element of every result is written",
    "the results are what the equations say",
)


def certificate(program: Program, loops: str) -> str:
    """Return the certificate of a kernel that is to compute `program`, whose final loops are `loops`, the text of the loop IR.

    Raises CompileError C0103 when they are for a graphics processor."""
    kernel = parse(loops)
    return written(
        {
            "format": FORMAT,
            "kernel": program.name,
            "mode": program.mode,
            **equations(program, kernel.sizes),
            "loops": function(kernel),
            "equations": show(program),
            "text": loops,
            "claims": CLAIMS,
            "made_by": {"compiler": compiler_digest(), "islpy": version("islpy")},
        }
    )


def written(parts: Mapping[str, object]) -> str:
    """Return a certificate of these parts."""
    return "{\n" + ",\n".join(f' "{key}": {json.dumps(part)}' for key, part in parts.items()) + "\n}\n"
