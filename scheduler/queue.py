"""The scheduling queue: orders active pods and tracks waiting pods. Pure: the caller passes the monotonic time, in seconds.

A pod is active, in backoff, unschedulable until an event may help, or gated by a PreEnqueue plugin.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Protocol

from pinnace.api.records import QueuePlace
from pinnace.runtime.backoff import exponential_delay
from pinnace.scheduler.cache.cache import ANY, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import NodeTable
from pinnace.scheduler.framework.interface import Gate

_MANY = 32
"""Number of failures after which the backoff stops growing."""


def _do_nothing() -> None:
    """Do nothing. The default of `on_due`."""


class GatedPods:
    """The gated pods, by UID."""

    def __init__(self) -> None:
        self.on_due: Callable[[], None] = _do_nothing
        """Called when an event happens that a gated pod awaits."""
        self._by_changes: dict[Change, dict[str, None]] = {}
        """Gated pods by the kinds of events that they await. No value is empty."""
        self._awaited_changes = Change.NONE
        """Awaited kinds of events since the last round."""
        self._to_check: deque[str] = deque()
        """UIDs to check in this round."""

    def add_pod(self, uid: str, awaits: Change) -> None:
        if awaits:
            self._by_changes.setdefault(awaits, {})[uid] = None

    def discard_pod(self, uid: str, awaits: Change) -> None:
        held = self._by_changes.get(awaits, {})
        held.pop(uid, None)
        if not held:
            self._by_changes.pop(awaits, None)

    def record_event(self, change: Change) -> None:
        """Handle an event."""
        if any(awaits & change for awaits in self._by_changes):
            self._awaited_changes |= change
            self.on_due()

    @property
    def has_waiting_pods(self) -> bool:
        return bool(self._by_changes)

    def next_to_recheck(self) -> str | None:
        """Return the next pod to check, or None if no awaited event has happened. The pod may have left the gate already."""
        if not self._to_check:
            news, self._awaited_changes = self._awaited_changes, Change.NONE
            self._to_check.extend(uid for awaits, held in self._by_changes.items() if awaits & news for uid in held)
        return self._to_check.popleft() if self._to_check else None


class QueuePolicy(Protocol):
    """Decisions of plugins about the queue, implemented by Framework and Profiles."""

    def find_gate(self, pod: PodInfo) -> Gate | None: ...
    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, ...]: ...
    def awaited_changes(self, refused_by: frozenset[str], pod: PodInfo) -> Change: ...
    def event_helps(self, plugin: str, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool: ...


class QueuedPod:
    """A pod without a node. After `pop_pod` the caller owns it until it returns it to the queue."""

    __slots__ = ("attempts", "awaits", "errors", "held", "info", "not_before", "place", "refusals", "refused_by", "since")

    def __init__(self, info: PodInfo, now: float) -> None:
        self.info = info
        self.attempts = 0
        self.refusals = 0
        """Attempts that found no node."""
        self.errors = 0
        """Attempts that failed with an error since the last unschedulable attempt."""
        self.since = now
        """The time of arrival or of the last failed attempt."""
        self.place = QueuePlace.ACTIVE
        self.refused_by: frozenset[str] = frozenset()
        self.awaits = Change.NONE
        """Kinds of events that may help, while the pod is unschedulable or gated."""
        self.not_before = 0.0
        """The earliest time of the next attempt."""
        self.held: tuple[int, PodInfo] | None = None
        """Set by `hold_pod`: the number of events so far, and the pod."""


class SchedulingQueue:
    def __init__(
        self,
        policy: QueuePolicy,
        *,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        flush_after: float = 300.0,
    ) -> None:
        self._policy = policy
        self._initial_backoff = initial_backoff
        self._max_backoff = max_backoff
        self._flush_after = flush_after
        self._pods: dict[str, QueuedPod] = {}
        self._sequence = count()
        self._events = 0
        """Number of events so far."""
        self._stale = 0
        """Upper bound of the number of stale entries in the two heaps."""
        self._active: list[tuple[tuple[float, ...], int, QueuedPod]] = []
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._unschedulable: dict[str, QueuedPod] = {}
        """Unschedulable pods; the pod that has waited longest is first."""
        self._groups: dict[Change, dict[tuple[frozenset[str], bytes], dict[str, QueuedPod]]] = {}
        """Unschedulable pods by the kinds of events that they await, so that an event skips pods that it cannot help."""
        self.gates = GatedPods()
        """Gated pods. The receiver of `on_due` calls `recheck_gated_pod` until it returns False."""
        self._gates_flushed_at = 0.0
        """The time of the last flush of all gated pods."""

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def count_by_place(self) -> Counter[str]:
        """Return the number of pods by place. Like `count_refusals`, it is thread-safe because it copies the pods in one
        step."""
        return Counter(queued.place.value for queued in tuple(self._pods.values()))

    def count_refusals(self) -> Counter[str]:
        """Return the number of unschedulable pods by plugin that refused them."""
        return Counter(plugin for queued in tuple(self._unschedulable.values()) for plugin in queued.refused_by)

    def list_pods(self, now: float) -> Iterator[tuple[QueuedPod, float]]:
        """Yield all pods with the remaining seconds of their backoff, or 0.0."""
        for queued in self._pods.values():
            yield queued, self._backoff_end(queued) - now if queued.place is QueuePlace.BACKOFF else 0.0

    def add_pod(self, info: PodInfo, now: float, wait: float = 0.0) -> None:
        """Add or update a pending pod. `wait` is the delay of its first attempt, in seconds."""
        queued = self._pods.get(info.uid)
        if queued is None:
            queued = QueuedPod(info, now)
            if wait:
                self._pods[info.uid], queued.not_before = queued, now + wait
                self._activate_after_backoff(queued, now)
            else:
                self._add_to_active(queued)
            return
        old, queued.info = queued.info, info
        queued.not_before = now + wait if wait else 0.0
        if wait and queued.place is QueuePlace.ACTIVE:
            self._move_to_backoff(queued, now)
            return
        if queued.place is QueuePlace.GATED:
            self._recheck_gate(queued)
        elif queued.place is QueuePlace.UNSCHEDULABLE and _has_changed(old, info):
            self._leave_group(queued, old)
            gate = self._policy.find_gate(info)
            if gate is None:
                self._activate_after_backoff(queued, now)
            else:
                self._add_to_gated(queued, gate)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a deleted or bound pod. Return its entry, or None if the queue does not contain it."""
        queued = self._pods.pop(uid, None)
        if queued is None:
            return None
        if queued.place is QueuePlace.UNSCHEDULABLE:
            self._leave_group(queued, queued.info)
        elif queued.place is QueuePlace.GATED:
            self.gates.discard_pod(uid, queued.awaits)
        else:
            self._stale += 1
            if self._stale > len(self._pods) + 64:
                self._compact()
        return queued.info

    def pop_pod(self, now: float) -> QueuedPod | None:
        """Return the next pod to schedule, or None if no pod is due."""
        self._flush_backoff(now)
        while self._active:
            queued = heapq.heappop(self._active)[2]
            if self._pods.get(queued.info.uid) is queued:
                del self._pods[queued.info.uid]
                queued.attempts += 1
                return queued
        return None

    def hold_pod(self, queued: QueuedPod) -> None:
        """Keep a popped pod in the queue during a slow decision, until `release_held_pod`. It cannot be popped in the
        meantime."""
        queued.held, queued.place = queued.held or (self._events, queued.info), QueuePlace.IN_FLIGHT
        self._pods[queued.info.uid] = queued

    def release_held_pod(self, queued: QueuedPod) -> bool:
        """End `hold_pod`. Return False if the pod was deleted, bound or changed. A changed pod is queued again."""
        uid = queued.info.uid
        if self._pods.get(uid) is not queued or queued.held is None:
            return False
        del self._pods[uid]
        if _has_changed(queued.held[1], queued.info):
            queued.held = None
            self._add_to_active(queued)
            return False
        return True

    def add_unschedulable(self, queued: QueuedPod, refused_by: frozenset[str], now: float, *, missed: bool = False) -> None:
        """Return a popped pod that no node fits at present.

        `refused_by` names the plugins whose decision must change; if it is empty, any event may help. `missed` is True if a
        helpful event may have happened already; the pod then waits only for its backoff.
        """
        missed = missed or (queued.held is not None and queued.held[0] != self._events)
        queued.refusals, queued.errors = queued.refusals + 1, 0
        queued.since, queued.refused_by, queued.held = now, refused_by, None
        uid = queued.info.uid
        if missed:
            self._pods[uid] = queued
            self._activate_after_backoff(queued, now)
            return
        queued.place = QueuePlace.UNSCHEDULABLE
        self._pods[uid] = self._unschedulable[uid] = queued
        queued.awaits = self._policy.awaited_changes(refused_by, queued.info)
        groups = self._groups.setdefault(queued.awaits, {})
        groups.setdefault((refused_by, queued.info.template), {})[uid] = queued

    def add_failed(self, queued: QueuedPod, now: float, *, rarely: bool = False) -> None:
        """Return a popped pod whose attempt failed with an error. It waits for its backoff.

        `rarely` selects the maximum backoff, for an attempt that delayed all other pods.
        """
        queued.since, queued.held, queued.errors = now, None, _MANY if rarely else queued.errors + 1
        self._pods[queued.info.uid] = queued
        self._activate_after_backoff(queued, now)

    def move_pods_on_event(self, event: ClusterEvent, nodes: NodeTable, now: float) -> None:
        """Move the pods that the event may help. `nodes` is the table after the event."""
        self._events += 1
        seen: dict[int, NodeTable] = {}
        for _, group in self._groups_awaiting(event):
            if not group:  # a plugin released the last pod of this group during an earlier call
                continue
            any_of_them = next(iter(group.values()))
            priority = any_of_them.info.priority
            if priority not in seen:
                seen[priority] = nodes.subtract_reserved(priority)
            if self._event_helps(any_of_them, event, seen[priority]):
                self._release_unschedulable(list(group.values()), now)
        for info in nodes.nominated.pods_on(event.node):
            nominated = self._unschedulable.get(info.uid)
            if nominated is not None and self._event_helps(nominated, event, nodes.subtract_reserved(info.priority, info.uid)):
                self._release_unschedulable([nominated], now)
        self.gates.record_event(event.change)

    def recheck_gated_pod(self) -> bool:
        """Check one gated pod that its plugins may release now. Return False if there is none."""
        while (uid := self.gates.next_to_recheck()) is not None:
            if (queued := self._pods.get(uid)) is not None and queued.place is QueuePlace.GATED:
                self._recheck_gate(queued)
                return True
        return False

    def activate_pod(self, uid: str, now: float) -> None:
        """Requeue this pod: an unschedulable pod waits only for its backoff, and a gated pod is checked again."""
        self._events += 1
        queued = self._pods.get(uid)
        if queued is not None and queued.place is QueuePlace.UNSCHEDULABLE:
            self._release_unschedulable([queued], now)
        elif queued is not None and queued.place is QueuePlace.GATED:
            self._recheck_gate(queued)

    def _event_helps(self, queued: QueuedPod, event: ClusterEvent, nodes: NodeTable) -> bool:
        refused_by = queued.refused_by
        return not refused_by or any(self._policy.event_helps(name, event, queued.info, nodes) for name in refused_by)

    def next_due(self) -> float | None:
        """Return the time at which `pop_pod` may return a pod without further events. It may be too early, but never too
        late."""
        due = [self._backoff[0][0]] if self._backoff else []
        if self._unschedulable:
            due.append(next(iter(self._unschedulable.values())).since + self._flush_after)
        if self.gates.has_waiting_pods:
            due.append(self._gates_flushed_at + self._flush_after)
        return min(due, default=None)

    @property
    def has_active_pods(self) -> bool:
        """True if there is an active pod. It may be True for stale entries only."""
        return bool(self._active)

    def _add_to_active(self, queued: QueuedPod) -> None:
        self._pods[queued.info.uid] = queued
        self._activate_unless_gated(queued)

    def _activate_unless_gated(self, queued: QueuedPod) -> None:
        """Activate the pod unless a plugin gates it. The gate may have changed since the pod arrived."""
        queued.place = QueuePlace.ACTIVE  # set first, because the plugin may activate this pod
        gate = self._policy.find_gate(queued.info)
        if gate is not None:
            self._add_to_gated(queued, gate)
            return
        key = self._policy.sort_key(queued.info, queued.since)
        heapq.heappush(self._active, (key, next(self._sequence), queued))

    def _add_to_gated(self, queued: QueuedPod, gate: Gate) -> None:
        queued.place, queued.refused_by, queued.awaits = QueuePlace.GATED, frozenset([gate.plugin]), gate.awaits
        self.gates.add_pod(queued.info.uid, gate.awaits)

    def _recheck_gate(self, queued: QueuedPod) -> None:
        """Release a gated pod if its plugins allow it now."""
        self.gates.discard_pod(queued.info.uid, queued.awaits)
        queued.refused_by = frozenset()
        self._activate_unless_gated(queued)

    def _backoff_end(self, queued: QueuedPod) -> float:
        """Return the end of the pod's backoff."""
        failed = queued.errors or queued.refusals
        if not failed:
            return queued.not_before
        backoff = exponential_delay(self._initial_backoff, self._max_backoff, failed - 1)
        return max(queued.since + backoff, queued.not_before)

    def _activate_after_backoff(self, queued: QueuedPod, now: float) -> None:
        ready = self._backoff_end(queued)
        if ready <= now:
            self._activate_unless_gated(queued)
        else:
            queued.place = QueuePlace.BACKOFF
            heapq.heappush(self._backoff, (ready, next(self._sequence), queued))

    def _move_to_backoff(self, queued: QueuedPod, now: float) -> None:
        """Move an active pod to the backoff. Its old entry in the active heap becomes stale."""
        later = QueuedPod(queued.info, queued.since)
        later.attempts, later.refusals, later.errors = queued.attempts, queued.refusals, queued.errors
        later.not_before = queued.not_before
        self._pods[queued.info.uid] = later
        self._stale += 1
        self._activate_after_backoff(later, now)

    def _flush_backoff(self, now: float) -> None:
        """Move the pods whose wait has ended."""
        while self._backoff and self._backoff[0][0] <= now:
            queued = heapq.heappop(self._backoff)[2]
            if self._pods.get(queued.info.uid) is queued:
                self._activate_after_backoff(queued, now)  # its backoff may have been extended since
        while self._unschedulable:
            queued = next(iter(self._unschedulable.values()))
            if queued.since + self._flush_after > now:
                break
            self._release_unschedulable([queued], now)
        if self._gates_flushed_at + self._flush_after <= now:
            self._gates_flushed_at = now
            self.gates.record_event(ANY)

    def _compact(self) -> None:
        """Drop the stale entries of the heaps. On a standby, pods leave the queue without `pop_pod`."""
        self._active = [entry for entry in self._active if self._pods.get(entry[2].info.uid) is entry[2]]
        self._backoff = [entry for entry in self._backoff if self._pods.get(entry[2].info.uid) is entry[2]]
        heapq.heapify(self._active)
        heapq.heapify(self._backoff)
        self._stale = 0

    def _release_unschedulable(self, waiting: Iterable[QueuedPod], now: float) -> None:
        for queued in waiting:
            if queued.place is QueuePlace.UNSCHEDULABLE:  # a plugin may have released it during an earlier call
                self._leave_group(queued, queued.info)
                self._activate_after_backoff(queued, now)

    def _groups_awaiting(self, event: ClusterEvent) -> list[tuple[tuple[frozenset[str], bytes], dict[str, QueuedPod]]]:
        """Return the groups that await such an event."""
        return [group for awaited, groups in self._groups.items() if awaited & event.change for group in groups.items()]

    def _leave_group(self, queued: QueuedPod, info: PodInfo) -> None:
        """Remove an unschedulable pod from its group. `info` is the version with which it joined."""
        queued.place = QueuePlace.ACTIVE  # the caller may change it
        del self._unschedulable[info.uid]
        key = (queued.refused_by, info.template)
        groups = self._groups[queued.awaits]
        group = groups[key]
        del group[info.uid]
        if not group:
            del groups[key]


def _has_changed(old: PodInfo, new: PodInfo) -> bool:
    """Return True if the pod has changed outside its status. The scheduler's own condition must not move the pod."""
    before, after = old.raw.metadata, new.raw.metadata
    return old.template != new.template or before.labels != after.labels or before.annotations != after.annotations
