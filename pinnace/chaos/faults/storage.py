"""What happens to etcd apart from its processes, behind the API servers' back: `python -m apiserver.storage.etcd.surgery`."""

import random

from pinnace.chaos.world import ETCD_FOLLOWER, NotPossible, World
from pinnace.cluster.helper import HelperError


class _Operation:
    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self.details = ""

    async def end(self) -> None:
        """Nothing to undo."""

    async def _ask(self, do: str, **fields: object) -> None:
        try:
            await self._world.surgeon.ask(do, **fields)
        except HelperError as error:
            raise NotPossible(f"etcd: {error}") from error


class Compact(_Operation):
    """The history is removed up to where the recorder has it, and never beyond: watches that are behind have to list again."""

    async def begin(self) -> None:
        revision = self._world.recorded()
        if revision < 1:
            raise NotPossible("nothing has been recorded yet")
        self.details = f"revision {revision}"
        await self._ask("compact", revision=revision)


class Transfer(_Operation):
    """etcd's leader hands over to another member."""

    async def begin(self) -> None:
        self.details = await self._world.find(ETCD_FOLLOWER)
        await self._ask("transfer", to=self._world.cluster.state.find(self.details).plan.address)


class NoSpace(_Operation):
    """etcd's alarm NOSPACE is on, as with a full disk: no puts and no new leases. Cleared at the end."""

    _on = False

    async def begin(self) -> None:
        self._on = True
        await self._ask("alarm", on=True)

    async def end(self) -> None:
        if self._on:
            await self._world.clear_alarms()
            self._on = False
