"""MemoryStorage and etcd return identical results for the same random operations. Results of unit tests and of the simulation,
which use MemoryStorage, therefore hold for etcd.

PINNACE_SEQUENCES=5000 runs more sequences. PINNACE_FIRST_SEQUENCE=1234 starts at that sequence, to reproduce a failure.
"""

import os
import random
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import ChangeBatch, Storage, Write
from tests.contract.random_operations import KEYS, Shifted, choose, outcome
from tests.contract.steps import done, put, take
from tests.storage.memory import MemoryStorage
from tests.storage.mvcc import Mvcc

SEQUENCES = int(os.environ.get("PINNACE_SEQUENCES", "120"))
FIRST = int(os.environ.get("PINNACE_FIRST_SEQUENCE", "0"))
MAX_LENGTH = 40
"""Maximum number of operations per sequence."""


@pytest.mark.timeout(60 + SEQUENCES)
async def test_memory_storage_and_etcd_agree_on_random_operations(etcd_storage: EtcdStorage) -> None:
    await compare(etcd_storage, range(FIRST, FIRST + SEQUENCES))


async def test_comparison_detects_a_store_that_differs() -> None:
    """The store renews leases that do not exist."""

    class AlwaysRenews(MemoryStorage):
        async def renew_lease(self, lease: int) -> float:
            return 60.0

    with pytest.raises(AssertionError, match="renew_lease"):
        await compare(AlwaysRenews(), range(50))


async def compare(other: Storage, seeds: range) -> None:
    """Run the same operations on `other` and, for each seed, on a new MemoryStorage. Raise AssertionError at the first result
    that differs."""
    # The watch starts at a future revision: a watch that replays may hit a compaction before it has caught up.
    async with aclosing(other.watch(await other.current_revision() + 2)) as watch:
        await anext(watch)
        await take(watch, await done(other, Write("/begin", None, await put(other, "/begin"))))
        for seed in seeds:
            await compare_sequence(other, watch, seed)


async def compare_sequence(other: Storage, watch: AsyncIterator[ChangeBatch], seed: int) -> None:
    """`watch` is a watch of `other` that has returned all earlier changes."""
    rng = random.Random(seed)
    memory = MemoryStorage()
    shift = await other.current_revision() - await memory.current_revision()
    shifted = Shifted(other, shift)
    store: Mvcc = vars(memory)["_store"]
    leases: list[int] = []
    log: list[str] = []
    async with aclosing(memory.watch(store.revision + 1)) as memory_watch:
        await anext(memory_watch)
        first = await put(memory, KEYS[0])
        assert await put(shifted, KEYS[0]) == first
        for _ in range(rng.randint(5, MAX_LENGTH)):
            operation = choose(rng, store, first, leases)
            log.append(f"\n  {operation.text}")
            in_memory, in_other = await outcome(operation.run(memory)), await outcome(operation.run(shifted))
            assert in_other == in_memory, (
                f"sequence {seed} differs after{''.join(log)}\nmemory: {in_memory}\nother:  {in_other}"
            )
            if operation.text.startswith("grant"):
                leases.append(in_memory)
        for storage in (memory, shifted):
            await clean_up(storage, leases)
        changes = await take(memory_watch, store.revision)
        assert shifted.seen(await take(watch, store.revision + shift)) == changes, f"sequence {seed}: the watches differ"


async def clean_up(storage: Storage, leases: list[int]) -> None:
    """Revoke the leases and delete the remaining keys."""
    for lease in leases:
        await storage.revoke_lease(lease)
    await done(storage, *(Write(state.key, None, state.mod_revision) for state in (await storage.page("/")).items))
