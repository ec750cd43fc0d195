"""The proxy passes, delays, holds or drops data as configured."""

import asyncio
from contextlib import suppress

import pytest

from pinnace.cluster.links import Mode
from tests.unit.cluster.echo import DEADLINE, MOMENT, connected, echoing


async def test_undisturbed_data_passes_and_is_counted() -> None:
    async with echoing() as (echo, proxy), connected(proxy.endpoint) as client:
        assert await client.ask(b"one\n") == b"one\n"
        client.writer.write_eof()
        assert await client.answer() == b"", "the end of the stream is passed in both directions"
        assert (echo.received, proxy.requests.bytes, proxy.answers.bytes) == (b"one\n", 4, 4)


async def test_held_data_arrives_after_release() -> None:
    async with echoing() as (echo, proxy), connected(proxy.endpoint) as client:
        proxy.requests.set(Mode.HOLD)
        with pytest.raises(TimeoutError):
            client.writer.write(b"one\n")
            await client.answer(within=MOMENT)
        assert echo.received == b""
        proxy.requests.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_proxy_holds_a_single_direction() -> None:
    async with echoing() as (echo, proxy), connected(proxy.endpoint) as client:
        proxy.answers.set(Mode.HOLD)
        with pytest.raises(TimeoutError):
            client.writer.write(b"one\n")
            await client.answer(within=MOMENT)
        assert echo.received == b"one\n", "the request is not held"
        proxy.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_end_of_a_connection_is_held() -> None:
    async with echoing() as (_, proxy), connected(proxy.endpoint) as client:
        await client.ask(b"one\n")
        proxy.answers.set(Mode.HOLD)
        client.writer.write_eof()
        with pytest.raises(TimeoutError):
            await client.answer(within=MOMENT)
        proxy.set(Mode.PASS)
        assert await client.answer() == b""


async def test_delay_starts_at_arrival_and_keeps_the_order() -> None:
    async with echoing() as (_, proxy), connected(proxy.endpoint) as client:
        loop = asyncio.get_running_loop()
        proxy.requests.set(Mode.DELAY, 0.2)
        sent = loop.time()
        client.writer.write(b"one\n")
        client.writer.write(b"two\n")
        assert [await client.answer(), await client.answer()] == [b"one\n", b"two\n"]
        assert 0.2 <= loop.time() - sent < DEADLINE


async def test_delayed_data_arrives_when_the_delay_ends() -> None:
    async with echoing() as (_, proxy), connected(proxy.endpoint) as client:
        proxy.requests.set(Mode.DELAY, 10 * DEADLINE)
        client.writer.write(b"one\n")
        proxy.requests.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_connection_that_lost_bytes_is_reset() -> None:
    async with echoing() as (echo, proxy), connected(proxy.endpoint) as client:
        proxy.requests.set(Mode.LOSE)
        with pytest.raises(TimeoutError):
            client.writer.write(b"one\n")
            await client.answer(within=MOMENT)
        proxy.requests.set(Mode.PASS)
        with pytest.raises(ConnectionResetError):
            await client.ask(b"two\n")
        assert echo.received == b""


async def test_answers_pass_while_requests_are_lost() -> None:
    async with echoing() as (echo, proxy), connected(proxy.endpoint) as client:
        proxy.answers.set(Mode.HOLD)
        client.writer.write(b"one\n")
        async with asyncio.timeout(DEADLINE):
            await echo.heard.wait()
        proxy.requests.set(Mode.LOSE)
        proxy.answers.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_reset_drops_held_data_and_new_connections_work() -> None:
    async with echoing() as (echo, proxy):
        async with connected(proxy.endpoint) as client:
            await client.ask(b"one\n")
            proxy.requests.set(Mode.HOLD)
            client.writer.write(b"two\n")
            await asyncio.sleep(0)
            proxy.reset()
            with pytest.raises(ConnectionResetError):
                await client.answer()
        proxy.set(Mode.PASS)
        async with connected(proxy.endpoint) as client:
            assert await client.ask(b"three\n") == b"three\n"
        assert echo.received == b"one\nthree\n"


async def test_refusing_keeps_existing_connections() -> None:
    async with echoing() as (_, proxy), connected(proxy.endpoint) as client:
        await client.ask(b"one\n")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            async with connected(proxy.endpoint):
                pass
        assert await client.ask(b"two\n") == b"two\n"
        address = proxy.endpoint
        await proxy.accept()
        assert proxy.endpoint == address
        async with connected(proxy.endpoint) as another:
            assert await another.ask(b"three\n") == b"three\n"


async def test_connection_to_a_missing_server_is_closed() -> None:
    async with echoing() as (_, proxy):
        proxy.target = "127.0.0.1:1"
        async with connected(proxy.endpoint) as client:
            with suppress(ConnectionResetError):
                assert await client.answer() == b""
