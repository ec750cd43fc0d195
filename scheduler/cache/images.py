"""Which container images nodes have: a column for each image that somebody asked for, kept up to date with the nodes."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pinnace.api.core_v1_pb2 import Node
from scheduler.cache.columns import Column

_COLUMNS = 64


class Images:
    def __init__(self) -> None:
        self._columns: dict[str, Column] = {}
        self.reporting = 0
        """Nodes that say which images they have."""
        self.largest = 0
        """Bytes: no node has, or had, a larger image."""

    def sizes(self, image: str, nodes: Sequence[Node]) -> NDArray[np.float64]:
        """The bytes of an image on each node; 0 where it is not. `nodes`: all of them, in the order of rows."""
        column = self._columns.get(image)
        if column is None:
            if len(self._columns) == _COLUMNS:
                del self._columns[next(iter(self._columns))]
            column = self._columns[image] = Column(np.float64)
            for node in nodes:
                column.append(dict(_images(node)).get(image, 0))
        return column.array

    def append(self, node: Node) -> None:
        """One more row."""
        self._count(node)
        found = dict(_images(node)) if self._columns else {}
        for image, column in self._columns.items():
            column.append(found.get(image, 0))

    def set(self, row: int, old: Node, new: Node) -> None:
        self._count(new)
        self.reporting -= bool(old.status.images)
        if self._columns and (old.status.images or new.status.images):
            found = dict(_images(new))
            for image, column in self._columns.items():
                column.array[row] = found.get(image, 0)

    def _count(self, node: Node) -> None:
        self.reporting += bool(node.status.images)
        self.largest = max(self.largest, *(image.sizeBytes for image in node.status.images), 0)

    def remove(self, row: int, old: Node) -> None:
        """The last row takes its place."""
        self.reporting -= bool(old.status.images)
        for column in self._columns.values():
            column.remove(row)


def _images(node: Node) -> Iterator[tuple[str, int]]:
    """An image has several names."""
    return ((name, image.sizeBytes) for image in node.status.images for name in image.names)
