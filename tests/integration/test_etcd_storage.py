"""EtcdStorage when etcd, or the way to it, is in trouble. What it does on good days is in tests/contract."""

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import grpc
import pytest

from pinnace.apiserver.storage.committer import Committer
from pinnace.apiserver.storage.etcd import EtcdStorage, members
from pinnace.apiserver.storage.interface import (
    MAX_OPERATIONS,
    CommitOutcomeUnknown,
    Committed,
    OutOfSpace,
    Storage,
    StorageUnavailable,
    Write,
)
from pinnace.cluster import certificates
from pinnace.cluster.links import Mode, Proxy
from tests.conftest import EtcdFactory, EtcdServer
from tests.contract.steps import DEADLINE, done, put, take

FOUND_WITHIN = 5.0
"""Seconds in which a dead connection must be found."""
QUOTA = "--quota-backend-bytes=4194304"


async def put_again(storage: Storage, key: str, value: bytes) -> int:
    """Writes the key when the storage is well again; tries until then."""
    async with asyncio.timeout(3 * DEADLINE):
        while True:
            try:
                state = await storage.get(key)
                answer = await storage.transact([Write(key, value, state.mod_revision if state else 0)])
                if isinstance(answer, Committed):
                    return answer.revision
            except (StorageUnavailable, CommitOutcomeUnknown):
                await asyncio.sleep(0.1)  # between attempts


class TestNobodyThere:
    async def test_reads_and_writes_say_so_at_once(self, free_port: Callable[[], int]) -> None:
        storage = EtcdStorage([f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"])
        async with asyncio.timeout(2):
            with pytest.raises(StorageUnavailable):
                await storage.get("a")
            with pytest.raises(StorageUnavailable):
                await storage.transact([Write("a", b"", 0)])
            with pytest.raises(StorageUnavailable):
                await storage.grant_lease(60)
            with pytest.raises(StorageUnavailable):
                await anext(storage.watch(1))
        await storage.close()

    async def test_another_endpoint_answers(self, etcd: EtcdServer, free_port: Callable[[], int]) -> None:
        storage = EtcdStorage([f"127.0.0.1:{free_port()}", etcd.endpoint])
        assert await storage.current_revision() >= 1
        await storage.close()

    async def test_write_that_never_left_goes_to_another_endpoint(
        self, etcd_storage: EtcdStorage, etcd: EtcdServer, free_port: Callable[[], int]
    ) -> None:
        storage = EtcdStorage([f"127.0.0.1:{free_port()}", etcd.endpoint])
        await put(storage, "a")
        await storage.close()

    def test_empty_endpoint_list_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no etcd endpoint"):
            EtcdStorage([])


class TestLostAnswers:
    async def test_write_that_happened(self, etcd_storage: EtcdStorage, etcd: EtcdServer) -> None:
        async with Proxy(etcd.endpoint) as proxy:
            storage = EtcdStorage([proxy.endpoint, etcd.endpoint], timeout=0.5)
            await put(storage, "a")
            proxy.answers.set(Mode.HOLD)
            with pytest.raises(CommitOutcomeUnknown):
                await storage.transact([Write("b", b"", 0)])
            assert await etcd_storage.get("b") is not None
            await storage.close()

    async def test_connection_that_is_cut(self, etcd_storage: EtcdStorage, etcd: EtcdServer) -> None:
        async with Proxy(etcd.endpoint) as proxy:
            storage = EtcdStorage([proxy.endpoint], timeout=DEADLINE)
            await put(storage, "a")
            proxy.answers.set(Mode.HOLD)
            writing = asyncio.create_task(storage.transact([Write("b", b"", 0)]))
            async with asyncio.timeout(DEADLINE):
                while await etcd_storage.get("b") is None:
                    pass
            proxy.reset()
            proxy.set(Mode.PASS)
            with pytest.raises(CommitOutcomeUnknown):
                await writing
            assert await storage.get("b") is not None, "it does not work again"
            await storage.close()

    async def test_read_goes_to_another_endpoint(self, etcd_storage: EtcdStorage, etcd: EtcdServer) -> None:
        await put(etcd_storage, "a")
        async with Proxy(etcd.endpoint) as proxy:
            storage = EtcdStorage([proxy.endpoint, etcd.endpoint], timeout=1)
            await storage.get("a")
            proxy.set(Mode.HOLD)
            assert await storage.get("a") is not None
            await storage.close()


class TestDeadConnections:
    async def test_watch_notices(self, etcd_storage: EtcdStorage, etcd: EtcdServer) -> None:
        last = await put(etcd_storage, "a")
        async with Proxy(etcd.endpoint) as proxy:
            storage = EtcdStorage([proxy.endpoint, etcd.endpoint])
            async with aclosing(storage.watch(last)) as watch:
                await take(watch, last)
                proxy.set(Mode.HOLD)
                started = time.monotonic()
                with pytest.raises(StorageUnavailable):
                    async for batch in watch:
                        assert not batch.changes
                assert time.monotonic() - started < FOUND_WITHIN
            newer = await put(etcd_storage, "b")
            async with aclosing(storage.watch(last + 1)) as watch:
                assert [change.key for change in await take(watch, newer)] == ["b"]
            await storage.close()

    async def test_read_notices(self, etcd: EtcdServer) -> None:
        async with Proxy(etcd.endpoint) as proxy:
            storage = EtcdStorage([proxy.endpoint], timeout=1)
            await storage.current_revision()
            proxy.set(Mode.HOLD)
            async with asyncio.timeout(FOUND_WITHIN):
                with pytest.raises(StorageUnavailable):
                    await storage.current_revision()
            await storage.close()


class TestRestart:
    async def test_watch_that_broke_can_be_resumed(self, start_etcd: EtcdFactory) -> None:
        (server,) = await start_etcd(1)
        storage = EtcdStorage([server.endpoint])
        first = await put(storage, "a")
        async with aclosing(storage.watch(first)) as watch:
            await take(watch, first)
            server.kill()
            async with asyncio.timeout(FOUND_WITHIN):
                with pytest.raises(StorageUnavailable):
                    async for _ in watch:
                        pass
        server.start()
        second = await put_again(storage, "b", b"")
        async with aclosing(storage.watch(first)) as watch:
            assert [change.key for change in await take(watch, second)] == ["a", "b"]
        await storage.close()


class TestQuorum:
    async def test_storage_survives_the_loss_of_one_of_three_members(self, start_etcd: EtcdFactory) -> None:
        servers = await start_etcd(3)
        storage = EtcdStorage([server.endpoint for server in servers])
        revision = await put(storage, "a", b"1")
        servers[0].kill()
        again = await put_again(storage, "a", b"2")
        assert again > revision
        result = await storage.get("a", revision=revision)
        assert result is not None and result.value == b"1"
        await storage.close()

    async def test_without_quorum_there_is_an_error_and_no_stale_answer(self, start_etcd: EtcdFactory) -> None:
        servers = await start_etcd(3)
        storage = EtcdStorage([servers[0].endpoint], timeout=2)
        last = await put(storage, "a")
        async with aclosing(storage.watch(last + 1)) as watch:
            await anext(watch)
            servers[1].kill()
            servers[2].kill()
            with pytest.raises((StorageUnavailable, CommitOutcomeUnknown)):
                await storage.transact([Write("b", b"", 0)])
            with pytest.raises(StorageUnavailable):
                await storage.get("a")
            async with asyncio.timeout(2 * DEADLINE):
                with pytest.raises(StorageUnavailable, match="no leader"):
                    async for batch in watch:
                        assert not batch.changes
            with pytest.raises(StorageUnavailable, match="no leader"):
                await storage.transact([Write("b", b"", 0)])
        servers[1].start()
        await put_again(storage, "a", b"back")
        await storage.close()


async def commit_until_full(committer: Committer, writer: int) -> str:
    """The first key that was refused."""
    async with asyncio.timeout(DEADLINE):
        for i in count():
            key = f"{writer}/{i}"
            try:
                await committer.commit(Write(key, bytes(30_000), 0))
            except OutOfSpace:
                return key
    raise AssertionError


class TestOutOfSpace:
    async def test_out_of_it_again(self, start_etcd: EtcdFactory) -> None:
        (server,) = await start_etcd(1, QUOTA)
        storage = EtcdStorage([server.endpoint])
        with pytest.raises(OutOfSpace):
            for number in count():
                await put(storage, f"1/{number}", bytes(30_000))
        with pytest.raises(OutOfSpace):
            await storage.grant_lease(60)
        page = await storage.page("1/")
        assert page.items
        deleted = await done(storage, *(Write(kv.key, None, kv.mod_revision) for kv in page.items[:MAX_OPERATIONS]))
        await storage.compact(deleted)
        await put(storage, "2", bytes(30_000))
        await storage.close()

    async def test_out_of_space_error_means_not_written(self, start_etcd: EtcdFactory) -> None:
        """etcd says so about writes that it has done, when many come while it runs full: the committer looks."""
        (server,) = await start_etcd(1, QUOTA)
        storage = EtcdStorage([server.endpoint])
        committers = [Committer(storage) for _ in range(16)]
        running = [asyncio.create_task(committer.run()) for committer in committers]
        refused = await asyncio.gather(*(commit_until_full(each, number) for number, each in enumerate(committers)))
        assert [key for key in refused if await storage.get(key) is not None] == []
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await storage.close()

    async def test_deletes_are_committed_all_the_same(self, start_etcd: EtcdFactory) -> None:
        (server,) = await start_etcd(1, QUOTA)
        storage = EtcdStorage([server.endpoint])
        committer = Committer(storage)
        running = asyncio.create_task(committer.run())
        await commit_until_full(committer, 1)
        page = await storage.page("1/")
        freed = await committer.commit_many([Write(kv.key, None, kv.mod_revision) for kv in page.items])
        assert freed and all(isinstance(outcome, int) for outcome in freed)
        running.cancel()
        await asyncio.wait([running])
        await storage.close()


async def test_lease_ids_are_not_guessable(etcd_storage: EtcdStorage) -> None:
    """Whoever says the id of a session is taken to be its owner; those that etcd gives out follow one another."""
    granted = sorted([await etcd_storage.grant_lease(60) for _ in range(5)])
    assert min(later - earlier for earlier, later in pairwise((0, *granted))) > 2**32


async def test_closing_ends_what_is_under_way(etcd_storage: EtcdStorage, etcd: EtcdServer) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        storage = EtcdStorage([proxy.endpoint])
        watch = storage.watch(await storage.current_revision() + 1)
        await anext(watch)
        proxy.answers.set(Mode.HOLD)
        reading = asyncio.create_task(storage.get("a"))
        watching = asyncio.create_task(anext(watch))
        await asyncio.wait((reading, watching), timeout=0.1)
        await storage.close()
        for task in (reading, watching):
            with pytest.raises(StorageUnavailable):
                await task
        with pytest.raises(StorageUnavailable):
            await storage.get("a")


class TestTls:
    @pytest.fixture
    async def server(self, start_etcd: EtcdFactory, tmp_path: Path) -> EtcdServer:
        """An etcd that asks for certificates of the authority in `pki`."""
        certificates.create_certificates(tmp_path / "pki", [], {})
        (server,) = await start_etcd(1, tls=certificates.etcd_member_files(tmp_path / "pki"))
        return server

    async def test_both_sides_show_a_certificate(self, server: EtcdServer, tmp_path: Path) -> None:
        storage = EtcdStorage([server.endpoint], tls=certificates.etcd_client_files(tmp_path / "pki"))
        await put(storage, "a")
        await storage.close()

    async def test_without_the_right_ca_there_is_no_connection(self, server: EtcdServer, tmp_path: Path) -> None:
        shown = certificates.etcd_client_files(tmp_path / "pki")
        storage = EtcdStorage([server.endpoint], tls=replace(shown, ca=tmp_path / "pki/ca.crt"), timeout=2)
        with pytest.raises(StorageUnavailable):
            await storage.transact([Write("a", b"", 0)])
        await storage.close()

    async def test_renewed_certificate_is_used_for_the_next_connection(self, server: EtcdServer, tmp_path: Path) -> None:
        """All of it, the authority included: what was there before opens nothing any more."""
        storage = EtcdStorage([server.endpoint], tls=certificates.etcd_client_files(tmp_path / "pki"))
        await put(storage, "a")
        certificates.create_certificates(tmp_path / "new", [], {})
        shutil.copytree(tmp_path / "new", tmp_path / "pki", dirs_exist_ok=True)
        assert await storage.get("a"), "what is connected stays so"
        server.kill()
        server.start()
        await server.wait_ready()
        assert await put_again(storage, "a", b"")
        await storage.close()

    async def test_channels_with_a_certificate_of_before_are_closed(
        self, server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Chaos, 2026-11: API servers offered an expired certificate to etcd three times a second until they were restarted."""
        monkeypatch.setattr(members, "RETIRED", 0.1)
        storage = EtcdStorage([server.endpoint], tls=certificates.etcd_client_files(tmp_path / "pki"))
        await put(storage, "a")
        former = storage._members.current
        certificates.create_certificates(tmp_path / "new", [], {})
        shutil.copytree(tmp_path / "new", tmp_path / "pki", dirs_exist_ok=True)
        server.kill()
        server.start()
        await server.wait_ready()
        assert await put_again(storage, "a", b"")
        async with asyncio.timeout(20):
            while former._channel.get_state() is not grpc.ChannelConnectivity.SHUTDOWN:  # noqa: ASYNC110 - nothing tells it
                await asyncio.sleep(0.02)
        assert await storage.get("a")
        await storage.close()
