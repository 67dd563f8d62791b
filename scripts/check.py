"""Sets everything up and runs what has to hold before a change is merged: layout, lints, types, imports, places of
planted faults, tests.

python3 scripts/check.py [--fast]        without the tests
"""

from __future__ import annotations

import sys

from environment import WHOLE, prepared, run

STATIC = {
    "layout": ("-m", "ruff", "format", "--check", "--quiet", "."),
    "lints": ("-m", "ruff", "check", "--quiet", "."),
    "types": ("-m", "mypy"),
    "types of a user's program": ("-m", "mypy", "--strict", "examples/13_typed.py"),
    "imports": ("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-logo"),
    "places of planted faults": ("-m", "pytest", "-q", "-n0", "tests/test_faults.py"),
}
TESTS = WHOLE


def main(fast: bool) -> int:
    """Return 0 when every check passes. All of them run, whatever the others say."""
    failed = []
    for name, arguments in (STATIC if fast else STATIC | TESTS).items():
        print(f"---- {name}", flush=True)
        if run(*arguments, extra="dev"):
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all is well", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    prepared("dev")
    sys.exit(main("--fast" in sys.argv[1:]))
