"""The way of one pod from its choice to its bind, as far as plugins take part in it.

    start:  Reserve --> Permit --> pre-flight         in the scheduling cycle
                |          |
                v          v         then, beside the next decisions:
             refused: Unreserve      [wait] --> PreBind --> Bind, or the batches --> PostBind

Whoever carries it out (scheduler.binding_cycles) calls exactly one of `bound` and `undo` in the end, or neither when it cannot
know. `undo` calls Unreserve of all Reserve plugins, the last one first.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pinnace.api.pods_pb2 import Fence
from scheduler.cache.pod_info import PodInfo
from scheduler.framework.faults import Faults
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
from scheduler.framework.results import SKIP, CycleState, PluginError, Refused, Wait

log = logging.getLogger(__name__)

P = TypeVar("P", bound=Plugin)


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

    @property
    def direct(self) -> bool:
        """There is nothing to wait for: the pod can go to the batches."""
        return not (self.waits or self.pre_binds or self.binds)

    async def pre_bind(self) -> Refused | None:
        """Raises PluginError."""
        for plugin in self.pre_binds:
            try:
                status = await plugin.pre_bind(self.state, self.pod, self.node)
            except Exception as error:
                raise PluginError(plugin.name, "PreBind", error) from error
            if status is not None and status is not SKIP:
                return Refused(plugin.name, status.reason)
        return None

    async def bind(self, fence: Fence) -> Refused | bool:
        """True: a plugin has bound the pod; False: it is for the batches. Raises PluginError."""
        for plugin in self.binds:
            try:
                status = await plugin.bind(self.state, self.pod, self.node, fence)
            except Exception as error:
                raise PluginError(plugin.name, "Bind", error) from error
            if status is None:
                return True
            if status is not SKIP:
                return Refused(plugin.name, status.reason)
        self.plugins.need_batches()
        return False

    def bound(self) -> None:
        for plugin in self.plugins.post_binds:
            try:
                plugin.post_bind(self.state, self.pod, self.node)
            except Exception as error:
                self._note(PluginError(plugin.name, "PostBind", error))

    def undo(self) -> None:
        for plugin in reversed(self.plugins.reserves):
            try:
                plugin.unreserve(self.state, self.pod, self.node)
            except Exception as error:
                self._note(PluginError(plugin.name, "Unreserve", error))

    def _note(self, error: PluginError) -> None:
        """Of what nothing follows: no event tells of the pod."""
        log.error("pod %s: %s", self.pod.key, error)
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
        kept = {key: value for key, value in state.items() if key.startswith(self._prefixes)}
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
            try:
                status = plugin.reserve(cycle.state, cycle.pod, cycle.node)
            except Exception as error:
                raise PluginError(plugin.name, "Reserve", error) from error
            if status is not SKIP:
                cycle.reserved = True
                if status is not None:
                    return Refused(plugin.name, status.reason)
        return None

    def _permit(self, cycle: BindingCycle) -> Refused | None:
        for plugin in self._permits:
            try:
                answer = plugin.permit(cycle.state, cycle.pod, cycle.node)
            except Exception as error:
                raise PluginError(plugin.name, "Permit", error) from error
            if isinstance(answer, Wait):
                cycle.waits[plugin.name] = answer.timeout
            elif answer is not None and answer is not SKIP:
                return Refused(plugin.name, answer.reason)
        return None


def _pre_flight(plugin: Plugin) -> PreFlightPlugin | None:
    return plugin if isinstance(plugin, PreFlightPlugin) else None


def _interested(plugins: Iterable[tuple[P, PreFlightPlugin | None]], cycle: BindingCycle) -> Iterator[P]:
    """Those that have something to do for the pod."""
    for plugin, pre_flight in plugins:
        try:
            status = pre_flight.pre_flight(cycle.state, cycle.pod, cycle.node) if pre_flight is not None else None
        except Exception as error:
            raise PluginError(plugin.name, "PreFlight", error) from error
        if status is None:
            yield plugin
        elif status is not SKIP:
            raise PluginError(plugin.name, "PreFlight", ValueError("it must answer None or SKIP"))
