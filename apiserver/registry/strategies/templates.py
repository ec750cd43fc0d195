"""Pods come in numbers from few templates: what was worked out for a spec once holds for every equal one.

A spec is known by its bytes. Equal bytes are equal specs; equal specs may have different bytes (maps have no order), which
costs a second look and nothing else.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from pinnace.api.core_v1_pb2 import PodSpec

V = TypeVar("V")
MAX_KNOWN = 512
MAX_SPEC = 8192
"""Bytes of a spec that is remembered."""


class Templates(Generic[V]):
    """Remembers `work(spec)`, a function of the spec's value alone, for up to MAX_KNOWN specs; the oldest are forgotten."""

    def __init__(self, work: Callable[[PodSpec], V], worth: Callable[[V], bool]) -> None:
        """`worth`: is this result to be remembered? That of a short spec may be large."""
        self._work = work
        self._worth = worth
        self._known: dict[bytes, V] = {}

    def __call__(self, spec: PodSpec) -> V:
        encoded = spec.SerializeToString()
        known = self._known.get(encoded)
        if known is not None:
            return known
        result = self._work(spec)
        if len(encoded) <= MAX_SPEC and self._worth(result):
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[encoded] = result
        return result
