"""Sets everything up and builds the documents as a site in `site/`: every broken link is an error, and no network is needed to read it.

python3 scripts/build_site.py            builds; open site/index.html
python3 scripts/build_site.py --serve    builds, serves on this machine, and builds again when a page changes
"""

from __future__ import annotations

import sys

from environment import run

if __name__ == "__main__":
    command = ["serve"] if "--serve" in sys.argv[1:] else ["build", "--strict", "--clean"]
    sys.exit(run("-m", "mkdocs", *command, extra="docs"))
