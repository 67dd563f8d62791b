"""All functions of a library, in one text."""

from __future__ import annotations

from collections.abc import Mapping

from codegen.llvm import feature_test
from codegen.llvm.builder import text_constant
from codegen.llvm.c_interface.context import ALIGN, CONTEXT_BYTES, MAGIC, Field, Option
from codegen.llvm.c_interface.description import Code, Codes, Interface, Level, error_texts
from codegen.llvm.c_interface.sizes import bytes_of, extents_ir, room_required, sizes_checked
from codegen.llvm.c_interface.text import MINIMA, Function, by_level, by_level_pointer, signed, unless
from codegen.llvm.c_interface.weights import check_weights_ir, taken_ir, weights_ir
from codegen.llvm.target import Target


def interface_ir(of: Interface, target: Target) -> str:
    """Return the functions as LLVM IR for `target`, the least of the processors that a level is for."""
    asks = not target.is_wasm
    texts = error_texts(of)
    parts = [
        f'target triple = "{target.triple}"\n',
        "declare ptr @malloc(i64)\ndeclare void @free(ptr)",
        MINIMA,
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        *(f"declare i32 @{level.entry}(ptr)" for level in of.levels),
        _strings(texts, of),
    ]
    if asks:
        parts += [feature_test.has_ir(target.family), *(_features(k, level) for k, level in enumerate(of.levels))]
    if of.weights_head:
        parts.append(weights_ir(of))
    if of.parallel:
        parts.append(_POOL)
    codes, first = Codes(of), 0
    for k, level in enumerate(of.levels):
        parts.append(_level_ir(of, k, codes.checks + first))
        first += sum(map(len, level.checks))
    parts += [_create_ir(of, asks), _run_ir(of, codes), _destroy_ir(of), extents_ir(of, codes), _text_ir(of, texts), _name_ir(of)]
    return "\n".join(parts)


_POOL = """
declare i64 @tl_pool_bytes()
declare i32 @tl_pool_create(ptr, i64, i64, i64, ptr, ptr)
declare void @tl_pool_destroy(ptr)
declare void @tl_pool_resume(ptr)
declare ptr @tl_pool_enter(ptr)
declare void @tl_pool_leave(ptr)
declare i32 @tl_pool_is_short(ptr)
"""
"""What `context_pool_ir` defines."""


def _strings(texts: Mapping[int, str], of: Interface) -> str:
    lines = [text_constant(f"text{code}", text) for code, text in texts.items()]
    lines.append(text_constant("text.none", "no result of this library"))
    lines += [text_constant(f"level{k}.name", level.needs.target) for k, level in enumerate(of.levels)]
    return "\n".join(lines)


def _features(number: int, level: Level) -> str:
    words = feature_test.mask(level.needs.family, level.needs.features)
    values = ", ".join(f"i32 {word - 2**32 if word >= 2**31 else word}" for word in words)
    return f"@level{number}.features = internal constant [{len(words)} x i32] [{values}], align 4"


def _create_ir(of: Interface, asks: bool) -> str:
    f = Function()
    name = f"{of.name}_create_with"
    for argument in ("%out", "%options"):
        f.require(f.new(f"icmp ne ptr {argument}, null"), Code.NULL_ARGUMENT)
    f.add("store ptr null, ptr %out, align 8")
    f.require(f.new(f"icmp eq i64 {f.word('%options', Option.HEADER)}, {signed(of.identity)}"), Code.HEADER)
    asked = f.word("%options", Option.THREADS)
    callback = f.word("%options", Option.PARALLEL_FOR, "ptr")
    f.require(f.new(f"icmp ule i64 {asked}, {of.threads}"), Code.THREADS)
    level = _chosen(f, of, asks)
    f.require(f.new(f"icmp sge i64 {level}, 0"), Code.PROCESSOR)
    pool_bytes = f.new("call i64 @tl_pool_bytes()") if of.parallel else "0"
    arena = by_level(f, level, [x.arena_bytes for x in of.levels])
    wanted = f.new(f"add i64 {arena}, {CONTEXT_BYTES + ALIGN}")
    wanted = f.new(f"add i64 {wanted}, {pool_bytes}")
    block = f.new(f"call ptr @malloc(i64 {wanted})")
    f.require(f.new(f"icmp ne ptr {block}, null"), Code.MEMORY)
    number = f.new(f"ptrtoint ptr {block} to i64")
    past = f.new(f"add i64 {number}, {ALIGN - 1}")
    start = f.new(f"and i64 {past}, {-ALIGN}")
    gap = f.new(f"sub i64 {start}, {number}")
    context = f.new(f"getelementptr i8, ptr {block}, i64 {gap}")
    pool = f.new(f"getelementptr i8, ptr {context}, i64 {CONTEXT_BYTES}")
    memory = f.new(f"getelementptr i8, ptr {pool}, i64 {pool_bytes}")
    f.add(f"call void @llvm.memset.p0.i64(ptr {context}, i8 0, i64 {CONTEXT_BYTES}, i1 false)")
    f.put(context, Field.BLOCK, f"ptr {block}")
    f.put(context, Field.LEVEL, f"i64 {level}")
    f.put(context, Field.ARENA, f"ptr {memory}")
    f.put(context, Field.ENTRY, f"ptr {by_level_pointer(f, level, [f'level{k}.run' for k in range(len(of.levels))])}")
    if of.weights_head:
        code = f.new(f"call i32 @weights(ptr {context}, ptr %options)")
        unless(f, f.new(f"icmp eq i32 {code}, 0"), [f"call void @free(ptr {block})", f"ret i32 {code}"])
    if of.parallel:
        pinned, user = f.word("%options", Option.PINNED), f.word("%options", Option.USER, "ptr")
        code = f.new(f"call i32 @tl_pool_create(ptr {pool}, i64 {asked}, i64 {of.threads}, i64 {pinned}, ptr {callback}, ptr {user})")
        undo = [f"call void @{of.name}_free(ptr {context})", f"ret i32 {int(Code.MEMORY)}"]
        unless(f, f.new(f"icmp eq i32 {code}, 0"), undo)
        f.put(context, Field.POOL, f"ptr {pool}")
    f.put(context, Field.MAGIC, f"i64 {MAGIC}")
    f.add(f"store ptr {context}, ptr %out, align 8")
    f.add("ret i32 0")
    text = f"define i32 @{name}(ptr %out, ptr %options) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"
    return text + _free_ir(of) + (taken_ir(of) + check_weights_ir(of) if of.weights_head else "")


def _chosen(f: Function, of: Interface, asks: bool) -> str:
    """Return the number of the first level that the processor can run, -1 for none."""
    if not asks:
        return "0"
    found = "-1"
    for k in reversed(range(len(of.levels))):
        has = f.new(f"call i1 @tl_has(ptr @level{k}.features)")
        found = f.new(f"select i1 {has}, i64 {k}, i64 {found}")
    return found


def _free_ir(of: Interface) -> str:
    """Return the function that gives back what a context holds besides its threads."""
    unmap = ""
    if of.weights_head:
        unmap = f"""
  %mp = getelementptr i64, ptr %context, i64 {Field.MAPPED}
  %mapped = load ptr, ptr %mp, align 8
  %bp = getelementptr i64, ptr %context, i64 {Field.MAPPED_BYTES}
  %bytes = load i64, ptr %bp, align 8
  %has = icmp ne ptr %mapped, null
  br i1 %has, label %unmap, label %rest
unmap:
  %u = call i32 @munmap(ptr %mapped, i64 %bytes)
  br label %rest
rest:"""
    return f"""
define internal void @{of.name}_free(ptr %context) nounwind {{
entry:{unmap}
  store i64 0, ptr %context, align 8
  %p = getelementptr i64, ptr %context, i64 {Field.BLOCK}
  %block = load ptr, ptr %p, align 8
  call void @free(ptr %block)
  ret void
}}
"""


def _destroy_ir(of: Interface) -> str:
    stop = ""
    if of.parallel:
        stop = f"""
  %pp = getelementptr i64, ptr %context, i64 {Field.POOL}
  %pool = load ptr, ptr %pp, align 8
  call void @tl_pool_destroy(ptr %pool)"""
    return f"""
define void @{of.name}_destroy(ptr %context) nounwind {{
entry:
  %null = icmp eq ptr %context, null
  br i1 %null, label %done, label %look
look:
  %magic = load i64, ptr %context, align 8
  %is = icmp eq i64 %magic, {MAGIC}
  br i1 %is, label %free, label %done
free:{stop}
  call void @{of.name}_free(ptr %context)
  br label %done
done:
  ret void
}}
"""


def _run_ir(of: Interface, codes: Codes) -> str:
    f = Function()
    needs = ["%context", *(["%inputs"] if of.sizes or of.inputs else []), *(["%outputs"] if of.outputs else [])]
    for pointer in needs:
        f.require(f.new(f"icmp ne ptr {pointer}, null"), Code.NULL_ARGUMENT)
    f.require(f.new(f"icmp eq i64 {f.word('%context', Field.MAGIC)}, {MAGIC}"), Code.CONTEXT)
    env = sizes_checked(f, of, codes, "%inputs")
    spans: list[tuple[str, str, str]] = []
    for k, argument in enumerate(of.arguments):
        base, place = ("%inputs", len(of.sizes) + k) if k < len(of.inputs) else ("%outputs", k - len(of.inputs))
        address, size = f.word(base, place), bytes_of(f, argument, env)
        there, empty = f.new(f"icmp ne i64 {address}, 0"), f.new(f"icmp eq i64 {size}, 0")
        f.require(f.new(f"or i1 {there}, {empty}"), codes.arguments + 2 * k)
        low = f.new(f"and i64 {address}, {argument.dtype.size_bytes - 1}")
        f.require(f.new(f"icmp eq i64 {low}, 0"), codes.arguments + 2 * k + 1)
        end = f.new(f"add i64 {address}, {size}")
        f.require(f.new(f"icmp uge i64 {end}, {address}"), Code.ROOM)  # no array goes on at address 0
        spans.append((address, end, empty))
    for k in range(len(of.outputs)):
        own = len(of.inputs) + k
        for other in range(own):
            (a, a_end, a_empty), (b, b_end, b_empty) = spans[own], spans[other]
            before, after = f.new(f"icmp ule i64 {a_end}, {b}"), f.new(f"icmp ule i64 {b_end}, {a}")
            apart, empty = f.new(f"or i1 {before}, {after}"), f.new(f"or i1 {a_empty}, {b_empty}")
            f.require(f.new(f"or i1 {apart}, {empty}"), codes.overlaps + k)
    busy = f.place("%context", Field.BUSY)
    swap = f.new(f"cmpxchg ptr {busy}, i32 0, i32 1 acquire monotonic")
    f.require(f.new(f"extractvalue {{ i32, i1 }} {swap}, 1"), Code.BUSY)
    before = "null"
    if of.parallel:
        pool = f.word("%context", Field.POOL, "ptr")
        f.add(f"call void @tl_pool_resume(ptr {pool})")
        before = f.new(f"call ptr @tl_pool_enter(ptr {pool})")
    entry = f.word("%context", Field.ENTRY, "ptr")
    code = f.new(f"call i32 {entry}(ptr %context, ptr %inputs, ptr %outputs)")
    if of.parallel:
        f.add(f"call void @tl_pool_leave(ptr {before})")
        short = f.new(f"call i32 @tl_pool_is_short(ptr {pool})")
        is_short = f.new(f"icmp ne i32 {short}, 0")
        code = f.new(f"select i1 {is_short}, i32 {int(Code.PIECES)}, i32 {code}")
    f.add(f"store atomic i32 0, ptr {busy} release, align 4")
    f.add(f"ret i32 {code}")
    return f"define i32 @{of.name}_run(ptr %context, ptr %inputs, ptr %outputs) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"


def _level_ir(of: Interface, number: int, first: int) -> str:
    """Return the function that runs one level on arguments that are checked. `first`: the result for the first of its checks."""
    level, f = of.levels[number], Function()
    count = len(of.arguments) + level.takes_weights + len(level.numbers) + 1
    f.lines.append(f"  %bases = alloca [{count} x i64], align 8")
    env = {size.name: f.word("%inputs", k) for k, size in enumerate(of.sizes)}
    words = [f.word("%outputs", k) for k in range(len(of.outputs))]
    words += [f.word("%inputs", len(of.sizes) + k) for k in range(len(of.inputs))]
    if level.takes_weights:
        words.append("0" if level.weights is None else f.word("%context", Field.WEIGHTS))
    words += [f.index(e, env) for e in level.numbers]
    words.append(f.word("%context", Field.ARENA))
    room_required(f, level, env)
    for k, word in enumerate(words):
        f.put("%bases", k, f"i64 {word}")
    result = f.new(f"call i32 @{level.entry}(ptr %bases)")
    cases, at = [], first
    for call, checks in enumerate(level.checks):
        for code in range(1, len(checks) + 1):
            cases.append((call << level.code_bits | code, at))
            at += 1
    lines = [f"    i32 {value}, label %check{own}" for value, own in cases]
    f.lines += [f"  switch i32 {result}, label %other [ i32 0, label %fine", *lines, "  ]", "fine:", "  ret i32 0"]
    for _, own in cases:
        f.lines += [f"check{own}:", f"  ret i32 {own}"]
    f.lines += ["other:", f"  ret i32 {int(Code.CONTEXT)}"]
    head = f"define internal i32 @level{number}.run(ptr %context, ptr %inputs, ptr %outputs) nounwind {{\nentry:\n"
    return head + "\n".join(f.lines) + "\n}\n"


def _text_ir(of: Interface, texts: Mapping[int, str]) -> str:
    cases = "\n".join(f"    i32 {code}, label %is{code}" for code in texts)
    found = "\n".join(f"is{code}:\n  ret ptr @text{code}" for code in texts)
    return f"""
define ptr @{of.name}_error_text(i32 %code) nounwind {{
entry:
  switch i32 %code, label %none [
{cases}
  ]
none:
  ret ptr @text.none
{found}
}}
"""


def _name_ir(of: Interface) -> str:
    f = Function()
    f.lines += ["  %null = icmp eq ptr %context, null", "  br i1 %null, label %none, label %look", "none:", "  ret ptr null", "look:"]
    f.lines += [
        "  %magic = load i64, ptr %context, align 8",
        f"  %is = icmp eq i64 %magic, {MAGIC}",
        "  br i1 %is, label %found, label %none",
    ]
    f.begin("found")
    level = f.word("%context", Field.LEVEL)
    f.add(f"ret ptr {by_level_pointer(f, level, [f'level{k}.name' for k in range(len(of.levels))])}")
    return f"define ptr @{of.name}_level(ptr %context) nounwind {{\nentry:\n" + "\n".join(f.lines) + "\n}\n"
