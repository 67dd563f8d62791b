"""Arrays in files: read without trusting them, written as a whole or not at all.

C0201  cannot be read      C0202  not an .npy or .npz file      C0203  cannot be written
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from errno import EISDIR
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from tensorlang.diagnostics import CompileError, error

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
SUFFIXES = (".npy", ".npz")


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a file by name; the one array of an `.npy` file has the name "". Raises CompileError C0201, C0202."""
    import numpy as np

    try:
        with path.open("rb") as stream:
            found = np.load(stream, allow_pickle=False)
            return {"": found} if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise error("C0201", f"cannot read `{path}`: {why}", help=_file_meant(path)) from None
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as problem:
        raise error(
            "C0202", f"`{path}` is no array file", notes=(str(problem),), help="write it with `numpy.save` or `numpy.savez`"
        ) from None


def _file_meant(path: Path) -> str:
    """Return which file of arrays is meant by one that cannot be read: one of nearly that name, or any that lie there."""
    try:
        there = sorted(p.name for p in path.parent.iterdir() if p.suffix in SUFFIXES)
    except OSError:
        return "write it with `numpy.save`, or give a type for random numbers: `f32[4,5]`"
    close = get_close_matches(path.name, there, 1)
    if close:
        return f"did you mean `{path.with_name(close[0])}`?"
    return "write it with `numpy.save`, or give a type for random numbers: `f32[4,5]`"


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write one array to an `.npy` file, or any number to an `.npz` file. Raises CompileError C0202, C0203."""
    import numpy as np

    if path.suffix == ".npy":
        if len(arrays) != 1:
            raise error("C0202", f"`{path}` can hold one array, not {len(arrays)}", help="name an `.npz` file")
        [array] = arrays.values()
        whole(path, lambda handle: np.save(handle, array, allow_pickle=False))
    elif path.suffix == ".npz":
        whole(path, lambda handle: _write_zip(handle, arrays))
    else:
        raise error("C0202", f"`{path}` is no array file", help="name an `.npy` or `.npz` file")


def _write_zip(handle: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write an `.npz` file; unlike `numpy.savez` it takes any names."""
    import numpy as np

    with zipfile.ZipFile(handle, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def write_text(path: Path, text: str) -> None:
    """Replace a file by `text`. Raises CompileError C0203."""
    whole(path, lambda handle: handle.write(text.encode()))


def whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Call `write` on a temporary file beside `path` that then takes its place: nobody sees half of it. Raises CompileError C0203."""
    temporary = ""
    path = path.resolve()
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent or ".", prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            write(stream)
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except OSError as problem:
        raise write_error(path, problem) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _mode(path: Path) -> int:
    """Return the permissions of the file there is, or those of a new one."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def check_can_write(path: Path) -> None:
    """Raise CompileError C0203 where no file can be written, before what it is to hold takes long to find."""
    path = path.resolve()
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, "is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as problem:
        raise write_error(path, problem) from None


def write_error(path: Path, problem: OSError) -> CompileError:
    """Return C0203 for a path that cannot be written."""
    folder = path.parent
    help = (
        f"make the folder first: `mkdir -p {folder}`" if not folder.exists() else f"choose a place that can be written to, or mend `{path}`"
    )
    return error("C0203", f"cannot write `{path}`: {(problem.strerror or str(problem)).lower()}", help=help)
