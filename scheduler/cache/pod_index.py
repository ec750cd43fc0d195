"""The pods on nodes, for inter-pod affinity and topology spreading: the number of matching pods per node, and the pods' terms.

Pods that no selector can distinguish (equal namespace, labels, controller, deletion and terms) form one group. A group stores
the number of its pods on each node. Plugins read columns: for each node, the number of pods that match a `Selection` or have a
`AffinityTerm`. A column is built on first use and updated with every added or removed pod. The least recently used column is
evicted.

An update of a pod costs time for each matching column. The cost of a decision does not depend on the number of pods.

`SelectorIndex` finds the selectors that match a pod without checking all of them: a selector that requires one of several
values of a label is indexed by each value. Source:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pinnace.api import selectors
from pinnace.api.core_v1_pb2 import Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity
from pinnace.api.selectors import NOTHING, LabelRequirement, LabelSelector
from pinnace.scheduler.cache.columns import Column, Rows

MAX_REMEMBERED = 16 << 10
"""Maximum size of terms that are cached, in bytes. The cache holds at most 64 MiB."""
T = TypeVar("T", bound=Hashable)
_COLUMNS = 256
_KEPT = 64
"""Maximum number of terms in `sum_pods` for which columns are built."""
_LONG = 100
"""Number of requirements above which a selection has no column, because each new group of pods is matched with all columns."""
_ANY_NAMESPACE = "*"
"""A key that is not a valid namespace."""
_CONTROLLER = ""
"""The label key for the UID of a pod's controller. Real labels have no empty key."""
Label = tuple[str, str]


class TermKind(Enum):
    AFFINITY = auto()
    """Required affinity."""
    ANTI_AFFINITY = auto()
    """Required anti-affinity."""
    PREFERRED = auto()
    """Preferred affinity, or preferred anti-affinity with a negative weight."""


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """An affinity or anti-affinity term: the pods that it selects, and a topology key."""

    kind: TermKind
    topology_key: str
    namespaces: frozenset[str]
    labels: LabelSelector
    namespace_selector: LabelSelector | None = None
    """Selects more namespaces by their labels. An empty selector selects all namespaces."""
    weight: int = 1
    """The weight of a preferred term, or the number of occurrences of a required term."""

    def applies_to(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return True if the term applies to pods of the namespace with these labels."""
        selector = self.namespace_selector
        return namespace in self.namespaces or (selector is not None and selector.matches(labels))


def pod_terms(pod: Pod) -> tuple[AffinityTerm, ...]:
    """Return the pod's terms of all kinds without duplicates. Equivalent pods share one tuple."""
    if not has_terms(pod):
        return ()
    affinity, anti_affinity = serialized_terms(pod)
    parse = _parse_cached if len(affinity) + len(anti_affinity) <= MAX_REMEMBERED else _parse
    return parse(affinity, anti_affinity, pod.metadata.namespace)


def has_terms(pod: Pod) -> bool:
    spec = pod.spec
    if not spec.HasField("affinity"):
        return False
    affinity = spec.affinity
    return affinity.HasField("podAffinity") or affinity.HasField("podAntiAffinity")


def serialized_terms(pod: Pod) -> tuple[bytes, bytes]:
    """Return the serialized terms. They are equal for pods with the same terms."""
    affinity = pod.spec.affinity
    return (
        affinity.podAffinity.SerializeToString(deterministic=True),
        affinity.podAntiAffinity.SerializeToString(deterministic=True),
    )


@lru_cache(maxsize=4096)
def _parse_cached(affinity: bytes, anti_affinity: bytes, namespace: str) -> tuple[AffinityTerm, ...]:
    return _parse(affinity, anti_affinity, namespace)


def _parse(affinity: bytes, anti_affinity: bytes, namespace: str) -> tuple[AffinityTerm, ...]:
    near, far = PodAffinity.FromString(affinity), PodAntiAffinity.FromString(anti_affinity)
    required = (
        (TermKind.AFFINITY, near.requiredDuringSchedulingIgnoredDuringExecution),
        (TermKind.ANTI_AFFINITY, far.requiredDuringSchedulingIgnoredDuringExecution),
    )
    terms = [_parse_term(kind, term, namespace) for kind, stated in required for term in stated]
    for sign, preferred in (
        (1, near.preferredDuringSchedulingIgnoredDuringExecution),
        (-1, far.preferredDuringSchedulingIgnoredDuringExecution),
    ):
        terms += [
            _parse_term(TermKind.PREFERRED, affinity_term.podAffinityTerm, namespace, sign * affinity_term.weight)
            for affinity_term in preferred
        ]
    return tuple(_merge_equal_terms(terms))


def _merge_equal_terms(terms: Iterable[AffinityTerm]) -> Iterable[AffinityTerm]:
    """Merge terms that differ only in their weights."""
    result: dict[tuple[object, ...], AffinityTerm] = {}
    for term in terms:
        key = term.kind, term.topology_key, term.namespaces, term.labels, term.namespace_selector
        known = result.get(key)
        result[key] = term if known is None else replace(term, weight=known.weight + term.weight)
    return (term for term in result.values() if term.weight)


def _parse_term(kind: TermKind, term: PodAffinityTerm, namespace: str, weight: int = 1) -> AffinityTerm:
    """Parse a term. Its selector contains matchLabelKeys and mismatchLabelKeys since the pod's creation."""
    by_selector = term.HasField("namespaceSelector")
    return AffinityTerm(
        kind,
        term.topologyKey,
        frozenset(term.namespaces if term.namespaces or by_selector else (namespace,)),
        selectors.from_message(term.labelSelector) if term.HasField("labelSelector") else NOTHING,
        selectors.from_message(term.namespaceSelector) if by_selector else None,
        weight,
    )


def required_labels(selector: LabelSelector) -> list[list[Label]]:
    """Return the labels of each requirement for certain values. A match has one label of each list."""
    return [
        [(requirement.key, value) for value in requirement.values]
        for requirement in selector.requirements
        if requirement.values is not None and not requirement.negated
    ]


class SelectorIndex(Generic[T]):
    """Items with selectors, in insertion order."""

    def __init__(self) -> None:
        self._by_label: dict[Label, dict[T, LabelSelector]] = {}
        self._others: dict[T, LabelSelector] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add_item(self, item: T, selector: LabelSelector) -> None:
        self._size += 1
        for label in self._index_key(selector):
            self._by_label.setdefault(label, {})[item] = selector
        if not required_labels(selector):
            self._others[item] = selector

    def remove_item(self, item: T, selector: LabelSelector) -> None:
        """Undo an `add_item` of both."""
        self._size -= 1
        self._others.pop(item, None)
        for label in self._index_key(selector):
            del self._by_label[label][item]
            if not self._by_label[label]:
                del self._by_label[label]

    def items_matching(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the items whose selectors match."""
        for label in labels.items() if self._by_label else ():
            for item, selector in self._by_label.get(label, {}).items():
                if selector.matches(labels):
                    yield item
        for item, selector in self._others.items():
            if selector.matches(labels):
                yield item

    @staticmethod
    def _index_key(selector: LabelSelector) -> Sequence[Label]:
        return min(required_labels(selector), key=len, default=())


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods by namespace and labels. `namespaces` of None selects all namespaces."""

    namespaces: frozenset[str] | None
    labels: LabelSelector
    living: bool = False
    """Excludes pods that are being deleted."""


def controller_of(pod: Pod) -> str:
    """Return the UID of the pod's controller, or an empty string."""
    return next((owner.uid for owner in pod.metadata.ownerReferences if owner.controller), "")


def selectable_labels(pod: Pod) -> dict[str, str]:
    """Return the labels for matching with a Selection: the pod's labels and its controller."""
    labels = dict(pod.metadata.labels)
    if controller := controller_of(pod):
        labels[_CONTROLLER] = controller
    return labels


def selector_of_controller(uid: str) -> LabelSelector:
    """Return a selector for a Selection that matches the pods of one controller."""
    return LabelSelector((LabelRequirement(_CONTROLLER, frozenset((uid,))),))


class PodGroup:
    """Pods that no selector can distinguish."""

    __slots__ = ("columns", "identity", "labels", "lifted", "living", "namespace", "on_nodes", "terms")

    def __init__(self, pod: Pod, identity: Hashable, terms: tuple[AffinityTerm, ...]) -> None:
        self.identity = identity
        self.namespace = pod.metadata.namespace
        self.labels = selectable_labels(pod)
        self.living = not pod.metadata.HasField("deletionTimestamp")
        self.terms = terms
        self.on_nodes: dict[str, int] = {}
        """The number of pods by node, including nodes outside the table."""
        self.lifted = 0
        """The number of pods that `exclude_pod` has removed temporarily."""
        self.columns: set[_Column] = set()

    def is_in(self, selection: Selection) -> bool:
        return (
            (self.living or not selection.living)
            and (selection.namespaces is None or self.namespace in selection.namespaces)
            and selection.labels.matches(self.labels)
        )


class _Column(Column):
    """Counts as floats, so that sums over a topology need no conversion."""

    def __init__(self, rows: int) -> None:
        super().__init__(np.float64, rows)
        self.groups: set[PodGroup] = set()


class PodIndex:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows` is the live map of node names to rows of the table."""
        self._rows = rows
        self._groups: dict[Hashable, PodGroup] = {}
        self._by_label: dict[Label, set[PodGroup]] = {}
        self._columns: dict[Selection | AffinityTerm, _Column] = {}
        """The least recently used first."""
        self._selections = SelectorIndex[Selection]()
        """The selections with a column."""
        self._stating: dict[AffinityTerm, set[PodGroup]] = {}
        self._terms: dict[TermKind, dict[str, SelectorIndex[AffinityTerm]]] = {kind: {} for kind in TermKind}
        """Terms by kind and namespace. Terms with a namespace selector are under _ANY_NAMESPACE."""
        self.terms_version = 0
        """Changes whenever the set of terms of pods on nodes changes."""

    def count_pods(self, of: Selection | AffinityTerm) -> NDArray[np.float64]:
        """Return the number of pods per node that match a selection or have a term."""
        column = self._columns.pop(of, None)
        if column is None:
            column = self._create_column(of)
        self._columns[of] = column
        return column.array

    def sum_pods(self, of: Sequence[tuple[Selection | AffinityTerm, float]]) -> NDArray[np.float64]:
        """Return the weighted sum of `count_pods` of each. More than _KEPT terms are counted without building columns, so that
        they do not evict the columns of other plugins."""
        if len(of) == 1 and not _is_long(of[0][0]):
            ((only, weight),) = of
            return self.count_pods(only) if weight == 1 else self.count_pods(only) * weight
        total: NDArray[np.float64] = np.zeros(len(self._rows))
        keep = len(of) <= _KEPT
        for each, weight in of:
            if each in self._columns or (keep and not _is_long(each)):
                numbers = self.count_pods(each)
                total += numbers if weight == 1 else numbers * weight
                continue
            for group in self._groups_of(each):
                for node, pods in group.on_nodes.items():
                    row = self._rows.get(node)
                    if row is not None:
                        total[row] += pods * weight
        return total

    def view_rows(self, rows: Rows) -> "PodIndex":
        """Return a view of some rows."""
        return _SomePods(self, rows)

    def terms_for(self, kind: TermKind, namespace: str, labels: Mapping[str, str]) -> Iterator[AffinityTerm]:
        """Yield the terms of pods on nodes that may apply to a pod of this namespace and whose selector matches its labels.

        Terms of other namespaces cost no time. Namespace selectors are not evaluated.
        """
        for item in (namespace, _ANY_NAMESPACE):
            if (terms := self._terms[kind].get(item)) is not None:
                yield from terms.items_matching(labels)

    def has_terms(self, kind: TermKind) -> bool:
        """Return True if a pod on a node has a term of this kind."""
        return bool(self._terms[kind])

    def add_pod(
        self, pod: Pod, node: str, identity: Hashable = None, terms: Callable[[Pod], tuple[AffinityTerm, ...]] = pod_terms
    ) -> PodGroup:
        """Count a pod on a node, which may be outside the table. `identity` is the result of `identity_of`, if known."""
        identity = identity or identity_of(pod)
        group = self._groups.get(identity)
        if group is None:
            group = self._groups[identity] = PodGroup(pod, identity, terms(pod))
            self._index_group(group)
        self._add_to_group(group, node)
        return group

    def remove_pod(self, group: PodGroup, node: str) -> None:
        """Undo a `add_pod`."""
        self._take_from_group(group, node)
        if not group.on_nodes and not group.lifted:
            del self._groups[group.identity]
            self._unindex_group(group)

    def exclude_pod(self, group: PodGroup, node: str) -> None:
        """Temporarily exclude one pod of a group from the counts."""
        group.lifted += 1
        self._take_from_group(group, node)

    def include_pod(self, group: PodGroup, node: str) -> None:
        """Undo an `exclude_pod`."""
        group.lifted -= 1
        self._add_to_group(group, node)

    def add_row(self, groups: Iterable[PodGroup]) -> None:
        """Append a row to the table. `groups` has the group of each pod on its node."""
        for column in self._columns.values():
            column.append(0)
        for group in groups:
            for column in group.columns:
                column.array[-1] += 1

    def remove_row(self, row: int) -> None:
        """Remove a row. The last row takes its place."""
        for column in self._columns.values():
            column.remove(row)

    def _add_to_group(self, group: PodGroup, node: str) -> None:
        group.on_nodes[node] = group.on_nodes.get(node, 0) + 1
        if group.columns:
            self._add_to_columns(group, node, 1)

    def _take_from_group(self, group: PodGroup, node: str) -> None:
        if group.columns:
            self._add_to_columns(group, node, -1)
        left = group.on_nodes[node] = group.on_nodes[node] - 1
        if not left:
            del group.on_nodes[node]

    def _add_to_columns(self, group: PodGroup, node: str, pods: int) -> None:
        row = self._rows.get(node)
        if row is not None:
            for column in group.columns:
                column.array[row] += pods

    def _create_column(self, of: Selection | AffinityTerm) -> _Column:
        if len(self._columns) == _COLUMNS:
            self._drop_column(next(iter(self._columns)))
        column = _Column(len(self._rows))
        for group in self._groups_of(of):
            self._attach_column(group, column)
            for node, pods in group.on_nodes.items():
                row = self._rows.get(node)
                if row is not None:
                    column.array[row] += pods
        if isinstance(of, Selection):
            self._selections.add_item(of, of.labels)
        return column

    def _drop_column(self, of: Selection | AffinityTerm) -> None:
        column = self._columns.pop(of)
        for group in column.groups:
            group.columns.discard(column)
        if isinstance(of, Selection):
            self._selections.remove_item(of, of.labels)

    def _groups_of(self, of: Selection | AffinityTerm) -> Iterable[PodGroup]:
        return self._stating.get(of, ()) if isinstance(of, AffinityTerm) else self._select(of)

    def _select(self, selection: Selection) -> Iterator[PodGroup]:
        filed = [[self._by_label.get(label, set()) for label in labels] for labels in required_labels(selection.labels)]
        fewest = min(filed, key=lambda sets: sum(map(len, sets)), default=[self._groups.values()])
        return (group for group in chain(*fewest) if group.is_in(selection))

    def _index_group(self, group: PodGroup) -> None:
        """Index a new group, before its first pod is counted."""
        for label in group.labels.items():
            self._by_label.setdefault(label, set()).add(group)
        for selection in self._selections.items_matching(group.labels):
            if group.is_in(selection):
                self._attach_column(group, self._columns[selection])
        for term in group.terms:
            groups = self._stating.setdefault(term, set())
            if not groups:
                for namespace in _namespaces_of(term):
                    self._terms[term.kind].setdefault(namespace, SelectorIndex()).add_item(term, term.labels)
                self.terms_version += 1
            groups.add(group)
            if term in self._columns:
                self._attach_column(group, self._columns[term])

    def _unindex_group(self, group: PodGroup) -> None:
        for label in group.labels.items():
            self._by_label[label].remove(group)
            if not self._by_label[label]:
                del self._by_label[label]
        for column in group.columns:
            column.groups.discard(group)
        for term in group.terms:
            self._stating[term].remove(group)
            if not self._stating[term]:
                del self._stating[term]
                for namespace in _namespaces_of(term):
                    terms = self._terms[term.kind][namespace]
                    terms.remove_item(term, term.labels)
                    if not len(terms):
                        del self._terms[term.kind][namespace]
                self.terms_version += 1

    @staticmethod
    def _attach_column(group: PodGroup, column: _Column) -> None:
        group.columns.add(column)
        column.groups.add(group)


class _SomePods(PodIndex):
    """A view of some rows of the table."""

    def __init__(self, pods: PodIndex, rows: Rows) -> None:
        self._all = pods
        self._some = rows
        self._terms = pods._terms

    def count_pods(self, of: Selection | AffinityTerm) -> NDArray[np.float64]:
        return self._all.count_pods(of)[self._some]

    def sum_pods(self, of: Sequence[tuple[Selection | AffinityTerm, float]]) -> NDArray[np.float64]:
        return self._all.sum_pods(of)[self._some]


def _namespaces_of(term: AffinityTerm) -> Iterable[str]:
    """Return the namespaces under which the term is indexed."""
    return term.namespaces if term.namespace_selector is None else (_ANY_NAMESPACE,)


def _is_long(of: Selection | AffinityTerm) -> bool:
    return isinstance(of, Selection) and len(of.labels.requirements) > _LONG


def identity_of(pod: Pod) -> Hashable:
    """Return a key that is equal for pods of one group. It is computed for every added pod, so it reads as few fields as
    possible."""
    meta = pod.metadata
    labels = meta.labels
    return (
        meta.namespace,
        frozenset([(key, labels[key]) for key in labels]) if len(labels) else None,
        controller_of(pod) if len(meta.ownerReferences) else "",
        meta.HasField("deletionTimestamp"),
        serialized_terms(pod) if pod.spec.HasField("affinity") and has_terms(pod) else None,
    )
