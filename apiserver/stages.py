"""Where an API server's CPU time goes, by stage of what it does: only where somebody asks (`--profile-stages`).

    gRPC ...  decode  handle( authorize  admit  encode )                               answer ... gRPC
                                   '--> commit( encode ) --> etcd --> fan-out --> watchers

Functions of each stage are wrapped, from outside: a server that is not asked runs without a line of this. While one runs, the
time of the event loop's thread is its stage's; what it calls of another stage, that stage's. A coroutine is charged for each of
its steps, so that nobody pays for what others do while he waits. So every nanosecond is counted once, and what no stage has is
`transport`: gRPC and TLS, of clients and of etcd, the event loop, garbage collection, and looking at the clock for this.
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

from apiserver.auth.authentication import Authenticator
from apiserver.cacher.reflector import Reflector
from apiserver.cacher.watcher import Watcher
from apiserver.registry import mutation
from apiserver.registry.store import Creation, Store
from apiserver.services import methods
from apiserver.services.methods import Method
from apiserver.storage.committer import Committer

NAME = "pinnace_stage_cpu_seconds"
DECODE, AUTHORIZE, ADMIT, ENCODE = "decode", "authorize", "admit", "encode"
COMMIT, FAN_OUT, HANDLE, TRANSPORT = "commit", "fan-out", "handle", "transport"

SECTIONS: tuple[tuple[object, str, str], ...] = (
    (Method, "parse", DECODE),
    (Authenticator, "certificate", AUTHORIZE),
    (Method, "_authorize", AUTHORIZE),
    (Creation, "_complete", ADMIT),  # of what is created: admission, defaults, validation
    (Store, "_next", ADMIT),  # of what is updated
    (mutation._Attempt, "_store", ENCODE),
    (methods, "_encode", ENCODE),
    (Committer, "commit_many", COMMIT),
    (Committer, "run", COMMIT),  # makes the groups
    (Committer, "_commit_group", COMMIT),
    (Reflector, "_follow", FAN_OUT),  # decodes etcd's events, applies them to the cache, and hands them to watchers
    (Watcher, "__anext__", FAN_OUT),
    (Method, "call", HANDLE),  # what is left of it: flow control, the verbs themselves, the audit log
)
"""(class or module, function, stage)"""


class CpuStages(Collector):
    """CPU time by stage since the start, in nanoseconds. `now`: of the one thread in which everything here runs."""

    def __init__(self, now: Callable[[], int] = time.thread_time_ns) -> None:
        self.spent = dict.fromkeys((stage for _, _, stage in SECTIONS), 0)
        self._now = now
        self._stage: str | None = None
        self._since = 0

    def install(self, sections: Iterable[tuple[object, str, str]] = SECTIONS) -> None:
        """Wraps the functions, for as long as the process lives: before objects have bound them."""
        for owner, name, stage in sections:
            setattr(owner, name, self.charging(stage, getattr(owner, name)))

    def charging(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, or coroutine function, at the expense of the stage."""
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def stepping(*args: Any, **kwargs: Any) -> Any:
                return await self._steps(stage, function(*args, **kwargs))

            return stepping

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            outer = self._enter(stage)
            try:
                return function(*args, **kwargs)
            finally:
                self._enter(outer)

        return call

    def collect(self) -> Iterable[Metric]:
        """For /metrics."""
        family = CounterMetricFamily(NAME, "CPU time of the process, by stage of what it does.", labels=["stage"])
        spent = dict(self.spent)
        for stage, nanoseconds in spent.items():
            family.add_metric([stage], nanoseconds / 1e9)
        family.add_metric([TRANSPORT], time.process_time() - sum(spent.values()) / 1e9)
        yield family

    def _enter(self, stage: str | None) -> str | None:
        """From now on time is this stage's; None: nobody's. Returns whose it was."""
        now, outer = self._now(), self._stage
        if outer is not None:
            self.spent[outer] += now - self._since
        self._stage, self._since = stage, now
        return outer

    @types.coroutine
    def _steps(self, stage: str, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Runs the coroutine to its end, passing on what it waits for and what it is told."""
        step: Callable[[Any], Any] = coroutine.send
        told: Any = None
        while True:
            outer = self._enter(stage)
            try:
                awaited = step(told)
            except StopIteration as end:
                return end.value
            finally:
                self._enter(outer)
            try:
                step, told = coroutine.send, (yield awaited)
            except BaseException as error:  # a cancellation, mostly
                step, told = coroutine.throw, error


def profile(registry: CollectorRegistry = REGISTRY) -> None:
    """To be called once in a process, before there is a server."""
    stages = CpuStages()
    stages.install()
    registry.register(stages)
