"""Random sequences of storage operations. The choice is a pure function of the seed and of the known state of the store.

An operation is a function of a storage with a description. Revisions and leases are those of one storage. `Shifted` translates
them for another one.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pinnace.apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    ChangeBatch,
    Committed,
    Compacted,
    CompareFailed,
    Guard,
    KeyChange,
    KeyPage,
    KeyValue,
    Storage,
    StorageError,
    Write,
)
from tests.contract.steps import take
from tests.storage.mvcc import Mvcc

KEYS = ("/r/a", "/r/b", "/r/b/1", "/r/c", "/q", "/r0")
PREFIXES = ("/r/", "/r", "/r/b", "/", "/z")
MISSING_LEASE = 0x7FFF
"""A lease that does not exist."""


@dataclass(frozen=True)
class Operation:
    text: str
    run: Callable[[Storage], Awaitable[Any]]


def choose(rng: random.Random, store: Mvcc, first: int, leases: Sequence[int]) -> Operation:
    """Choose the next operation. `store` is the current state, `first` the first revision of the sequence, and `leases` are all
    granted leases, including those that were revoked."""
    makers = (_transact, _get, _page, _compact, _lease, _watch)
    return rng.choices(makers, (50, 12, 14, 5, 15, 1))[0](rng, store, first, leases)


def _transact(rng: random.Random, store: Mvcc, first: int, leases: Sequence[int]) -> Operation:
    keys = rng.sample(KEYS, rng.choice((1, 1, 2, 3, len(KEYS))))
    writes = [_write(rng, store, key, leases) for key in keys]
    match rng.random():
        case draw if draw < 0.02:  # too many operations
            writes += [Write(f"/many/{number}", b"", 0) for number in range(MAX_OPERATIONS)]
        case draw if draw < 0.03:  # too many guards, with few writes
            guards = tuple(Guard(f"/many/{number}", 1) for number in range(MAX_OPERATIONS))
            writes[0] = writes[0]._replace(guards=guards)
        case draw if draw < 0.04:  # exactly the limit
            writes += [Write(f"/many/{number}", None, 0) for number in range(MAX_OPERATIONS - 2 * len(writes))]
        case draw if draw < 0.05:  # a duplicate key
            writes.append(Write(keys[0], b"twice", writes[0].expected))
            writes[0] = Write(keys[0], b"once", writes[0].expected)
        case draw if draw < 0.055:  # too large for etcd, too
            writes[0] = Write(keys[0], bytes(2 * MAX_BYTES), writes[0].expected)
    return Operation(f"transact({_abridged(writes)})", lambda storage: storage.transact(writes))


def _write(rng: random.Random, store: Mvcc, key: str, leases: Sequence[int]) -> Write:
    state = store.get(key)
    now = state.mod_revision if state else 0
    expected = now if rng.random() < 0.85 else rng.choice((0, max(0, now - 1), store.revision))
    value = None if rng.random() < 0.25 else rng.randbytes(rng.choice((0, 1, 8)))
    lease = rng.choice((*leases, MISSING_LEASE)) if value is not None and rng.random() < 0.25 else 0
    return Write(key, value, expected, _guards(rng, store), lease)


def _guards(rng: random.Random, store: Mvcc) -> tuple[Guard, ...]:
    guards = []
    for key in rng.sample(KEYS, rng.choice((0, 0, 0, 1, 2))):
        state = store.get(key)
        created = state.create_revision if state else store.revision
        guards.append(Guard(key, created if rng.random() < 0.8 else max(2, created - 1)))
    return tuple(guards)


def _get(rng: random.Random, store: Mvcc, first: int, leases: Sequence[int]) -> Operation:
    key, revision = rng.choice(KEYS), _revision(rng, store, first)
    return Operation(f"get({key!r}, revision={revision})", lambda storage: storage.get(key, revision=revision))


def _page(rng: random.Random, store: Mvcc, first: int, leases: Sequence[int]) -> Operation:
    prefix, revision, limit = rng.choice(PREFIXES), _revision(rng, store, first), rng.choice((0, 1, 2, 3, 500))
    after = rng.choice(("", "", *KEYS, "/r/b/0"))
    return Operation(
        f"page({prefix!r}, after={after!r}, limit={limit}, revision={revision})",
        lambda storage: storage.page(prefix, after=after, limit=limit, revision=revision),
    )


def _compact(rng: random.Random, store: Mvcc, first: int, leases: Sequence[int]) -> Operation:
    revision = _revision(rng, store, first) or store.revision
    return Operation(f"compact({revision})", lambda storage: storage.compact(revision))


def _lease(rng: random.Random, store: Mvcc, first: int, leases: Sequence[int]) -> Operation:
    lease = rng.choice((*leases, MISSING_LEASE))

    async def renew(storage: Storage) -> int:
        return round(await storage.renew_lease(lease))

    return rng.choices(
        (
            Operation(f"grant_lease({60 + len(leases)})", lambda storage: storage.grant_lease(60 + len(leases))),
            Operation(f"renew_lease({lease})", renew),
            Operation(f"revoke_lease({lease})", lambda storage: storage.revoke_lease(lease)),
        ),
        (3, 2, 2),
    )[0]


def _watch(rng: random.Random, store: Mvcc, first: int, leases: Sequence[int]) -> Operation:
    start, until = rng.randint(first, store.revision + 1), store.revision
    return Operation(f"watch({start}) until {until}", lambda storage: watched(storage, start, until))


async def watched(storage: Storage, start: int, until: int) -> list[KeyChange]:
    """Return the changes of a watch up to a revision."""
    async with aclosing(storage.watch(start)) as watch:
        return await take(watch, until)


def _revision(rng: random.Random, store: Mvcc, first: int) -> int:
    """Return 0, a past revision, which may be compacted, or a future one."""
    return rng.choice((0, 0, rng.randint(first, store.revision), store.revision, store.revision + rng.randint(1, 3)))


def _abridged(writes: Sequence[Write]) -> str:
    text = ", ".join(str(write) for write in writes)
    return text if len(text) < 2000 else f"{text[:2000]}... {len(writes)} writes"


class Shifted:
    """A view of a storage with translated revisions and leases. Revisions of the inner storage are higher by `shift`. Leases
    are numbered from 1 in the order of their grants."""

    def __init__(self, inner: Storage, shift: int) -> None:
        self._inner = inner
        self._shift = shift
        self._leases: list[int] = []

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        return self._seen_state(await self._ask(self._inner.get(key, revision=self._real(revision))))

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        page = await self._ask(self._inner.page(prefix, after=after, limit=limit, revision=self._real(revision)))
        return KeyPage(page.revision - self._shift, [self._seen_state(item) for item in page.items], page.more)

    async def current_revision(self) -> int:
        return int(await self._ask(self._inner.current_revision())) - self._shift

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        real = [
            write._replace(
                expected=self._real(write.expected),
                lease=self._real_lease(write.lease),
                guards=tuple(Guard(guard.key, self._real(guard.create_revision)) for guard in write.guards),
            )
            for write in writes
        ]
        answer = await self._ask(self._inner.transact(real))
        if isinstance(answer, Committed):
            return Committed(answer.revision - self._shift)
        return CompareFailed(
            answer.revision - self._shift, {key: self._seen_state(state) for key, state in answer.current.items()}
        )

    async def watch(self, start_revision: int) -> AsyncIterator[ChangeBatch]:
        try:
            async with aclosing(self._inner.watch(self._real(start_revision))) as watch:
                async for batch in watch:
                    yield ChangeBatch(batch.revision - self._shift, self.seen(batch.changes))
        except Compacted as error:
            raise Compacted(error.compact_revision - self._shift) from None

    def watch_stalled(self) -> None:
        self._inner.watch_stalled()

    async def compact(self, revision: int) -> None:
        await self._ask(self._inner.compact(self._real(revision)))

    async def grant_lease(self, ttl: int) -> int:
        self._leases.append(await self._ask(self._inner.grant_lease(ttl)))
        return len(self._leases)

    async def renew_lease(self, lease: int) -> float:
        return float(await self._ask(self._inner.renew_lease(self._real_lease(lease))))

    async def lease_age(self, lease: int) -> float:
        return float(await self._ask(self._inner.lease_age(self._real_lease(lease))))

    async def revoke_lease(self, lease: int) -> None:
        await self._ask(self._inner.revoke_lease(self._real_lease(lease)))

    async def close(self) -> None:
        """The caller owns the inner storage."""

    def seen(self, changes: Sequence[KeyChange]) -> list[KeyChange]:
        """Translate changes of the inner storage."""
        return [
            change._replace(
                create_revision=change.create_revision - self._shift if change.create_revision else 0,
                mod_revision=change.mod_revision - self._shift,
                lease=self._seen_lease(change.lease),
            )
            for change in changes
        ]

    async def _ask(self, question: Awaitable[Any]) -> Any:
        try:
            return await question
        except Compacted as error:
            raise Compacted(error.compact_revision - self._shift) from None

    def _real(self, revision: int) -> int:
        return revision + self._shift if revision else 0

    def _real_lease(self, lease: int) -> int:
        return self._leases[lease - 1] if 0 < lease <= len(self._leases) else lease

    def _seen_state(self, state: KeyValue | None) -> Any:
        if state is None:
            return None
        return state._replace(
            create_revision=state.create_revision - self._shift,
            mod_revision=state.mod_revision - self._shift,
            lease=self._seen_lease(state.lease),
        )

    def _seen_lease(self, lease: int) -> int:
        return self._leases.index(lease) + 1 if lease in self._leases else lease


async def outcome(question: Awaitable[Any]) -> Any:
    """Return the result, or the part of an error that callers can rely on."""
    try:
        return await question
    except Compacted as error:
        return Compacted, error.compact_revision
    except StorageError as error:
        return type(error)
