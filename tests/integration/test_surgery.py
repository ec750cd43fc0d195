"""What is done to etcd behind the API servers' back, as those who do it say it: a line of JSON on stdin."""

import asyncio

import pytest

from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import Compacted, OutOfSpace, Write
from pinnace.cluster.links import HelperError, HelperProcess
from tests.conftest import EtcdFactory, EtcdServer
from tests.contract.steps import put


def surgeon(etcd: EtcdServer) -> HelperProcess:
    return HelperProcess("pinnace.apiserver.storage.etcd.surgery", "--etcd", f"127.0.0.1:1,{etcd.endpoint}")


async def test_leader_is_the_member_that_says_so(etcd: EtcdServer) -> None:
    async with surgeon(etcd) as helper:
        assert await helper.request_result("leader") == etcd.endpoint


async def test_alarm_stops_writes_until_it_is_cleared(etcd: EtcdServer, etcd_storage: EtcdStorage) -> None:
    async with surgeon(etcd) as helper:
        await helper.request_result("alarm", on=True)
        try:
            with pytest.raises(OutOfSpace):
                await etcd_storage.transact([Write("a", b"", 0)])
        finally:
            await helper.request_result("alarm", on=False)
        await put(etcd_storage, "a")


async def test_history_is_gone_after_a_compaction(etcd: EtcdServer, etcd_storage: EtcdStorage) -> None:
    first = await put(etcd_storage, "a")
    last = await put(etcd_storage, "b")
    async with surgeon(etcd) as helper:
        await helper.request_result("compact", revision=last)
        with pytest.raises(Compacted):
            await etcd_storage.get("a", revision=first)
        with pytest.raises(HelperError, match="compacted"):
            await helper.request_result("compact", revision=first)


async def test_impossible_operation_is_refused_with_a_message(etcd: EtcdServer) -> None:
    async with HelperProcess("pinnace.apiserver.storage.etcd.surgery", "--etcd", "127.0.0.1:1") as helper:
        assert await helper.request_result("leader") is None
        with pytest.raises(HelperError, match="no leader"):
            await helper.request_result("alarm", on=True)


async def test_member_is_removed_and_added_again_once(start_etcd: EtcdFactory) -> None:
    servers = await start_etcd(3)
    member = servers[2]
    async with HelperProcess(
        "pinnace.apiserver.storage.etcd.surgery", "--etcd", ",".join(server.endpoint for server in servers[:2])
    ) as helper:
        peer = next(
            option.split("=", 1)[1] for option in member._command if option.startswith("--initial-advertise-peer-urls=")
        )
        assert not await _allowed(helper, "add", peer=peer), "it is a member"
        await _allowed(helper, "remove", member=member.endpoint)
        await _allowed(helper, "remove", member=member.endpoint)
        assert await _allowed(helper, "add", peer=peer)
        assert not await _allowed(helper, "add", peer=peer)


async def _allowed(helper: HelperProcess, do: str, **fields: object) -> object:
    """etcd refuses to change its members until they have been connected for five seconds."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await helper.request_result(do, **fields)
            except HelperError:
                await asyncio.sleep(0.1)
