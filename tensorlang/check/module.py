"""The names of a file and of the libraries it sees.

A library's operator, function, reducer, schedule or tactic may be used from any file that loads it; a file's own name, or one that it
uses, wins over a library's. Each declaration speaks in the names of its own file, wherever it is used: `Module.defining_module`. What is
resolved here is what needs no types: duplicates, calls and reductions of things that do not exist, recursion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TypeVar, assert_never

from codegen.dtypes import DTYPES
from codegen.features import NAMES, X86_NAMES
from codegen.intrinsics import is_name
from tensorlang.bounded_cache import BoundedCache
from tensorlang.check.foreign import SAID, SAID_OF_TYPES, native_name
from tensorlang.check.places import misplaced
from tensorlang.check.problems import did_you_mean, error, labelled, named, renamed, uncallable
from tensorlang.check.types import BUILTINS, CLASSES, ELSEWHERE
from tensorlang.check.uses import ImportedSchedules, Imports, Named, Reader, Uses, lines_for, place_of, space_of
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, Diagnostic, Edit, Source, Span
from tensorlang.externs import Kernel
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.foreign_idioms import explain_dots
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show


@dataclass(frozen=True, slots=True)
class Module:
    """`declared` names the operators that the file itself declares; the mappings hold the libraries' as well."""

    operators: Mapping[str, sx.Operator]
    functions: Mapping[str, sx.ScalarFunction]
    reducers: Mapping[str, sx.Reducer]
    schedules: tuple[sx.Schedule, ...]
    tactics: Mapping[str, sx.Tactic]
    declared: frozenset[str] = frozenset()
    declared_reducers: frozenset[str] = frozenset()
    declared_schedules: int = 0
    """How many of `schedules` are the file's own: the first ones."""
    trusted: bool = False
    """Whether reducers are what they promise without a test: the text is a form that the compiler wrote of a program of its own."""
    mode: sx.Mode = "reduce"
    """That of operators which state none."""
    instructions: Mapping[str, sx.Operator] = field(default_factory=dict)
    """Operators that processors have as one instruction."""
    defining_modules: Mapping[str, Module] = field(default_factory=dict, repr=False)
    """In whose names the operators and functions speak that the file does not declare itself."""
    reducer_modules: Mapping[str, Module] = field(default_factory=dict, repr=False)
    offered: frozenset[str] = frozenset()
    """The operators to call: `declared`, and those of other files that the file writes schedules for."""
    externs: Mapping[str, Kernel] = field(default_factory=dict)
    """What stands for extern operators of this file on the target at hand."""

    def defining_module(self, name: str) -> Module:
        """Return in whose names the operator or function speaks that is called `name` here."""
        return self.defining_modules.get(name, self)

    def reducer_module(self, name: str) -> Module:
        """Return in whose names the reducer speaks that is called `name` here."""
        return self.reducer_modules.get(name, self)


V = TypeVar("V")


@cache
def prelude() -> Module:
    """Return the library that every file sees."""
    text = Path(__file__).parents[1].joinpath("prelude.tl").read_text("utf-8")
    return load_module(parse(Source("prelude.tl", text)), ())


def files_by(reader: Reader) -> Uses:
    """Return files to use that a reader reads."""
    return Uses(_load, reader)


def load_module(file: sx.File, libraries: Sequence[Module] | None = None, uses: Uses | None = None) -> Module:
    """Return the names of `file` over those of `libraries` (the prelude unless told otherwise) and of the files that it uses.

    Raises CompileError with T0101 (unknown name), T0102 (declared twice), T0103 (recursion), T0109 (an instruction of no processor),
    T0155 (operands of one that lie nowhere), T0157 (one by no name of LLVM's), one diagnostic a mistake; and with T0190 to T0193 for
    what it uses, and the mistakes of that."""
    return _load(file, uses or Uses(_load), libraries)


def _load(file: sx.File, uses: Uses, libraries: Sequence[Module] | None = None) -> Module:
    seen = (prelude(),) if libraries is None else tuple(libraries)
    own = _collect(file.declarations)
    problems: list[Diagnostic] = list(_duplicates(file.declarations))
    imports, found_all = Imports(), True
    try:
        imports = uses.of(file)
    except CompileError as problem:
        problems, found_all = [*problem.diagnostics, *problems], False
    problems += _clashes(file.declarations, imports)
    module = _over(own, imports, seen)
    for declaration in file.declarations if found_all else ():
        problems += _unknown_names(module, declaration)
    problems += _cycles(own.functions, "function")
    problems += _cycles(own.operators, "operator")
    if problems or not found_all:
        raise CompileError(*problems)
    return module


def reached(module: Module, name: str) -> list[sx.Node]:
    """Return the functions, operators and reducers that an operator's meaning depends on, directly or through others."""
    return [declaration for _, declaration in reached_from(module.defining_module(name), module.operators[name])[1:]]


def reached_from(module: Module, declaration: sx.Node) -> list[tuple[Module, sx.Node]]:
    """Return a declaration, then the functions, operators and reducers that its meaning depends on, each with the module in whose names it
    speaks."""
    found: list[tuple[Module, sx.Node]] = [(module, declaration)]
    for defining, current in found:
        names, reducers = _named_in(current)
        met: list[tuple[Module, sx.Node]] = [(defining.defining_module(n), defining.functions[n]) for n in names if n in defining.functions]
        met += [(defining.defining_module(n), defining.operators[n]) for n in names if n in defining.operators]
        met += [(defining.reducer_module(n), defining.reducers[n]) for n in reducers if n in defining.reducers]
        found += [(there, d) for there, d in met if not any(d is known for _, known in found)]
    return found


def _named_in(declaration: sx.Node) -> tuple[list[str], list[str]]:
    """Return what a declaration mentions as values or calls, and the reducers it reduces by, in order."""

    def look() -> tuple[sx.Node, list[str], list[str]]:
        nodes = list(descendants(declaration))
        names = sorted({n.name for n in nodes if isinstance(n, sx.Apply | sx.Id)})
        return declaration, names, sorted({n.reducer for n in nodes if isinstance(n, sx.Reduction)})

    with _LOCK:
        return _NAMED.used(id(declaration), look)[1:]


_LOCK = Lock()
_NAMED: BoundedCache[int, tuple[sx.Node, list[str], list[str]]] = BoundedCache(1024)
"""What declarations mention; the first of a value keeps the identity in its key from being another's."""


def _over(own: Module, imports: Imports, libraries: Sequence[Module]) -> Module:
    """Return a file's own names over those it uses, and these over the libraries'."""
    names: dict[str, tuple[sx.Operator | sx.ScalarFunction, Module | None]] = {}
    reducers: dict[str, tuple[sx.Reducer, Module | None]] = {}
    for library in libraries:
        names |= {n: (o, library.defining_module(n)) for n, o in library.operators.items()}
        names |= {n: (f, library.defining_module(n)) for n, f in library.functions.items()}
        reducers |= {n: (d, library.reducer_module(n)) for n, d in library.reducers.items()}
    for found in imports.names:
        match found.declaration:
            case sx.Reducer() as reducer:
                reducers[found.name] = (reducer, found.used.module)
            case sx.Operator() | sx.ScalarFunction() as called:
                names[found.name] = (called, found.used.module)
            case sx.Tactic():
                pass
            case _:
                assert_never(found.declaration)
    names |= {n: (o, None) for n, o in own.operators.items()} | {n: (f, None) for n, f in own.functions.items()}
    reducers |= {n: (d, None) for n, d in own.reducers.items()}
    adopted = ImportedSchedules(_merged(*(m.tactics for m in libraries)), _merged(*(m.instructions for m in libraries)))
    adopted.take(imports)
    names |= {n: (adopted.instructions[n], defining) for n, defining in adopted.hidden.items()}
    scheduled = {s.operator for s in own.schedules if s.role is None} & {i.name for i in imports.names}
    operators = {n: d for n, (d, _) in names.items() if isinstance(d, sx.Operator)}
    return Module(
        operators,
        {n: d for n, (d, _) in names.items() if isinstance(d, sx.ScalarFunction)},
        {n: d for n, (d, _) in reducers.items()},
        (*own.schedules, *adopted.schedules, *(s for m in libraries for s in m.schedules)),
        _merged(adopted.tactics, own.tactics),
        frozenset(own.operators),
        frozenset(own.reducers),
        len(own.schedules),
        instructions=_merged(adopted.instructions, own.instructions),
        defining_modules={n: defining for n, (_, defining) in names.items() if defining is not None},
        reducer_modules={n: defining for n, (_, defining) in reducers.items() if defining is not None},
        offered=frozenset(own.operators) | (scheduled & operators.keys()),
    )


def _clashes(declarations: Iterable[sx.Declaration], imports: Imports) -> Iterable[Diagnostic]:
    """Yield one diagnostic for each name that would mean two things."""
    first: dict[tuple[str, str], tuple[str, str, list[Span]]] = {}
    for declaration in declarations:
        if isinstance(declaration, Named):
            first.setdefault((space_of(declaration), declaration.name), ("", declaration.name, [place_of(declaration)]))
    for found in imports.names:
        key, places = (found.space, found.name), [found.use.span, place_of(found.declaration)]
        if key not in first:
            first[key] = (found.used.key, found.declaration.name, places)
        elif first[key][:2] != (found.used.key, found.declaration.name):
            labels = [(places[0], "used here"), (places[1], "declared here")]
            before = [(first[key][2][-1], "and declared here")]
            before += [(first[key][2][0], "used here")] if len(first[key][2]) > 1 else []
            help = f"give one another name: `use … ({found.declaration.name} as …)`, or use a whole file under a name: `use … as n`"
            yield labelled("T0102", f"`{found.name}` would mean two things", [*labels, *before], help=help).diagnostics[0]


def _merged(*maps: Mapping[str, V]) -> dict[str, V]:
    return {name: value for m in maps for name, value in m.items()}


def _collect(declarations: Iterable[sx.Declaration]) -> Module:
    operators: dict[str, sx.Operator] = {}
    functions: dict[str, sx.ScalarFunction] = {}
    reducers: dict[str, sx.Reducer] = {}
    schedules: list[sx.Schedule] = []
    tactics: dict[str, sx.Tactic] = {}
    for declaration in declarations:
        match declaration:
            case sx.Operator():
                operators.setdefault(declaration.name, declaration)
            case sx.ScalarFunction():
                functions.setdefault(declaration.name, declaration)
            case sx.Reducer():
                reducers.setdefault(declaration.name, declaration)
            case sx.Schedule():
                schedules.append(declaration)
            case sx.Tactic():
                tactics.setdefault(declaration.name, declaration)
            case sx.Use():
                pass
            case _:
                assert_never(declaration)
    instructions = {name: o for name, o in operators.items() if o.needs}
    return Module(operators, functions, reducers, tuple(schedules), tactics, instructions=instructions)


def _duplicates(declarations: Iterable[sx.Declaration]) -> Iterable[Diagnostic]:
    first: dict[tuple[str, str], sx.Node] = {}
    for declaration in declarations:
        if isinstance(declaration, sx.Schedule | sx.Use):
            continue
        key = (space_of(declaration), declaration.name)
        if key in first:
            yield labelled(
                "T0102",
                f"`{declaration.name}` is declared twice",
                [(declaration.span, "declared again here"), (first[key].span, "first declared here")],
                help="rename one of them, or delete it",
            ).diagnostics[0]
        else:
            first[key] = declaration


def _tensors_of(declaration: sx.Node) -> set[str]:
    """Return the names of an operator's tensors."""
    if not isinstance(declaration, sx.Operator):
        return set()
    given = {p.name for p in (*declaration.params, *declaration.results) if p.kind == "tensor"}
    return given | {t.name for clause in declaration.clauses for t in clause.targets}


def _unknown_names(module: Module, declaration: sx.Declaration) -> Iterable[Diagnostic]:
    if isinstance(declaration, sx.Schedule | sx.Tactic | sx.Use):
        return
    local = {g.name for g in declaration.generics}
    if isinstance(declaration, sx.Operator):
        local |= {p.name for p in (*declaration.params, *declaration.results)} | {t.name for c in declaration.clauses for t in c.targets}
        yield from _unknown_types(declaration)
        yield from _unknown_features(declaration)
        yield from misplaced(declaration)
        yield from _no_intrinsic(declaration)
    elif isinstance(declaration, sx.ScalarFunction):
        local |= {name for name, _ in declaration.params}
    callable_names = set(module.operators) | set(module.functions) | BUILTINS | set(DTYPES) | local
    for node in descendants(declaration):
        if isinstance(node, sx.Apply) and node.name not in callable_names:
            use, tensors = _lines_for(node.name, callable_names), _tensors_of(declaration)
            yield uncallable(node.name, node.span, callable_names, module.reducers, use, tensors).diagnostics[0]
        elif isinstance(node, sx.Reduction) and node.reducer not in module.reducers:
            at, use = named(node.span, node.reducer), lines_for(node.reducer)
            help, edits = renamed(at, node.reducer, module.reducers, f"declare `reducer {node.reducer} a b from … = …`", use)
            yield error("T0101", f"there is no reducer `{node.reducer}`", at, "used here", help=help, edits=edits).diagnostics[0]


def _lines_for(name: str, choices: Collection[str]) -> str | None:
    """Return what to write so that a name means something: as it is, or its last part without the module of another language."""
    found, member = lines_for(name), name.rpartition(".")[2]
    if found is None and member == name and native_name(name, choices) is None and name not in SAID:
        return _alike_in_libraries(name)
    if found is not None or member == name or member in choices:
        return found
    foreign = explain_dots(name)[1] is not None and native_name(member, choices) is None
    brought = lines_for(member) if foreign else None
    return None if brought is None else f"leave the module out, and {brought}"


_LIBRARY_ELSEWHERE = {
    "sorted": "sort", "msort": "sort", "topk": "top_largest", "top_k": "top_largest", "nlargest": "top_largest",
    "nsmallest": "top_smallest", "bins": "histogram", "digitize": "searchsorted", "bucketize": "searchsorted",
    "conv1d": "conv", "conv2d": "conv", "conv3d": "conv",
    "convolve": "conv", "correlate": "conv",
}  # fmt: skip
"""Other names → those of the standard library."""


def _alike_in_libraries(name: str) -> str | None:
    """Return what to write for a name that installed modules have in another spelling: `layernorm`, `sorted`."""
    from tensorlang.syntax import modules  # which parses

    plain = {other.replace("_", "").lower(): other for m in modules.modules() for other in m.names() if not other.startswith("_")}
    meant = _LIBRARY_ELSEWHERE.get(name.lower()) or plain.get(name.replace("_", "").lower())
    found = lines_for(meant) if meant is not None else None
    return f"it is called `{meant}` here: {found}" if found is not None else None


def _unknown_types(operator: sx.Operator) -> Iterable[Diagnostic]:
    generics = {g.name for g in operator.generics}
    known = set(DTYPES) | set(CLASSES) | generics
    for generic in operator.generics:
        if generic.bound is not None and generic.bound not in CLASSES and generic.bound not in DTYPES:
            yield error(
                "T0104",
                f"there is no type class `{generic.bound}`",
                generic.span,
                "asked for here",
                help=did_you_mean(generic.bound, set(CLASSES) | set(DTYPES), "the classes are " + ", ".join(sorted(CLASSES))),
            ).diagnostics[0]
    for node in descendants(operator):
        if isinstance(node, sx.TensorType) and node.dtype not in known:
            yield unknown_type(node.dtype, named(node.span, node.dtype), known, f"op {operator.name}").diagnostics[0]


def unknown_type(name: str, span: Span, types: Iterable[str], declaration: str) -> CompileError:
    """Return T0104 for an element type that is none, with what it is called here; `declaration` could declare it, as `op f`."""
    called = ELSEWHERE.get(name) or ELSEWHERE.get(name.lower()) or native_name(name, types)
    if called is not None:
        help, edits = f"it is called `{called}` here", (Edit(span, called),)
        return error("T0104", f"there is no element type `{name}`", span, "used here", help=help, edits=edits)
    help_ = SAID_OF_TYPES.get(name) or did_you_mean(name, types, f"declare it: `{declaration}[{name}](…)`")
    return error("T0104", f"there is no element type `{name}`", span, "used here", help=help_)


def _unknown_features(operator: sx.Operator) -> Iterable[Diagnostic]:
    for feature in operator.needs:
        if feature not in NAMES:
            yield error(
                "T0109",
                f"there is no feature `{feature}` of processors",
                operator.name_span if operator.name_span.end else operator.span,
                "this instruction asks for it",
                help=did_you_mean(feature, NAMES, f"known are {', '.join(NAMES)}"),
            ).diagnostics[0]


def _no_intrinsic(operator: sx.Operator) -> Iterable[Diagnostic]:
    """Yield what is wrong with the name that an instruction says LLVM has for it."""
    if operator.llvm is None:
        return
    span = operator.name_span if operator.name_span.end else operator.span
    if not is_name(operator.llvm):
        title = f"{show(sx.Text(operator.llvm))} is not the name of an intrinsic of LLVM"
        help = "names are made of letters, digits and `_` with dots between: `llvm.x86.avx2.pmadd.wd`"
        yield error("T0157", title, span, "this instruction is said to be called so", help=help).diagnostics[0]
    elif not set(operator.needs) <= X86_NAMES:
        yield error(
            "T0157",
            "not supported yet: an intrinsic of LLVM for processors other than x86",
            span,
            "declared here",
            help="leave the name out",
        ).diagnostics[0]


def _cycles(declarations: Mapping[str, sx.Operator] | Mapping[str, sx.ScalarFunction], what: str) -> Iterable[Diagnostic]:
    """Yield one diagnostic a declaration that calls itself, directly or through others."""
    calls = {
        name: {n.name for n in descendants(d) if isinstance(n, sx.Apply) and n.name in declarations} for name, d in declarations.items()
    }
    reported: set[str] = set()
    for name, declaration in declarations.items():
        path = _path_to_itself(name, calls)
        if path is not None and not reported & set(path):
            reported |= set(path)
            yield error(
                "T0103",
                f"{what} `{name}` calls itself",
                declaration.name_span if isinstance(declaration, sx.Operator) and declaration.name_span.end else declaration.span,
                "declared here",
                notes=(" → ".join(f"`{p}`" for p in (*path, name)),),
                help=f"{what}s are inlined, so they cannot recurse; say a recurrence with an index: `s[t + 1] = f(s[t]) for t in 0..n`",
            ).diagnostics[0]


def _path_to_itself(start: str, calls: Mapping[str, set[str]]) -> tuple[str, ...] | None:
    pending: list[tuple[str, ...]] = [(start,)]
    visited: set[str] = set()
    while pending:
        path = pending.pop(0)
        for callee in sorted(calls[path[-1]]):
            if callee == start:
                return path
            if callee not in visited:
                visited.add(callee)
                pending.append((*path, callee))
    return None
