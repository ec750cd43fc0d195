"""Charging of writes, the quotas known to this server, and periodic recounts.

**QuotaLedger.** The writes of a group and their charges are in one transaction:

    group --> transaction: the usage of each quota after the group, by the last known status
                |-- within the limits --> transaction: the group and the charges
                |                           |--> Committed
                |                           |--> CompareFailed for objects: these writes fail, the others are sent again
                |                           '--> CompareFailed for a quota: store its current version, send all again
                '-- over a limit, or status incomplete --> update the cache, and recount
                                  |--> transaction by the recount: writes that exceed a limit are denied, the others are sent
                                  '--> the cache cannot be updated: StorageUnavailable for all writes

Writes of all calls that arrive in the meantime form the next group, so a recount is made once per group. If two servers charge
a quota, one of them always succeeds, and the other one receives the new version of the quota with the failure.

**QuotaStates.** The newest known version of each quota: the one in the watch cache, or a newer one from a response of etcd. The
latter is used until the cache has reached its revision. Nothing waits for the cache.

**UsageTally.** The usage in a namespace at one revision of the cache. The usage of an object is cached until the object
changes, and the total until any object of a counted resource changes.

**QuotaRecount.** Corrects the status of quotas: it releases deleted objects, and sets the status of new quotas. Every server
recounts periodically. A correction is conditional on the version of the quota, so concurrent recounts are safe.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.api.resources import (
    PODS,
    RESOURCE_QUOTAS,
    CustomResource,
    Resource,
    custom_row,
    is_custom_prefix,
    namespace_of,
    prefix_of,
)
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheBehind, CacheEntry, SelectionPredicate
from pinnace.apiserver.quota.usage import (
    COUNTED,
    GROWING,
    ObjectUsage,
    QuotaLimits,
    compute_usage,
    custom_object_usage,
    grace_period_end,
)
from pinnace.apiserver.registry.mutation import WriteCommitter
from pinnace.apiserver.storage.committer import (
    MARKER_BYTES,
    NOT_DONE,
    Answer,
    CommitOutcome,
    Committer,
    DecidedOutcomes,
    TransactionPipeline,
    WriteDenied,
    write_bytes,
)
from pinnace.apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    Committed,
    CompareFailed,
    Guard,
    KeyValue,
    States,
    Storage,
    StorageUnavailable,
    Write,
    failure_of,
)
from pinnace.runtime.clock import Clock
from pinnace.runtime.cpu import no_preemptions
from pinnace.runtime.supervise import run_unending

GROWTH = 8
"""The maximum size of a quota with its status, relative to its size without the status."""
PATIENCE = 5.0
"""Maximum seconds to wait until the cache contains the version that an update replaces."""
_BY_PREFIX = {resource.prefix: resource for resource in COUNTED}

INTERVAL = 1.0
"""The average seconds between two recounts."""
SHARE = 0.05
"""The maximum share of the time for recounts. After a long recount, the next one is delayed."""


class _ChargedTransaction:
    """A transaction in preparation. `writes` contains the accepted writes, and `denied` the outcome of denied writes by key.
    `used` is the usage of each quota by key, including the accepted writes."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.denied: dict[str, CommitOutcome] = {}
        self.used: dict[str, dict[str, int]] = {}
        self._charged: dict[str, QuotaState] = {}
        self._keys: set[str] = set()
        self._guards: set[Guard] = set()
        self._bytes = MARKER_BYTES
        self._operations = 0

    @property
    def charges(self) -> list[Write]:
        return [
            Write(key, state.bounds.quota_with_used(self.used[key]).SerializeToString(), state.revision)
            for key, state in self._charged.items()
        ]

    def add_if_fits(self, write: Write, shares: Sequence[tuple[QuotaState, Mapping[str, int]]]) -> bool:
        """Add a write and its charges, if they fit into the transaction. The first write always fits. A write of a quota and a
        charge of the same quota are in different transactions, because a key can occur only once in a transaction."""
        charged = self._charged | {state.key: state for state, _ in shares}
        guards = self._guards.union(write.guards)
        new = [state for state in charged.values() if state.key not in self._charged]
        operations = self._operations + 1 + len(write.companions)
        size = self._bytes + write_bytes(write) + sum(GROWTH * state.size for state in new)
        if self.writes and (
            operations + len(guards) + len(charged) + 1 > MAX_OPERATIONS
            or size > MAX_BYTES
            or write.key in charged
            or not self._keys.isdisjoint(charged)
        ):
            return False
        self.writes.append(write)
        self._operations = operations
        self._keys.add(write.key)
        self._charged, self._guards, self._bytes = charged, guards, size
        for state, share in shares:
            used = self.used[state.key]
            for name, amount in share.items():
                used[name] += amount
        return True


class QuotaLedger:
    """Charges groups of writes. `refresh` updates the cache to the current revision of etcd, or raises CacheBehind or
    StorageError."""

    def __init__(
        self, cacher: Cacher, states: QuotaStates, tally: UsageTally, refresh: Callable[[], Awaitable[None]], clock: Clock
    ) -> None:
        self._cacher = cacher
        self._states = states
        self._tally = tally
        self._refresh = refresh
        self._clock = clock

    async def send_charged_group(self, pipeline: TransactionPipeline, writes: Sequence[Write]) -> Answer | DecidedOutcomes:
        """Implement pinnace.apiserver.storage.committer.SendGroup, for a committer with at most one transaction in flight."""
        try:
            await self._cacher.wait_for(max(write.expected for write in writes), PATIENCE)
            transaction = self._prepare_transaction(writes, counted=False)
            if transaction is None:
                await self._refresh()
                transaction = self._prepare_transaction(writes, counted=True)
                assert transaction is not None, "a transaction by a recount is always complete"
        except CacheBehind as error:
            raise StorageUnavailable(str(error)) from None
        if not transaction.writes:
            return DecidedOutcomes(transaction.denied)
        charges = transaction.charges
        answer = await pipeline.send([*transaction.writes, *charges])
        match answer:
            case Committed():
                for charge in charges:
                    self._states.record_version(charge.key, answer.revision, _stored_charge(charge, answer.revision))
                return DecidedOutcomes({write.key: answer.revision for write in transaction.writes} | transaction.denied)
            case CompareFailed():
                for charge in charges:
                    self._states.record_version(charge.key, answer.revision, answer.current[charge.key])
                # Do not return denials: they assumed the usage of writes that have failed now.
                lost = _conflict_outcomes(transaction.writes, answer.current)
                return DecidedOutcomes(lost) if lost else NOT_DONE
        return answer

    def _prepare_transaction(self, writes: Sequence[Write], *, counted: bool) -> _ChargedTransaction | None:
        """Return the transaction of the first writes, as many as fit into one transaction. With `counted`, the usage is
        recounted from the cache. Otherwise it is the last known status, and the result is None if a write would exceed a limit
        or the status is incomplete. This function does not await, so it reads one revision of the cache."""
        transaction = _ChargedTransaction()
        for write in writes:
            shares = self._charged_quotas(write, counted)
            for state, share in shares:
                if state.key not in transaction.used:
                    used = self._count_usage(state) if counted else state.bounds.used
                    if used is None:
                        return None
                    transaction.used[state.key] = dict(used)
                if excess := state.bounds.exceeded_message(transaction.used[state.key], share):
                    if not counted:
                        return None
                    if self._can_be_denied(write):
                        transaction.denied[write.key] = _quota_denied(write, excess)
                        break
            else:
                if not transaction.add_if_fits(write, shares):
                    break
        return transaction

    def _charged_quotas(self, write: Write, counted: bool) -> list[tuple[QuotaState, dict[str, int]]]:
        """Return the quotas that a write counts against, with the additional usage in each."""
        (use, before), namespace = self._usage_change(write), namespace_of(write.key)
        states = self._states.cached_states(namespace) if counted else self._states.newest_states(namespace)
        shares = ((state, state.bounds.usage_increase(use, before)) for state in states if state.key != write.key)
        return [(state, share) for state, share in shares if share]

    def _can_be_denied(self, write: Write) -> bool:
        """Report whether a write can be denied. An update of only the status reports existing usage: it is charged, but never
        denied."""
        resource = _resource_of(write)
        entry = self._cacher.cache_of(resource).get(write.key) if write.expected else None
        if entry is None:
            return True
        new: Any = resource.message.FromString(write.value or b"")
        return bool(new.spec != entry.obj.spec)

    def _count_usage(self, state: QuotaState) -> Mapping[str, int]:
        return state.bounds.charged_usage(self._tally.usage_of(namespace_of(state.key)))

    def _usage_change(self, write: Write) -> tuple[ObjectUsage, ObjectUsage | None]:
        """Return the usage of the object after and before the write. The usage before is None for a create."""
        resource, now = _resource_of(write), self._clock.time()
        use = compute_usage(resource.message.FromString(write.value or b""), now, resource.stored_name)
        if not write.expected:
            return use, None
        entry = self._cacher.cache_of(resource).get(write.key)
        if entry is None or entry.mod_revision != write.expected:
            return ObjectUsage(()), None  # the object has changed, so this write will fail
        return use, compute_usage(entry.obj, now, resource.stored_name)


def _resource_of(write: Write) -> Resource[Any]:
    prefix = prefix_of(write.key)
    return custom_row(prefix) if is_custom_prefix(prefix) else _BY_PREFIX[prefix]


def _quota_denied(write: Write, why: str) -> WriteDenied:
    return WriteDenied(f'{_resource_of(write).stored_name} "{write.key.rpartition("/")[2]}" is forbidden: {why}')


def _stored_charge(charge: Write, revision: int) -> KeyValue:
    return KeyValue(charge.key, charge.value or b"", 0, revision, 0)


def _conflict_outcomes(writes: Sequence[Write], current: States) -> dict[str, CommitOutcome]:
    """Return the failures of the writes that conflict with the current state, by key."""
    failures = ((write.key, failure_of(write, current)) for write in writes)
    return {key: failure for key, failure in failures if failure is not None}


class QuotaState(NamedTuple):
    """One version of a quota."""

    key: str
    revision: int
    bounds: QuotaLimits
    size: int
    """The size of the stored value in bytes."""


class QuotaStates:
    """The quotas by namespace."""

    def __init__(self, cacher: Cacher) -> None:
        self._cacher = cacher
        self._cache = cacher.cache_of(RESOURCE_QUOTAS)
        self._everything = SelectionPredicate.parse(RESOURCE_QUOTAS, "", "", "")
        self._keys: dict[str, list[str]] = {}
        self._indexed = -1
        self._read: dict[str, QuotaState] = {}
        self._newest_versions: dict[str, tuple[int, QuotaState | None]] = {}
        """Versions from responses of etcd by key, with the revision of the response."""

    @property
    def keys_by_namespace(self) -> Mapping[str, Sequence[str]]:
        """The sorted keys of quotas by namespace."""
        if self._indexed != self._cache.version:
            self._keys = {}
            for entry in self._cache.select(self._everything):
                self._keys.setdefault(namespace_of(entry.key), []).append(entry.key)
            self._read = {key: state for key, state in self._read.items() if self._cache.get(key) is not None}
            reached = self._cacher.revision
            self._newest_versions = {key: learned for key, learned in self._newest_versions.items() if learned[0] > reached}
            self._indexed = self._cache.version
        return self._keys

    def cached_states(self, namespace: str) -> list[QuotaState]:
        """Return the quotas of a namespace at the revision of the cache."""
        return [state for key in self.keys_by_namespace.get(namespace, ()) if (state := self._cached_state(key))]

    def newest_states(self, namespace: str) -> list[QuotaState]:
        """Return the newest known versions of the quotas of a namespace."""
        return [state for key in self.keys_by_namespace.get(namespace, ()) if (state := self._newest_state(key))]

    def record_version(self, key: str, revision: int, current: KeyValue | None) -> None:
        """Store the version of a quota at a revision of etcd. A value that cannot be decoded is ignored, as in the cache."""
        try:
            state = None if current is None else _parse_state(key, current.mod_revision, current.value)
        except DecodeError:
            state = None
        self._newest_versions[key] = revision, state

    def _newest_state(self, key: str) -> QuotaState | None:
        revision, learned = self._newest_versions.get(key, (0, None))
        if revision > self._cacher.revision:
            return learned
        self._newest_versions.pop(key, None)
        return self._cached_state(key)

    def _cached_state(self, key: str) -> QuotaState | None:
        entry = self._cache.get(key)
        if entry is None:
            return None
        known = self._read.get(key)
        if known is None or known.revision != entry.mod_revision:
            known = self._read[key] = _parse_state(key, entry.mod_revision, entry.value)
        return known


def _parse_state(key: str, revision: int, value: bytes) -> QuotaState:
    return QuotaState(key, revision, QuotaLimits(ResourceQuota.FromString(value)), len(value))


class _CachedUsage(NamedTuple):
    versions: tuple[int, ...]
    """The versions of the caches."""
    until: float
    """The time in Unix seconds at which the count changes without a write."""
    uses: Counter[ObjectUsage]
    known: dict[str, tuple[CacheEntry[Any], ObjectUsage]]
    """The usage of objects by key, without pods whose usage changes with time."""


class UsageTally:
    """The usage of all objects by namespace."""

    def __init__(self, cacher: Cacher, clock: Clock) -> None:
        self._cacher = cacher
        self._caches = {resource: cacher.cache_of(resource) for resource in COUNTED}
        self._clock = clock
        self._counts: dict[str, _CachedUsage] = {}

    def usage_of(self, namespace: str) -> Mapping[ObjectUsage, int]:
        """Return the number of objects by usage."""
        last, now = self._counts.get(namespace), self._clock.time()
        custom = self._cacher.custom_caches()
        versions = tuple(cache.version for cache in (*self._caches.values(), *custom))
        if last is None or last.versions != versions or last.until <= now:
            last = self._counts[namespace] = self._count_usage(namespace, versions, last.known if last else {}, now)
        return last.uses

    def retain_namespaces(self, namespaces: Collection[str]) -> None:
        """Drop the cached counts of all other namespaces."""
        self._counts = {namespace: count for namespace, count in self._counts.items() if namespace in namespaces}

    def _count_usage(
        self, namespace: str, versions: tuple[int, ...], before: Mapping[str, tuple[CacheEntry[Any], ObjectUsage]], now: float
    ) -> _CachedUsage:
        uses, known, until = Counter[ObjectUsage](), dict[str, tuple[CacheEntry[Any], ObjectUsage]](), float("inf")
        for resource, cache in self._caches.items():
            for entry in cache.select(SelectionPredicate.parse(resource, namespace, "", "")):
                seen = before.get(entry.key)
                if seen is None or seen[0] is not entry:
                    obj = entry.parse_uncached()
                    seen = entry, compute_usage(obj, now)
                    if resource is PODS and now <= (spent := grace_period_end(obj)) < float("inf"):
                        until = min(until, spent)
                        uses[seen[1]] += 1
                        continue
                uses[seen[1]] += 1
                known[entry.key] = seen
        for custom in self._cacher.custom_caches():
            if objects := custom.count(namespace):
                uses[custom_object_usage(custom.resource.stored_name)] += objects
        return _CachedUsage(versions, until, uses, known)


class QuotaRecount:
    """Periodic recounts of all quotas."""

    def __init__(self, states: QuotaStates, tally: UsageTally, committer: Committer, clock: Clock, rng: random.Random) -> None:
        self._states = states
        self._tally = tally
        self._committer = committer
        self._clock = clock
        self._rng = rng

    async def run(self) -> None:
        """Recount until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL * self._rng.uniform(0.5, 1.5))
            if spent := await self._recount_all():
                await self._clock.sleep(spent / SHARE)

    async def _recount_all(self) -> float:
        """Recount all namespaces with quotas. Between two namespaces, other tasks run. Return the seconds spent."""
        spent, wrong = 0.0, list[Write]()
        for namespace in list(self._states.keys_by_namespace):
            before = self._clock.monotonic()
            wrong += filter(None, (self._correct_quota(namespace, state) for state in self._states.cached_states(namespace)))
            spent += self._clock.monotonic() - before
            await self._clock.sleep(0)
        self._tally.retain_namespaces(self._states.keys_by_namespace)
        await self._committer.commit_many(wrong)  # failed writes are repeated in the next round
        return spent

    def _correct_quota(self, namespace: str, state: QuotaState) -> Write | None:
        """Return the write that corrects the status of a quota; None if it is correct."""
        used = state.bounds.charged_usage(self._tally.usage_of(namespace))
        if state.bounds.matches_status(used):
            return None
        return Write(state.key, state.bounds.quota_with_used(used).SerializeToString(), state.revision)


class Quotas:
    """The quotas of a server. `committer` commits writes that are not charged. `refresh` is as in QuotaLedger, and `preempted`
    as in Committer. `run` must run until shutdown."""

    def __init__(
        self,
        storage: Storage,
        cacher: Cacher,
        committer: Committer,
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        *,
        preempted: Callable[[], int] = no_preemptions,
    ) -> None:
        self.states = QuotaStates(cacher)
        self.tally = UsageTally(cacher, clock)
        ledger = QuotaLedger(cacher, self.states, self.tally, refresh, clock)
        self._committer = committer
        self._charging = Committer(
            storage, max_in_flight=1, send=ledger.send_charged_group, clock=clock, rng=rng, preempted=preempted
        )
        self._recount = QuotaRecount(self.states, self.tally, committer, clock, rng)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                run_unending("committer of what is charged", self._charging.run), name="committer of what is charged"
            )
            tasks.create_task(run_unending("recount of quotas", self._recount.run), name="recount of quotas")

    def committer_of(self, resource: Resource[Any]) -> WriteCommitter:
        """Return the committer for a resource."""
        if resource not in COUNTED and not (isinstance(resource, CustomResource) and resource.namespaced):
            return self._committer
        return _QuotaWriteRouter(resource in GROWING, self.states, self._committer, self._charging)


class _QuotaWriteRouter:
    """Sends writes that can increase the usage in a namespace with quotas to `charging`, and all others to `committer`.
    `growing`: all updates of the resource can increase the usage."""

    def __init__(self, growing: bool, states: QuotaStates, committer: Committer, charging: Committer) -> None:
        self._growing = growing
        self._states = states
        self._committer = committer
        self._charging = charging

    async def commit_many(self, writes: Sequence[Write]) -> list[CommitOutcome]:
        bounded = self._states.keys_by_namespace
        charged = (
            [namespace_of(write.key) in bounded and self._may_increase_usage(write) for write in writes] if bounded else ()
        )
        if not any(charged):
            return await self._committer.commit_many(writes)
        parted: tuple[list[Write], list[Write]] = ([], [])
        for write, is_charged in zip(writes, charged, strict=True):
            parted[is_charged].append(write)
        done = await asyncio.gather(self._committer.commit_many(parted[0]), self._charging.commit_many(parted[1]))
        outcomes = [iter(item) for item in done]
        return [next(outcomes[is_charged]) for is_charged in charged]

    def _may_increase_usage(self, write: Write) -> bool:
        return write.value is not None and (not write.expected or self._growing or write.grows)
