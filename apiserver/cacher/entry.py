"""One version of one object, as the cache holds it: bytes first, parsed only when somebody looks inside."""

from typing import Generic, TypeVar

from pinnace.api import wire
from pinnace.api.resources import Object

T = TypeVar("T", bound=Object)


class Entry(Generic[T]):
    """Immutable: `value` is the object as stored, `obj` the same parsed, with its resourceVersion."""

    __slots__ = ("_message", "_obj", "create_revision", "key", "mod_revision", "node", "phase", "value")

    def __init__(
        self,
        message: type[T],
        key: str,
        value: bytes,
        create_revision: int,
        mod_revision: int,
        node: str = "",
        phase: str = "",
    ) -> None:
        self._message = message
        self._obj: T | None = None
        self.key = key
        self.value = value
        self.create_revision = create_revision
        self.mod_revision = mod_revision
        self.node = node
        """Of a pod: spec.nodeName. Else "": only pods are indexed by node."""
        self.phase = phase
        """Of a pod: status.phase. Else ""."""

    @property
    def obj(self) -> T:
        """Parsed on first use and kept. It is shared: callers must not change it."""
        if self._obj is None:
            self._obj = self._parse()
        return self._obj

    def peek(self) -> T:
        """As `obj`, but what is parsed for this is not kept: for looking at many."""
        return self._obj if self._obj is not None else self._parse()

    def keep(self) -> None:
        """Parses now what several are going to peek at."""
        self._obj = self.peek()

    def release(self) -> None:
        """Lets go of the parsed object. An entry that only history refers to keeps its bytes alone."""
        self._obj = None

    @property
    def stamped(self) -> bytes:
        """The object encoded, with its resourceVersion. Put together anew each time: that costs less than keeping it."""
        return self.value + wire.stamp(self.mod_revision)

    def _parse(self) -> T:
        obj = self._message()
        obj.ParseFromString(self.stamped)
        return obj
