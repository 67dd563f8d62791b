"""Sets everything up and runs the tests, with warnings as errors. Arguments go to pytest.

python3 scripts/test.py [tests/syntax -k layout …]

A process runs all tests of a file, so that what they share is made once.
"""

from __future__ import annotations

import sys

from environment import PYTEST, WHOLE, run

if __name__ == "__main__":
    runs = [(*PYTEST, *sys.argv[1:])] if sys.argv[1:] else list(WHOLE.values())
    sys.exit(max(abs(run(*arguments)) for arguments in runs))
