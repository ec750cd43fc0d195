"""What writers were told, against what the storage's history shows."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from pinnace.apiserver.storage.committer import CommitOutcome, Committer
from pinnace.apiserver.storage.interface import (
    CommitOutcomeUnknown,
    Guard,
    KeyValue,
    Storage,
    StorageUnavailable,
    Write,
    is_at_expected,
)

KEYS = ("a", "b", "c")
FENCE = "fence"
ALL_KEYS = (*KEYS, FENCE)


@dataclass
class Log:
    """What the writers were told. `alike`: they all write the same bytes; else no two writes do."""

    alike: bool = False
    outcomes: list[tuple[Write, CommitOutcome]] = field(default_factory=list)
    values: int = 0

    def new_value(self) -> bytes:
        if not self.alike:
            self.values += 1
        return b"%d" % self.values


async def write_at_random(storage: Storage, committer: Committer, log: Log, rng: Random) -> None:
    """Reads some keys, and changes them in one call as a client would; now and then the fence itself."""
    states = {key: await read(storage, key) for key in ALL_KEYS}
    fence = states[FENCE]
    guards = (Guard(FENCE, fence.create_revision),) if fence and rng.random() < 0.3 else ()
    writes = []
    for key in rng.sample(KEYS, rng.randint(1, len(KEYS))):
        state = states[key]
        value = None if state and rng.random() < 0.3 else log.new_value()
        writes.append(Write(key, value, state.mod_revision if state else 0, guards))
    if rng.random() < 0.3:
        writes.append(Write(FENCE, None if fence else log.new_value(), fence.mod_revision if fence else 0))
    log.outcomes.extend(zip(writes, await committer.commit_many(writes), strict=True))


async def read(storage: Storage, key: str) -> KeyValue | None:
    """As soon as the storage answers."""
    while True:
        try:
            return await storage.get(key)
        except StorageUnavailable:
            await asyncio.sleep(0.01)  # between attempts


async def violations(storage: Storage, log: Log) -> list[str]:
    history = await history_of(storage)
    times = Counter(value for values in history.values() for value in values.values() if value is not None)
    claims: Counter[tuple[str, int]] = Counter()
    unknown: Counter[str] = Counter()
    result = []
    for write, outcome in log.outcomes:
        what = f"{write} -> {outcome!r}"
        if isinstance(outcome, int):
            claims[write.key, outcome] += 1
            if history.get(outcome, {}).get(write.key, b"nothing") != write.value:
                result.append(f"not in the history: {what}")
            elif not await was_allowed(storage, write, outcome):
                result.append(f"happened although its compare or guard failed: {what}")
            if write.value is not None and not log.alike and times[write.value] != 1:
                result.append(f"happened {times[write.value]} times: {what}")
        elif isinstance(outcome, CommitOutcomeUnknown):
            unknown[write.key] += 1
        elif write.value is not None and not log.alike and times[write.value]:
            result.append(f"happened all the same: {what}")
    result.extend(f"{count} say that they made {where}" for where, count in claims.items() if count > 1)
    for key in ALL_KEYS:
        unclaimed = sum(key in changes and not claims[key, revision] for revision, changes in history.items())
        if unclaimed > unknown[key]:
            result.append(f"{key} was changed {unclaimed} times by nobody, and only {unknown[key]} do not know")
    return result


async def history_of(storage: Storage) -> dict[int, dict[str, bytes | None]]:
    """By revision: which of our keys it changed."""
    history: dict[int, dict[str, bytes | None]] = {}
    now = await storage.current_revision()
    async for batch in storage.watch(1):
        for change in batch.changes:
            if change.key in ALL_KEYS:
                history.setdefault(change.mod_revision, {})[change.key] = change.value
        if batch.revision >= now:
            break
    return history


async def was_allowed(storage: Storage, write: Write, revision: int) -> bool:
    """Whether the state right before `revision` fulfilled the write's conditions."""
    for guard in write.guards:
        fence = await storage.get(guard.key, revision=revision - 1)
        if fence is None or fence.create_revision != guard.create_revision:
            return False
    return is_at_expected(write, await storage.get(write.key, revision=revision - 1))
