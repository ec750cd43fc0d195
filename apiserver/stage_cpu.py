"""CPU time of the API server by stage, for --profile-stages.

    gRPC ...  decode  handle( authorize  admit  encode )                             response ... gRPC
                                   '--> commit( encode ) --> etcd --> fan-out --> watchers

The profiler wraps the functions of each stage at start. Without the option no function is wrapped. The CPU time of the event
loop's thread is attributed to the stage of the innermost wrapped function. The steps of a coroutine are measured one by one, so
the time in which it waits is not included. Every nanosecond is counted once. The stage `transport` is the rest: gRPC and TLS of
clients and of etcd, the event loop, garbage collection, and the profiler itself.
"""

import inspect
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import wraps
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from pinnace.apiserver.auth.authentication import RequestAuthenticator
from pinnace.apiserver.cacher.reflector import Reflector
from pinnace.apiserver.cacher.watcher import CacheWatcher
from pinnace.apiserver.registry import mutation
from pinnace.apiserver.registry.creation import ObjectCreator
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.services import methods
from pinnace.apiserver.services.methods import Method
from pinnace.apiserver.storage.committer import Committer

NAME = "pinnace_stage_cpu_seconds"
DECODE, AUTHORIZE, ADMIT, ENCODE = "decode", "authorize", "admit", "encode"
COMMIT, FAN_OUT, HANDLE, TRANSPORT = "commit", "fan-out", "handle", "transport"

SECTIONS: tuple[tuple[object, str, str], ...] = (
    (Method, "parse", DECODE),
    (RequestAuthenticator, "certificate", AUTHORIZE),
    (Method, "_authorize", AUTHORIZE),
    (ObjectCreator, "_admit_object", ADMIT),  # creates: admission, defaults, validation
    (Store, "_apply_step", ADMIT),  # updates
    (mutation._MutationAttempt, "_prepare_put", ENCODE),
    (methods, "_encode_response", ENCODE),
    (Committer, "commit_many", COMMIT),
    (Committer, "run", COMMIT),  # forms the groups
    (Committer, "_commit_group", COMMIT),
    (Reflector, "_follow_watch", FAN_OUT),  # decodes etcd events, applies them to the cache, and sends them to watchers
    (CacheWatcher, "__anext__", FAN_OUT),
    (Method, "call", HANDLE),  # the remaining work of a call: flow control, the verb, the audit log
)
"""Tuples of class or module, function name, and stage."""


class StageCpuMeter(Collector):
    """A Prometheus collector of the CPU time by stage. `spent` is in nanoseconds since the start. `now` returns the CPU time of
    the event loop's thread."""

    def __init__(self, now: Callable[[], int] = time.thread_time_ns) -> None:
        self.spent = dict.fromkeys((stage for _, _, stage in SECTIONS), 0)
        self._now = now
        self._stage: str | None = None
        self._since = 0

    def install(self, sections: Iterable[tuple[object, str, str]] = SECTIONS) -> None:
        """Wrap the functions permanently. Call it before any object binds them."""
        for owner, name, stage in sections:
            setattr(owner, name, self.wrap(stage, getattr(owner, name)))

    def wrap(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of a function or coroutine function that attributes its CPU time to the stage."""
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def attributed_coroutine(*args: Any, **kwargs: Any) -> Any:
                return await self._drive_coroutine(stage, function(*args, **kwargs))

            return attributed_coroutine

        @wraps(function)
        def attributed_call(*args: Any, **kwargs: Any) -> Any:
            outer = self._switch_stage(stage)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch_stage(outer)

        return attributed_call

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(NAME, "CPU time of the process by stage, in seconds.", labels=["stage"])
        spent = dict(self.spent)
        for stage, nanoseconds in spent.items():
            family.add_metric([stage], nanoseconds / 1e9)
        family.add_metric([TRANSPORT], time.process_time() - sum(spent.values()) / 1e9)
        yield family

    def _switch_stage(self, stage: str | None) -> str | None:
        """Switch to a stage (None: no stage), and return the previous stage."""
        now, outer = self._now(), self._stage
        if outer is not None:
            self.spent[outer] += now - self._since
        self._stage, self._since = stage, now
        return outer

    @types.coroutine
    def _drive_coroutine(self, stage: str, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run the coroutine to its end. Values that it yields, values sent to it, and exceptions are passed through."""
        step: Callable[[Any], Any] = coroutine.send
        sent: Any = None
        while True:
            outer = self._switch_stage(stage)
            try:
                awaited = step(sent)
            except StopIteration as end:
                return end.value
            finally:
                self._switch_stage(outer)
            try:
                step, sent = coroutine.send, (yield awaited)
            except BaseException as error:  # usually CancelledError
                step, sent = coroutine.throw, error


def install_profiler(registry: CollectorRegistry = REGISTRY) -> None:
    """Install the profiler and register its metric. Call it once per process, before creating a server."""
    stages = StageCpuMeter()
    stages.install()
    registry.register(stages)
