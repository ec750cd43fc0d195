"""MemoryStorage is etcd: the same random operations have exactly the same answers. Whatever is proven with the one (unit tests,
the simulation) then holds for the other.

PINNACE_SEQUENCES=5000 tries more; PINNACE_FIRST_SEQUENCE=1234 begins there, to repeat one that was reported.
"""

import os
import random
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from apiserver.storage.etcd import EtcdStorage
from apiserver.storage.interface import Changes, Storage, Write
from tests.contract.random_operations import KEYS, Shifted, choose, outcome
from tests.contract.steps import done, put, take
from tests.storage.memory import MemoryStorage
from tests.storage.mvcc import Mvcc

SEQUENCES = int(os.environ.get("PINNACE_SEQUENCES", "120"))
FIRST = int(os.environ.get("PINNACE_FIRST_SEQUENCE", "0"))
MAX_LENGTH = 40
"""Operations of a sequence."""


@pytest.mark.timeout(60 + SEQUENCES)
async def test_random_operations_have_the_answers_of_etcd(etcd_storage: EtcdStorage) -> None:
    await compare(etcd_storage, range(FIRST, FIRST + SEQUENCES))


async def test_a_store_that_differs_is_caught() -> None:
    """What the comparison is worth: a store that renews what is gone is not equal to one that does not."""

    class Generous(MemoryStorage):
        async def renew_lease(self, lease: int) -> float:
            return 60.0

    with pytest.raises(AssertionError, match="renew_lease"):
        await compare(Generous(), range(50))


async def compare(other: Storage, seeds: range) -> None:
    """Does the same to `other` and, for each seed, to a new MemoryStorage. Raises AssertionError at the first answer that
    differs."""
    # From a revision that is still to come: etcd's watch of the past may meet a compaction before it has caught up.
    async with aclosing(other.watch(await other.current_revision() + 2)) as told:  # type: ignore[type-var]
        await anext(told)
        await take(told, await done(other, Write("/begin", None, await put(other, "/begin"))))
        for seed in seeds:
            await compare_sequence(other, told, seed)


async def compare_sequence(other: Storage, told: AsyncIterator[Changes], seed: int) -> None:
    """`told` is a watch of `other` that has told everything before."""
    rng = random.Random(seed)
    memory = MemoryStorage()
    shift = await other.current_revision() - await memory.current_revision()
    shifted = Shifted(other, shift)
    store: Mvcc = vars(memory)["_store"]
    leases: list[int] = []
    story: list[str] = []
    async with aclosing(memory.watch(store.revision + 1)) as expected:
        await anext(expected)
        first = await put(memory, KEYS[0])
        assert await put(shifted, KEYS[0]) == first
        for _ in range(rng.randint(5, MAX_LENGTH)):
            operation = choose(rng, store, first, leases)
            story.append(f"\n  {operation.text}")
            wanted, found = await outcome(operation.run(memory)), await outcome(operation.run(shifted))
            assert found == wanted, f"sequence {seed} differs after{''.join(story)}\nmemory: {wanted}\nother:  {found}"
            if operation.text.startswith("grant"):
                leases.append(wanted)
        for storage in (memory, shifted):
            await clean_up(storage, leases)
        changes = await take(expected, store.revision)
        assert shifted.seen(await take(told, store.revision + shift)) == changes, f"sequence {seed}: the watches differ"


async def clean_up(storage: Storage, leases: list[int]) -> None:
    """Ends the leases and deletes what is left."""
    for lease in leases:
        await storage.revoke_lease(lease)
    await done(storage, *(Write(state.key, None, state.mod_revision) for state in (await storage.page("/")).items))
