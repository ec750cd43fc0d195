"""Events in the name of the profile that the pod asks for: one recorder for each."""

import asyncio
from collections.abc import Iterable

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.client.client import EventClient
from pinnace.client.events import EventRecorder
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending


class Recorders:
    """`instance`: the replica's name."""

    def __init__(self, client: EventClient, profiles: Iterable[str], instance: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._recorders = {profile: EventRecorder(client, profile, instance, clock=clock) for profile in profiles}
        self._first = next(iter(self._recorders.values()))

    def event(self, obj: Pod | Node, type_: str, reason: str, message: str) -> None:
        """As EventRecorder.event. What is no pod of any profile is told in the first one's name."""
        name = obj.spec.schedulerName if isinstance(obj, Pod) else ""
        self._recorders.get(name, self._first).event(obj, type_, reason, message)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for recorder in self._recorders.values():
                group.create_task(unending("event recorder", recorder.run))

    async def flush(self) -> None:
        for recorder in self._recorders.values():
            await recorder.flush()
