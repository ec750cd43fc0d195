"""The extenders of a scheduler; all its profiles share them."""

from collections.abc import Iterable, Sequence

from scheduler.cache.pod_info import PodInfo
from scheduler.extenders.binder import ExtenderBinder
from scheduler.extenders.extender import Extender, make
from scheduler.extenders.interface import ExtenderConfiguration


class Extenders:
    """Raises OSError when a file that a configuration names cannot be used."""

    def __init__(self, configurations: Iterable[ExtenderConfiguration]) -> None:
        self._extenders = [make(each) for each in configurations]

    @property
    def binders(self) -> Sequence[ExtenderBinder]:
        """At most one."""
        return [ExtenderBinder(each) for each in self._extenders if each.binds]

    def interested(self, pod: PodInfo) -> Sequence[Extender]:
        """Those that want to hear of the pod, in their order."""
        return [each for each in self._extenders if each.interested(pod)] if self._extenders else ()

    async def close(self) -> None:
        for extender in self._extenders:
            await extender.close()
