"""Some rows of the table of nodes, as a table: what is asked of all nodes can be asked of these alone, for less."""

from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.columns import Coded, Rows
from scheduler.cache.table import FloatArray, NodeTable, Taint


class SomeNodes(NodeTable):
    """`rows` of `nodes`; they are numbered anew, in the same order. For the moment: nothing may be written to it."""

    def __init__(self, nodes: NodeTable, rows: Rows) -> None:
        self._all = nodes
        self._some = rows
        self._numbers = numbers = range(len(nodes))[rows] if isinstance(rows, slice) else rows.tolist()
        self.names = [nodes.names[row] for row in numbers]
        self.raw = [nodes.raw[row] for row in numbers]
        self.used_ports = nodes.used_ports
        self.used_volumes = nodes.used_volumes
        self._rows = {name: row for row, name in enumerate(self.names)}
        self.pods = nodes.pods.only(rows)
        self.touched = nodes.touched

    @property
    def epoch(self) -> tuple[int, int]:
        return self._all.epoch

    def allocatable(self, resource: str) -> IntArray:
        return self._all.allocatable(resource)[self._some]

    def free(self, resource: str) -> IntArray:
        return self._all.free_on(self._some, resource)

    def free_at(self, row: int, resource: str) -> int:
        return self._all.free_at(self._numbers[row], resource)

    def slack(self, scored: int) -> FloatArray:
        return self._all.slack(scored)[self._some]

    def inverse(self, scored: int) -> FloatArray:
        return self._all.inverse(scored)[self._some]

    @property
    def unschedulable(self) -> BoolArray:
        return self._all.unschedulable[self._some]

    @property
    def taints(self) -> Coded[tuple[Taint, ...]]:
        return self._all.taints.only(self._some)

    @property
    def largest_image(self) -> int:
        return self._all.largest_image

    def image(self, name: str) -> FloatArray:
        return self._all.image(name)[self._some]

    def has_image(self, name: str) -> bool:
        return self._all.has_image(name)

    def has_label(self, key: str) -> bool:
        return self._all.has_label(key)

    def _text(self, field: str, key: str) -> Coded[str | None]:
        return self._all._text(field, key).only(self._some)
