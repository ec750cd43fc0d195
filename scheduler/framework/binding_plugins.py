"""The way of one pod from its choice to its bind, as far as plugins take part in it.

    start:  Reserve --> Permit --> pre-flight         in the scheduling cycle
                |          |
                v          v         then, beside the next decisions:
             refused: Unreserve      [wait] --> PreBind --> Bind, or the batches --> PostBind

Whoever carries it out (scheduler.binding_cycles) calls exactly one of `bound` and `undo` in the end, or neither when it cannot
know. `undo` calls Unreserve of all Reserve plugins, the last one first.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pinnace.api.pods_pb2 import Fence
from pinnace.runtime.logs import PluginFailed
from scheduler.cache.pod_info import PodInfo
from scheduler.framework.faults import Faults, acall, call, check_permit, check_skip, check_status, is_built_in, objection
from scheduler.framework.interface import (
    BatchBindPlugin,
    BindPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFlightPlugin,
    ReservePlugin,
)
from scheduler.framework.results import SKIP, CycleState, Overdue, PluginError, Refused, Wait

log = logging.getLogger(__name__)

P = TypeVar("P", bound=Plugin)

PRE_BIND = 600.0
"""Seconds for one plugin, at most; what Kubernetes gives volumes to be bound."""
OWN_PRE_BIND = 60.0
"""Seconds for a plugin that is not ours and does not say how many it needs."""


@dataclass(slots=True, eq=False)
class BindingCycle:
    """Of one pod. `state` has what the plugins that take part left there in the scheduling cycle."""

    plugins: "BindingPlugins"
    state: CycleState
    pod: PodInfo
    node: str
    reserved: bool = False
    """Some Reserve plugin has not skipped it."""
    waits: dict[str, float] = field(default_factory=dict)
    """Seconds, by the Permit plugin that asks to wait."""
    pre_binds: Sequence[PreBindPlugin] = ()
    binds: Sequence[BindPlugin] = ()
    """Those to be asked before the pod goes to the batches."""
    sent: bool = False
    """One of them has been asked: it may have bound the pod."""
    asked: tuple[str, str] = ("", "")
    """(plugin, point) of the coroutine that was awaited last."""

    @property
    def direct(self) -> bool:
        """There is nothing to wait for: the pod can go to the batches."""
        return not (self.waits or self.pre_binds or self.binds)

    @property
    def pre_bind_timeout(self) -> float:
        """Seconds for all that PreBind."""
        return sum(map(pre_bind_timeout, self.pre_binds))

    async def pre_bind(self) -> Refused | None:
        """Raises PluginError."""
        for plugin in self.pre_binds:
            self.asked = plugin.name, "PreBind"
            seconds = pre_bind_timeout(plugin)
            try:
                async with asyncio.timeout(seconds) as deadline:
                    answer = await acall(plugin, "PreBind", plugin.pre_bind, self.state, self.pod, self.node)
            except TimeoutError:
                assert deadline.expired()  # the plugin's own is a PluginError
                raise self.overdue(seconds) from None
            if refused := objection(plugin, call(plugin, "PreBind", check_status, answer)):
                return refused
        return None

    async def bind(self, fence: Fence) -> Refused | bool:
        """True: a plugin has bound the pod; False: it is for the batches. Raises PluginError."""
        for plugin in self.binds:
            self.asked = plugin.name, "Bind"
            answer = await acall(plugin, "Bind", plugin.bind, self.state, self.pod, self.node, fence)
            if answer is None:
                return True
            if refused := objection(plugin, call(plugin, "Bind", check_status, answer)):
                return refused
        self.plugins.need_batches()
        return False

    def overdue(self, seconds: float) -> PluginError:
        """What is told of the coroutine that was awaited last, when its time is over."""
        plugin, point = self.asked
        return PluginError(plugin, point, Overdue(f"it did not return within {seconds:g} s"))

    def bound(self) -> None:
        for plugin in self.plugins.post_binds:
            try:
                call(plugin, "PostBind", plugin.post_bind, self.state, self.pod, self.node)
            except PluginError as error:
                self._note(error)

    def undo(self) -> None:
        for plugin in reversed(self.plugins.reserves):
            try:
                call(plugin, "Unreserve", plugin.unreserve, self.state, self.pod, self.node)
            except PluginError as error:
                self._note(error)

    def _note(self, error: PluginError) -> None:
        """Of what nothing follows: no event tells of the pod."""
        failed = PluginFailed(error.plugin, error.point, type(error.problem).__name__, self.pod.key).extra
        log.error("pod %s: %s", self.pod.key, error, extra=failed)
        self.plugins.faults.note(error)


class BindingPlugins:
    """The plugins of one profile from Reserve on, each list in its order."""

    def __init__(
        self,
        reserves: Sequence[ReservePlugin],
        permits: Sequence[PermitPlugin],
        pre_binds: Sequence[PreBindPlugin],
        binds: Sequence[BindPlugin | BatchBindPlugin],
        post_binds: Sequence[PostBindPlugin],
    ) -> None:
        self.reserves = reserves
        self.post_binds = post_binds
        self._permits = permits
        self._pre_binds = [(plugin, _pre_flight(plugin)) for plugin in pre_binds]
        self._binds = [(plugin, _pre_flight(plugin)) for plugin in binds if isinstance(plugin, BindPlugin)]
        self._batches = any(isinstance(plugin, BatchBindPlugin) for plugin in binds)
        self.faults = Faults()
        self.none = self._batches and not (reserves or permits or pre_binds or self._binds or post_binds)
        """Every pod goes to the batches, and nobody wants to know."""
        self._prefixes = tuple({f"{plugin.name}." for plugin in (*reserves, *permits, *pre_binds, *binds, *post_binds)})

    def start(self, state: CycleState, pod: PodInfo, node: str) -> BindingCycle | Refused | None:
        """After the pod was assumed. None: no plugin has anything to do with it. Refused: all is undone. Raises PluginError,
        and all is undone too."""
        kept = {key: value for key, value in state.items() if isinstance(key, str) and key.startswith(self._prefixes)}
        cycle = BindingCycle(self, kept, pod, node)
        try:
            refused = self._reserve(cycle) or self._permit(cycle)
            if refused is None:
                cycle.pre_binds = list(_interested(self._pre_binds, cycle))
                cycle.binds = list(_interested(self._binds, cycle))
                if not cycle.binds:
                    self.need_batches()
        except PluginError:
            cycle.undo()
            raise
        if refused is not None:
            cycle.undo()
            return refused
        return None if cycle.direct and not cycle.reserved and not self.post_binds else cycle

    def need_batches(self) -> None:
        """Raises PluginError when the pod cannot go there."""
        if not self._batches:
            name = self._binds[-1][0].name
            raise PluginError(name, "Bind", ValueError("it skips the pod, and no other plugin binds it"))

    def _reserve(self, cycle: BindingCycle) -> Refused | None:
        for plugin in self.reserves:
            answer = call(plugin, "Reserve", plugin.reserve, cycle.state, cycle.pod, cycle.node)
            status = answer if answer is None else call(plugin, "Reserve", check_status, answer)
            if status is not SKIP:
                cycle.reserved = True
                if refused := objection(plugin, status):
                    return refused
        return None

    def _permit(self, cycle: BindingCycle) -> Refused | None:
        for plugin in self._permits:
            answer = call(plugin, "Permit", plugin.permit, cycle.state, cycle.pod, cycle.node)
            status = answer if answer is None else call(plugin, "Permit", check_permit, answer)
            if isinstance(status, Wait):
                cycle.waits[plugin.name] = float(status.timeout)
            elif refused := objection(plugin, status):
                return refused
        return None


def _pre_flight(plugin: Plugin) -> PreFlightPlugin | None:
    return plugin if isinstance(plugin, PreFlightPlugin) else None


def _interested(plugins: Iterable[tuple[P, PreFlightPlugin | None]], cycle: BindingCycle) -> Iterator[P]:
    """Those that have something to do for the pod."""
    for plugin, pre_flight in plugins:
        status = None
        if pre_flight is not None:
            answer = call(plugin, "PreFlight", pre_flight.pre_flight, cycle.state, cycle.pod, cycle.node)
            status = answer if answer is None or answer is SKIP else call(plugin, "PreFlight", check_skip, answer)
        if status is None:
            yield plugin


def pre_bind_timeout(plugin: PreBindPlugin) -> float:
    """Seconds. A plugin that is not ours has OWN_PRE_BIND, unless it has an attribute `pre_bind_timeout`."""
    if is_built_in(type(plugin)):
        return PRE_BIND
    seconds = getattr(plugin, "pre_bind_timeout", OWN_PRE_BIND)
    usable = isinstance(seconds, int | float) and 0.0 < seconds <= PRE_BIND
    return float(seconds) if usable else OWN_PRE_BIND
