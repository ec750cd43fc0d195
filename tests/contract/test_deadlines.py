"""Reads from a store that does not answer fail with the cause, not with a bare timeout."""

import asyncio

import pytest

from pinnace.api.elections_pb2 import ListElectionsRequest, ListElectionsResponse
from pinnace.apiserver.storage.interface import Storage
from pinnace.client.errors import Unavailable
from tests.contract.electing import Serve
from tests.unit.client.fakeserver import connect

LIST = "/pinnace.v1.Elections/List"


@pytest.mark.parametrize("timeout", [2.0, 5.5])
async def test_read_fails_with_storage_unavailable_when_the_store_is_silent(
    serve: Serve, storage: Storage, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    """This also holds when the client's timeout exceeds that of the server, so that the client retries."""

    async def read() -> None:
        await connection.call(LIST, ListElectionsRequest(), ListElectionsResponse, timeout=timeout)

    async def silent() -> int:
        return await asyncio.get_running_loop().create_future()

    connection = connect((await serve()).address)
    await read()
    monkeypatch.setattr(storage, "current_revision", silent)
    with pytest.raises(Unavailable) as caught:
        await read()
    await connection.close()
    assert caught.value.reason == "StorageUnavailable"
    assert caught.value.message == "etcd: the storage did not return its revision in time"
