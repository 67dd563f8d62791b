"""The files beside a model that hold elements of its tensors: found in its bytes without the package `onnx`, and never outside its folder.

ModelProto … TensorProto { external_data: [{ key: "location", value: "weights.bin" }, …] }
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import TypeAlias

from stdlib.onnx.wire import NESTED, Bytes, WireError, fields

LOCATION = b"location"
"""The key of the entry that names a file. A message without these bytes names none."""

_Schema: TypeAlias = Mapping[int, str]
_SCHEMAS: Mapping[str, _Schema] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""The messages that hold tensors, by the numbers of their fields, as onnx.proto numbers them."""
_KEY, _VALUE = 1, 2


def external_files(path: str | os.PathLike[str]) -> tuple[Path, ...] | None:
    """Return the files that the model in a file says parts of it are in, in order of their names; None for a model that is not well-formed,
    or names what is no file in its folder. Raises OSError and ValueError where `path` cannot be read."""
    if os.path.getsize(path) == 0:
        return ()
    folder = Path(path).parent
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            names = {name.decode() for name in locations(content)}
        except (WireError, UnicodeDecodeError):
            return None
    found = [inside(folder, name) for name in sorted(names)]
    files = tuple(f for f in found if f is not None and os.path.isfile(f))
    return files if len(files) == len(found) else None


def locations(content: bytes | mmap.mmap) -> Iterator[bytes]:
    """Yield the locations that the tensors of a serialised model name, in subgraphs and functions, too. Raises WireError."""
    if content.find(LOCATION) >= 0:
        yield from _locations(content, 0, len(content), "model")


def _locations(content: bytes | mmap.mmap, start: int, end: int, message: str) -> Iterator[bytes]:
    schema = _SCHEMAS[message]
    for field in fields(content, start, end):
        inner = schema.get(field.number)
        if inner is None or field.wire != NESTED:
            continue
        if inner == "entry":
            yield from _entry(content, field.content, field.end)
        elif inner == "tensor" or content.find(LOCATION, field.content, field.end) >= 0:  # a tensor is long and has few fields
            yield from _locations(content, field.content, field.end, inner)


def _entry(content: Bytes, start: int, end: int) -> Iterator[bytes]:
    """Yield the value of an entry whose key is that of a location."""
    texts = {_KEY: b"", _VALUE: b""}
    for field in fields(content, start, end):
        if field.number in texts and field.wire == NESTED:
            texts[field.number] = bytes(content[field.content : field.end])  # of several, the last counts
    if texts[_KEY] == LOCATION:
        yield texts[_VALUE]


def inside(folder: Path, location: str) -> Path | None:
    """Return the path that `location` names, with the separators of any system, links resolved; None for one that does not lead into
    `folder`."""
    if not location or "\0" in location or PureWindowsPath(location).root:
        return None
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / location.replace("\\", "/")))
    return path if path.is_relative_to(root) else None
