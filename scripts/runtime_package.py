"""Makes the package `tensorlang-runtime`: what loads libraries that were compiled ahead of time, for environments without the compiler.

    python scripts/runtime_package.py [FOLDER]      writes tensorlang_runtime-VERSION-py3-none-any.whl, by default into dist/

It is the modules of `tensorlang/saved` under the name `tensorlang_runtime`, so it may be installed beside tensorlang. Needs Python alone.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tensorlang_runtime"
METADATA = """Metadata-Version: 2.4
Name: tensorlang-runtime
Version: {version}
Summary: Runs models and operators that tensorlang compiled ahead of time.
License-Expression: Apache-2.0
License-File: LICENSE
License-File: NOTICE
Requires-Python: >=3.11
Requires-Dist: numpy>=1.26
Provides-Extra: dtypes
Requires-Dist: ml_dtypes>=0.4; extra == "dtypes"
Description-Content-Type: text/markdown

Runs models and operators that tensorlang compiled ahead of time: `load_model(folder)(array)`.
"""


def version() -> str:
    """Return the version of tensorlang."""
    found = re.search(r'^__version__ = "(.*)"$', (ROOT / "tensorlang" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    assert found is not None, "tensorlang/__init__.py has no version"
    return found[1]


def files() -> dict[str, bytes]:
    """Return what is in the wheel, but for the record of it."""
    info = f"{PACKAGE}-{version()}.dist-info"
    modules = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in sorted((ROOT / "tensorlang" / "saved").glob("*.py"))}
    return {
        **modules,
        f"{PACKAGE}/py.typed": b"",
        **{f"{info}/licenses/{name}": (ROOT / name).read_bytes() for name in ("LICENSE", "NOTICE")},
        f"{info}/METADATA": METADATA.format(version=version()).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tensorlang\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }


def record(content: dict[str, bytes], name: str) -> bytes:
    """Return the record of files, which is `name` itself."""

    def line(path: str, data: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(data)}\n"

    return ("".join(line(path, data) for path, data in content.items()) + f"{name},,\n").encode()


def write(folder: Path) -> Path:
    """Write the wheel into a folder and return where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    content, name = files(), f"{PACKAGE}-{version()}.dist-info/RECORD"
    path = folder / f"{PACKAGE}-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for place, data in (content | {name: record(content, name)}).items():
            wheel.writestr(zipfile.ZipInfo(place, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    made = write(parser.parse_args().folder)
    print(f"{made.stat().st_size:,} bytes  {made}")
