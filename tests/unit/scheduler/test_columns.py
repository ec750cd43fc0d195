"""Columns behave as lists would, however rows come and go."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pinnace.scheduler.cache.columns import Column, EncodedColumn

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4)),
        st.tuples(st.just("remove"), st.integers(0, 200)),
        st.tuples(st.just("set"), st.integers(0, 200)),
    ),
    max_size=200,
)


def swap_remove(values: list[int], row: int) -> None:
    values[row] = values[-1]
    values.pop()


@given(steps)
def test_column_is_a_list(actions: list[tuple[str, int]]) -> None:
    column, expected = Column(np.int64), list[int]()
    for action, number in actions:
        if action == "append":
            column.append(number)
            expected.append(number)
        elif expected:
            row = number % len(expected)
            if action == "remove":
                column.remove(row)
                swap_remove(expected, row)
            else:
                column.array[row] = expected[row] = number
        assert column.array.tolist() == expected


@given(steps)
def test_coded_column_is_a_list(actions: list[tuple[str, int]]) -> None:
    column, expected = EncodedColumn(0), list[int]()
    for action, number in actions:
        if action == "append":
            column.append(number)
            expected.append(number)
        elif expected:
            row = number % len(expected)
            if action == "remove":
                column.remove(row)
                swap_remove(expected, row)
            else:
                column.set(row, number % 5)
                expected[row] = number % 5
        assert column.map(lambda value: value, np.int64).tolist() == expected
        assert [column.at(row) for row in range(len(expected))] == expected
        for value in range(5):
            assert column.equal(value).tolist() == [item == value for item in expected]
        assert column.uniform is (not any(expected))


def test_values_that_are_not_used_any_more_do_not_pile_up() -> None:
    column = EncodedColumn("")
    column.append("")
    asked = set()
    for number in range(100):
        column.set(0, f"v{number}")
    column.map(lambda value: asked.add(value), np.object_)
    assert len(asked) <= 3


def test_column_grows_beyond_its_first_capacity() -> None:
    column = Column(np.int64, rows=3)
    for number in range(1000):
        column.append(number)
    assert column.array.tolist() == [0, 0, 0, *range(1000)]
