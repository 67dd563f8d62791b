"""The files of a library: the folder that `load_model` reads, with what C, C++ and CMake need to link it.

Names of sizes and arrays become identifiers of C; nothing of a model's text reaches a header but in comments.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from codegen.elf.objects import archive
from codegen.elf.shared import shared_library
from codegen.gpu.names import Identifiers
from codegen.llvm.c_interface.description import FIRST_OWN, Argument, Code, Interface, error_texts
from codegen.llvm.target import Needs
from tensorlang.backends.cpu.library_signature import shape_of, sizes, tensors
from tensorlang.backends.cpu.native_library import Compiled, Library, Proof
from tensorlang.backends.cpu.wasm_module import module_files
from tensorlang.check.extern_header import C_TYPES
from tensorlang.diagnostics import error, plain_text
from tensorlang.digest import compiler_digest
from tensorlang.saved import package

MANIFEST = package.MANIFEST


def write_library(library: Library, folder: Path, model: str, version: str, rows: package.Rows) -> Path:
    """Write the files of a library into a folder. Return the folder. Raises as `write_folder` does."""
    return write_folder(_files(library, model, version, rows), folder)


def write_modules(name: str, levels: Sequence[Compiled], folder: Path, model: str, version: str, rows: package.Rows) -> Path:
    """Write modules of WebAssembly, one for each level, into a folder. Return the folder. Raises as `write_folder` does."""
    files, first = module_files(name, levels), levels[0]
    proofs = {proof.symbol: proof for level in levels for proof in level.proofs}
    manifest = package.Manifest(
        name,
        plain_text(model),
        0,
        f"{version} {compiler_digest()}",
        sizes(first.sizes),
        tensors(first.inputs),
        tensors(first.outputs),
        tuple(_level(level.target.needs) for level in levels),
        1,
        "",
        "",
        tuple(map(_kernel, proofs.values())),
        rows,
        {file: package.digest_of(data) for file, data in files.items()},
    )
    return write_folder({**files, MANIFEST: package.manifest_text(manifest).encode()}, folder)


def _kernel(proof: Proof) -> package.Kernel:
    return package.Kernel(proof.symbol, proof.schedule, proof.origin, proof.requirements, proof.validated, proof.trusted)


def write_folder(files: Mapping[str, bytes | memoryview], folder: Path) -> Path:
    """Write files into a folder, which is made, or replaced where it holds a library already. Return the folder.

    Raises CompileError C0133 for a folder that holds something else beside it, C0203 where it cannot be written."""
    try:
        _check_replaceable(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".tensorlang-") as draft:
            made = Path(draft) / "library"
            made.mkdir()
            for name, data in files.items():
                (made / name).write_bytes(data)
            if folder.exists():
                os.rename(folder, Path(draft) / "before")
            os.rename(made, folder)
    except OSError as problem:
        raise error("C0203", f"`{folder}` cannot be written: {problem.strerror or problem}", help="choose another folder") from None
    return folder


def _check_replaceable(folder: Path) -> None:
    """Raise CompileError C0133 for what would be lost if a library took the place of it."""
    if folder.exists() and not folder.is_dir():
        raise error("C0133", f"`{folder}` is a file, and a library is a folder", help="name another folder, new or empty")
    if others := package.files_of_others(str(folder)) if folder.exists() else []:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        title = f"`{folder}` is there already, and holds what is of no library: `{others[0]}`{more}"
        raise error("C0133", title, help="name another folder, new or empty")


def _files(library: Library, model: str, version: str, rows: package.Rows) -> Mapping[str, bytes | memoryview]:
    of, made = library.interface, library.object
    shared = f"lib{of.name}.so"
    files: dict[str, bytes | memoryview] = {
        f"lib{of.name}.a": archive([(f"{of.name[:12]}.o", made)]),
        f"{of.name}.h": header(of, model, version).encode(),
        f"{of.name}-config.cmake": _cmake(of).encode(),
        shared: shared_library(made, of.functions, shared),
    }
    if library.weights is not None:
        files[f"{of.name}.weights"] = library.weights.data
    manifest = package.Manifest(
        of.name,
        plain_text(model),
        of.identity,
        f"{version} {compiler_digest()}",
        sizes(of.sizes),
        tensors(of.inputs),
        tensors(of.outputs),
        tuple(_level(x.needs) for x in of.levels),
        of.threads,
        shared,
        f"{of.name}.weights" if library.weights is not None else "",
        tuple(map(_kernel, library.proofs)),
        rows,
        {name: package.digest_of(data) for name, data in files.items()},
    )
    return files | {MANIFEST: package.manifest_text(manifest).encode()}


def _level(needs: Needs) -> package.Level:
    return package.Level(needs.target, needs.family, tuple(sorted(needs.features)))


# ---------------------------------------------------------------- C


def header(of: Interface, model: str, version: str) -> str:
    """Return the header of a library."""
    name, big = of.name, of.name.upper()
    create = f"{name}_create_mapped" if of.weights_head and of.weights_symbol is None else f"{name}_create"
    lines = [
        f"/* {_comment(model)}: made by tensorlang {version}. Compile against the header that lies beside the library, and no other.",
        "",
        f"       {name}_context *context;",
        f"       int code = {create}(&context, 1{', path' if create.endswith('mapped') else ''});        one thread",
        f"       code = {name}_run(context, &inputs, &outputs);",
        f'       if (code) fprintf(stderr, "%s\\n", {name}_error_text(code));',
        f"       {name}_destroy(context);",
        "",
        "   Arrays are row-major. Nothing is allocated but by create. A context runs once at a time; several run at once, in any threads.",
        "   Whatever is wrong with an argument is a result other than 0, and then the outputs hold anything. */",
        f"#ifndef {big}_H",
        f"#define {big}_H",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"typedef struct {name}_context {name}_context;",
        "",
        *_structures(of),
        *_results(of),
        *_options(of),
        f"int {name}_create_with({name}_context **context, const {name}_options *options);",
        "",
        "/* One run. */",
        f"int {name}_run({name}_context *context, const {name}_inputs *inputs, const {name}_outputs *outputs);",
        "",
        f"/* Ends the threads of a context and frees its memory. */\nvoid {name}_destroy({name}_context *context);",
        "",
        "/* The extents of all arrays, inputs before outputs, for the sizes that `sizes` begins with. */",
        f"#define {big}_EXTENTS {sum(len(a.extents) for a in of.arguments)}",
        f"int {name}_extents(const {name}_inputs *sizes, int64_t *extents);",
        "",
        f"/* What a result means. */\nconst char *{name}_error_text(int code);",
        "",
        f"/* The level of instructions that a context runs: {', '.join(level.needs.target for level in of.levels)}. */",
        f"const char *{name}_level(const {name}_context *context);",
        "",
        *_checking(of),
        *_create(of),
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _structures(of: Interface) -> Iterator[str]:
    name, identifier = of.name, Identifiers()
    yield f"typedef struct {name}_inputs {{"
    for size in of.sizes:
        name_of = f"size {size.name}" if any(a.name == size.name for a in of.inputs) else size.name
        yield f"    int64_t {identifier(name_of)}; /* {_comment(size.name)}, 0 to {size.most} */"
    yield from _fields(of.inputs, "const ", identifier)
    if not of.sizes and not of.inputs:
        yield "    int64_t unused;"
    yield f"}} {name}_inputs;\n"
    identifier = Identifiers()
    yield f"typedef struct {name}_outputs {{"
    yield from _fields(of.outputs, "", identifier)
    if not of.outputs:
        yield "    int64_t unused;"
    yield f"}} {name}_outputs;\n"


def _fields(arguments: tuple[Argument, ...], qualifier: str, identifier: Identifiers) -> Iterator[str]:
    for a in arguments:
        shape = ", ".join(map(str, shape_of(a)))
        yield f"    {qualifier}{C_TYPES[a.dtype.name]} *{identifier(a.name)}; /* {_comment(a.name)}: {a.dtype}[{_comment(shape)}] */"


def _results(of: Interface) -> Iterator[str]:
    yield "/* Results; those that have no name are explained by the text. */"
    yield "enum {"
    texts = error_texts(of)
    for code in Code:
        yield f"    {of.name.upper()}_{code.name} = {int(code)}, /* {_comment(texts[code])} */"
    yield f"    {of.name.upper()}_DETAIL = {FIRST_OWN} /* and above: an array, a size, or a check of the data */"
    yield "};\n"


def _options(of: Interface) -> Iterator[str]:
    name, big = of.name, of.name.upper()
    yield f"#define {big}_INTERFACE UINT64_C(0x{of.identity:016x})"
    if of.weights_head:
        yield f"#define {big}_WEIGHTS_BYTES {of.weights_bytes}"
    yield f"#define {big}_MOST_THREADS {of.threads}"
    yield f"""
/* Calls body(context, b, e, thread) for pieces [b, e) that make up [begin, end), on threads with numbers below `threads`, and returns when
   all are done. An exception that left it would end the program. */
typedef void (*{name}_parallel_for)(void *user, void (*body)(void *context, int64_t begin, int64_t end, int64_t thread), void *context,
                                    int64_t begin, int64_t end);

/* What a context is made of; all that is 0 is left to it. */
typedef struct {name}_options {{
    uint64_t header;                  /* {big}_INTERFACE */
    int64_t threads;                  /* up to {big}_MOST_THREADS; 0: as many as there are processors to run on */
    int64_t pinned;                   /* 1: keep each further thread on one processor */
    const void *weights;              /* the content of the file of weights, aligned to 64 bytes, */
    uint64_t weights_bytes;           /* and how many bytes these are; */
    const char *weights_path;         /* or the file, which is mapped */
    {name}_parallel_for parallel_for; /* runs parallel loops in place of threads of its own */
    void *user;                       /* what it is given */
}} {name}_options;
"""


def _checking(of: Interface) -> Iterator[str]:
    name = of.name
    if of.weights_head:
        yield f"""/* Reads all of the weights; {name.upper()}_WEIGHTS_CHANGED where they are not as they were made. `create` compares
   their size and what they begin with. */
int {name}_check_weights(const {name}_context *context);
"""


def _create(of: Interface) -> Iterator[str]:
    name, big = of.name, of.name.upper()
    nothing = f"{{{big}_INTERFACE, 0, 0, NULL, 0, NULL, NULL, NULL}}"
    yield f"""#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define {big}_INLINE static inline
#elif defined(__GNUC__)
#define {big}_INLINE static __inline__
#else
#define {big}_INLINE static
#endif
"""
    if not of.weights_head or of.weights_symbol is not None:
        yield f"""/* A context of so many threads. */
{big}_INLINE int {name}_create({name}_context **context, int64_t threads) {{
    {name}_options options = {nothing};
    options.threads = threads;
    return {name}_create_with(context, &options);
}}
"""
    if of.weights_head:
        yield f"""/* A context of so many threads, with the weights in a file. */
{big}_INLINE int {name}_create_mapped({name}_context **context, int64_t threads, const char *weights_path) {{
    {name}_options options = {nothing};
    options.threads = threads;
    options.weights_path = weights_path;
    return {name}_create_with(context, &options);
}}
"""


def _comment(text: str) -> str:
    return " ".join(plain_text(text).split()).replace("*/", "* /").replace("/*", "/ *")


# ---------------------------------------------------------------- CMake


def _cmake(of: Interface) -> str:
    name = of.name
    threads = "set_property(TARGET {0} PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads)\n" if of.parallel else ""
    found = "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\n" if threads else ""
    text = f"""# find_package({name} REQUIRED PATHS <this folder>), then target_link_libraries(… {name}::{name}) or {name}::shared
get_filename_component(_{name}_folder "${{CMAKE_CURRENT_LIST_FILE}}" PATH)
{found}if(NOT TARGET {name}::{name})
add_library({name}::{name} STATIC IMPORTED)
set_target_properties({name}::{name} PROPERTIES
  IMPORTED_LOCATION "${{_{name}_folder}}/lib{name}.a"
  IMPORTED_LINK_INTERFACE_LANGUAGES C
  INTERFACE_INCLUDE_DIRECTORIES "${{_{name}_folder}}")
{threads.format(f"{name}::{name}")}add_library({name}::shared SHARED IMPORTED)
set_target_properties({name}::shared PROPERTIES
  IMPORTED_LOCATION "${{_{name}_folder}}/lib{name}.so"
  IMPORTED_SONAME "lib{name}.so"
  INTERFACE_INCLUDE_DIRECTORIES "${{_{name}_folder}}")
{threads.format(f"{name}::shared")}"""
    if of.weights_head and of.weights_symbol is None:
        text += f'set({name}_WEIGHTS "${{_{name}_folder}}/{name}.weights")\n'
    return text + "endif()\n"
