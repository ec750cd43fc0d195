"""Pods that wait in Permit. They hold a place on their node, and no task: waiting costs an entry here.

    add --> WAITING --all plugins that asked for it have allowed--> settled: go on
               |----- somebody rejects ---------------------------> settled: refused
               '----- a plugin's time is over --------------------> settled: refused

Plugins see it as `handle.waiting`, and may call it at any time, also from within a cycle: what they say takes effect later,
when the owner takes what is `settled`. Pure: the time is passed in, in monotonic seconds.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from scheduler.cache.pod_info import PodInfo
from scheduler.framework.results import Refused

Settle = Callable[["WaitingPod", Refused | None], None]
MAX_TIMEOUT = 15 * 60.0
"""Seconds that a pod may wait at most, whatever plugins ask for; Kubernetes' limit."""


class WaitingPod:
    """As plugins see it. Once it is settled, neither `allow` nor `reject` changes anything."""

    __slots__ = ("_pending", "_settle", "node", "pod")

    def __init__(self, pod: PodInfo, node: str, plugins: Iterable[str], settle: "Settle") -> None:
        self.pod = pod
        self.node = node
        self._pending = set(plugins)
        self._settle = settle

    @property
    def pending(self) -> frozenset[str]:
        """The plugins that have not allowed it yet."""
        return frozenset(self._pending)

    def allow(self, plugin: str) -> None:
        """What `plugin` waited for has happened. The pod goes on when this was the last one."""
        if plugin in self._pending:
            self._pending.discard(plugin)
            if not self._pending:
                self._settle(self, None)

    def reject(self, plugin: str, reason: str) -> None:
        """The pod must not be bound."""
        if self._pending:
            self._pending.clear()
            self._settle(self, Refused(plugin, reason))


class WaitingPods:
    """`changed` is called when a pod is added or settled."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pods: dict[str, WaitingPod] = {}
        self._timers: list[tuple[float, int, float, WaitingPod, str]] = []
        """(when, tie-break, timeout, pod, plugin). Those of pods that do not wait any more stay until their time."""
        self._sequence = count()
        self._settled: list[tuple[WaitingPod, Refused | None]] = []

    def __iter__(self) -> Iterator[WaitingPod]:
        """Those that wait now, the longest waiting first. They may be allowed and rejected meanwhile."""
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    # --- for the owner

    def add(self, pod: PodInfo, node: str, timeouts: Mapping[str, float], now: float) -> None:
        """`timeouts`: seconds, by plugin, at least one."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node, timeouts, self._settle)
        for plugin, timeout in timeouts.items():
            seconds = min(timeout, MAX_TIMEOUT)
            heapq.heappush(self._timers, (now + seconds, next(self._sequence), seconds, waiting, plugin))
        self._changed()

    def settled(self, now: float) -> list[tuple[WaitingPod, Refused | None]]:
        """Takes what has been decided since, and what is due at `now`; None: the pod may go on."""
        while self._timers and self._timers[0][0] <= now:
            _, _, seconds, waiting, plugin = heapq.heappop(self._timers)
            if plugin in waiting.pending:
                waiting.reject(plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}")
        settled, self._settled = self._settled, []
        return settled

    def next_due(self) -> float | None:
        """When the next timer is over. Now and then for a pod that does not wait any more."""
        return self._timers[0][0] if self._timers else None

    def clear(self) -> None:
        """Forgets all of them, settled or not."""
        self._pods.clear()
        self._timers.clear()
        self._settled.clear()

    def _settle(self, waiting: WaitingPod, refused: Refused | None) -> None:
        if self._pods.get(waiting.pod.uid) is waiting:
            del self._pods[waiting.pod.uid]
            self._settled.append((waiting, refused))
            self._changed()
