"""The program `tensorlang`, also as `python -m tensorlang`: the command line, imported where an interrupt is heard already."""

from __future__ import annotations

import signal

from tensorlang.shell.interrupted import interrupted


def main() -> None:
    """Run the command line and exit."""
    try:
        from tensorlang.cli import main as command_line

        command_line()
    except KeyboardInterrupt:  # before there was a command line, or after
        raise SystemExit(interrupted()) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is to exit


if __name__ == "__main__":
    main()
