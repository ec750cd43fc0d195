"""The columns of one resource, and the ones that every resource can have around them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import Object

T = TypeVar("T", bound=Object)

NONE = "<none>"


class Headed(Protocol):
    """Names of columns."""

    @property
    def headers(self) -> tuple[str, ...]: ...
    @property
    def wide(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Columns(Generic[T]):
    """`row(obj, now)` gives the cells under `headers` and then those under `wide`, which only `-o wide` shows."""

    headers: tuple[str, ...]
    wide: tuple[str, ...]
    row: Callable[[T, float], Sequence[str]]
    order: Callable[[T], tuple[float, int]] | None = None
    """Sort key of a table; None leaves the server's order, by namespace and name."""


@dataclass(frozen=True, slots=True)
class View:
    """What to show around a resource's own columns."""

    wide: bool = False
    namespace: bool = False
    labels: bool = False
    label_columns: tuple[str, ...] = ()
    """Labels that have a column each."""
    prefix: str = ""
    """Put before each name: "pod/" where a table is one of several kinds."""

    @property
    def with_metadata(self) -> bool:
        """Does it show more than a kind's own columns?"""
        return self.namespace or self.labels or bool(self.label_columns)

    def headers(self, columns: Headed) -> tuple[str, ...]:
        own = columns.headers + (columns.wide if self.wide else ())
        chosen = tuple(key.rpartition("/")[2].upper() for key in self.label_columns)
        return ("NAMESPACE",) * self.namespace + own + chosen + ("LABELS",) * self.labels

    def row(self, columns: Columns[T], obj: T, now: float) -> list[str]:
        return self.frame(columns, columns.row(obj, now), obj.metadata)

    def frame(self, columns: Headed, printed: Sequence[str], metadata: ObjectMeta) -> list[str]:
        """A row of these cells: those of `-o wide` left out where they are not wanted, and what is around them."""
        cells = list(printed if self.wide else printed[: len(columns.headers)])
        if self.prefix and "NAME" in columns.headers:
            at = columns.headers.index("NAME")
            cells[at] = self.prefix + cells[at]
        if self.namespace:
            cells.insert(0, metadata.namespace)
        cells += [metadata.labels.get(key) or NONE for key in self.label_columns]
        if self.labels:
            cells.append(format_labels(metadata.labels) or NONE)
        return cells


def format_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
