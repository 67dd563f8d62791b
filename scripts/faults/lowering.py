"""Faults in how a plan becomes loops."""

from __future__ import annotations

from faults.fault import DATA, Fault

VERDICTS = ("tests/schedule/test_storage_verdicts.py",)
MODES = ("tests/lower/test_modes.py",)

FAULTS = (
    Fault(
        "check-wherever",
        "tensorlang/lower/kernel.py",
        "loops.Require(_wherever(point.path, inside), code)",
        "loops.Require(inside, code)",
        "an index from data is checked where nobody reads",
        DATA,
    ),
    Fault(
        "check-one-more",
        "tensorlang/lower/kernel.py",
        'loops.Compare("<", at, bound))',
        'loops.Compare("<=", at, bound))',
        "an index from data may be the extent",
        DATA,
    ),
    Fault(
        "declared-one-more",
        "tensorlang/lower/kernel.py",
        'loops.Compare("<", element, bounds[1]))',
        'loops.Compare("<=", element, bounds[1]))',
        "elements of a declared range may be its end",
        DATA,
    ),
    Fault(
        "lanes-forget-the-start",
        "tensorlang/lower/kernel.py",
        "start = [value(e, point) for e in _start(acc)]",
        "start = [value(e, point) for e in _neutral(acc.reduce.reducer)]",
        "a sum over lanes forgets its initial value",
        (*VERDICTS, "tests/schedule/test_known_failures.py"),
    ),
    Fault(
        "lanes-start-each",
        "tensorlang/lower/kernel.py",
        "for e in (_neutral(acc.reduce.reducer) if memory.lanes else _start(acc))]",
        "for e in _start(acc)]",
        "every lane counts the initial value",
        (*VERDICTS, "tests/schedule/test_known_failures.py"),
    ),
    Fault(
        "lane-number",
        "tensorlang/lower/kernel.py",
        "return loops.Add(kernel.loop(lane), loops.Int(-ends[0])) if ends[0] else kernel.loop(lane)",
        "return kernel.loop(lane)",
        "lanes are numbered by their loop, wherever it starts",
        VERDICTS,
    ),
    Fault(
        "strict-products-fused",
        "tensorlang/lower/kernel.py",
        'is_float and kernel.plan.program.mode != "strict" and isinstance',
        "is_float and isinstance",
        "strict programs round a product and its sum once",
        MODES,
    ),
    Fault(
        "filter-ignored",
        "tensorlang/lower/kernel.py",
        "if acc.reduce.filter is not None:",
        "if False:",
        "a reduction takes what its condition leaves out",
        ("tests/lower/test_differential.py",),
    ),
    Fault(
        "first-value-combined",
        "tensorlang/lower/kernel.py",
        "_chosen(is_old, _chosen(is_new, both, o), n)",
        "_chosen(is_old, _chosen(is_new, both, o), o)",
        "a reducer without identity loses its first value",
        VERDICTS,
    ),
    Fault(
        "copies-of-peeling",
        "tensorlang/lower/memory.py",
        "max(s + n for s, n in known)",
        "max(n for s, n in known)",
        "copies of a peeled loop have no room for those that begin later",
        VERDICTS,
    ),
    Fault(
        "box-cut-through-blocks",
        "tensorlang/lower/memory.py",
        "return value == Name(axis) and constant % divisor == 0 and all(k % divisor == 0 for k in terms.values())",
        "return value == Name(axis)",
        "a box in blocks may begin inside a block",
        VERDICTS,
    ),
    Fault(
        "sums-where-others-lie",
        "tensorlang/lower/memory.py",
        "return made.name if isinstance(verdict, Proven) else None",
        "return made.name",
        "sums are added up in cells of elements that are still needed",
        ("tests/policy/test_recurrences_derived.py",),
    ),
    Fault(
        "threads-share-registers",
        "tensorlang/lower/memory.py",
        "if at_compile_time and not shared:",
        "if at_compile_time:",
        "what parallel iterations share lies in registers",
        VERDICTS,
        equivalent="`demote` moves to memory whatever a parallel loop shares with what is outside it; here it only comes sooner",
    ),
    Fault(
        "side-of-a-select",
        "tensorlang/lower/value.py",
        '_under(loops.Unary("not", test), orelse, point))',
        "_under(test, orelse, point))",
        "a check on the other side of a select asks for its condition",
        DATA,
    ),
    Fault(
        "let-before-its-condition",
        "tensorlang/lower/value.py",
        "if isinstance(result, loops.Const | loops.Name) or (point.path and not is_large(result, children)):",
        "if isinstance(result, loops.Const | loops.Name):",
        "what a side of a select binds is computed whatever is chosen",
        (*DATA, "tests/lower/test_differential.py"),
    ),
)
