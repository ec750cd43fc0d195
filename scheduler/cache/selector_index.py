"""Things that are found by labels: which of many selectors match a given pod? Without looking at all of them.

A selector that asks for a label to be one of some values is filed under each of these; only one without such a requirement
is looked at for every pod.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from pinnace.api.selectors import LabelSelector

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
