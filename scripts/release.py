"""Makes the archives of a release in `dist/` and tries the wheel in an empty environment. Uploads nothing.

python3 scripts/release.py 0.2.0
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from environment import ROOT, prepared

SMOKE = """
import numpy as np, tensorlang as tl
ops = tl.parse("op twice(x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }")
assert (ops.twice(np.arange(5, dtype=np.float32)) == np.arange(0, 10, 2)).all()
print("tensorlang", tl.__version__, "runs")
"""


def problems(version: str, root: Path = ROOT) -> list[str]:
    """Return what keeps the files of the repository from being released as `version`."""
    found = []
    stated = re.search(r'^__version__ = "(.*)"$', (root / "tensorlang" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    if stated is None or stated[1] != version:
        found.append(f'tensorlang/__init__.py says {stated[1] if stated else "nothing"}: write `__version__ = "{version}"`')
    heading = re.search(rf"^## {re.escape(version)}(.*)$", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if heading is None:
        found.append(f"CHANGELOG.md has no section `## {version}`")
    elif "not released" in heading[1]:
        found.append(f"CHANGELOG.md says of {version} that it is not released yet: write the date")
    return found


def unclean() -> list[str]:
    """Return what the working tree has that no commit has."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [f"not committed: {line}" for line in status.splitlines()]


def build(version: str) -> Path:
    """Return the wheel, built from the archive of sources."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([str(prepared("dev")), "-m", "build", "--outdir", "dist", "."], cwd=ROOT, check=True)
    return next((ROOT / "dist").glob(f"tensorlang-{version}-*.whl"))


def tried(wheel: Path) -> None:
    """Install the wheel into an empty environment and run an operator there, away from the repository."""
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        commands = Path(folder) / "bin"
        python = str(commands / "python")
        for command in (
            [python, "-m", "pip", "install", "--quiet", str(wheel)],
            [python, "-c", SMOKE],
            [str(commands / "tensorlang"), "doctor"],
        ):
            subprocess.run(command, cwd=folder, env=alone, check=True)


def main(version: str) -> int:
    found = [*problems(version), *unclean()]
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    wheel = build(version)
    tried(wheel)
    print(f"\n{wheel.name} and the sources are in dist/. What remains:")
    print(f"    git tag -a v{version} -m 'tensorlang {version}' && git push --tags")
    print("    python -m twine upload dist/*")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", sys.argv[1]):
        raise SystemExit("usage: python3 scripts/release.py VERSION")
    sys.exit(main(sys.argv[1]))
