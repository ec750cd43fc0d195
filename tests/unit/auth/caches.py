"""What authorisation needs of the watch cache, filled by hand."""

from typing import Any

from pinnace.api.resources import Resource


class Cache:
    """Of one resource; every `put` makes a new version."""

    def __init__(self, resource: Resource[Any], *objs: Any) -> None:
        self._resource = resource
        self._entries: dict[str, Any] = {}
        self.version = 0
        self.read: list[str] = []
        """The keys of objects that somebody looked into."""
        for obj in objs:
            self.put(obj)

    def put(self, obj: Any) -> None:
        key = self._resource.key_of(obj)
        self._entries[key] = _Entry(key, obj, self.read)
        self.version += 1

    def remove(self, obj: Any) -> None:
        del self._entries[self._resource.key_of(obj)]
        self.version += 1

    def get(self, key: str) -> Any:
        return self._entries.get(key)

    def count(self, namespace: str) -> int:
        return sum(key.startswith(f"{self._resource.prefix}{namespace}/") for key in self._entries)

    def select(self, selection: Any) -> list[Any]:
        return [entry for key, entry in sorted(self._entries.items()) if key.startswith(selection.prefix)]


class _Entry:
    def __init__(self, key: str, obj: Any, read: list[str]) -> None:
        self.key = key
        self._obj = obj
        self._read = read

    @property
    def obj(self) -> Any:
        self._read.append(self.key)
        return self._obj

    def parse_uncached(self) -> Any:
        return self.obj
