"""Columns of the node table: dense arrays, a change journal, images, and volumes in use.

Arrays grow by doubling. When a row is removed, the last row moves into its place, so that `array` has no gaps. All columns of a
table do the same.

`ChangeJournal` is a bounded list of changes. A reader that has fallen too far behind receives None and must read everything.
`ImageColumns` has a column for each image that a plugin has requested and at least one node has. `UsedVolumes` has the claims
and disks of pods by node name, including nodes outside the table. It does not map claims to volumes or drivers: plugins that do
so use `nodes_changed_since` to find the nodes to read again.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pinnace.api.core_v1_pb2 import Node, Pod, VolumeSource
from pinnace.fit.table import BoolArray

V = TypeVar("V", bound=Hashable)
Rows = slice | NDArray[np.intp]
"""Some rows of a table, in ascending order."""
ALL = slice(None)
"""All rows."""

_FIRST_CAPACITY = 64
T = TypeVar("T")
_LENGTH = 4096
_COLUMNS = 64
_NOWHERE: Mapping[str, int] = {}
_Sizes = dict[str, int]


class Column:
    """One value per row. `array` is a view of the rows in use. Adding or removing a row replaces it."""

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
    def from_values(cls, values: NDArray[Any]) -> "Column":
        """Return a column with these values."""
        column = cls.__new__(cls)
        column._data = column.array = values
        return column

    def remove(self, row: int) -> None:
        last = len(self.array) - 1
        self._data[row] = self._data[last]
        self.array = self._data[:last]


class EncodedColumn(Generic[V]):
    """A dictionary-encoded column: distinct values are stored once, and each row holds the code of its value.

    Code 0 is the code of `absent`. A code without rows is reused for another value.
    """

    def __init__(self, absent: V) -> None:
        self._column = Column(np.intp)
        self._codes = {absent: 0}
        self._values = [absent]
        self._rows = [0]
        self._unused: set[int] = set()

    def view_rows(self, rows: Rows) -> "EncodedColumn[V]":
        """Return a copy of some rows."""
        some = EncodedColumn.__new__(EncodedColumn)
        codes = self.codes[rows]
        some._column, some._codes, some._values = Column.from_values(codes), self._codes, self._values
        some._rows = [len(codes) - int(np.count_nonzero(codes))]
        return some

    @property
    def codes(self) -> NDArray[np.intp]:
        return self._column.array

    @property
    def uniform(self) -> bool:
        """True if all rows are `absent`."""
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
        """Return the rows with this value."""
        return np.equal(self.codes, self._codes.get(value, -1))

    def one_of(self, values: Iterable[V]) -> BoolArray:
        """Return the rows with one of these values. The cost depends little on the number of values."""
        result = np.zeros(len(self._values), np.bool_)
        codes = [code for value in values if (code := self._codes.get(value)) is not None]
        result[codes] = True
        return result[self.codes]

    def map(self, function: Callable[[V], Any], dtype: DTypeLike) -> NDArray[Any]:
        """Apply `function` to the value of every row. It is called once per distinct value."""
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


class ChangeJournal(Generic[T]):
    def __init__(self) -> None:
        self._entries: list[T] = []
        self._forgotten = 0

    @property
    def position(self) -> int:
        """The current position, for a later call of `entries_since`."""
        return self._forgotten + len(self._entries)

    def entries_since(self, position: int) -> list[T] | None:
        """Return the changes since an earlier position, possibly with duplicates, or None if they are no longer stored."""
        return self._entries[position - self._forgotten :] if position >= self._forgotten else None

    def append_entry(self, entry: T) -> None:
        self._entries.append(entry)
        if len(self._entries) > _LENGTH:
            del self._entries[: _LENGTH // 2]
            self._forgotten += _LENGTH // 2


class ImageColumns:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows` is the live map of node names to rows of the table."""
        self._rows = rows
        self._holders: dict[str, _Sizes] = {}
        """For each image, its size in bytes on each node that has it."""
        self._columns: dict[str, Column] = {}
        """Columns by image, the least recently used first."""
        self._none = Column(np.float64)
        self.reporting = 0
        """Number of nodes that report images."""
        self.largest = 0
        """Upper bound of the size of an image, in bytes. It never decreases."""

    def any_node_has_image(self, image: str) -> bool:
        """Return True if at least one node has the image."""
        return image in self._holders

    def image_sizes(self, image: str) -> NDArray[np.float64]:
        """Return the size of the image on each node in bytes, or 0 on nodes without it."""
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
        """Append a row for the node."""
        self._none.append(0)
        for column in self._columns.values():
            column.append(0)
        self._add_images(node)

    def update_node_images(self, old: Node, new: Node) -> None:
        """Update the row of a node."""
        if old is not new and old.status.images != new.status.images:
            self._remove_images(old)
            self._add_images(new)

    def remove(self, row: int, node: Node) -> None:
        """Remove a row. The last row takes its place."""
        self._remove_images(node)
        for column in (self._none, *self._columns.values()):
            column.remove(row)

    def _add_images(self, node: Node) -> None:
        self.reporting += bool(node.status.images)
        self.largest = max(self.largest, *(image.sizeBytes for image in node.status.images), 0)
        name = node.metadata.name
        for image, size in dict(_image_sizes(node)).items():
            self._holders.setdefault(image, {})[name] = size
            if (column := self._columns.get(image)) is not None:
                column.array[self._rows[name]] = size

    def _remove_images(self, node: Node) -> None:
        self.reporting -= bool(node.status.images)
        name = node.metadata.name
        for image in dict(_image_sizes(node)):
            holders = self._holders[image]
            del holders[name]
            if (column := self._columns.get(image)) is not None and (row := self._rows.get(name)) is not None:
                column.array[row] = 0
            if not holders:
                del self._holders[image]
                self._columns.pop(image, None)


def _image_sizes(node: Node) -> Iterator[tuple[str, int]]:
    """Yield the size of each image by name. An image can have several names."""
    return ((name, image.sizeBytes) for image in node.status.images for name in image.names)


class Disk(NamedTuple):
    """A disk in a pod's spec. Two pods must not write to it at the same time."""

    kind: str
    identity: tuple[str, ...]
    read_only: bool


@dataclass(frozen=True, slots=True)
class PodVolumes:
    claims: tuple[str, ...]
    """Claims as "namespace/name" without duplicates, including ephemeral claims."""
    disks: tuple[Disk, ...]
    ephemeral: frozenset[str] = field(default=frozenset(), compare=False)
    """The claims that belong to ephemeral volumes of the pod."""


def pod_volumes(pod: Pod) -> PodVolumes | None:
    """Return the claims and disks of the pod, or None if it has neither."""
    claims: dict[str, None] = {}
    disks: list[Disk] = []
    ephemeral = []
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        source = volume.volumeSource
        if source.HasField("persistentVolumeClaim"):
            claims[f"{namespace}/{source.persistentVolumeClaim.claimName}"] = None
        elif source.HasField("ephemeral"):
            key = f"{namespace}/{pod.metadata.name}-{volume.name}"
            claims[key] = None
            ephemeral.append(key)
        else:
            disks.extend(_disks_of(source))
    return PodVolumes(tuple(claims), tuple(disks), frozenset(ephemeral)) if claims or disks else None


class UsedVolumes:
    def __init__(self) -> None:
        self._users: dict[str | Disk, dict[str, int]] = {}
        """The number of pods by claim or disk and by node."""
        self._claims: dict[str, dict[str, int]] = {}
        """The number of pods by node and by claim."""
        self._journal = ChangeJournal[str]()

    def count_users(self, of: str | Disk) -> Mapping[str, int]:
        """Return the number of pods that use a claim or disk by node. Nodes without such pods are omitted."""
        return self._users.get(of, _NOWHERE)

    def claims_on(self, node: str) -> Mapping[str, int]:
        """Return the number of pods that use each claim on a node."""
        return self._claims.get(node, _NOWHERE)

    def nodes_with_claims(self) -> Iterator[str]:
        return iter(self._claims)

    @property
    def position(self) -> int:
        """The current position, for a later call of `nodes_changed_since`."""
        return self._journal.position

    def nodes_changed_since(self, since: int) -> list[str] | None:
        """Return the nodes whose claims have changed since an earlier `position`, possibly with duplicates, or None if the
        changes are no longer stored."""
        return self._journal.entries_since(since)

    def add(self, node: str, volumes: PodVolumes) -> None:
        for disk in volumes.disks:
            _add_count(self._users.setdefault(disk, {}), node, 1)
        for claim in volumes.claims:
            _add_count(self._users.setdefault(claim, {}), node, 1)
            claims = self._claims.setdefault(node, {})
            _add_count(claims, claim, 1)
            if claims[claim] == 1:
                self._journal.append_entry(node)

    def remove(self, node: str, volumes: PodVolumes) -> None:
        """Undo an `add`."""
        uses: tuple[str | Disk, ...] = (*volumes.disks, *volumes.claims)
        for use in uses:
            _add_count(self._users[use], node, -1)
            if not self._users[use]:
                del self._users[use]
        for claim in volumes.claims:
            claims = self._claims[node]
            _add_count(claims, claim, -1)
            if claim not in claims:
                self._journal.append_entry(node)
            if not claims:
                del self._claims[node]


def _add_count(counts: dict[str, int], key: str, more: int) -> None:
    left = counts.get(key, 0) + more
    if left:
        counts[key] = left
    else:
        del counts[key]


def _disks_of(source: VolumeSource) -> Iterator[Disk]:
    if source.HasField("gcePersistentDisk"):
        gce = source.gcePersistentDisk
        yield Disk("gcePersistentDisk", (gce.pdName,), gce.readOnly)
    elif source.HasField("awsElasticBlockStore"):  # it cannot be shared, even read-only
        yield Disk("awsElasticBlockStore", (source.awsElasticBlockStore.volumeID,), False)
    elif source.HasField("iscsi"):
        yield Disk("iscsi", (source.iscsi.iqn,), source.iscsi.readOnly)
    elif source.HasField("rbd"):
        rbd = source.rbd
        for monitor in dict.fromkeys(rbd.monitors):  # images are the same if a monitor, the pool and the name are the same
            yield Disk("rbd", (monitor, rbd.pool, rbd.image), rbd.readOnly)
