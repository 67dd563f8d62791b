"""`python -m tensorlang` is `tensorlang`."""

from tensorlang.cli import main

if __name__ == "__main__":
    main()
