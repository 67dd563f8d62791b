"""What was compiled as a library of machine code that needs nothing of this process: the functions of `codegen.llvm.c_interface` over the
kernels, in one object, with the weights in a block of their own.

    of_operator(program, artifact, …)    one operator
    of_model(parts, …)                   a model, of known or of open sizes
    linked(levels, …)                    the library of the same program for several levels of instructions
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from codegen.elf.objects import Object, data_object, merged, parse
from codegen.llvm.c_interface.description import Argument, Condition, Interface, Level, Size
from codegen.llvm.c_interface.functions import interface_ir
from codegen.llvm.c_interface.weights import CHECKSUM_STEP, HEAD_BYTES
from codegen.llvm.context_pool_ir import context_pool_ir
from codegen.llvm.jit import compile_object
from codegen.llvm.program import Program as Entry
from codegen.llvm.program import code_bits, emit_program
from codegen.llvm.target import Target, named
from codegen.loops import nodes as loops
from codegen.loops.evaluate import evaluate
from codegen.loops.nodes import Index
from codegen.loops.walk import free_vars
from polyhedral.expr import TRUE, And, Cond, Expr
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.bounded import planned_up_to
from tensorlang.backends.cpu.executable import Parts, check_failed, externs_of, nodes_of, workspace_threads
from tensorlang.backends.cpu.extern import no_library
from tensorlang.backends.cpu.library_signature import identity
from tensorlang.backends.cpu.open_sizes import OpenParts
from tensorlang.backends.cpu.ready import entry_of, refusal_of
from tensorlang.backends.cpu.sized import Kernel
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import RunError, error, plain_text
from tensorlang.graph.nodes import Value
from tensorlang.graph.programs import result_tensors
from tensorlang.graph.sizes import PREFIX, Atom, Choice, Formula, Quotient, formula_of
from tensorlang.graph.sizes import Condition as Assumed
from tensorlang.lower.index import to_bool, to_index
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.notation import show_cond

Array = np.ndarray[Any, Any]
_WORDS_AT_ONCE = 2**20
"""Of weights, so that their factors take little memory beside them."""
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Proof:
    """What is on record of a kernel: its symbol, its schedule, where that came from, what its checks say, what came of validation, and
    what of it is not proven and trusted."""

    symbol: str
    schedule: str
    origin: str
    requirements: tuple[str, ...]
    validated: str
    trusted: str


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A program compiled for one target. `weights`: the block that its kernels read, None for none; `room`: bytes of the arena that a run
    needs, over sizes, None where that is always `arena_bytes`."""

    target: Target
    sizes: tuple[Size, ...]
    conditions: tuple[Condition, ...]
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    entry: Entry
    objects: Mapping[str, bytes]
    numbers: tuple[Index, ...]
    arena_bytes: int
    room: Index | None
    weights: Array | None
    checks: tuple[tuple[str, ...], ...]
    proofs: tuple[Proof, ...]
    threads: int


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """The object of a library, its interface, and the block of weights that is to lie beside it, if any."""

    interface: Interface
    object: Object
    weights: Array | None
    proofs: tuple[Proof, ...]


# ---------------------------------------------------------------- operators


def of_operator(program: Program, kernel: Kernel, tools: Toolchain, most: Mapping[str, int]) -> Compiled:
    """Return an operator that is compiled as `kernel`, of which `most` limits sizes. Loops for ranges of sizes are left out where they
    need scratch memory that nothing limits. Raises CompileError C0132 where it needs such memory without them."""
    artifact, request = tools.kernel(kernel.program, kernel.request, tools.store), kernel.request
    numbers = tuple(_of_formula(kernel.symbols.formula(name)) for name in kernel.program.sizes)
    if artifact.cases and request.rules is not None and _unlimited(program, _needed(artifact, numbers, tools), most):
        artifact = tools.kernel(kernel.program, replace(request, rules=replace(request.rules, cases=False)), tools.store)
    sizes = tuple(Size(name, most.get(name, Size(name).most)) for name in program.sizes)
    room, arena = _scratch(program, artifact, numbers, tools, most)
    entry = entry_of(program, artifact, tools, numbers=len(numbers), scratch=arena > 0)
    inputs, outputs = (tuple(_argument(t) for t in tensors) for tensors in (program.params, result_tensors(program)))
    texts = tuple(_text(refusal_of(program, artifact, code + 1)) for code in range(len(artifact.requirements)))
    return Compiled(
        tools.target,
        sizes,
        tuple(_condition(cond) for cond in _conjuncts(program.context)),
        inputs,
        outputs,
        entry,
        {artifact.symbol: artifact.object},
        numbers,
        arena,
        room,
        None,
        (texts,),
        (_proof(artifact),),
        tools.threads,
    )


def _scratch(
    program: Program, artifact: Artifact, numbers: Sequence[Index], tools: Toolchain, most: Mapping[str, int]
) -> tuple[Index | None, int]:
    """Return the scratch memory that a run needs, over sizes, and how much there is to be. `numbers`: what the kernel is told."""
    if not program.sizes:
        return None, artifact.workspace_bytes(workspace_threads(artifact, tools.pool_threads))
    if artifact.scratch == (loops.Int(0), loops.Int(0)):
        return None, 0
    needed = _needed(artifact, numbers, tools)
    missing = _unlimited(program, needed, most)
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        limits = " ".join(f"--max {name}=4096" for name in missing)
        title = f"how much memory `{program.name}` takes for values in between depends on {names}, which nothing limits"
        raise error("C0132", title, help=f"memory is allocated once, for the largest sizes: `{limits}`, or `max={{…}}`")
    return needed, evaluate(needed, most)


def _needed(artifact: Artifact, numbers: Sequence[Index], tools: Toolchain) -> Index:
    """Return the scratch memory that a run needs, in bytes, over sizes."""
    (shared, private), threads = artifact.scratch, workspace_threads(artifact, tools.pool_threads)
    return _told(loops.Add(shared, loops.Mul(loops.Int(threads), private)), dict(zip(artifact.sizes, numbers, strict=True)))


def _unlimited(program: Program, needed: Index, most: Mapping[str, int]) -> list[str]:
    """Return the sizes that memory depends on and that nothing limits."""
    depended_on = free_vars(needed)
    return [name for name in program.sizes if name in depended_on and name not in most]


def _told(e: Index, numbers: Mapping[str, Index]) -> Index:
    """Return `e` in terms of what its names stand for."""
    match e:
        case loops.Var(name):
            return numbers[name]
        case loops.Int():
            return e
        case loops.Add(a, b) | loops.Mul(a, b) | loops.FloorDiv(a, b) | loops.Mod(a, b) | loops.Min(a, b) | loops.Max(a, b):
            return type(e)(_told(a, numbers), _told(b, numbers))
        case _:
            raise TypeError(e)


# ---------------------------------------------------------------- models


def of_model(parts: Parts, tools: Toolchain) -> Compiled:
    """Return a model of known sizes."""
    graph = parts.graph
    inputs = tuple(_value(graph.values[name], name) for name in graph.inputs)
    return _model(parts, tools, (), (), inputs, _outputs(parts), (), parts.plan.arena_bytes)


def of_open_model(made: OpenParts, tools: Toolchain, most: Mapping[str, int]) -> Compiled:
    """Return a model of open sizes, each with a limit, for which its memory is planned. Raises RunError R0315 where that takes more memory
    than any machine has."""
    parts, symbols = made.parts, made.symbols
    plan, told = planned_up_to(made, most)
    sizes = tuple(Size(name.removeprefix(PREFIX), most[name]) for name in symbols.samples)
    conditions = tuple(_assumed(condition) for condition in symbols.assumed)
    inputs = tuple(_value(parts.graph.values[name], name) for name in parts.graph.inputs)
    numbers = tuple(map(_of_formula, told))
    return _model(parts, tools, sizes, conditions, inputs, _outputs(parts), numbers, max(plan.arena_bytes, 1))


def _model(
    parts: Parts,
    tools: Toolchain,
    sizes: tuple[Size, ...],
    conditions: tuple[Condition, ...],
    inputs: tuple[Argument, ...],
    outputs: tuple[Argument, ...],
    numbers: tuple[Index, ...],
    arena: int,
) -> Compiled:
    steps = nodes_of(parts.graph)
    if called := externs_of(parts.graph):
        raise no_library("a model", [node.call for node in called])

    def texts(call: int, artifact: Artifact) -> tuple[str, ...]:
        codes = range(1, len(artifact.requirements) + 1)
        return tuple(_text(check_failed(steps, parts.artifacts, call, code)) for code in codes)

    return Compiled(
        tools.target,
        sizes,
        conditions,
        inputs,
        outputs,
        parts.entry,
        {artifact.symbol: artifact.object for artifact in parts.artifacts},
        numbers,
        arena,
        None,
        parts.constants,
        tuple(texts(call, artifact) for call, artifact in enumerate(parts.artifacts)),
        tuple(_proof(artifact) for artifact in {a.symbol: a for a in parts.artifacts}.values()),
        tools.threads,
    )


def _outputs(parts: Parts) -> tuple[Argument, ...]:
    graph = parts.graph
    return tuple(_value(graph.values[value], name) for value, name in zip(graph.outputs, parts.names, strict=True))


def _value(value: Value, name: str) -> Argument:
    return Argument(name, value.dtype, tuple(loops.Int(n) if isinstance(n, int) else _of_formula(formula_of(n)) for n in value.shape))


def _of_formula(formula: Formula) -> Index:
    """Return a formula over the sizes of a model as an index expression."""
    total: Index | None = loops.Int(formula.offset) if formula.offset else None
    for monomial, factor in formula.terms.items():
        if monomial:
            term = _product([loops.Int(factor), *map(_of_atom, monomial)])
            total = term if total is None else loops.Add(total, term)
    return loops.Int(0) if total is None else total


def _of_atom(atom: Atom) -> Index:
    if isinstance(atom, Quotient):
        return loops.FloorDiv(_of_formula(atom.value), loops.Max(loops.Int(1), _of_formula(atom.divisor)))
    if isinstance(atom, Choice):
        left, right = map(_of_formula, atom.sides)
        return loops.Max(left, right) if atom.which == "max" else loops.Min(left, right)
    return loops.Var(atom.removeprefix(PREFIX))


def _assumed(condition: Assumed) -> Condition:
    holds = loops.Compare(condition.relation, loops.IndexValue(_of_formula(condition.formula)), loops.IndexValue(loops.Int(0)))
    return Condition(holds, f"these sizes are not served: the code is for {condition}")


# ---------------------------------------------------------------- arguments, texts


def _argument(tensor: Tensor) -> Argument:
    box = [_index(extent) for extent in tensor.shape]
    return Argument(tensor.name, tensor.dtype, tuple(_product([box[k] for k in group]) for group in tensor.groups))


def _product(factors: Sequence[Index]) -> Index:
    known = 1
    rest: list[Index] = []
    for factor in factors:
        if isinstance(factor, loops.Int):
            known *= factor.value
        else:
            rest.append(factor)
    given: list[Index] = [loops.Int(known)] if known != 1 or not rest else []
    return reduce(loops.Mul, (*given, *rest))


def _index(e: Expr) -> Index:
    return to_index(e, loops.Var)


def _conjuncts(cond: Cond) -> tuple[Cond, ...]:
    if cond == TRUE:
        return ()
    return tuple(c for part in cond.conds for c in _conjuncts(part)) if isinstance(cond, And) else (cond,)


def _condition(cond: Cond) -> Condition:
    return Condition(to_bool(cond, loops.Var), f"these sizes are not served: `{show_cond(cond)}` has to hold")


def _text(refused: RunError) -> str:
    found = refused.diagnostics[0]
    return plain_text("; ".join((found.title, *found.notes)))


def _proof(artifact: Artifact) -> Proof:
    texts = tuple(r.text for r in artifact.requirements)
    return Proof(artifact.symbol, artifact.schedule, artifact.origin, texts, artifact.validated, artifact.trusted)


# ---------------------------------------------------------------- linking


def linked(name: str, levels: Sequence[Compiled], *, inside: bool = False) -> Library:
    """Return the library of a program that was compiled for each of some levels of instructions, those with more of them first. `name` is
    an identifier of C, with which all names in it begin; `inside`: the weights are part of the object."""
    base = _base(levels)
    blocks = [level.weights if level.weights is not None and level.weights.nbytes > 1 else None for level in levels]
    weights, places = _weights(blocks)
    head = b"" if weights is None else weights[:HEAD_BYTES].tobytes()
    symbol = f"{name}_weights" if inside and weights is not None else None
    entries = [replace(level.entry, name=f"{name}_level{k}") for k, level in enumerate(levels)]
    interface = replace(
        interface_of(name, levels, entries, places),
        weights_head=head,
        weights_bytes=0 if weights is None else weights.nbytes,
        weights_checksum=0 if weights is None else _checksum(weights),
        weights_symbol=symbol,
    )
    interface = replace(interface, identity=identity(interface))
    texts = [(interface_ir(interface, base), base)]
    if interface.parallel:
        texts.append((context_pool_ir(base), base))
    texts += [(emit_program(entry, level.target), level.target) for entry, level in zip(entries, levels, strict=True)]
    made = [compile_object(text, target) for text, target in texts]
    kernels = {symbol: data for level in levels for symbol, data in level.objects.items()}
    objects = [parse(data) for data in (*made, *kernels.values())]
    if symbol is not None and weights is not None:
        objects.append(data_object(objects[0].machine, symbol, weights.tobytes(), _PAGE, objects[0].flags))
    proofs = {proof.symbol: proof for level in levels for proof in level.proofs}
    return Library(interface, merged(objects, interface.functions), None if inside else weights, tuple(proofs.values()))


def interface_of(name: str, levels: Sequence[Compiled], entries: Sequence[Entry], places: Sequence[tuple[int, int] | None]) -> Interface:
    """Return the interface of a program that was compiled for each of some levels, without its weights: `entries` are their entry points,
    `places` where the weights of each lie."""
    first = levels[0]
    conditions = {condition.text: condition for level in levels for condition in level.conditions}
    return Interface(
        name,
        0,
        first.sizes,
        tuple(conditions.values()),
        first.inputs,
        first.outputs,
        tuple(
            Level(
                level.target.needs,
                entry.name,
                level.numbers,
                level.arena_bytes,
                level.room,
                place,
                level.checks,
                code_bits(len(level.entry.kernel_calls)),
                level.weights is not None,
                entry.threads > 1,
            )
            for level, entry, place in zip(levels, entries, places, strict=True)
        ),
        threads=max(level.threads for level in levels),
    )


def _base(levels: Sequence[Compiled]) -> Target:
    """Return the target that every processor of the family is."""
    family = levels[0].target.family
    return named("x86-64") if family == "x86_64" else levels[-1].target


def _checksum(weights: Array) -> int:
    """Return the checksum of `c_interface`, by which it tells weights from damaged ones."""
    words, total = weights.view("<u8"), 0
    for start in range(0, len(words), _WORDS_AT_ONCE):
        part = words[start : start + _WORDS_AT_ONCE]
        places = np.arange(start, start + len(part), dtype=np.uint64)
        total += int(np.sum(part * (places * np.uint64(CHECKSUM_STEP) | np.uint64(1)), dtype=np.uint64))
    return total % 2**64


def _weights(blocks: Sequence[Array | None]) -> tuple[Array | None, list[tuple[int, int] | None]]:
    """Return the blocks behind each other, after a head that no other weights have, and where each begins, equal ones in one place."""
    places: list[tuple[int, int] | None] = []
    kept: dict[bytes, tuple[int, Array]] = {}
    end = _PAGE
    for block in blocks:
        if block is None:
            places.append(None)
            continue
        digest = hashlib.sha256(block.data).digest()
        if digest not in kept:
            kept[digest] = end, block
            end += -(-block.nbytes // _PAGE) * _PAGE
        places.append((kept[digest][0], block.nbytes))
    if not kept:
        return None, places
    out = np.zeros(end, np.uint8)
    for start, block in kept.values():
        out[start : start + block.nbytes] = block
    head = b"TLWEIGHT" + end.to_bytes(8, "little") + hashlib.sha256(b"".join(kept)).digest()
    out[: len(head)] = np.frombuffer(head, np.uint8)
    return out, places
