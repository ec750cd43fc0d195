"""What authorisation needs of the watch cache, filled by hand."""

from types import SimpleNamespace
from typing import Any

from pinnace.api.resources import Resource


class Cache:
    """Of one resource; every `put` makes a new version."""

    def __init__(self, resource: Resource[Any], *objs: Any) -> None:
        self._resource = resource
        self._entries: dict[str, Any] = {}
        self.version = 0
        for obj in objs:
            self.put(obj)

    def put(self, obj: Any) -> None:
        self._entries[self._resource.key_of(obj)] = SimpleNamespace(obj=obj)
        self.version += 1

    def remove(self, obj: Any) -> None:
        del self._entries[self._resource.key_of(obj)]
        self.version += 1

    def get(self, key: str) -> Any:
        return self._entries.get(key)

    def select(self, selection: Any) -> list[Any]:
        return list(self._entries.values())
