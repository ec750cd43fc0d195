"""The pods on nodes, for inter-pod affinity and spreading: how many match a selector on each node, and their own terms.

Pods that no selector can distinguish (namespace, labels, controller, deletion, own terms) form one group, and a group knows how
many of its pods are on each node. Plugins read columns: a number for each node, of the pods that match a `Selection` or state a
`Term`. A column is built on first use and then updated with every pod that comes or goes; the least recently used is evicted.

Cost: updating a pod costs time for the columns that match it; a decision costs nothing that grows with the number of pods.

`SelectorIndex` finds the selectors that match a pod without checking all of them: a selector that requires a label to be one of
some values is filed under each value.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
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
from scheduler.cache.columns import Column, Rows

Labels = tuple[tuple[str, str], ...]
MAX_REMEMBERED = 16 << 10
"""Bytes of what a pod states that are remembered after the pod is gone, which makes 64 MiB of them."""


class Kind(Enum):
    AFFINITY = auto()
    """Required affinity."""
    ANTI_AFFINITY = auto()
    """Required anti-affinity."""
    PREFERRED = auto()
    """Preferred affinity, or anti-affinity: then the weight is negative."""


@dataclass(frozen=True, slots=True)
class Term:
    """Where the pods are that it is about, in terms of a topology."""

    kind: Kind
    topology_key: str
    namespaces: frozenset[str]
    labels: LabelSelector
    namespace_selector: LabelSelector | None = None
    """More namespaces, by their labels; one without requirements means all."""
    weight: int = 1
    """What it counts for; of a required one, how many times it is stated."""

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Is it about pods of this namespace, which has these labels?"""
        selector = self.namespace_selector
        return namespace in self.namespaces or (selector is not None and selector.matches(labels))


def pod_terms(pod: Pod) -> tuple[Term, ...]:
    """Of all kinds, each once. Pods that are alike share one tuple."""
    if not states_terms(pod):
        return ()
    affinity, anti_affinity = stated(pod)
    parse = _remembered if len(affinity) + len(anti_affinity) <= MAX_REMEMBERED else _parse
    return parse(affinity, anti_affinity, pod.metadata.namespace, tuple(sorted(pod.metadata.labels.items())))


def states_terms(pod: Pod) -> bool:
    spec = pod.spec
    if not spec.HasField("affinity"):
        return False
    affinity = spec.affinity
    return affinity.HasField("podAffinity") or affinity.HasField("podAntiAffinity")


def stated(pod: Pod) -> tuple[bytes, bytes]:
    """Equal for pods that state the same."""
    affinity = pod.spec.affinity
    return (
        affinity.podAffinity.SerializeToString(deterministic=True),
        affinity.podAntiAffinity.SerializeToString(deterministic=True),
    )


@lru_cache(maxsize=4096)
def _remembered(affinity: bytes, anti_affinity: bytes, namespace: str, labels: Labels) -> tuple[Term, ...]:
    return _parse(affinity, anti_affinity, namespace, labels)


def _parse(affinity: bytes, anti_affinity: bytes, namespace: str, labels: Labels) -> tuple[Term, ...]:
    own = dict(labels)
    near, far = PodAffinity.FromString(affinity), PodAntiAffinity.FromString(anti_affinity)
    required = (
        (Kind.AFFINITY, near.requiredDuringSchedulingIgnoredDuringExecution),
        (Kind.ANTI_AFFINITY, far.requiredDuringSchedulingIgnoredDuringExecution),
    )
    terms = [_term(kind, term, namespace, own) for kind, stated in required for term in stated]
    for sign, preferred in (
        (1, near.preferredDuringSchedulingIgnoredDuringExecution),
        (-1, far.preferredDuringSchedulingIgnoredDuringExecution),
    ):
        terms += [_term(Kind.PREFERRED, each.podAffinityTerm, namespace, own, sign * each.weight) for each in preferred]
    return tuple(_each_once(terms))


def _each_once(terms: Iterable[Term]) -> Iterable[Term]:
    """Terms that differ in their weights alone are one."""
    found: dict[tuple[object, ...], Term] = {}
    for term in terms:
        key = term.kind, term.topology_key, term.namespaces, term.labels, term.namespace_selector
        known = found.get(key)
        found[key] = term if known is None else replace(term, weight=known.weight + term.weight)
    return (term for term in found.values() if term.weight)


def _term(kind: Kind, term: PodAffinityTerm, namespace: str, own: Mapping[str, str], weight: int = 1) -> Term:
    """`own`: the labels of the pod that states it, of which matchLabelKeys and mismatchLabelKeys speak."""
    by_selector = term.HasField("namespaceSelector")
    labels = selectors.from_message(term.labelSelector) if term.HasField("labelSelector") else NOTHING
    more = [LabelRequirement(key, frozenset((own[key],))) for key in term.matchLabelKeys if key in own]
    more += [LabelRequirement(key, frozenset((own[key],)), negated=True) for key in term.mismatchLabelKeys if key in own]
    return Term(
        kind,
        term.topologyKey,
        frozenset(term.namespaces if term.namespaces or by_selector else (namespace,)),
        labels.and_also(more) if more else labels,
        selectors.from_message(term.namespaceSelector) if by_selector else None,
        weight,
    )


T = TypeVar("T", bound=Hashable)
Label = tuple[str, str]


def anchors(selector: LabelSelector) -> list[list[Label]]:
    """For each requirement that asks for certain labels, those labels: what matches has one of them."""
    return [
        [(each.key, value) for value in each.values]
        for each in selector.requirements
        if each.values is not None and not each.negated
    ]


class SelectorIndex(Generic[T]):
    """Items, each with its selector. They are kept in the order in which they came."""

    def __init__(self) -> None:
        self._by_label: dict[Label, dict[T, LabelSelector]] = {}
        self._others: dict[T, LabelSelector] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, item: T, selector: LabelSelector) -> None:
        self._size += 1
        for label in self._filed_under(selector):
            self._by_label.setdefault(label, {})[item] = selector
        if not anchors(selector):
            self._others[item] = selector

    def remove(self, item: T, selector: LabelSelector) -> None:
        """Takes back an `add` of both."""
        self._size -= 1
        self._others.pop(item, None)
        for label in self._filed_under(selector):
            del self._by_label[label][item]
            if not self._by_label[label]:
                del self._by_label[label]

    def matching(self, labels: Mapping[str, str]) -> Iterator[T]:
        """The items whose selectors match."""
        for label in labels.items() if self._by_label else ():
            for item, selector in self._by_label.get(label, {}).items():
                if selector.matches(labels):
                    yield item
        for item, selector in self._others.items():
            if selector.matches(labels):
                yield item

    @staticmethod
    def _filed_under(selector: LabelSelector) -> Sequence[Label]:
        return min(anchors(selector), key=len, default=())


_COLUMNS = 256
_KEPT = 64
"""Columns that one question may make."""
_LONG = 100
"""Requirements of a selection for which no column is kept: each new group of pods would be held against all of them."""
_ANY_NAMESPACE = "*"
"""No namespace has this name."""
_CONTROLLER = ""
"""Stands for the uid of a pod's controller among its labels: no label has an empty key."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Some pods, by namespace (None: all) and labels."""

    namespaces: frozenset[str] | None
    labels: LabelSelector
    living: bool = False
    """Leaves out those that are being deleted."""


def controller_of(pod: Pod) -> str:
    """The uid of the object that manages the pod; empty for a pod of nobody's."""
    return next((owner.uid for owner in pod.metadata.ownerReferences if owner.controller), "")


def selectable(pod: Pod) -> dict[str, str]:
    """What the labels of a Selection are matched with."""
    labels = dict(pod.metadata.labels)
    if controller := controller_of(pod):
        labels[_CONTROLLER] = controller
    return labels


def controlled_by(uid: str) -> LabelSelector:
    """Matches the pods of one controller, in a Selection."""
    return LabelSelector((LabelRequirement(_CONTROLLER, frozenset((uid,))),))


class PodGroup:
    """Pods that no selector can tell apart."""

    __slots__ = ("columns", "identity", "labels", "lifted", "living", "namespace", "on_nodes", "terms")

    def __init__(self, pod: Pod, identity: Hashable, terms: tuple[Term, ...]) -> None:
        self.identity = identity
        self.namespace = pod.metadata.namespace
        self.labels = selectable(pod)
        self.living = not pod.metadata.HasField("deletionTimestamp")
        self.terms = terms
        self.on_nodes: dict[str, int] = {}
        """Pods by node, also by nodes that are not (yet, or any more) in the table."""
        self.lifted = 0
        """Pods that are not among them for the moment."""
        self.columns: set[_Column] = set()

    def is_in(self, selection: Selection) -> bool:
        return (
            (self.living or not selection.living)
            and (selection.namespaces is None or self.namespace in selection.namespaces)
            and selection.labels.matches(self.labels)
        )


class _Column(Column):
    """Floats, although they count: so sums over a topology need no conversion."""

    def __init__(self, rows: int) -> None:
        super().__init__(np.float64, rows)
        self.groups: set[PodGroup] = set()


class PodIndex:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows`: the rows of the table, by node, as they are at any time."""
        self._rows = rows
        self._groups: dict[Hashable, PodGroup] = {}
        self._by_label: dict[Label, set[PodGroup]] = {}
        self._columns: dict[Selection | Term, _Column] = {}
        """The least recently used first."""
        self._selections = SelectorIndex[Selection]()
        """Those that have a column."""
        self._stating: dict[Term, set[PodGroup]] = {}
        self._terms: dict[Kind, dict[str, SelectorIndex[Term]]] = {kind: {} for kind in Kind}
        """By the namespace that they are about. Those that select namespaces by labels are under _ANY_NAMESPACE."""
        self.terms_version = 0
        """Another one after every change of the set of terms that are stated."""

    def pods(self, of: Selection | Term) -> NDArray[np.float64]:
        """How many pods each node has of a selection, or that state a term."""
        column = self._columns.pop(of, None)
        if column is None:
            column = self._new_column(of)
        self._columns[of] = column
        return column.array

    def sum(self, of: Sequence[tuple[Selection | Term, float]]) -> NDArray[np.float64]:
        """The weighted sum of `pods` of each. Many of them do not take the columns away from everybody else: then their pods
        are counted without making any."""
        if len(of) == 1 and not _is_long(of[0][0]):
            ((only, weight),) = of
            return self.pods(only) if weight == 1 else self.pods(only) * weight
        total: NDArray[np.float64] = np.zeros(len(self._rows))
        keep = len(of) <= _KEPT
        for each, weight in of:
            if each in self._columns or (keep and not _is_long(each)):
                numbers = self.pods(each)
                total += numbers if weight == 1 else numbers * weight
                continue
            for group in self._groups_of(each):
                for node, pods in group.on_nodes.items():
                    row = self._rows.get(node)
                    if row is not None:
                        total[row] += pods * weight
        return total

    def only(self, rows: Rows) -> "PodIndex":
        """Some of the rows."""
        return _SomePods(self, rows)

    def stated(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> Iterator[Term]:
        """The terms of pods on nodes that may be about a pod of this namespace, and whose selector matches its labels; each
        once. Terms about other namespaces cost nothing. Those that select namespaces by labels are not held against these."""
        for each in (namespace, _ANY_NAMESPACE):
            if (terms := self._terms[kind].get(each)) is not None:
                yield from terms.matching(labels)

    def states(self, kind: Kind) -> bool:
        """Does any pod on a node state a term of this kind?"""
        return bool(self._terms[kind])

    def place(
        self, pod: Pod, node: str, identity: Hashable = None, terms: Callable[[Pod], tuple[Term, ...]] = pod_terms
    ) -> PodGroup:
        """Counts a pod on a node, which need not be in the table. `identity`: the pod's, if it is known."""
        identity = identity or identity_of(pod)
        group = self._groups.get(identity)
        if group is None:
            group = self._groups[identity] = PodGroup(pod, identity, terms(pod))
            self._file(group)
        self._put(group, node)
        return group

    def remove(self, group: PodGroup, node: str) -> None:
        """Takes back a `place`."""
        self._take(group, node)
        if not group.on_nodes and not group.lifted:
            del self._groups[group.identity]
            self._unfile(group)

    def lift(self, group: PodGroup, node: str) -> None:
        """Does not count one pod of a group any more, for the moment: it is put back soon."""
        group.lifted += 1
        self._take(group, node)

    def put_back(self, group: PodGroup, node: str) -> None:
        """Takes back a `lift`."""
        group.lifted -= 1
        self._put(group, node)

    def add_row(self, groups: Iterable[PodGroup]) -> None:
        """The table has one more row, at its end. `groups`: of each pod on that node."""
        for column in self._columns.values():
            column.append(0)
        for group in groups:
            for column in group.columns:
                column.array[-1] += 1

    def remove_row(self, row: int) -> None:
        """The last row takes the place of this one."""
        for column in self._columns.values():
            column.remove(row)

    def _put(self, group: PodGroup, node: str) -> None:
        group.on_nodes[node] = group.on_nodes.get(node, 0) + 1
        if group.columns:
            self._count(group, node, 1)

    def _take(self, group: PodGroup, node: str) -> None:
        if group.columns:
            self._count(group, node, -1)
        left = group.on_nodes[node] = group.on_nodes[node] - 1
        if not left:
            del group.on_nodes[node]

    def _count(self, group: PodGroup, node: str, pods: int) -> None:
        row = self._rows.get(node)
        if row is not None:
            for column in group.columns:
                column.array[row] += pods

    def _new_column(self, of: Selection | Term) -> _Column:
        if len(self._columns) == _COLUMNS:
            self._drop_column(next(iter(self._columns)))
        column = _Column(len(self._rows))
        for group in self._groups_of(of):
            self._attach(group, column)
            for node, pods in group.on_nodes.items():
                row = self._rows.get(node)
                if row is not None:
                    column.array[row] += pods
        if isinstance(of, Selection):
            self._selections.add(of, of.labels)
        return column

    def _drop_column(self, of: Selection | Term) -> None:
        column = self._columns.pop(of)
        for group in column.groups:
            group.columns.discard(column)
        if isinstance(of, Selection):
            self._selections.remove(of, of.labels)

    def _groups_of(self, of: Selection | Term) -> Iterable[PodGroup]:
        return self._stating.get(of, ()) if isinstance(of, Term) else self._select(of)

    def _select(self, selection: Selection) -> Iterator[PodGroup]:
        filed = [[self._by_label.get(label, set()) for label in labels] for labels in anchors(selection.labels)]
        fewest = min(filed, key=lambda sets: sum(map(len, sets)), default=[self._groups.values()])
        return (group for group in chain(*fewest) if group.is_in(selection))

    def _file(self, group: PodGroup) -> None:
        """A new group: before its first pod is counted."""
        for label in group.labels.items():
            self._by_label.setdefault(label, set()).add(group)
        for selection in self._selections.matching(group.labels):
            if group.is_in(selection):
                self._attach(group, self._columns[selection])
        for term in group.terms:
            groups = self._stating.setdefault(term, set())
            if not groups:
                for namespace in _namespaces_of(term):
                    self._terms[term.kind].setdefault(namespace, SelectorIndex()).add(term, term.labels)
                self.terms_version += 1
            groups.add(group)
            if term in self._columns:
                self._attach(group, self._columns[term])

    def _unfile(self, group: PodGroup) -> None:
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
                    terms.remove(term, term.labels)
                    if not len(terms):
                        del self._terms[term.kind][namespace]
                self.terms_version += 1

    @staticmethod
    def _attach(group: PodGroup, column: _Column) -> None:
        group.columns.add(column)
        column.groups.add(group)


class _SomePods(PodIndex):
    """Some rows of the table."""

    def __init__(self, pods: PodIndex, rows: Rows) -> None:
        self._all = pods
        self._some = rows
        self._terms = pods._terms

    def pods(self, of: Selection | Term) -> NDArray[np.float64]:
        return self._all.pods(of)[self._some]

    def sum(self, of: Sequence[tuple[Selection | Term, float]]) -> NDArray[np.float64]:
        return self._all.sum(of)[self._some]


def _namespaces_of(term: Term) -> Iterable[str]:
    """Under which it is filed."""
    return term.namespaces if term.namespace_selector is None else (_ANY_NAMESPACE,)


def _is_long(of: Selection | Term) -> bool:
    return isinstance(of, Selection) and len(of.labels.requirements) > _LONG


def identity_of(pod: Pod) -> Hashable:
    """Equal for pods of one group. Asked for every pod that comes: the fields are read in the cheapest way there is."""
    meta = pod.metadata
    labels = meta.labels
    return (
        meta.namespace,
        frozenset([(key, labels[key]) for key in labels]) if len(labels) else None,
        controller_of(pod) if len(meta.ownerReferences) else "",
        meta.HasField("deletionTimestamp"),
        stated(pod) if pod.spec.HasField("affinity") and states_terms(pod) else None,
    )
