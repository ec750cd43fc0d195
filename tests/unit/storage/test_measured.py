"""What is measured of a storage's calls."""

import pytest

from pinnace.apiserver.storage.interface import MeasuredStorage, StorageUnavailable, Write
from tests.storage.memory import MemoryStorage


class Away(MemoryStorage):
    async def current_revision(self) -> int:
        raise StorageUnavailable("away")


async def test_every_call_is_observed_also_one_that_fails() -> None:
    seen: list[tuple[str, bool, bool]] = []
    storage = MeasuredStorage(Away(), lambda operation, seconds, failed: seen.append((operation, seconds >= 0, failed)))
    await storage.transact([Write("/registry/a", b"1", 0)])
    assert (await storage.get("/registry/a")) is not None
    with pytest.raises(StorageUnavailable):
        await storage.current_revision()
    assert seen == [("txn", True, False), ("get", True, False), ("revision", True, True)]
