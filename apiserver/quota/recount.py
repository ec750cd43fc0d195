"""Keeping what quotas say of themselves true: what has gone is released, a new quota learns what there is already.

Every server does it, each in its own time. One is enough, and several do no harm: a count is written only over the version of
the quota that it was made with, and who comes second finds it done.
"""

import random

from apiserver.quota.states import State, States
from apiserver.quota.tally import Tally
from apiserver.storage.committer import Committer
from apiserver.storage.interface import Write
from pinnace.runtime.clock import Clock

INTERVAL = 1.0
"""Seconds between two rounds, on average."""
SHARE = 0.05
"""The part of the time that may go into counting, at most: rounds that take long are further apart."""


class Recount:
    def __init__(self, states: States, tally: Tally, committer: Committer, clock: Clock, rng: random.Random) -> None:
        self._states = states
        self._tally = tally
        self._committer = committer
        self._clock = clock
        self._rng = rng

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL * self._rng.uniform(0.5, 1.5))
            if spent := await self._round():
                await self._clock.sleep(spent / SHARE)

    async def _round(self) -> float:
        """Counts every namespace that has a quota, with a breath in between; the seconds that the counting took."""
        spent, wrong = 0.0, list[Write]()
        for namespace in list(self._states.keys):
            before = self._clock.monotonic()
            wrong += filter(None, (self._correction(namespace, state) for state in self._states.cached(namespace)))
            spent += self._clock.monotonic() - before
            await self._clock.sleep(0)
        self._tally.keep(self._states.keys)
        await self._committer.commit_many(wrong)  # what fails is found wrong again
        return spent

    def _correction(self, namespace: str, state: State) -> Write | None:
        """What makes the quota true; None: it is."""
        used = state.bounds.total(self._tally.of(namespace))
        if state.bounds.says(used):
            return None
        return Write(state.key, state.bounds.with_used(used).SerializeToString(), state.revision)
