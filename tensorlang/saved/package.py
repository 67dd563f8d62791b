"""The format of a saved model: a folder with a manifest, and the files that it lists.

    manifest.json      what the folder is, and a digest of each file; its last entry is a digest of all the others
    libNAME.so         the code, of several levels of instructions where it was built for several
    NAME.weights       the weights as kernels read them; mapped, so that processes share them
    NAME.h, libNAME.a  for C (see docs/ahead-of-time.md)

Whoever writes and whoever reads a folder does it by these functions. Other versions of the format are refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import SavedError

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Tensor:
    """An input or output: extents are numbers, or formulas over the sizes as people write them."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Size:
    """A size that runs may choose, from 0 to `most`."""

    name: str
    most: int


@dataclass(frozen=True)
class Level:
    """A level of instructions that there is code for: what it is called, and what of a processor it needs."""

    target: str
    family: str
    features: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """The record of a kernel's proof: its schedule, where that came from, what its run-time checks say, what came of validation, and what
    of it is not proven and trusted, with the reason."""

    symbol: str
    schedule: str
    origin: str
    requirements: tuple[str, ...]
    validated: str
    trusted: str = ""


@dataclass(frozen=True)
class Rows:
    """Whether rows of a batch depend on each other. `verdict`: "independent", proven for every size of the batch; "mixed", as they do, and
    `why` names what reads two rows; "unknown", where neither was found, and `why` says where the proof ends."""

    verdict: str = "unknown"
    why: str = "it was built by a version that did not look"


@dataclass(frozen=True)
class File:
    """How many bytes a file has, and their SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a folder holds. `name` is an identifier of C, `model` what the model itself is called; `identity` is that of the interface;
    `library` and `weights` are names of files, "" for none; `threads`: how many a run may use at most."""

    name: str
    model: str
    identity: int
    compiler: str
    """The version of tensorlang, and a digest of its source."""
    sizes: tuple[Size, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    levels: tuple[Level, ...]
    threads: int
    library: str
    weights: str
    kernels: tuple[Kernel, ...] = ()
    rows: Rows = Rows()
    files: Mapping[str, File] = field(default_factory=dict)


def digest_of(data: bytes | memoryview) -> File:
    """Return the record of a file."""
    return File(len(data), hashlib.sha256(data).hexdigest())


def identity_of(name: str, sizes: Sequence[Size], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Return 64 bits that tell what is to be known of a library to call it: its sizes and arrays, in order."""
    said = json.dumps([name, *([asdict(part) for part in parts] for parts in (sizes, inputs, outputs))], sort_keys=True)
    return int.from_bytes(hashlib.sha256(said.encode()).digest()[:8], "little")


def manifest_text(manifest: Manifest) -> str:
    """Return a manifest as text."""
    document: dict[str, Any] = {"format": FORMAT, **asdict(manifest)}
    document["checksum"] = _checksum(document)
    return json.dumps(document, indent=1) + "\n"


def _checksum(document: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: str) -> Manifest:
    """Return the manifest of a folder. Raises SavedError R0401 for what is none, R0402 for a changed one, R0403 for another version."""
    path = os.path.join(folder, MANIFEST)
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError("it is no file")
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise SavedError(
            "R0401", f"`{folder}` holds no saved model: `{MANIFEST}`: {reason}", "`tensorlang build` makes such folders"
        ) from None
    except (ValueError, RecursionError):
        raise SavedError("R0402", f"`{path}` is not whole", "copy the folder again, or build it again") from None
    if not isinstance(document, dict) or "format" not in document:
        raise SavedError("R0401", f"`{path}` is the manifest of something else", "`tensorlang build` makes such folders")
    if document["format"] != FORMAT:
        title = f"`{folder}` is of version {document['format']!r} of the format, and this reads version {FORMAT}"
        raise SavedError("R0403", title, "build it again, or install the version of tensorlang that made it")
    if document.get("checksum") != _checksum(document):
        raise SavedError("R0402", f"`{path}` was changed since it was made", "copy the folder again, or build it again")
    try:
        found = _manifest(document)
        missing = {found.library, found.weights} - {"", *found.files}
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise SavedError("R0402", f"`{path}` lacks what it should say: {problem}", "build it again") from None
    if missing or not all(os.path.basename(name) == name not in ("", ".", "..") for name in found.files):
        raise SavedError("R0402", f"`{path}` does not list the files of its folder", "build it again")
    return found


def files_of_others(folder: str) -> list[str]:
    """Return what a folder holds that is of no library, of whatever version: all of it where the manifest is none of a library."""
    found = os.listdir(folder)
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            document = json.load(file)
        own = {MANIFEST, *document["files"]} if {"format", "checksum"} <= document.keys() else set()
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        own = set()
    return sorted(set(found) - own)


def _manifest(d: Mapping[str, Any]) -> Manifest:
    """Return a manifest of which every part is of its type. Raises KeyError, TypeError, AttributeError and ValueError."""

    def tensors(items: object) -> tuple[Tensor, ...]:
        return tuple(Tensor(_text(t["name"]), _text(t["dtype"]), tuple(map(_extent, _list(t["shape"])))) for t in _list(items))

    def texts(items: object) -> tuple[str, ...]:
        return tuple(_text(item, empty=True) for item in _list(items))

    def kernel(k: Mapping[str, Any]) -> Kernel:
        symbol, schedule, origin = texts([k["symbol"], k["schedule"], k["origin"]])
        return Kernel(symbol, schedule, origin, texts(k["requirements"]), *texts([k["validated"], k.get("trusted", "")]))

    return Manifest(
        _text(d["name"]),
        _text(d["model"]),
        _number(d["identity"], 2**64 - 1),
        _text(d["compiler"]),
        tuple(Size(_text(s["name"]), _number(s["most"], 2**62)) for s in _list(d["sizes"])),
        tensors(d["inputs"]),
        tensors(d["outputs"]),
        tuple(Level(_text(x["target"]), _text(x["family"]), texts(x["features"])) for x in _list(d["levels"])),
        _number(d["threads"], 2**16),
        _text(d["library"], empty=True),
        _text(d["weights"], empty=True),
        tuple(map(kernel, _list(d["kernels"]))),
        Rows(_text(d["rows"]["verdict"]), _text(d["rows"]["why"], empty=True)) if "rows" in d else Rows(),
        {_text(name): File(_number(f["bytes"], 2**62), _text(f["sha256"])) for name, f in d["files"].items()},
    )


def _text(value: object, empty: bool = False) -> str:
    if not isinstance(value, str) or "\0" in value or not (value or empty):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def _number(value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{value!r:.40} is no number from 0 to {most}")
    return value


def _extent(value: object) -> int | str:
    return _text(value) if isinstance(value, str) else _number(value, 2**62)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is no list")
    return value


def check_file(folder: str, name: str, expected: File, data: bytes | memoryview | None = None) -> None:
    """Raise SavedError R0402 where a file of the folder is missing or is not as long as it was; and, where `data` is what it holds, where
    that is something else."""
    path = os.path.join(folder, name)
    try:
        size = os.stat(path).st_size
    except OSError as problem:
        raise SavedError("R0402", f"`{path}` is missing: {problem.strerror}", "copy the folder again, whole") from None
    if size != expected.bytes:
        title = f"`{path}` has {size} bytes instead of {expected.bytes}"
        raise SavedError("R0402", title, "copy the folder again, or build it again")
    if data is not None and hashlib.sha256(data).hexdigest() != expected.sha256:
        raise SavedError("R0402", f"`{path}` was changed since it was made", "copy the folder again, or build it again")
