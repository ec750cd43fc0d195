"""Nodes as a table with one row per node and one column per property. Plugins read it; only the cache writes it.

Rows are dense, 0 to len-1. Removing a node may move another row, so a row number is valid only within one scheduling cycle.
Arrays are views. Callers must not change them or keep them beyond the cycle.

`SomeNodes` is a table of some of the rows, for filters and scorers that run on few nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add, sub
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.wire import ReadOnlySequence
from pinnace.fit import Requests
from pinnace.fit.table import BoolArray, IntArray, UsedPorts
from pinnace.scheduler.cache.columns import ALL, ChangeJournal, Column, EncodedColumn, ImageColumns, Rows, UsedVolumes
from pinnace.scheduler.cache.pod_index import PodGroup, PodIndex
from pinnace.scheduler.cache.pod_info import Nominations, PrioritySums

FloatArray = NDArray[np.float64]
Taint = tuple[str, str, str]
"""(key, value, effect)."""

RowChange = tuple[int, Requests | None]
"""A row whose pods have changed within a generation: the requests of one added pod, or None for any other change."""

SCORED = ("cpu", "memory")
"""The resources that scoring uses, in the order of `Requests.scored`."""
_TEXT_COLUMNS = 256
"""Maximum number of columns for labels and annotations. A column takes 8 bytes per node, and building it reads every node."""


class NodeTable:
    """Amounts are integers: millicores of CPU, bytes, or a count."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.raw: list[Node] = []
        """The informer's objects; the restrictions of `PodInfo.raw` apply."""
        self.used_ports = UsedPorts()
        self.used_volumes = UsedVolumes()
        self._rows: dict[str, int] = {}
        self._amounts: list[Mapping[str, int]] = []
        self._versions = Column(np.int64)
        self._none = Column(np.int64)
        self._allocatable: dict[str, Column] = {}
        self._free: dict[str, Column] = {}
        self._slack = tuple(Column(np.float64) for _ in SCORED)
        self._capacity = tuple(Column(np.float64) for _ in SCORED)
        self._unschedulable = Column(np.bool_)
        self._taints: EncodedColumn[tuple[Taint, ...]] = EncodedColumn(())
        self._texts: dict[tuple[str, str], EncodedColumn[str | None]] = {}
        """Columns by metadata field and key, the least recently used first."""
        self._keys = Counter[tuple[str, str]]()
        """The number of nodes with each key, including keys without a column."""
        self._nowhere = EncodedColumn[str | None](None)
        """The column of all keys that no node has."""
        self._images = ImageColumns(self._rows)
        self.pods = PodIndex(self._rows)
        """The pods on nodes, for inter-pod affinity and topology spreading."""
        self.dirty = ChangeJournal[RowChange]()
        self._generation = 0
        self.by_priority = PrioritySums(self._rows)
        """The requests of pods on nodes, by priority."""
        self.nominated = Nominations(self._rows)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nodes(self) -> Sequence[Node]:
        """The read-only nodes, by row."""
        return ReadOnlySequence(self.raw)

    @property
    def generation(self) -> tuple[int, int]:
        """Changes with nodes, objects that plugins read, and the set of terms of pods on nodes, but not with the pods
        themselves."""
        return self._generation, self.pods.terms_version

    def begin_generation(self) -> None:
        """Start a new generation after a change of an object that plugins read."""
        self._generation += 1

    def mark_dirty(self, name: str) -> None:
        """Record a change of the pods on a node without a change of resources. The node may be outside the table."""
        row = self._rows.get(name)
        if row is not None:
            self.dirty.append_entry((row, None))

    def row(self, name: str) -> int | None:
        return self._rows.get(name)

    def rows(self, names: Iterable[str]) -> list[int]:
        """Return the rows of the nodes that are in the table."""
        return [row for name in names if (row := self._rows.get(name)) is not None]

    def allocatable(self, resource: str) -> IntArray:
        """Return the allocatable amount of each node, or zeros if no node has the resource."""
        return self._allocatable.get(resource, self._none).array

    def free(self, resource: str) -> IntArray:
        """Return the free amount of each node. It is negative if more pods are bound than fit."""
        return self._free.get(resource, self._none).array

    def free_on(self, rows: Rows, resource: str) -> IntArray:
        """Return `free` of some rows."""
        return self.free(resource)[rows]

    def free_at(self, row: int, resource: str) -> int:
        """Return `free` of one row."""
        return int(self.free(resource)[row])

    def free_for_scoring(self, scored: int) -> FloatArray:
        """Return the free amount of SCORED[scored] for scoring, in which a container without a request counts with a
        default."""
        return self._slack[scored].array

    def capacity_for_scoring(self, scored: int) -> FloatArray:
        """Return the allocatable amount of SCORED[scored], or infinity for nodes without the resource, so that their share
        is 0."""
        return self._capacity[scored].array

    @property
    def versions(self) -> IntArray:
        """Changes with every change of the node, its pods, or the pods nominated to it. The cache writes it."""
        return self._versions.array

    @property
    def unschedulable(self) -> BoolArray:
        return self._unschedulable.array

    @property
    def taints(self) -> EncodedColumn[tuple[Taint, ...]]:
        """The taints of each node in order, or ()."""
        return self._taints

    def label(self, key: str) -> EncodedColumn[str | None]:
        """Return the value of a label on each node, or None on nodes without it.

        The column is built on first use and cached. A key that no node has needs no column.
        """
        return self._text("labels", key)

    def any_node_has_label(self, key: str) -> bool:
        """Return True if at least one node has the label."""
        return ("labels", key) in self._keys

    def annotation(self, key: str) -> EncodedColumn[str | None]:
        """Return the value of an annotation on each node, as `label` does."""
        return self._text("annotations", key)

    @property
    def largest_image(self) -> int:
        """The size of the largest image in bytes, or 0 if no node reports images."""
        return self._images.largest if self._images.reporting else 0

    def image(self, name: str) -> FloatArray:
        """Return the size of an image on each node in bytes, or 0 on nodes without it."""
        return self._images.image_sizes(name)

    def has_image(self, name: str) -> bool:
        """Return True if at least one node has the image."""
        return self._images.any_node_has_image(name)

    def subtract_amounts(self, amounts: Mapping[str, IntArray]) -> "NodeTable":
        """Return the same nodes with fewer free resources, as a read-only view. It is valid until the table changes."""
        return _AdjustedTable(self, amounts, sub) if amounts else self

    def add_amounts(self, amounts: Mapping[str, IntArray]) -> "NodeTable":
        """Return the same nodes with more free resources, as `subtract_amounts` does."""
        return _AdjustedTable(self, amounts, add) if amounts else self

    def subtract_reserved(self, priority: int, uid: str = "") -> "NodeTable":
        """Return the table without the resources that are reserved against pods of this priority.

        `uid` is a pod whose own reservation stays free. Only resources are subtracted; callers check other conflicts with
        nominated pods node by node.
        """
        seen = self.subtract_amounts(self.nominated.reserved_against(priority))
        own = self.nominated.own_reservation(uid, priority)
        return seen if own is None else _OneNodeFreer(seen, *own)

    def add_node(self, node: Node, pods: Iterable[Requests], groups: Iterable[PodGroup] = ()) -> None:
        """Add a node with the requests and groups of its pods."""
        name = node.metadata.name
        self._rows[name] = len(self.names)
        self.names.append(name)
        self.raw.append(node)
        self._amounts.append({})
        for column in self._resource_columns():
            column.append(0)
        self.taints.append(())
        self._nowhere.append(None)
        self._keys.update(_keys(node))
        for where, texts in self._texts.items():
            texts.append(_text(node, where))
        self._images.add(node)
        self.pods.add_row(groups)
        self.by_priority.add_row()
        self.nominated.add_row(name)
        self.update_node(node)
        for requests in pods:
            self.add_requests(name, requests)

    def update_node(self, node: Node) -> None:
        """Update a node that is in the table."""
        self._generation += 1
        row = self._rows[node.metadata.name]
        old, new = self._amounts[row], fit.allocatable_amounts(node)
        self._images.update_node_images(self.raw[row], node)
        self._count_keys(self.raw[row], node)
        self.raw[row] = node
        self._amounts[row] = new
        for resource in old.keys() | new.keys():
            more = new.get(resource, 0) - old.get(resource, 0)
            self._find_column(self._allocatable, resource).array[row] += more
            self._find_column(self._free, resource).array[row] += more
        for scored, resource in enumerate(SCORED):
            self._slack[scored].array[row] += new.get(resource, 0) - old.get(resource, 0)
            self._capacity[scored].array[row] = new.get(resource, 0) or np.inf
        self._unschedulable.array[row] = node.spec.unschedulable
        self.taints.set(row, tuple((taint.key, taint.value, taint.effect) for taint in node.spec.taints))
        for where, texts in self._texts.items():
            texts.set(row, _text(node, where))

    def remove_node(self, name: str) -> None:
        """Remove a node. The last row takes its place. Ports stay in use until the pods are removed."""
        self._generation += 1
        row, last = self._rows.pop(name), self.names[-1]
        if last != name:
            self._rows[last] = row
        self._images.remove(row, self.raw[row])
        self._drop_keys(self.raw[row])
        self.names[row], self.raw[row], self._amounts[row] = self.names[-1], self.raw[-1], self._amounts[-1]
        for values in (self.names, self.raw, self._amounts):
            values.pop()
        for column in self._resource_columns():
            column.remove(row)
        self.pods.remove_row(row)
        self.by_priority.remove_row(row)
        self.nominated.remove_row(row)
        self.taints.remove(row)
        self._nowhere.remove(row)
        for texts in self._texts.values():
            texts.remove(row)

    def add_requests(self, name: str, requests: Requests) -> None:
        """Count a pod on a node."""
        self._count(self._rows[name], requests, 1)

    def remove_requests(self, name: str, requests: Requests) -> None:
        """Undo an `add_requests` of equal requests."""
        self._count(self._rows[name], requests, -1)

    def _count(self, row: int, requests: Requests, pods: int) -> None:
        self.dirty.append_entry((row, requests if pods > 0 else None))
        for resource, amount in requests.amounts:
            column = self._free.get(resource) or self._find_column(self._free, resource)
            column.array[row] -= pods * amount
        for column, amount in zip(self._slack, requests.scored, strict=True):
            column.array[row] -= pods * amount

    def _text(self, field: str, key: str) -> EncodedColumn[str | None]:
        where = field, key
        column = self._texts.pop(where, None)
        if column is None:
            if where not in self._keys:
                return self._nowhere
            if len(self._texts) == _TEXT_COLUMNS:
                del self._texts[next(iter(self._texts))]
            column = EncodedColumn(None)
            for node in self.raw:
                column.append(_text(node, where))
        self._texts[where] = column
        return column

    def _count_keys(self, old: Node, new: Node) -> None:
        """Update the number of nodes per key for a new version of a node."""
        before, after = old.metadata, new.metadata
        if old is not new and (before.labels != after.labels or before.annotations != after.annotations):
            self._keys.update(_keys(new))
            self._drop_keys(old)

    def _drop_keys(self, node: Node) -> None:
        for key in _keys(node):
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]

    def _find_column(self, columns: dict[str, Column], resource: str) -> Column:
        column = columns.get(resource)
        if column is None:
            column = columns[resource] = Column(np.int64, rows=len(self.names))
        return column

    def _resource_columns(self) -> Iterator[Column]:
        yield self._versions
        yield self._none
        yield self._unschedulable
        yield from self._slack
        yield from self._capacity
        yield from self._allocatable.values()
        yield from self._free.values()


class _AdjustedTable(NodeTable):
    """Computes each resource on first use, because often only one resource or a few rows are read."""

    def __init__(self, nodes: NodeTable, amounts: Mapping[str, IntArray], change: Callable[[Any, Any], Any]) -> None:
        """`change` combines a free amount with another amount, for one node or an array of nodes."""
        self.__dict__.update(nodes.__dict__)
        self._nodes = nodes
        self._by = amounts
        self._change = change
        self._left: dict[str, IntArray] = {}

    def free(self, resource: str) -> IntArray:
        left = self._left.get(resource)
        if left is None:
            self._left[resource] = left = self.free_on(ALL, resource)
        return left

    def free_on(self, rows: Rows, resource: str) -> IntArray:
        amount, left = self._by.get(resource), self._nodes.free_on(rows, resource)
        changed: IntArray = left if amount is None else self._change(left, amount[rows])
        return changed

    def free_at(self, row: int, resource: str) -> int:
        amount, left = self._by.get(resource), self._nodes.free_at(row, resource)
        return left if amount is None else self._change(left, int(amount[row]))


class _OneNodeFreer(NodeTable):
    """One row has more free resources."""

    def __init__(self, nodes: NodeTable, row: int, requests: Requests) -> None:
        self.__dict__.update(nodes.__dict__)
        self._nodes = nodes
        self._row = row
        self._more = dict(requests.amounts)

    def free(self, resource: str) -> IntArray:
        free = self._nodes.free(resource).copy()
        free[self._row] += self._more.get(resource, 0)
        return free

    def free_at(self, row: int, resource: str) -> int:
        return self._nodes.free_at(row, resource) + (self._more.get(resource, 0) if row == self._row else 0)


def _keys(node: Node) -> Iterator[tuple[str, str]]:
    yield from (("labels", key) for key in node.metadata.labels)
    yield from (("annotations", key) for key in node.metadata.annotations)


def _text(node: Node, where: tuple[str, str]) -> str | None:
    field, key = where
    texts = node.metadata.labels if field == "labels" else node.metadata.annotations
    return texts.get(key)


class SomeNodes(NodeTable):
    """Some `rows` of `nodes`, renumbered in the same order. A read-only view that is valid until the table changes."""

    def __init__(self, nodes: NodeTable, rows: Rows) -> None:
        self._all = nodes
        self._some = rows
        self._numbers = numbers = range(len(nodes))[rows] if isinstance(rows, slice) else rows.tolist()
        self.names = [nodes.names[row] for row in numbers]
        self.raw = [nodes.raw[row] for row in numbers]
        self.used_ports = nodes.used_ports
        self.used_volumes = nodes.used_volumes
        self._rows = {name: row for row, name in enumerate(self.names)}
        self.pods = nodes.pods.view_rows(rows)
        self.dirty = nodes.dirty

    @property
    def generation(self) -> tuple[int, int]:
        return self._all.generation

    def allocatable(self, resource: str) -> IntArray:
        return self._all.allocatable(resource)[self._some]

    def free(self, resource: str) -> IntArray:
        return self._all.free_on(self._some, resource)

    def free_at(self, row: int, resource: str) -> int:
        return self._all.free_at(self._numbers[row], resource)

    def free_for_scoring(self, scored: int) -> FloatArray:
        return self._all.free_for_scoring(scored)[self._some]

    def capacity_for_scoring(self, scored: int) -> FloatArray:
        return self._all.capacity_for_scoring(scored)[self._some]

    @property
    def unschedulable(self) -> BoolArray:
        return self._all.unschedulable[self._some]

    @property
    def taints(self) -> EncodedColumn[tuple[Taint, ...]]:
        return self._all.taints.view_rows(self._some)

    @property
    def largest_image(self) -> int:
        return self._all.largest_image

    def image(self, name: str) -> FloatArray:
        return self._all.image(name)[self._some]

    def has_image(self, name: str) -> bool:
        return self._all.has_image(name)

    def any_node_has_label(self, key: str) -> bool:
        return self._all.any_node_has_label(key)

    def _text(self, field: str, key: str) -> EncodedColumn[str | None]:
        return self._all._text(field, key).view_rows(self._some)
