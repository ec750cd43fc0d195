"""Columns of a table whose rows come and go: dense arrays, grown by doubling.

A row is removed by moving the last row into its place, so that `array` has no holes; all columns of a table do it alike.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pinnace.fit.table import BoolArray

V = TypeVar("V", bound=Hashable)
Rows = slice | NDArray[np.intp]
ALL = slice(None)
"""Rows."""
"""Some rows of a table, in ascending order."""

_FIRST_CAPACITY = 64


class Column:
    """One value a row. `array` is a view of the rows in use; it is replaced when a row is added or removed."""

    def __init__(self, dtype: DTypeLike, rows: int = 0) -> None:
        self._data = np.zeros(max(rows, _FIRST_CAPACITY), dtype)
        self.array: NDArray[Any] = self._data[:rows]

    def append(self, value: Any) -> None:
        rows = len(self.array)
        if rows == len(self._data):
            self._data = np.concatenate((self._data, np.zeros_like(self._data)))
        self._data[rows] = value
        self.array = self._data[: rows + 1]

    @classmethod
    def of(cls, values: NDArray[Any]) -> "Column":
        """A column with these values."""
        column = cls.__new__(cls)
        column._data = column.array = values
        return column

    def remove(self, row: int) -> None:
        last = len(self.array) - 1
        self._data[row] = self._data[last]
        self.array = self._data[:last]


class Coded(Generic[V]):
    """A dictionary-encoded column: each distinct value is held once, and a row holds its code.

    Code 0 stands for `absent`. A code whose last row is gone is used again for another value.
    """

    def __init__(self, absent: V) -> None:
        self._column = Column(np.intp)
        self._codes = {absent: 0}
        self._values = [absent]
        self._rows = [0]
        self._unused: set[int] = set()

    def only(self, rows: Rows) -> "Coded[V]":
        """Some of the rows, as they are now."""
        some = Coded.__new__(Coded)
        codes = self.codes[rows]
        some._column, some._codes, some._values = Column.of(codes), self._codes, self._values
        some._rows = [len(codes) - int(np.count_nonzero(codes))]
        return some

    @property
    def codes(self) -> NDArray[np.intp]:
        return self._column.array

    @property
    def uniform(self) -> bool:
        """All rows are `absent`."""
        return self._rows[0] == len(self.codes)

    def at(self, row: int) -> V:
        return self._values[int(self.codes[row])]

    def append(self, value: V) -> None:
        self._column.append(self._acquire(value))

    def set(self, row: int, value: V) -> None:
        old = int(self.codes[row])
        self._column.array[row] = self._acquire(value)
        self._release(old)

    def remove(self, row: int) -> None:
        self._release(int(self.codes[row]))
        self._column.remove(row)

    def equal(self, value: V) -> BoolArray:
        """The rows that hold this value."""
        return np.equal(self.codes, self._codes.get(value, -1))

    def one_of(self, values: Iterable[V]) -> BoolArray:
        """The rows that hold one of these values, of which there may be many."""
        found = np.zeros(len(self._values), np.bool_)
        codes = [code for value in values if (code := self._codes.get(value)) is not None]
        found[codes] = True
        return found[self.codes]

    def map(self, function: Callable[[V], Any], dtype: DTypeLike) -> NDArray[Any]:
        """`function` of every row's value, called once for each distinct value."""
        return np.array([function(value) for value in self._values], dtype)[self.codes]

    def _acquire(self, value: V) -> int:
        code = self._codes.get(value)
        if code is None:
            if self._unused:
                code = self._unused.pop()
                del self._codes[self._values[code]]
                self._values[code] = value
            else:
                code = len(self._values)
                self._values.append(value)
                self._rows.append(0)
            self._codes[value] = code
        elif code and not self._rows[code]:
            self._unused.remove(code)
        self._rows[code] += 1
        return code

    def _release(self, code: int) -> None:
        self._rows[code] -= 1
        if code and not self._rows[code]:
            self._unused.add(code)
