"""What has changed since? A bounded record: who comes too late is told so, and looks at everything."""

from typing import Generic, TypeVar

T = TypeVar("T")

_LENGTH = 4096


class Journal(Generic[T]):
    def __init__(self) -> None:
        self._entries: list[T] = []
        self._forgotten = 0

    @property
    def position(self) -> int:
        """Of now, for `since`."""
        return self._forgotten + len(self._entries)

    def since(self, position: int) -> list[T] | None:
        """What was noted since an earlier position, some of it repeatedly; None: too much."""
        return self._entries[position - self._forgotten :] if position >= self._forgotten else None

    def note(self, entry: T) -> None:
        self._entries.append(entry)
        if len(self._entries) > _LENGTH:
            del self._entries[: _LENGTH // 2]
            self._forgotten += _LENGTH // 2
