"""What is kept so that it is not made again."""

from __future__ import annotations

from tensorlang.bounded_cache import BoundedCache, by_identity


def test_what_was_used_last_stays() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    made: list[str] = []

    def value(key: str) -> int:
        return cache.used(key, lambda: made.append(key) or len(made))

    assert [value(key) for key in "abacab"] == [1, 2, 1, 3, 1, 4]


def test_a_function_is_called_once_for_an_object_and_again_for_one_that_is_equal() -> None:
    seen: list[tuple[int, ...]] = []

    @by_identity(8)
    def total(numbers: tuple[int, ...]) -> int:
        """Return the sum."""
        seen.append(numbers)
        return sum(numbers)

    one, other = (tuple(range(1, 3)) for _ in "ab")
    assert [total(one), total(other), total(one), total(other)] == [3, 3, 3, 3]
    assert len(seen) == 2 and total.__doc__ == "Return the sum."


def test_no_object_is_taken_for_another_that_had_its_place_before() -> None:
    @by_identity(3)
    def first(numbers: tuple[int, ...]) -> int:
        return numbers[0]

    assert [first((k, k)) for k in range(50)] == list(range(50))
