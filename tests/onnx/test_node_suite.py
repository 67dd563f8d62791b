"""onnx's own cases, node by node: what the importer makes of them computes what the suite expects, through the interpreter.

unsupported.txt lists the cases that are refused, and nothing else may be: a case that starts or ceases to work has to be noted there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onnx_evaluate import close, run, suite

from tensorlang.diagnostics import CompileError

UNSUPPORTED = Path(__file__).parent / "unsupported.txt"


def test_every_case_of_a_supported_operator_passes(golden: Callable[[Path, str], None]) -> None:
    refused: dict[str, list[str]] = {}
    wrong: list[str] = []
    passed = 0
    for name, case in suite().items():
        try:
            for inputs, outputs in case.data_sets:
                results = run(case.model, inputs)
                if len(results) != len(outputs) or not all(close(a, b, case) for a, b in zip(results, outputs, strict=True)):
                    wrong.append(name)
                    break
            else:
                passed += 1
        except CompileError as problem:
            if not all(d.code in ("O010", "O013") for d in problem.diagnostics):
                wrong.append(f"{name}: {problem.diagnostics[0].title}")
            refused.setdefault(case.model.graph.node[0].op_type, []).append(name)
    assert wrong == []
    assert passed + sum(map(len, refused.values())) == len(suite())
    listed = "".join(f"# {op}\n" + "".join(f"{name}\n" for name in sorted(refused[op])) for op in sorted(refused))
    golden(UNSUPPORTED, f"{passed} of {len(suite())} cases pass; these are refused:\n\n{listed}")
