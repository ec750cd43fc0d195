"""Charging quotas: what leaves for etcd together is charged together, in the same transaction.

    group --> bill: what each quota would have, from what is known of it
                |-- it fits --> lane: the group and the charges
                |                 |--> Committed
                |                 |--> Refused: objects that exist lose, and the others go again;
                |                 '--> Refused, as somebody else has charged: what etcd says is learned, and all go again
                '-- somebody does not fit, or nobody has counted yet --> the cache is brought up to now, and everything counted
                                  |--> bill, from the count: who does not fit now is denied, the others go
                                  '--> the cache cannot be brought up: Unavailable, for all

Whatever waits in the meantime, from however many calls, is in the next group: a round is paid for once, not for each object.
Between two servers one of the two always wins a round, and the loser knows the winner's charge from its refusal.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.errors import CacheBehind
from apiserver.quota.states import State, States
from apiserver.quota.tally import Tally
from apiserver.quota.usage import COUNTED, Use, use_of
from apiserver.storage.committer import Denied, Outcome, Settled
from apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    Committed,
    Guard,
    KeyValue,
    Refused,
    Unavailable,
    Write,
    failure_of,
)
from apiserver.storage.interface import States as Found
from apiserver.storage.transaction import MARKER_BYTES, NOT_DONE, Answer, Lane
from pinnace.api.resources import Resource, namespace_of, prefix_of
from pinnace.runtime.clock import Clock

GROWTH = 8
"""A quota with its status has at most so many times the bytes that it had without."""
PATIENCE = 5.0
"""Seconds that are waited for the cache to see the version that an update replaces."""
_BY_PREFIX = {resource.prefix: resource for resource in COUNTED}


class _Bill:
    """`writes`: those that go. `denied`: those that do not, by key. `used`: of each quota, by key, with those that go."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.denied: dict[str, Outcome] = {}
        self.used: dict[str, dict[str, int]] = {}
        self._charged: dict[str, State] = {}
        self._keys: set[str] = set()
        self._guards: set[Guard] = set()
        self._bytes = MARKER_BYTES

    @property
    def charges(self) -> list[Write]:
        return [
            Write(key, state.bounds.with_used(self.used[key]).SerializeToString(), state.revision)
            for key, state in self._charged.items()
        ]

    def take(self, write: Write, shares: Sequence[tuple[State, Mapping[str, int]]]) -> bool:
        """Charges a write and lets it go, if there is room in the transaction. One write always has room. A quota that is
        itself written is charged in another transaction: no key occurs twice in one."""
        charged = self._charged | {state.key: state for state, _ in shares}
        guards = self._guards.union(write.guards)
        new = [state for state in charged.values() if state.key not in self._charged]
        size = self._bytes + len(write.value or b"") + sum(GROWTH * state.size for state in new)
        if self.writes and (
            len(self.writes) + len(guards) + len(charged) + 2 > MAX_OPERATIONS
            or size > MAX_BYTES
            or write.key in charged
            or not self._keys.isdisjoint(charged)
        ):
            return False
        self.writes.append(write)
        self._keys.add(write.key)
        self._charged, self._guards, self._bytes = charged, guards, size
        for state, share in shares:
            used = self.used[state.key]
            for name, amount in share.items():
                used[name] += amount
        return True


class Ledger:
    """`refresh` brings the cache up to etcd's present revision; it raises CacheBehind or StorageError when it cannot."""

    def __init__(
        self, cacher: Cacher, states: States, tally: Tally, refresh: Callable[[], Awaitable[None]], clock: Clock
    ) -> None:
        self._cacher = cacher
        self._states = states
        self._tally = tally
        self._refresh = refresh
        self._clock = clock

    async def send(self, lane: Lane, writes: Sequence[Write]) -> Answer | Settled:
        """An apiserver.storage.committer.Send, for a committer that has one transaction under way at a time."""
        try:
            await self._cacher.wait_for(max(write.expected for write in writes), PATIENCE)
            bill = self._bill(writes, counted=False)
            if bill is None:
                await self._refresh()
                bill = self._bill(writes, counted=True)
                assert bill is not None, "nobody is in doubt about what was counted"
        except CacheBehind as error:
            raise Unavailable(str(error)) from None
        if not bill.writes:
            return Settled(bill.denied)
        charges = bill.charges
        answer = await lane.send([*bill.writes, *charges])
        match answer:
            case Committed():
                for charge in charges:
                    self._states.learn(charge.key, answer.revision, _stored(charge, answer.revision))
                return Settled({write.key: answer.revision for write in bill.writes} | bill.denied)
            case Refused():
                for charge in charges:
                    self._states.learn(charge.key, answer.revision, answer.current[charge.key])
                # Nobody is denied for want of room that those who were to go before him did not take after all.
                lost = _lost(bill.writes, answer.current)
                return Settled(lost) if lost else NOT_DONE
        return answer

    def _bill(self, writes: Sequence[Write], *, counted: bool) -> _Bill | None:
        """What goes now: as many as have room. `counted`: by what there is in the cache, rather than by what the quotas say of
        themselves; without it None when that would not let everybody pass. Does not wait: it is about one revision."""
        bill = _Bill()
        for write in writes:
            shares = self._shares(write, counted)
            for state, share in shares:
                if state.key not in bill.used:
                    used = self._count(state) if counted else state.bounds.used
                    if used is None:
                        return None
                    bill.used[state.key] = dict(used)
                if excess := state.bounds.excess(bill.used[state.key], share):
                    if not counted:
                        return None
                    if self._asks(write):
                        bill.denied[write.key] = _denied(write, excess)
                        break
            else:
                if not bill.take(write, shares):
                    break
        return bill

    def _shares(self, write: Write, counted: bool) -> list[tuple[State, dict[str, int]]]:
        """The quotas that a write counts against, and what it adds to each."""
        (use, before), namespace = self._step(write), namespace_of(write.key)
        states = self._states.cached(namespace) if counted else self._states.newest(namespace)
        shares = ((state, state.bounds.growth(use, before)) for state in states if state.key != write.key)
        return [(state, share) for state, share in shares if share]

    def _asks(self, write: Write) -> bool:
        """Does it ask for anything? A status that tells what was given already is charged, and never denied."""
        resource = _resource_of(write)
        entry = self._cacher.of(resource).get(write.key) if write.expected else None
        if entry is None:
            return True
        new: Any = resource.message.FromString(write.value or b"")
        return bool(new.spec != entry.obj.spec)

    def _count(self, state: State) -> Mapping[str, int]:
        return state.bounds.total(self._tally.of(namespace_of(state.key)))

    def _step(self, write: Write) -> tuple[Use, Use | None]:
        """What the object uses when this is written, and what it used before; None: it was not there."""
        resource, now = _resource_of(write), self._clock.time()
        use = use_of(resource.message.FromString(write.value or b""), now)
        if not write.expected:
            return use, None
        entry = self._cacher.of(resource).get(write.key)
        if entry is None or entry.mod_revision != write.expected:
            return Use(()), None  # it has changed since: this cannot commit
        return use, use_of(entry.obj, now)


def _resource_of(write: Write) -> Resource[Any]:
    return _BY_PREFIX[prefix_of(write.key)]


def _denied(write: Write, why: str) -> Denied:
    return Denied(f'{_resource_of(write).plural} "{write.key.rpartition("/")[2]}" is forbidden: {why}')


def _stored(charge: Write, revision: int) -> KeyValue:
    return KeyValue(charge.key, charge.value or b"", 0, revision, 0)


def _lost(writes: Sequence[Write], current: Found) -> dict[str, Outcome]:
    """Those that cannot happen in this state."""
    failures = ((write.key, failure_of(write, current)) for write in writes)
    return {key: failure for key, failure in failures if failure is not None}
