"""Which container images nodes have. Columns are made for images that somebody asks for, and that some node has."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pinnace.api.core_v1_pb2 import Node
from scheduler.cache.columns import Column

_COLUMNS = 64
_Sizes = dict[str, int]


class Images:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows`: the rows of the table, by node, as they are at any time."""
        self._rows = rows
        self._holders: dict[str, _Sizes] = {}
        """By image: its bytes on each node that has it."""
        self._columns: dict[str, Column] = {}
        """The least recently used first."""
        self._none = Column(np.float64)
        self.reporting = 0
        """Nodes that say which images they have."""
        self.largest = 0
        """Bytes: no node has, or had, a larger image."""

    def has(self, image: str) -> bool:
        """Does any node have it?"""
        return image in self._holders

    def sizes(self, image: str) -> NDArray[np.float64]:
        """The bytes of an image on each node; 0 where it is not."""
        holders = self._holders.get(image)
        if holders is None:
            return self._none.array
        column = self._columns.pop(image, None)
        if column is None:
            if len(self._columns) == _COLUMNS:
                del self._columns[next(iter(self._columns))]
            column = Column(np.float64, rows=len(self._rows))
            column.array[[self._rows[name] for name in holders]] = list(holders.values())
        self._columns[image] = column
        return column.array

    def add(self, node: Node) -> None:
        """One more row, at the end."""
        self._none.append(0)
        for column in self._columns.values():
            column.append(0)
        self._hold(node)

    def replace(self, old: Node, new: Node) -> None:
        """Another version of a node."""
        if old is not new and old.status.images != new.status.images:
            self._release(old)
            self._hold(new)

    def remove(self, row: int, node: Node) -> None:
        """The last row takes its place."""
        self._release(node)
        for column in (self._none, *self._columns.values()):
            column.remove(row)

    def _hold(self, node: Node) -> None:
        self.reporting += bool(node.status.images)
        self.largest = max(self.largest, *(image.sizeBytes for image in node.status.images), 0)
        name = node.metadata.name
        for image, size in dict(_images(node)).items():
            self._holders.setdefault(image, {})[name] = size
            if (column := self._columns.get(image)) is not None:
                column.array[self._rows[name]] = size

    def _release(self, node: Node) -> None:
        self.reporting -= bool(node.status.images)
        name = node.metadata.name
        for image in dict(_images(node)):
            holders = self._holders[image]
            del holders[name]
            if (column := self._columns.get(image)) is not None and (row := self._rows.get(name)) is not None:
                column.array[row] = 0
            if not holders:
                del self._holders[image]
                self._columns.pop(image, None)


def _images(node: Node) -> Iterator[tuple[str, int]]:
    """An image has several names."""
    return ((name, image.sizeBytes) for image in node.status.images for name in image.names)
