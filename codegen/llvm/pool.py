"""The pool."""


def pool_imports() -> dict[str, int]:
    return {}
