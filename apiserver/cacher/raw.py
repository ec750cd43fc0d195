"""Keys below /registry/ that are no objects of a resource (elections): their values as they are, and who follows them."""

from collections.abc import Callable, Iterable, Mapping

from apiserver.storage.interface import Change, KeyValue

Callback = Callable[[Change], None]


class RawKeys:
    def __init__(self) -> None:
        self._items: dict[str, KeyValue] = {}
        self._subscribers: list[tuple[str, Callback]] = []
        self._untold: list[Change] = []

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def items(self, prefix: str) -> list[KeyValue]:
        """In key order."""
        return [self._items[key] for key in sorted(self._items) if key.startswith(prefix)]

    def subscribe(self, prefix: str, callback: Callback) -> Callable[[], None]:
        """`callback` is called with each change of a key with this prefix, until the returned function is called."""
        subscriber = (prefix, callback)
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            self._subscribers = [each for each in self._subscribers if each is not subscriber]

        return unsubscribe

    def apply(self, change: Change) -> None:
        """Applies one change; subscribers hear of it with the next `tell`."""
        old = self._items.pop(change.key, None)
        if change.value is not None:
            version = old.version + 1 if old is not None else 1
            self._items[change.key] = KeyValue(
                change.key, change.value, change.create_revision, change.mod_revision, version, change.lease
            )
        self._untold.append(change)

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replaces the state by that of `revision`. Subscribers will be told of the difference: they follow the state and
        need not see every version, but must not miss that a key is gone."""
        new = {item.key: item for item in items}
        self._untold += difference(self._items, new, revision)
        self._items = new

    def tell(self) -> None:
        """Calls the subscribers with what they have not heard."""
        if not self._untold:
            return
        untold, self._untold = self._untold, []
        for change in untold:
            for prefix, callback in self._subscribers:
                if change.key.startswith(prefix):
                    callback(change)


def difference(old: Mapping[str, KeyValue], new: Mapping[str, KeyValue], revision: int) -> list[Change]:
    """What turns one state into the other: deletions, at `revision` for want of a better one, then puts in their order."""
    gone = [Change(key, None, 0, revision) for key, was in old.items() if key not in new or recreated(was, new[key])]
    puts = [item for key, item in new.items() if old.get(key) != item]
    puts.sort(key=lambda item: item.mod_revision)
    return gone + [Change(item.key, item.value, item.create_revision, item.mod_revision, item.lease) for item in puts]


def recreated(old: KeyValue, new: KeyValue) -> bool:
    """Was the key deleted in between?"""
    return old.create_revision != new.create_revision
