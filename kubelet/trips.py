"""Pods that trip a bug: each look at one ends in an exception that nobody foresaw.

Each is logged in full, has an event, and is looked at again, ever later. A fleet that died of a pod would die of it again after
each restart, with all its nodes.
"""

import logging
from collections.abc import Callable

from kubelet import metrics
from kubelet.delayqueue import DelayQueue
from kubelet.refused import FIRST_PAUSE, LONGEST_PAUSE
from pinnace.api.core_v1_pb2 import Pod
from pinnace.runtime.backoff import Backoffs
from pinnace.runtime.clock import Clock
from pinnace.runtime.supervise import describe

log = logging.getLogger(__name__)


class Trips:
    """`tell`: records an event (pod, type, reason, message). `queue`: of the uids of pods that are to be looked at."""

    def __init__(self, tell: Callable[[Pod, str, str, str], None], queue: DelayQueue, clock: Clock) -> None:
        self._tell = tell
        self._queue = queue
        self._clock = clock
        self._pauses = Backoffs(FIRST_PAUSE, LONGEST_PAUSE)

    def trip(self, pod: Pod, error: Exception) -> None:
        """Looking at the pod, or hearing of it, has come upon a bug."""
        uid = pod.metadata.uid
        pause = self._pauses.next(uid)
        metrics.TRIPPED.inc()
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        log.error("pod %s trips a bug; again in %.3g s", name, pause, exc_info=error)
        self._tell(pod, "Warning", "FailedSync", f"Error syncing pod, it is tried again: {describe(error)}")
        self._queue.add_at(uid, self._clock.monotonic() + pause)

    def over(self, uid: str) -> None:
        """The pod has been looked at without a bug, or is gone."""
        self._pauses.forget(uid)
